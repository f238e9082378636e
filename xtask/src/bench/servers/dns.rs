//! The zone and the configuration of name servers.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use linerate_testkit::reflector::installed::{self, InstalledNsd};

use super::testbed::{BUFFER, ServersTestbed};
use super::workload::{HOSTS, ZONE};

/// Writes the zone and returns its path.
pub(super) fn zone(directory: &Path) -> anyhow::Result<PathBuf> {
    let mut text = format!(
        "$ORIGIN {ZONE}.\n$TTL 3600\n@ IN SOA ns hostmaster 1 3600 600 86400 60\n@ IN NS ns\nns IN A 198.18.0.1\n"
    );
    for host in 0..HOSTS {
        let (high, low) = (host / 250, host % 250 + 1);
        writeln!(text, "host{host} IN A 192.0.{high}.{low}\nhost{host} IN AAAA 2001:db8::{host:x}")?;
    }
    write_file(directory, "zone", &text)
}

pub(super) fn nsd(testbed: &ServersTestbed) -> anyhow::Result<Command> {
    let program = installed::find("nsd").context("NSD is not installed")?;
    let directory = testbed.directory();
    let configuration = InstalledNsd {
        directory,
        addresses: &[testbed.address()],
        servers: testbed.workers,
        reuseport: true,
        zones: &[(ZONE, zone(directory)?)],
        options: &[format!("receive-buffer-size: {BUFFER}")],
    };
    let mut command = Command::new(program);
    command.arg("-d").arg("-c").arg(configuration.write().context("writing NSD's files")?);
    Ok(command)
}

pub(super) fn knot(testbed: &ServersTestbed, xdp: bool) -> anyhow::Result<Command> {
    let program = installed::find("knotd").context("Knot is not installed")?;
    let directory = testbed.directory();
    zone(directory)?;
    let (workers, port) = (testbed.workers, testbed.address().port());
    // In XDP mode Knot has one worker per queue of the device.
    let listen = if xdp {
        format!("xdp:\n  listen: {}@{port}\n", testbed.interface())
    } else {
        format!("  listen: {}@{port}\n  udp-workers: {workers}\n", testbed.ip())
    };
    let configuration = format!(
        "server:
  rundir: \"{directory}\"
  user: root
  automatic-acl: off
{listen}database:
  storage: \"{directory}/knot\"
zone:
  - domain: {ZONE}
    file: \"{directory}/zone\"
    semantic-checks: off
log:
  - target: stderr
    any: warning
",
        directory = directory.display(),
    );
    let mut command = Command::new(program);
    command.arg("-c").arg(write_file(directory, "knot.conf", &configuration)?);
    Ok(command)
}

fn write_file(directory: &Path, name: &str, text: &str) -> anyhow::Result<PathBuf> {
    let file = directory.join(name);
    std::fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
    Ok(file)
}
