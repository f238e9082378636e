//! `linerate boost attach`: only the BPF programs, for copies that something else starts.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use linerate_host::bind_hooks::BindHooks;

use super::apply::must_be_root;
use crate::interrupt::InterruptFlag;

#[derive(Debug, Args)]
pub(super) struct BoostAttachArgs {
    /// Directory of the control group (v2), such as /sys/fs/cgroup/machine.slice
    #[arg(long, value_name = "PATH")]
    cgroup: PathBuf,
    /// Share this UDP and TCP port only [default: every port that its processes bind]
    #[arg(short = 'p', long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
}

impl BoostAttachArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        must_be_root("attach")?;
        let path = self.cgroup.display();
        ensure!(
            self.cgroup.join("cgroup.procs").exists(),
            "{path} is no control group: it has no cgroup.procs (see systemd-cgls, or docker inspect)"
        );
        let interrupt = InterruptFlag::install()?;
        let directory = File::open(&self.cgroup).with_context(|| format!("cannot open {path}"))?;
        let hooks = BindHooks::attach(directory.as_fd(), self.port)
            .with_context(|| format!("cannot attach BPF programs to {path}"))?;
        let ports = self.port.map_or_else(|| "their ports".to_owned(), |port| format!("port {port}"));
        status_line!("Processes of {path} that start now share {ports}. Ctrl-C detaches.");
        while !interrupt.is_raised() {
            interrupt.wait(None)?;
        }
        drop(hooks);
        Ok(ExitCode::SUCCESS)
    }
}
