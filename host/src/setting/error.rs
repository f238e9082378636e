//! Why a knob could not be read or turned.

use crate::HostError;

/// Why a knob could not be read or turned.
#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    /// The host refused.
    #[error("{setting}: {}", without(setting, source))]
    Host {
        /// The knob.
        setting: String,
        /// Why.
        source: HostError,
    },
    /// The value is none that this knob takes.
    #[error("{setting}: '{value}' is not {expected}")]
    BadValue {
        /// The knob.
        setting: String,
        /// The value offered.
        value: String,
        /// What it takes.
        expected: &'static str,
    },
    /// There can be no such knob: a name in it is none.
    #[error("'{setting}' names no setting: {why}")]
    BadName {
        /// The knob.
        setting: String,
        /// What is wrong with its name.
        why: String,
    },
    /// Nothing was written, since it would not work or could not be undone.
    #[error("{setting}: {why}")]
    Refused {
        /// The knob.
        setting: String,
        /// Why.
        why: String,
    },
    /// The write was accepted and had no effect.
    #[error("{setting}: wrote '{wanted}', it still reads '{found}'")]
    Ignored {
        /// The knob.
        setting: String,
        /// The value written.
        wanted: String,
        /// What it reads afterwards.
        found: String,
    },
    /// The write changed it, and to something else than was written: drivers round, and leave out what they have not. It is
    /// for the caller to be content with that, or to write the old value.
    #[error("{setting}: wrote '{wanted}', it reads '{found}' now")]
    Partly {
        /// The knob.
        setting: String,
        /// The value written.
        wanted: String,
        /// What it reads afterwards.
        found: String,
    },
}

impl SettingError {
    /// Whether what the knob belongs to is not there: no such interface, queue, vector, file or CPU.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(self, SettingError::Host { source, .. } if source.is_gone())
    }

    /// Whether the device or kernel has no such knob: `EOPNOTSUPP`.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        matches!(self, SettingError::Host { source, .. } if source.is_unsupported())
    }

    /// Whether it takes a privilege that the caller has not, or the file is in a tree that nobody may write.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        matches!(self, SettingError::Host { source, .. } if source.is_denied())
    }

    /// The same for who names the knob itself: without its name before it.
    #[must_use]
    pub fn reason(&self) -> String {
        let whole = self.to_string();
        let (SettingError::Host { setting, .. }
        | SettingError::BadValue { setting, .. }
        | SettingError::BadName { setting, .. }
        | SettingError::Refused { setting, .. }
        | SettingError::Ignored { setting, .. }
        | SettingError::Partly { setting, .. }) = self;
        let reason = whole.strip_prefix(setting.as_str()).and_then(|rest| rest.strip_prefix(": "));
        reason.map_or_else(|| whole.clone(), str::to_owned)
    }

    /// What the knob reads after the write that failed, where that is known.
    #[must_use]
    pub fn found(&self) -> Option<&str> {
        match self {
            SettingError::Ignored { found, .. } | SettingError::Partly { found, .. } => Some(found),
            _ => None,
        }
    }
}

/// What the host refused, without the name of a knob that is told already: "steering of udp
/// 0.0.0.0:53", and not "steering udp 0.0.0.0:53" after it again.
fn without(setting: &str, source: &HostError) -> String {
    match source {
        HostError::Call { what, source }
            if setting.split(' ').all(|word| word == "of" || what.contains(word)) =>
        {
            source.to_string()
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_knob_is_named_once() {
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
