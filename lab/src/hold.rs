//! Labs that stay up, for your own server.
//!
//! A separate process holds such a lab. It starts the lab, reports that it is ready, and waits for
//! a signal to end. It is the same program, with arguments that make it call [`run`].

use std::convert::Infallible;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use signal_hook::iterator::Signals;

use crate::error::{LabError, Result};
use crate::lab::Lab;
use crate::namespace::NamespaceId;
use crate::registry::{CleanReport, CleanScope, HolderKind, LabRegistry, LabState};
use crate::sys::{ChildSetup, SysMount, arm};
use crate::topology::LabShape;
use crate::userns::{self, LabPrivilege};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldOptions {
    pub name: String,
    pub shape: LabShape,
}

/// The one line that the holder prints when it is ready or has failed.
type HolderMessage = Result<(), String>;

const END_SIGNALS: [i32; 3] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];

/// Brings up a lab that stays when this process ends. Returns the state of the lab from the
/// registry.
///
/// `holder` is the command that holds the lab. It must call [`run`] with the two arguments that are
/// added here: the directory of the registry, and the options. Its standard streams are set here.
///
/// # Errors
/// [`LabError::OutOfRange`] and [`LabError::NameTaken`]; [`LabError::Holder`] with the error of
/// [`Builder::start`](crate::LabBuilder::start) if the lab cannot be made; [`LabError::System`] if
/// the holder cannot be started. Nothing is left behind then.
pub fn up(registry: &LabRegistry, options: &HoldOptions, mut holder: Command) -> Result<LabState> {
    options.shape.check()?;
    if let Ok(existing_lab) = registry.find(&options.name) {
        return Err(LabError::NameTaken { name: existing_lab.name, pid: existing_lab.process.pid });
    }
    let options_json = serde_json::to_string(options)
        .map_err(|e| LabError::system("describe the lab", io::Error::from(e)))?;
    holder
        .arg(registry.path())
        .arg(options_json)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut process =
        holder.spawn().map_err(|e| LabError::system(format!("start {:?}", holder.get_program()), e))?;
    let mut line = String::new();
    if let Some(output) = process.stdout.take() {
        // A missing line is handled like an unreadable line below.
        let _ = BufReader::new(output).read_line(&mut line);
    }
    match serde_json::from_str::<HolderMessage>(&line) {
        Ok(Ok(())) => registry.find(&options.name),
        Ok(Err(why)) => {
            let _ = process.wait();
            Err(LabError::Holder { why })
        }
        Err(_) => {
            // The holder may still run.
            let _ = process.kill();
            let why = match process.wait() {
                Ok(status) => format!("its holder ended before it was ready ({status})"),
                Err(e) => format!("its holder cannot be waited for: {e}"),
            };
            Err(LabError::Holder { why })
        }
    }
}

/// Holds a lab until the process receives SIGTERM, SIGINT or SIGHUP.
///
/// Call this in the program that [`up`] starts, with the two arguments that `up` adds, before the
/// program has a second thread. Enters a user namespace if necessary. Writes one line to standard
/// output, which `up` reads.
///
/// # Errors
/// The errors of [`Builder::start`](crate::LabBuilder::start), which are also reported to `up`.
pub fn run(directory: &Path, options: &str) -> Result<()> {
    match start_lab(directory, options) {
        Ok((_lab, mut signals)) => {
            print_message(&Ok(()))?;
            signals.forever().next();
            Ok(())
        }
        Err(error) => {
            print_message(&Err(error.to_string()))?;
            Err(error)
        }
    }
}

/// The labs that are up, oldest first: held labs, and labs of running commands.
pub fn list(registry: &LabRegistry) -> Result<Vec<LabState>> {
    let mut labs = registry.labs()?.labs;
    labs.retain(LabState::is_alive);
    Ok(labs)
}

/// Takes down a held lab and ends everything that runs in it.
///
/// # Errors
/// [`LabError::NoSuchLab`]; [`LabError::NotHeld`] if the lab belongs to a running command; the
/// errors of [`LabRegistry::clean`].
pub fn down(
    registry: &LabRegistry,
    name: &str,
    restore: &mut dyn FnMut(&str, &Value) -> Result<(), String>,
) -> Result<CleanReport> {
    let lab = registry.find(name)?;
    if lab.kind != HolderKind::Held {
        return Err(LabError::NotHeld { name: lab.name, pid: lab.process.pid });
    }
    registry.clean(CleanScope::Named(name), restore)
}

