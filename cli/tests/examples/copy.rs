//! Runs commands as if on a host whose copy is in a directory. They change only the copy.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use linerate_testkit::reflector::installed::find;

use crate::stage::{CommandResult, ExampleTestbed};

/// Stand-ins for programs that talk to a kernel. Each uses the copy in `$HOST`, and refuses
/// arguments that it does not support.
const STAND_INS: [(&str, &str); 6] = [
    ("auditctl", include_str!("stand_ins/auditctl")),
    ("ethtool", include_str!("stand_ins/ethtool")),
    ("modprobe", include_str!("stand_ins/modprobe")),
    ("nft", include_str!("stand_ins/nft")),
    ("systemctl", include_str!("stand_ins/systemctl")),
    ("taskset", include_str!("stand_ins/taskset")),
];

/// Programs that only read and write files.
const REAL: [&str; 1] = ["sysctl"];

/// The environment of the commands: the copy's settings are mounted over those of the host, and
/// only the programs above are in `PATH`.
const WRAPPER: &str = r#"
set -eu
mkdir -p "$1/etc/default"
mount --bind "$1/sys" /sys
mount --bind "$1/proc/sys" /proc/sys
mount --bind "$1/proc/irq" /proc/irq
mount --bind "$1/etc/default" /etc/default
HOST=$1 PATH=$2 exec /bin/sh -c "$3"
"#;

/// Runs commands as if on the host whose copy is in `directory`. The error names the first command
/// that fails.
pub(crate) fn run(stage: &ExampleTestbed, directory: &Path, commands: &[String]) -> Result<()> {
    let programs = programs(stage).context("the stand-ins")?;
    let files = |folder: &str| files_below(&directory.join(folder));
    let before = [files("sys"), files("proc")].concat();
    let lines = commands.iter().enumerate().map(|(number, command)| {
        format!("{{ {command}\n}} || {{ echo \"command {} fails\" >&2; exit 3; }}\n", number + 1)
    });
    let script: String = lines.collect();
    let wrapper = ["unshare", "--mount", "--net", "sh", "-c", WRAPPER, "sh"];
    let mut command = stage.command_inside();
    command.args(wrapper).arg(directory).arg(programs).arg(script);
    let CommandResult { status, stderr, .. } = stage.run_to_end(command)?;
    ensure!(status.success(), "{}\nended with {status}\n{stderr}", commands.join("\n"));
    update_derived_files(directory)?;
    // A write creates no file in /proc or /sys. Only `ethtool -L` adds files, for queues.
    let known_files: BTreeSet<PathBuf> = before.into_iter().collect();
    let is_new =
        |path: &PathBuf| !known_files.contains(path) && !path.display().to_string().contains("/queues/");
    match [files("sys"), files("proc")].concat().into_iter().find(is_new) {
        Some(path) => bail!("there is no {} to write to", path.display()),
        None => Ok(()),
    }
}

/// The directory with all programs that the commands can use.
fn programs(stage: &ExampleTestbed) -> Result<PathBuf> {
    let directory = stage.path("programs");
    if directory.exists() {
        return Ok(directory);
    }
    fs::create_dir(&directory)?;
    for (name, text) in STAND_INS {
        let path = directory.join(name);
        fs::write(&path, text)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    }
    for name in REAL {
        let program = find(name).with_context(|| format!("{name} is not installed"))?;
        symlink(program, directory.join(name))?;
    }
    Ok(directory)
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files_below(&entry.path())),
            _ => found.push(entry.path()),
        }
    }
    found
}

/// Updates the files that a kernel derives from an interrupt's mask: the same CPUs as a list, and
/// the effective CPU.
fn update_derived_files(directory: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(directory.join("proc/irq"))? {
        let folder = entry?.path();
        let Ok(mask) = fs::read_to_string(folder.join("smp_affinity")) else { continue };
        let cpus = cpus(mask.trim());
        let list: Vec<String> = cpus.iter().map(u32::to_string).collect();
        fs::write(folder.join("smp_affinity_list"), list.join(",") + "\n")?;
        let effective = folder.join("effective_affinity_list");
        let Ok(now) = fs::read_to_string(&effective) else { continue };
        if let Some(first) = cpus.first().filter(|_| !list.iter().any(|cpu| cpu == now.trim())) {
            fs::write(effective, format!("{first}\n"))?;
            fs::write(folder.join("effective_affinity"), format!("{:x}\n", 1_u64 << first))?;
        }
    }
    Ok(())
}

/// The CPUs of a mask, which consists of 32-bit words.
fn cpus(mask: &str) -> Vec<u32> {
    let words = (0..).zip(mask.rsplit(','));
    let bits = words.flat_map(|(word, text)| {
        let bits = u32::from_str_radix(text, 16).unwrap_or_default();
        (0..32).filter(move |bit| bits & 1 << bit != 0).map(move |bit| word * 32 + bit)
    });
    bits.collect()
}
