//! Fixture hosts with known faults.
//!
//! A [`Fixture`] has the files that the kernel shows in `/proc` and `/sys`, and below `/calls` its
//! answers to netlink and ioctl requests. The hosts are text archives in `testkit/fixtures`, in the
//! format of [`archive`]; [`many`] multiplies the CPUs, interfaces and queues of one of them.
//! Nothing here shares code with the parsers of linerate.

pub mod archive;
mod large_host;
mod shape;
mod tree;

use std::io;
use std::path::Path;

pub use large_host::many;
pub use shape::{Cpu, QueueVector, Thread};
pub use tree::{Node, Tree};

/// A host whose faults are known.
#[derive(Debug, Clone)]
pub struct Fixture {
    pub name: &'static str,
    /// The host in one sentence.
    pub about: &'static str,
    pub first: Tree,
    /// The host some seconds after `first`.
    pub later: Tree,
}

macro_rules! archives {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../fixtures/", $name, ".txt")))),*]
    };
}

const HOSTS: &[(&str, &str)] = archives![
    "makita-2016",
    "makita-2016-fixed",
    "million-packets",
    "many",
    "small-vm",
    "makita-2016-neglected",
    "cloud-vm",
    "two-nodes",
    "hypervisor",
    "kvm-host",
    "tracked-vm",
    "held-back-vm",
];

const HEALTHY_GUESTS: &[(&str, &str)] = archives![
    "guest-smt",
    "guest-smt-4-queues",
    "guest-4-nodes",
    "guest-4-nodes-4-queues",
    "guest-4-nodes-smt",
    "guest-virtio",
];

/// The names of all hosts that [`fixture`] returns.
pub fn names() -> impl Iterator<Item = &'static str> {
    HOSTS.iter().map(|(name, _)| *name)
}

#[must_use]
pub fn fixture(name: &str) -> Option<Fixture> {
    if name == "many" {
        return Some(many(128, 4, 64));
    }
    HOSTS.iter().find(|(known, _)| *known == name).map(|(name, text)| load(name, text))
}

/// Quiet virtual machines of several shapes without a UDP service, on which `virtio_net` placed its
/// queues by itself (`virtnet_set_affinity`, drivers/net/virtio_net.c, Linux 6.1).
#[must_use]
pub fn healthy_guests() -> Vec<Fixture> {
    HEALTHY_GUESTS.iter().map(|(name, text)| load(name, text)).collect()
}

fn load(name: &'static str, text: &'static str) -> Fixture {
    let archive = archive::parse(text).unwrap_or_else(|e| panic!("fixtures/{name}.txt: {e}"));
    let mut first = archive.base.map_or_else(Tree::default, |base| {
        fixture(base).unwrap_or_else(|| panic!("fixtures/{name}.txt: no base {base}")).first
    });
    archive.first.apply(&mut first);
    let mut later = first.clone();
    archive.later.apply(&mut later);
    Fixture { name, about: archive.about, first, later }
}

impl Fixture {
    /// Both readings in order.
    #[must_use]
    pub fn trees(&self) -> [Tree; 2] {
        [self.first.clone(), self.later.clone()]
    }

    /// Writes the first reading into a directory and the second one into `later` in it.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write(&self, directory: &Path) -> io::Result<()> {
        self.first.write(directory)?;
        self.later.write(&directory.join("later"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fixture_loads_with_equal_paths_in_both_readings() {
        for host in names().filter_map(fixture).chain(healthy_guests()) {
            let name = host.name;
            assert!(host.first.get("/proc/interrupts").is_some(), "{name}");
            assert!(host.first.entries().any(|(path, _)| path.starts_with("/calls/")), "{name}");
            let paths = |tree: &Tree| tree.entries().map(|(path, _)| path.to_owned()).collect::<Vec<_>>();
            assert_eq!(paths(&host.first), paths(&host.later), "{name}");
        }
        assert!(fixture("nothing").is_none());
    }

    #[test]
    fn the_second_reading_is_written_below_later() {
        let directory = tempfile::tempdir().expect("a directory");
        fixture("small-vm").expect("a fixture").write(directory.path()).expect("written");
        let uptime = |path: &str| std::fs::read_to_string(directory.path().join(path)).expect("read");
        assert_eq!(
            (&uptime("proc/uptime")[..9], &uptime("later/proc/uptime")[..9]),
            ("432000.00", "432010.00")
        );
    }
}
