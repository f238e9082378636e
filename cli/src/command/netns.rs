//! `--netns`: the network namespace of a command.

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::AsFd as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use clap::Args;
use linerate_host::Host;
use linerate_trace::delay::PortPlace;
use linerate_tune::journal::Journal;
use linerate_tune::transaction::TuneNamespace;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The network namespace that a command looks at.
#[derive(Debug, Default, Args)]
pub(crate) struct NetnsArgs {
    /// Network namespace to run in: a name of `ip netns`, a process whose namespace it is, or a file
    /// such as /proc/812/ns/net [default: that of the command]
    #[arg(long, value_name = "NAME|PID|PATH", global = true)]
    netns: Option<String>,
    /// In a container: the directory where the root of the host is mounted. Paths of other options
    /// are paths of the host then
    #[arg(long, value_name = "DIR", global = true)]
    host_root: Option<PathBuf>,
}

impl NetnsArgs {
    /// Enters the namespace and makes `/sys` show its devices, also if the command was started with
    /// the `/sys` of another namespace (`nsenter --net`). Namespaces belong to threads, so this
    /// must be called before any other thread starts.
    ///
    /// # Errors
    /// If the namespace does not exist or cannot be entered, or `/sys` belongs to another
    /// namespace.
    pub(super) fn enter(&self) -> Result<()> {
        if let Some(root) = &self.host_root {
            let root_text = root.display();
            ensure!(
                root.join("proc/self/stat").exists(),
                "--host-root {root_text}: there is no /proc of the host in it"
            );
            rustix::process::chroot(root)
                .with_context(|| format!("--host-root {root_text} requires CAP_SYS_CHROOT"))?;
            std::env::set_current_dir("/").context("cannot enter the root of the host")?;
            enter_cgroup_namespace();
        }
        let file = self.netns.as_deref().map(open).transpose()?;
        Ok(linerate_lab::visit::enter(file.as_ref())?)
    }
}

/// Enters the cgroup namespace of the host, in which the paths of other containers' control groups
/// are complete. Without CAP_SYS_ADMIN these groups stay unknown, those of services do not.
fn enter_cgroup_namespace() {
    if let Ok(file) = File::open("/proc/1/ns/cgroup") {
        let _ = move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::ControlGroup));
    }
}

/// Enters the network namespace in which a tune was made, because interfaces and sysctls of the
/// same names are different ones in another namespace. Without a number, the latest tune in effect.
///
/// # Errors
/// As [`NetnsArgs::enter`].
pub(super) fn enter_namespace_of_tune(journal: &Journal, tune: Option<u64>) -> Result<()> {
    let tunes = journal.tunes();
    let recorded_tune = match tune {
        Some(number) => tunes.iter().find(|recorded| recorded.begun.tune == number),
        None => tunes.iter().rev().find(|recorded| recorded.is_open()),
    };
    match recorded_tune.map(|tune| TuneNamespace::of(&Host::live(), &tune.begun)) {
        Some(TuneNamespace::Elsewhere { path }) => Ok(linerate_lab::visit::enter(Some(&open(&path)?))?),
        _ => Ok(()),
    }
}

/// Fails if the UDP port is not open in this network namespace, and names the namespace where it
/// is.
pub(super) fn check_port_is_open(host: &Host, command: &str, port: u16) -> Result<()> {
    match PortPlace::find(host, port) {
        PortPlace::Here => Ok(()),
        PortPlace::Elsewhere { pid, process } => bail!(
            "no UDP socket on port {port} in this network namespace, but in that of process {pid} \
             ({process}): linerate {command} --netns {pid} --port {port}"
        ),
        PortPlace::Nowhere => bail!("no UDP socket on port {port}: `ss -lun` lists the sockets"),
    }
}

fn open(name: &str) -> Result<File> {
    let path = if name.contains('/') {
        name.to_owned()
    } else if name.parse::<u32>().is_ok() {
        format!("/proc/{name}/ns/net")
    } else {
        format!("/run/netns/{name}")
    };
    File::open(&path).map_err(|error| match error.kind() {
        ErrorKind::PermissionDenied => anyhow!("cannot open network namespace '{name}' at {path}: {error}"),
        _ => anyhow!(
            "no network namespace '{name}' at {path}: `ip netns` and `lsns -t net` list the namespaces: {error}"
        ),
    })
}
