//! What each kind of knob does.

use super::SettingValue;
use crate::{Host, HostError};

/// A kind of knob, on the host it is read from and written to.
pub(super) trait Knob {
    /// What a person calls it.
    fn name(&self) -> String;

    /// Why there can be none of that name; none where there can.
    fn wrong_name(&self) -> Option<String> {
        None
    }

    /// What it is set to.
    fn read(&self, host: &Host) -> Result<SettingValue, HostError>;

    /// Whether the value is one that such a knob takes, on whatever host; else what it takes.
    fn check(&self, value: &SettingValue) -> Result<(), &'static str>;

    /// Sets it. The value was found good by [`Knob::check`].
    fn write(&self, host: &Host, value: &SettingValue) -> Result<(), WriteRefusal>;

    /// Whether two values mean the same.
    fn same(&self, one: &SettingValue, other: &SettingValue) -> bool {
        one == other
    }

    /// Whether a write of one value was taken when the other is read after it.
    fn took(&self, wanted: &SettingValue, found: &SettingValue) -> bool {
        self.same(wanted, found)
    }

    /// Whether a write of a value passes through this one, and leaves it when it breaks off.
    fn passes(&self, _to: &SettingValue, _found: &SettingValue) -> bool {
        false
    }

    /// Why nobody can set it on this host; none where somebody can, or where that is not known.
    fn is_fixed(&self, _host: &Host) -> Option<&'static str> {
        None
    }

    /// What a person would type to set it; none where no single command does.
    fn command(&self, value: &SettingValue) -> Option<String>;
}

/// Why a value was not written.
pub(super) enum WriteRefusal {
    /// It is none that the knob takes, which is this.
    BadValue(&'static str),
    /// The host refused.
    Host(HostError),
    /// It would not work, or could not be undone.
    Reason(String),
}

impl From<HostError> for WriteRefusal {
    fn from(error: HostError) -> Self {
        WriteRefusal::Host(error)
    }
}

/// A word a shell takes as one.
pub(super) fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:,=+@%".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// What a person would type to write a file.
pub(super) fn echo(value: &SettingValue, path: &str) -> String {
    format!("echo {} > {path}", quoted(value.as_str()))
}
