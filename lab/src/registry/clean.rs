//! Removes the remains of killed labs.

use std::fs;
use std::time::Duration;

use rustix::process::Signal;
use serde::Serialize;
use serde_json::Value;

use super::{LabRegistry, LabState, TEMPORARY};
use crate::error::Result;
use crate::namespace::NamespaceId;
use crate::process::{self, FoundProcess};

/// Longest wait for a running lab to end.
const END_DEADLINE: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CleanScope<'a> {
    /// Labs whose process is gone.
    Dead,
    /// Dead labs, and the lab of this name even if it is alive.
    Named(&'a str),
    /// All labs except those of the calling process.
    All,
}

#[derive(Debug, Default, Serialize)]
pub struct CleanReport {
    /// Labs that were removed or had something to remove.
    pub labs: Vec<CleanedLab>,
    /// Names of the labs that were left alone because they are alive.
    pub alive: Vec<String>,
    /// Files that cannot be read, and why. They are left for a person to look at.
    pub unreadable: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct CleanedLab {
    pub id: String,
    pub name: String,
    pub pid: i32,
    /// It was alive and was asked to end.
    pub was_alive: bool,
    /// Processes found in its namespaces and killed.
    pub killed: Vec<FoundProcess>,
    /// Processes that could not be killed. They keep their namespace alive.
    pub not_killed: Vec<FoundProcess>,
    /// Host-wide settings that were restored.
    pub restored: Vec<String>,
    /// Host-wide settings that could not be restored.
    pub not_restored: Vec<NotRestored>,
    /// Whether nothing of it is left, nor its file.
    pub gone: bool,
}

#[derive(Debug, Serialize)]
pub struct NotRestored {
    pub key: String,
    /// Its value before the lab.
    pub original: Value,
    pub why: String,
}

impl CleanReport {
    /// Whether everything was removed and restored.
    pub fn is_complete(&self) -> bool {
        self.unreadable.is_empty() && self.labs.iter().all(|lab| lab.gone)
    }
}

impl LabRegistry {
    /// Removes the remains of killed labs: processes in their namespaces (namespaces and links end with them), changed
    /// host-wide settings, files.
    ///
    /// `restore` gets the key and the original value of a setting, in the reverse order of the
    /// changes. It must not use this registry, which is locked. After a reboot it is not called, because the settings are
    /// gone.
    ///
    /// # Errors
    /// [`Error::File`](crate::LabError::File) if the registry cannot be read or written. Remains
    /// that could not be removed are in the report instead, and stay in the registry.
    pub fn clean(
        &self,
        scope: CleanScope<'_>,
        restore: &mut dyn FnMut(&str, &Value) -> Result<(), String>,
    ) -> Result<CleanReport> {
        let mut report = CleanReport::default();
        let registered = self.labs()?;
        // Before the lock, because a lab that ends may need the lock.
        let ended_ids: Vec<String> = registered
            .labs
            .iter()
            .filter(|lab| lab.is_alive() && scope.includes(lab))
            .map(|lab| {
                end(lab);
                lab.id.clone()
            })
            .collect();

        let _lock = self.lock()?;
        let remaining = self.labs()?;
        report.unreadable = remaining.unreadable.iter().map(ToString::to_string).collect();
        // Labs that ended removed their own files.
        let is_gone = |lab: &LabState| remaining.labs.iter().all(|other| other.id != lab.id);
        for mut lab in registered.labs {
            if ended_ids.contains(&lab.id) && is_gone(&lab) {
                // Labs remove their files only if nothing is left to restore.
                lab.host_wide.clear();
                report.labs.push(self.clean_lab(lab, true, restore)?);
            }
        }
        for lab in remaining.labs {
            if lab.is_alive() {
                report.alive.push(lab.name);
            } else {
                let was_alive = ended_ids.contains(&lab.id);
                report.labs.push(self.clean_lab(lab, was_alive, restore)?);
            }
        }
        self.remove_temporaries()?;
        Ok(report)
    }

    fn clean_lab(
        &self,
        mut lab: LabState,
        was_alive: bool,
        restore: &mut dyn FnMut(&str, &Value) -> Result<(), String>,
    ) -> Result<CleanedLab> {
        let is_same_boot = lab.is_of_this_boot();
        let (killed, not_killed) = if is_same_boot {
            let namespaces: Vec<NamespaceId> = lab.hosts.iter().map(|host| host.namespace).collect();
            let marks = lab.marks();
            process::end_all(|pid| {
                // The namespace of a process in another user namespace is hidden, but the same user
                // may kill the process.
                let may_belong = process::is_inside(pid, &namespaces).unwrap_or_else(|| process::is_own(pid));
                may_belong && process::has_addresses(pid, &marks)
            })
        } else {
            (Vec::new(), Vec::new())
        };
        let mut restored = Vec::new();
        let mut not_restored = Vec::new();
        while is_same_boot && let Some(record) = lab.host_wide.pop() {
            match restore(&record.key, &record.original) {
                Ok(()) => restored.push(record.key),
                Err(why) => {
                    not_restored.push(NotRestored { key: record.key, original: record.original, why });
                }
            }
        }
        let is_gone = not_killed.is_empty() && not_restored.is_empty();
        if is_gone {
            self.remove(&lab.id)?;
        } else {
            let unrestored = not_restored.iter().rev().map(|unrestored| super::HostWide {
                key: unrestored.key.clone(),
                original: unrestored.original.clone(),
            });
            lab.host_wide = unrestored.collect();
            lab.ended = true;
            self.write(&lab)?;
        }
        Ok(CleanedLab {
            id: lab.id,
            name: lab.name,
            pid: lab.process.pid,
            was_alive,
            killed,
            not_killed,
            restored,
            not_restored,
            gone: is_gone,
        })
    }

    // Keeps the temporary file of a registered lab, because the lab may be about to rename it.
    fn remove_temporaries(&self) -> Result<()> {
        for path in self.files()? {
            let is_temporary = path.extension().is_some_and(|extension| extension == TEMPORARY);
            if is_temporary && !path.with_extension("json").exists() {
                // Another clean-up may have removed the file first.
                let _ = fs::remove_file(&path);
            }
        }
        Ok(())
    }
}

impl CleanScope<'_> {
    fn includes(self, lab: &LabState) -> bool {
        let is_other_process = lab.process.pid != rustix::process::getpid().as_raw_nonzero().get();
        is_other_process
            && match self {
                Self::Dead => false,
                Self::Named(name) => lab.name == name,
                Self::All => true,
            }
    }
}

/// Sends SIGTERM to a lab's process, and SIGKILL if it does not end.
fn end(lab: &LabState) {
    let has_ended = lab.process.end(Signal::TERM, END_DEADLINE).unwrap_or(false);
    if !has_ended {
        // The report shows a process that still runs.
        let _ = lab.process.end(Signal::KILL, END_DEADLINE);
    }
}
