//! `tune.json`: what is put in force again at boot, by whom it is known.

use std::borrow::Cow;

use linerate_host::{Setting, SettingValue};
use serde::{Deserialize, Serialize};

use super::{DeviceIdentity, QueueVector};

/// The schema of the file.
pub const SCHEMA: &str = "linerate.persisted/1";

/// Settings to put in force again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PersistedSettings {
    /// [`SCHEMA`].
    pub schema: String,
    pub version: String,
    /// What the settings are for: the goal of the tune that was made to last.
    pub goal: String,
    /// Number of that tune in the journal.
    pub tune: u64,
    /// The devices of the interfaces that are named below.
    pub devices: Vec<DeviceIdentity>,
    /// The settings, in the order in which they are made.
    pub settings: Vec<PersistedSetting>,
}

/// One setting to put in force again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PersistedSetting {
    /// Which one, with the interface named as it was then.
    pub setting: Setting,
    /// What it is to be.
    pub value: SettingValue,
    /// For an interrupt, the queues that it serves; none for other settings, and where it serves none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vector: Option<QueueVector>,
}

impl PersistedSetting {
    /// The interface that it is about, by its name when the file was written; none for one of the whole host.
    #[must_use]
    pub fn interface(&self) -> Option<Cow<'_, str>> {
        match &self.vector {
            Some(vector) => Some(Cow::Borrowed(vector.interface.as_str())),
            None => self.setting.interface(),
        }
    }
}

/// A file that cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum PersistFileError {
    /// It is not such a document.
    #[error("{file}: {reason}; `linerate tune persist` writes it anew")]
    Garbled {
        file: String,
        /// What is wrong, with line and column.
        reason: String,
    },
    /// It is of another schema.
    #[error("{file}: schema is '{found}', this linerate reads {SCHEMA}")]
    Schema {
        file: String,
        /// What it says it is.
        found: String,
    },
    /// A setting is about an interface of which nothing is said.
    #[error("{file}: setting {number} ({setting}) is about {interface}, which is not among the devices")]
    UnknownDevice {
        file: String,
        /// Number of the setting, from 1.
        number: usize,
        setting: String,
        interface: String,
    },
}

impl PersistedSettings {
    /// Reads a document; `file` is what errors call it.
    ///
    /// # Errors
    /// [`PersistFileError`] with the place.
    pub fn parse(text: &str, file: &str) -> Result<Self, PersistFileError> {
        let garbled = |error: serde_json::Error| PersistFileError::Garbled {
            file: file.to_owned(),
            reason: error.to_string(),
        };
        // The schema first: what else a later one holds is not garbled.
        #[derive(Deserialize)]
        struct DocumentHead {
            schema: String,
        }
        let head: DocumentHead = serde_json::from_str(text).map_err(garbled)?;
        if head.schema != SCHEMA {
            return Err(PersistFileError::Schema { file: file.to_owned(), found: head.schema });
        }
        let document: Self = serde_json::from_str(text).map_err(garbled)?;
        for (index, lasting) in document.settings.iter().enumerate() {
            let Some(interface) = lasting.interface() else { continue };
            if document.device(&interface).is_none() {
                return Err(PersistFileError::UnknownDevice {
                    file: file.to_owned(),
                    number: index + 1,
                    setting: lasting.setting.to_string(),
                    interface: interface.into_owned(),
                });
            }
        }
        Ok(document)
    }

    /// The device that an interface's name meant.
    #[must_use]
    pub fn device(&self, interface: &str) -> Option<&DeviceIdentity> {
        self.devices.iter().find(|device| device.interface == interface)
    }

    /// The document as text.
    ///
    /// # Errors
    /// What serde says; no document that was made here gives it.
    pub fn to_text(&self) -> Result<String, serde_json::Error> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        Ok(text)
    }
}
