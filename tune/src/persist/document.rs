//! `tune.json`: the settings to reapply at boot.

use std::borrow::Cow;

use linerate_host::{Setting, SettingValue};
use serde::{Deserialize, Serialize};

use super::{DeviceIdentity, QueueVector};

pub const SCHEMA: &str = "linerate.persisted/1";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PersistedSettings {
    /// [`SCHEMA`].
    pub schema: String,
    pub version: String,
    /// The goal of the tune.
    pub goal: String,
    /// Number of the tune in the journal.
    pub tune: u64,
    /// The devices of all interfaces of the settings.
    pub devices: Vec<DeviceIdentity>,
    /// In the order in which they are made.
    pub settings: Vec<PersistedSetting>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PersistedSetting {
    /// The setting with the name of its interface when the file was written.
    pub setting: Setting,
    pub value: SettingValue,
    /// For an interrupt, the queues that it serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vector: Option<QueueVector>,
}

impl PersistedSetting {
    /// Its interface by the name when the file was written; `None` for a setting of the host.
    pub fn interface(&self) -> Option<Cow<'_, str>> {
        match &self.vector {
            Some(vector) => Some(Cow::Borrowed(vector.interface.as_str())),
            None => self.setting.interface(),
        }
    }
}

/// Why a file cannot be used, in one line.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct PersistFileError(String);

impl PersistedSettings {
    /// Parses a document. Errors name `file` and the place.
    pub fn parse(text: &str, file: &str) -> Result<Self, PersistFileError> {
        let garbled = |error: serde_json::Error| {
            PersistFileError(format!("{file}: {error}; `linerate tune persist` writes it again"))
        };
        // The schema first, because a later schema may have other fields.
        #[derive(Deserialize)]
        struct DocumentHead {
            schema: String,
        }
        let head: DocumentHead = serde_json::from_str(text).map_err(garbled)?;
        if head.schema != SCHEMA {
            let found = head.schema;
            return Err(PersistFileError(format!(
                "{file}: schema is '{found}', this linerate reads {SCHEMA}"
            )));
        }
        let document: Self = serde_json::from_str(text).map_err(garbled)?;
        for (number, persisted) in (1_usize..).zip(&document.settings) {
            let Some(interface) = persisted.interface() else { continue };
            if document.device(&interface).is_none() {
                return Err(PersistFileError(format!(
                    "{file}: setting {number} ({}) is about {interface}, which is not among the devices",
                    persisted.setting
                )));
            }
        }
        Ok(document)
    }

    pub fn device(&self, interface: &str) -> Option<&DeviceIdentity> {
        self.devices.iter().find(|device| device.interface == interface)
    }

    pub fn to_text(&self) -> Result<String, serde_json::Error> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        Ok(text)
    }
}
