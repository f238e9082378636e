//! Hosts that generate load for the lab's server, reached over ssh: `generator1`, and 192.168.0.3
//! on port 2222. Both are the lab's sender.

use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::mark::ExampleHost;
use crate::stage::{CommandResult, ExampleTestbed};

const SSHD: &str = "/usr/sbin/sshd";

/// Starts their sshd for the examples of one block.
pub(crate) fn raise(stage: &mut ExampleTestbed) -> Result<()> {
    stage.raise_lab()?;
    let keys = stage.path("ssh");
    if !keys.exists() {
        make(stage, &keys)?;
    }
    let server = format!("exec {SSHD} -D -f {}/server", keys.display());
    stage.begin_background(&server, ExampleHost::Sender, "-t 'sport = :2222'")
}

/// Writes keys, settings, names and addresses.
fn make(stage: &ExampleTestbed, keys: &Path) -> Result<()> {
    fs::create_dir(keys)?;
    let write = |name: &str, text: String| fs::write(keys.join(name), text);
    let keys = keys.display();
    write(
        "client",
        format!(
            "Host *\n  IdentityFile {keys}/key\n  UserKnownHostsFile /dev/null\n  StrictHostKeyChecking no\n  LogLevel ERROR\n"
        ),
    )?;
    write(
        "server",
        format!(
            "Port 22\nPort 2222\nHostKey {keys}/host\nAuthorizedKeysFile {keys}/key.pub\nPermitRootLogin yes\nUsePAM no\n\
             StrictModes no\nPasswordAuthentication no\nPidFile none\nSetEnv PATH={}:/usr/sbin:/usr/bin:/sbin:/bin\n",
            stage.path("bin").display()
        ),
    )?;
    for key in ["key", "host"] {
        stage.run_or_fail(&format!("ssh-keygen -q -t ed25519 -N '' -f {keys}/{key}"), ExampleHost::Here)?;
    }
    stage.run_or_fail(
        &format!("cp {keys}/client /etc/ssh/ssh_config && mkdir -p /run/sshd"),
        ExampleHost::Here,
    )?;
    stage.run_or_fail("echo '198.18.0.100 generator1' >>/etc/hosts", ExampleHost::Here)?;
    stage.run_or_fail("ip address add 192.168.0.3/32 dev eth0", ExampleHost::Sender)?;
    stage.run_or_fail("ip route add 192.168.0.3 dev eth0", ExampleHost::Server)
}

/// Whether an interrupted run said so and reported what it had measured. An error if a tune is
/// still in effect.
pub(crate) fn is_interrupted_run(
    stage: &ExampleTestbed,
    command: &str,
    result: &CommandResult,
) -> Result<bool> {
    stage.run_or_fail("linerate tune status | grep -q '^No tune is in effect'", ExampleHost::Server)?;
    let output = format!("{}{}", result.stdout, result.stderr);
    let has_report = !command.contains("--html report.html")
        || output.contains("All settings are restored") && stage.path("work/report.html").exists();
    // Status 130 comes from the terminal's shell, or from a run that has nothing to report yet.
    Ok(matches!(result.status.code(), Some(2 | 130)) && output.contains("interrupted") && has_report)
}
