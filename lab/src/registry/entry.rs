//! The registry file of a lab of this process.

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::{HolderKind, HostState, HostWide, LabRegistry, LabState};
use crate::error::{LabError, Result, warn};
use crate::topology::LabLink;

/// Keeps the file up to date and removes it at the end.
#[derive(Debug)]
pub(crate) struct RegistryEntry {
    registry: LabRegistry,
    state: Mutex<LabState>,
}

impl RegistryEntry {
    /// Call before the lab is made.
    pub(crate) fn new(registry: LabRegistry, name: Option<&str>, kind: HolderKind) -> Result<Self> {
        let state = LabState::new(name, kind)?;
        let lock = registry.lock()?;
        let labs = registry.labs()?.labs;
        let has_same_name = |lab: &&LabState| lab.name == state.name && lab.is_alive();
        if let Some(existing_lab) = labs.iter().find(has_same_name) {
            return Err(LabError::NameTaken {
                name: existing_lab.name.clone(),
                pid: existing_lab.process.pid,
            });
        }
        registry.write(&state)?;
        drop(lock);
        Ok(Self { registry, state: Mutex::new(state) })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, LabState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn record_topology(&self, hosts: Vec<HostState>, links: Vec<LabLink>) -> Result<()> {
        self.change(|state| {
            state.hosts = hosts;
            state.links = links;
        })
    }

    /// Records the original value of a setting. An existing record stays.
    pub(crate) fn record(&self, key: &str, original: Value) -> Result<()> {
        let _lock = self.registry.lock()?;
        let own_id = self.state().id.clone();
        for lab in self.registry.labs()?.labs {
            if lab.id != own_id && lab.host_wide.iter().any(|entry| entry.key == key) {
                return Err(LabError::HostWideTaken {
                    key: key.to_owned(),
                    alive: lab.is_alive(),
                    name: lab.name,
                    pid: lab.process.pid,
                });
            }
        }
        self.change(|state| {
            if state.host_wide.iter().all(|entry| entry.key != key) {
                state.host_wide.push(HostWide { key: key.to_owned(), original });
            }
        })
    }

    /// Removes the record of a restored setting.
    pub(crate) fn forget(&self, key: &str) -> Result<()> {
        self.change(|state| state.host_wide.retain(|entry| entry.key != key))
    }

    fn change(&self, change: impl FnOnce(&mut LabState)) -> Result<()> {
        let mut state = self.state();
        let mut new_state = state.clone();
        change(&mut new_state);
        self.registry.write(&new_state)?;
        *state = new_state;
        Ok(())
    }
}

impl Drop for RegistryEntry {
    fn drop(&mut self) {
        let id = self.state().id.clone();
        let result = if self.state().host_wide.is_empty() {
            self.registry.remove(&id)
        } else {
            // The recorded settings must still be restored.
            self.change(|state| state.ended = true)
        };
        if let Err(error) = result {
            warn(&format!(
                "the file of a lab that has ended is left behind: {error}; try `linerate lab clean`"
            ));
        }
    }
}