/// A command that runs a program in a host of a lab that is up. Its `/sys` shows the host, with
/// nothing mounted below. Run it from the same user namespace as [`up`], so do not call
/// [`enter_if_needed`](userns::enter_if_needed) before.
///
/// Its environment variables `LINERATE_LAB` and `LINERATE_HOST` name the lab and the host.
///
/// # Errors
/// [`LabError::NoSuchLab`], [`LabError::NoSuchHost`]; [`LabError::File`] if the namespaces of the
/// host cannot be opened, most likely because the lab belongs to another user.
pub fn command(registry: &LabRegistry, lab: &str, host: &str, program: impl AsRef<OsStr>) -> Result<Command> {
    let state = registry.find(lab)?;
    let Some(target) = state.hosts.iter().find(|candidate| candidate.name == host) else {
        return Err(LabError::NoSuchHost {
            lab: state.name,
            name: host.to_owned(),
            known: state.hosts.into_iter().map(|host| host.name).collect(),
        });
    };
    let task = format!("/proc/{}/task/{}/ns", state.process.pid, target.thread);
    let net_namespace = open(&format!("{task}/net"))?;
    let id = NamespaceId::from_file(&net_namespace)
        .map_err(|e| LabError::file("read", format!("{task}/net"), e))?;
    if id != target.namespace {
        // The process has ended, and its PID belongs to another process.
        return Err(LabError::NoSuchLab { name: state.name, known: Vec::new() });
    }
    let user_namespace = open(&format!("{task}/user"))?;
    let same_user = NamespaceId::from_file(&user_namespace)
        .and_then(|user_namespace_id| {
            Ok(user_namespace_id == NamespaceId::from_path(Path::new("/proc/self/ns/user"))?)
        })
        .map_err(|e| LabError::file("read", format!("{task}/user"), e))?;
    let mut command = Command::new(program);
    command.env("LINERATE_LAB", &state.name).env("LINERATE_HOST", host);
    arm(
        &mut command,
        ChildSetup {
            // Joining the process's own user namespace is an error.
            user_namespace: (!same_user).then_some(user_namespace),
            net_namespace: Some(net_namespace),
            sys: SysMount::Preferred,
            die_with: None,
            cpus: None,
        },
    );
    Ok(command)
}

/// Becomes a program in a host of a lab that is up. Returns only if that fails.
///
/// Without root this requires a process with a single thread.
///
/// # Errors
/// Those of [`command`], and [`LabError::System`] if the program cannot be started.
pub fn exec<A: AsRef<OsStr>>(
    registry: &LabRegistry,
    lab: &str,
    host: &str,
    program: impl AsRef<OsStr>,
    arguments: impl IntoIterator<Item = A>,
) -> Result<Infallible> {
    let mut command = command(registry, lab, host, program)?;
    let failed = command.args(arguments).exec();
    Err(LabError::system(format!("run {:?} in {host} of lab {lab}", command.get_program()), failed))
}

fn start_lab(directory: &Path, options: &str) -> Result<(Lab, Signals)> {
    let options: HoldOptions = serde_json::from_str(options)
        .map_err(|e| LabError::system("read the description of the lab", io::Error::from(e)))?;
    // A new session, so that closing the terminal does not end the lab.
    rustix::process::setsid().map_err(|e| LabError::system("make a session", e))?;
    std::env::set_current_dir("/").map_err(|e| LabError::file("enter", "/", e))?;
    let signals = Signals::new(END_SIGNALS).map_err(|e| LabError::system("take over signals", e))?;
    if let LabPrivilege::Forbidden { why, how_to_allow } = userns::enter_if_needed() {
        return Err(LabError::NoNamespace { why: format!("{why}; {how_to_allow}") });
    }
    let registry = LabRegistry::at(directory)?;
    let builder = Lab::builder().name(options.name).shape(options.shape).registry(&registry);
    Ok((builder.held().start()?, signals))
}

fn print_message(message: &HolderMessage) -> Result<()> {
    let failed = |e: io::Error| LabError::system("report that the lab is ready", e);
    let mut line = serde_json::to_string(message).map_err(|e| failed(e.into()))?;
    line.push('\n');
    let mut output = io::stdout().lock();
    output.write_all(line.as_bytes()).and_then(|()| output.flush()).map_err(failed)
}

fn open(path: &str) -> Result<File> {
    File::open(path).map_err(|e| LabError::file("open", path, e))
}
