//! The state of a lab in the registry.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{LabError, Result};
use crate::namespace::NamespaceId;
use crate::process::ProcessId;
use crate::topology::LabLink;

/// Version of the file format. Readers refuse a later version and accept unknown keys.
const VERSION: u32 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HolderKind {
    /// A process that uses the lab and ends it.
    Running,
    /// A process that only keeps the lab for others.
    Held,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabState {
    /// Version of the format.
    pub version: u32,
    /// 16 random hexadecimal digits.
    pub id: String,
    pub name: String,
    pub kind: HolderKind,
    /// The process that holds it.
    pub process: ProcessId,
    /// The boot in which that process ran (/proc/sys/kernel/random/boot_id).
    pub boot: String,
    /// Start, seconds since 1970.
    pub since: u64,
    /// Empty while the lab starts.
    #[serde(default)]
    pub hosts: Vec<HostState>,
    #[serde(default)]
    pub links: Vec<LabLink>,
    /// Settings of the whole machine that the lab changed, in order.
    #[serde(default)]
    pub host_wide: Vec<HostWide>,
    /// It has ended, but not all of `host_wide` was restored.
    #[serde(default)]
    pub ended: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostState {
    pub name: String,
    /// The thread that lives in it. `nsenter --net=/proc/PID/task/THREAD/ns/net` enters it.
    pub thread: i32,
    pub namespace: NamespaceId,
}

/// A setting of the whole machine as it was before a lab changed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostWide {
    /// The setting, as the program that changes it names it.
    pub key: String,
    pub original: Value,
}

impl LabState {
    pub(crate) fn new(name: Option<&str>, kind: HolderKind) -> Result<Self> {
        let id = new_id()?;
        let name = match name {
            Some(name) if is_name(name) => name.to_owned(),
            Some(name) => {
                return Err(LabError::BadName { name: name.to_owned() });
            }
            None => format!("lab-{}", id.get(..6).unwrap_or(&id)),
        };
        Ok(Self {
            version: VERSION,
            name,
            kind,
            process: ProcessId::own().map_err(|e| LabError::file("read", "/proc/self/stat", e))?,
            boot: this_boot(),
            since: linerate_host::unix_seconds().unwrap_or(0),
            hosts: Vec::new(),
            links: Vec::new(),
            host_wide: Vec::new(),
            ended: false,
            id,
        })
    }

    pub(crate) fn read(path: &Path) -> Result<Self> {
        let bad_state = |why: String| LabError::BadState { path: path.to_owned(), why };
        let text = fs::read(path).map_err(|e| LabError::file("read", path, e))?;
        let state: Self = serde_json::from_slice(&text).map_err(|e| bad_state(e.to_string()))?;
        if state.version > VERSION {
            return Err(bad_state(format!(
                "its version is {}, this program knows up to {VERSION}",
                state.version
            )));
        }
        if path.file_stem().is_none_or(|stem| stem != state.id.as_str()) {
            return Err(bad_state(format!("it describes the lab {}", state.id)));
        }
        Ok(state)
    }

    /// Whether the process runs and has not ended the lab.
    pub fn is_alive(&self) -> bool {
        !self.ended && self.is_of_this_boot() && self.process.is_alive()
    }

    /// Whether the lab was started in this boot. Nothing of a lab survives a reboot.
    pub(crate) fn is_of_this_boot(&self) -> bool {
        self.boot == this_boot()
    }

    /// The loopback addresses that mark the lab's namespaces.
    ///
    /// The kernel reuses the number of a namespace, so these addresses identify the remains of a killed lab.
    pub(crate) fn marks(&self) -> [Ipv4Addr; 2] {
        marks(&self.id)
    }
}

/// Two of 127.128.0.0 to 127.255.255.255, by the first and the last 23 bits of the id.
fn marks(id: &str) -> [Ipv4Addr; 2] {
    let id = u64::from_str_radix(id, 16).unwrap_or(0);
    [id >> 41, id & 0x7f_ffff].map(|bits| {
        let [.., a, b, c] = bits.to_be_bytes();
        Ipv4Addr::new(127, 128 | a, b, c)
    })
}

fn new_id() -> Result<String> {
    use std::io::Read;
    let path = "/dev/urandom";
    let mut bytes = [0; 8];
    fs::File::open(path)
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|e| LabError::file("read", path, e))?;
    Ok(format!("{:016x}", u64::from_ne_bytes(bytes)))
}

fn this_boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|text| text.trim().to_owned())
        .unwrap_or_default()
}

fn is_name(name: &str) -> bool {
    let is_alphanumeric = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    (1..=32).contains(&name.len())
        && name.bytes().all(|c| is_alphanumeric(c) || c == b'-')
        && name.bytes().next().is_some_and(is_alphanumeric)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lab_names_have_lowercase_letters_digits_and_hyphens() {
        for good in ["a", "7", "dns-test", "x".repeat(32).as_str()] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "-a", "A", "a b", "../x", "a/b", "é", "x".repeat(33).as_str()] {
            assert!(!is_name(bad), "{bad}");
        }
    }

    #[test]
    fn marks_are_loopback_addresses_from_127_128_0_0() {
        for id in ["0000000000000000", "ffffffffffffffff", "123456789abcdef0", "no id"] {
            for mark in marks(id) {
                assert!(mark.is_loopback() && mark.octets()[1] >= 128, "{mark}");
            }
        }
        let [first, last] = marks("123456789abcdef0");
        assert_eq!(first, Ipv4Addr::new(127, 128 | 0x09, 0x1a, 0x2b));
        assert_eq!(last, Ipv4Addr::new(127, 128 | 0x3c, 0xde, 0xf0));
    }

    #[test]
    fn lab_states_parse_with_unknown_and_missing_keys() {
        let state = LabState::new(Some("x"), HolderKind::Held).unwrap();
        assert!(state.is_alive());
        let mut json = serde_json::to_value(&state).unwrap();
        json["news"] = 1.into();
        json.as_object_mut().unwrap().remove("links");
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(format!("{}.json", state.id));
        fs::write(&path, json.to_string()).unwrap();
        assert_eq!(LabState::read(&path).unwrap(), state);
    }

    #[test]
    fn a_state_of_a_later_version_is_refused() {
        let mut state = LabState::new(None, HolderKind::Running).unwrap();
        state.version = VERSION + 1;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(format!("{}.json", state.id));
        fs::write(&path, serde_json::to_string(&state).unwrap()).unwrap();
        let error = LabState::read(&path).unwrap_err().to_string();
        assert!(error.contains("version is 2"), "{error}");
    }
}
