//! `linerate doctor capture`: saves everything that doctor reads, for a diagnosis on another machine.

use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Args;
use linerate_host::capture::{self, CaptureInfo};

use super::arguments::HostScopeArgs;
use super::reading::ObservedHost;
use crate::interrupt::InterruptFlag;
use crate::output::OutputTarget;

#[derive(Debug, Args)]
pub(crate) struct CaptureArgs {
    /// File to write (tar.gz); - is standard output
    #[arg(value_name = "FILE.tar.gz")]
    file: String,
    /// Replace addresses and the names of host, processes, control groups and files by aliases
    #[arg(long)]
    anonymous: bool,
    #[command(flatten)]
    input: HostScopeArgs,
}

impl CaptureArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let target = OutputTarget::from(self.file.as_str());
        target.check()?;
        ensure!(
            target != OutputTarget::Stdout || !std::io::IsTerminal::is_terminal(&std::io::stdout()),
            "a capture is binary: write it to a file or a pipe"
        );
        let interrupt = InterruptFlag::install()?;
        let observed_host = ObservedHost::open(&self.input, true)?;
        let scope = observed_host.scope.clone();
        let (host_name, was_anonymous) = (observed_host.host_name.clone(), observed_host.is_anonymous);
        let readings = observed_host.read(&interrupt)?;
        let kernel = readings.view().now.machine.kernel.value().cloned();
        let capture_info = CaptureInfo {
            schema: capture::SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            unix_seconds: readings.unix_seconds,
            kernel,
            host_name: host_name.clone().filter(|_| !self.anonymous),
            anonymous: self.anonymous || was_anonymous,
            scope,
            readings: Vec::new(),
        };
        let mut recordings = readings.into_recordings();
        if self.anonymous {
            capture::anonymise(&mut recordings, host_name.as_deref());
            if host_name.is_none() && !was_anonymous {
                status_line!(
                    "the host name is unknown, so configuration files in the capture may contain it"
                );
            }
        }
        let mut bytes = Vec::new();
        capture::write(&mut bytes, &capture_info, &recordings).context("the capture cannot be packed")?;
        target.write_private(&bytes)?;
        let files: usize = recordings.iter().map(linerate_host::HostRecording::files).sum();
        let reading_count = if recordings.len() == 1 { "one reading" } else { "two readings" };
        status_line!(
            "{}: {reading_count}, {files} files and answers, {} KiB",
            self.file,
            bytes.len().div_ceil(1024)
        );
        Ok(ExitCode::SUCCESS)
    }
}
