//! The hosts themselves.

mod cloud_vm;
mod guests;
mod held_back_vm;
mod makita;
mod many;
mod million_packets;
mod small_vm;
mod sysctls;
mod tracked_vm;
mod two_nodes;

use std::io;
use std::path::Path;

use crate::specimen::{Machine, Tree};

pub use guests::healthy;
pub use many::many;

/// A host of which it is known what is wrong.
#[derive(Debug, Clone)]
pub struct Specimen {
    pub name: &'static str,
    /// What it is, in a sentence.
    pub about: &'static str,
    /// A reading of it.
    pub first: Machine,
    /// A second one, some seconds later; none where nothing happens on it.
    pub later: Option<Machine>,
}

impl Specimen {
    /// The trees of its readings.
    #[must_use]
    pub fn trees(&self) -> Vec<Tree> {
        std::iter::once(&self.first).chain(&self.later).map(Machine::tree).collect()
    }

    /// Writes the first reading into a directory, and the second below `later` in it.
    ///
    /// # Errors
    /// Whatever the file system refuses.
    pub fn write(&self, directory: &Path) -> io::Result<()> {
        self.first.tree().write(directory)?;
        match &self.later {
            Some(machine) => machine.tree().write(&directory.join("later")),
            None => Ok(()),
        }
    }
}

/// Makes a host as it is known.
type Make = fn() -> Specimen;

const ALL: [(&str, Make); 11] = [
    ("makita-2016", makita::as_found),
    ("makita-2016-fixed", makita::fixed),
    ("million-packets", million_packets::million_packets),
    ("many", many::specimen),
    ("small-vm", small_vm::small_vm),
    ("makita-2016-neglected", makita::neglected),
    ("cloud-vm", cloud_vm::cloud_vm),
    ("two-nodes", two_nodes::two_nodes),
    ("hypervisor", makita::hypervisor),
    ("tracked-vm", tracked_vm::tracked_vm),
    ("held-back-vm", held_back_vm::held_back_vm),
];

/// The names of all specimens.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|(name, _)| *name)
}

/// The specimen of this name.
#[must_use]
pub fn specimen(name: &str) -> Option<Specimen> {
    ALL.iter().find(|(known, _)| *known == name).map(|(_, make)| make())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_can_be_had_by_its_name() {
        for name in names() {
            let specimen = specimen(name).expect("it is listed");
            assert_eq!(specimen.name, name);
            let trees = specimen.trees();
            let first = &trees[0];
            assert!(
                first.get("/proc/interrupts").is_some()
                    && first.entries().any(|(path, _)| path.starts_with("/calls/"))
            );
            let paths = |tree: &Tree| tree.entries().map(|(path, _)| path.to_owned()).collect::<Vec<_>>();
            assert!(trees.iter().all(|tree| paths(tree) == paths(first)), "{name}: a file comes or goes");
        }
        assert!(specimen("nothing").is_none());
    }

    #[test]
    fn a_second_reading_is_written_below_the_first() {
        let directory = tempfile::tempdir().expect("a directory");
        specimen("small-vm").expect("a specimen").write(directory.path()).expect("written");
        let uptime = |path: &str| std::fs::read_to_string(directory.path().join(path)).expect("read");
        assert_eq!(
            (&uptime("proc/uptime")[..9], &uptime("later/proc/uptime")[..9]),
            ("432000.00", "432010.00")
        );
    }
}
