//! The zone and the configuration of name servers, and their queries.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::Context;
use linerate_load::LoadWorkload;
use linerate_load::workload::dns::{self, DnsQueryOptions};
use linerate_testkit::reflector::installed;

use super::testbed::{BUFFER, ServersTestbed};

/// Hosts in the zone.
const HOSTS: u32 = 1_000;

pub(super) const ZONE: &str = "example.test";

/// Queries for the addresses of hosts that are there.
pub(super) fn workload() -> anyhow::Result<LoadWorkload> {
    let mut queries = String::new();
    for host in 0..HOSTS {
        let kind = if host % 4 == 3 { "AAAA" } else { "A" };
        writeln!(queries, "host{host}.{ZONE} {kind}")?;
    }
    Ok(LoadWorkload::Exchange(Arc::new(dns::from_text(
        &queries,
        "the bench's queries",
        &DnsQueryOptions::default(),
    )?)))
}

/// Writes the zone; where it is.
pub(super) fn zone(directory: &Path) -> anyhow::Result<PathBuf> {
    let mut text = format!(
        "$ORIGIN {ZONE}.\n$TTL 3600\n@ IN SOA ns hostmaster 1 3600 600 86400 60\n@ IN NS ns\nns IN A 198.18.0.1\n"
    );
    for host in 0..HOSTS {
        let (high, low) = (host / 250, host % 250 + 1);
        writeln!(text, "host{host} IN A 192.0.{high}.{low}\nhost{host} IN AAAA 2001:db8::{host:x}")?;
    }
    written(directory, "zone", &text)
}

pub(super) fn nsd(testbed: &ServersTestbed) -> anyhow::Result<Command> {
    let program = installed::find("nsd").context("NSD is not installed")?;
    let directory = testbed.directory();
    zone(directory)?;
    // Its rate limiting would answer 200 per second.
    let configuration = format!(
        "server:
  ip-address: {}@{}
  server-count: {}
  reuseport: yes
  receive-buffer-size: {BUFFER}
  username: \"\"
  chroot: \"\"
  database: \"\"
  zonesdir: \"{directory}\"
  pidfile: \"\"
  xfrdfile: \"{directory}/xfrd\"
  xfrdir: \"{directory}\"
  zonelistfile: \"{directory}/zones\"
  rrl-ratelimit: 0
  rrl-whitelist-ratelimit: 0
remote-control:
  control-enable: no
zone:
  name: {ZONE}
  zonefile: zone
",
        testbed.ip(),
        testbed.address().port(),
        testbed.workers,
        directory = directory.display(),
    );
    let mut command = Command::new(program);
    command.arg("-d").arg("-c").arg(written(directory, "nsd.conf", &configuration)?);
    Ok(command)
}

pub(super) fn knot(testbed: &ServersTestbed, xdp: bool) -> anyhow::Result<Command> {
    let program = installed::find("knotd").context("Knot is not installed")?;
    let directory = testbed.directory();
    zone(directory)?;
    let (workers, port) = (testbed.workers, testbed.address().port());
    // In XDP mode it has a worker a queue of the device.
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
    command.arg("-c").arg(written(directory, "knot.conf", &configuration)?);
    Ok(command)
}

fn written(directory: &Path, name: &str, text: &str) -> anyhow::Result<PathBuf> {
    let file = directory.join(name);
    std::fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
    Ok(file)
}
