//! Errors of settings.

use crate::HostError;

#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    #[error("{setting}: {}", host_reason(setting, source))]
    Host { setting: String, source: HostError },
    #[error("{setting}: '{value}' is not {expected}")]
    BadValue { setting: String, value: String, expected: &'static str },
    /// No such setting can exist.
    #[error("'{setting}' names no setting: {why}")]
    BadName { setting: String, why: String },
    /// Nothing was written, because it would not work or could not be undone.
    #[error("{setting}: {why}")]
    Refused { setting: String, why: String },
    /// The write was accepted and had no effect.
    #[error("{setting}: wrote '{wanted}', it still reads '{found}'")]
    Ignored { setting: String, wanted: String, found: String },
    /// The write had another result: drivers round, and ignore parameters they do not have. The
    /// caller accepts that or writes the old value.
    #[error("{setting}: wrote '{wanted}', it reads '{found}' now")]
    Partly { setting: String, wanted: String, found: String },
}

impl SettingError {
    /// Whether the interface, queue, vector, file or CPU does not exist.
    pub fn is_gone(&self) -> bool {
        matches!(self, SettingError::Host { source, .. } if source.is_gone())
    }

    /// Whether the device or kernel has no such setting: `EOPNOTSUPP`.
    pub fn is_unsupported(&self) -> bool {
        matches!(self, SettingError::Host { source, .. } if source.is_unsupported())
    }

    /// Whether the caller lacks a privilege, or the file is in a read-only tree.
    pub fn is_denied(&self) -> bool {
        matches!(self, SettingError::Host { source, .. } if source.is_denied())
    }

    /// The message without the name of the setting.
    pub fn reason(&self) -> String {
        let message = self.to_string();
        let (SettingError::Host { setting, .. }
        | SettingError::BadValue { setting, .. }
        | SettingError::BadName { setting, .. }
        | SettingError::Refused { setting, .. }
        | SettingError::Ignored { setting, .. }
        | SettingError::Partly { setting, .. }) = self;
        let reason = message.strip_prefix(setting.as_str()).and_then(|rest| rest.strip_prefix(": "));
        reason.map_or_else(|| message.clone(), str::to_owned)
    }

    /// The value after the failed write, if known.
    pub fn found(&self) -> Option<&str> {
        match self {
            SettingError::Ignored { found, .. } | SettingError::Partly { found, .. } => Some(found),
            _ => None,
        }
    }
}

/// The host's error without the name of the setting, which precedes it: not "steering of udp
/// 0.0.0.0:53: steering udp 0.0.0.0:53".
fn host_reason(setting: &str, source: &HostError) -> String {
    match source {
        HostError::Call { what, source }
            if setting.split(' ').all(|word| word == "of" || what.contains(word)) =>
        {
            source.to_string()
        }
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_messages_name_the_setting_once() {
        let error = |setting: &str, what: &str| SettingError::Host {
            setting: setting.to_owned(),
            source: HostError::Call { what: what.to_owned(), source: std::io::Error::other("no") },
        };
        let steering = error("steering of udp 0.0.0.0:53", "steering udp 0.0.0.0:53");
        assert_eq!(steering.to_string(), "steering of udp 0.0.0.0:53: no");
        assert_eq!(steering.reason(), "no");
        let other = error("CPUs of thread 7", "asking the kernel");
        assert_eq!(other.to_string(), "CPUs of thread 7: asking the kernel: no");
        assert_eq!(other.reason(), "asking the kernel: no");
    }
}
