//! The interface of each kind of setting.

use super::value::SettingValue;
use crate::{Host, HostError};

pub(super) trait Knob {
    /// The name in messages.
    fn name(&self) -> String;

    /// The reason why the name is invalid.
    fn name_error(&self) -> Option<String> {
        None
    }

    fn read(&self, host: &Host) -> Result<SettingValue, HostError>;

    /// The text that all values with the same meaning have; the error describes the values that
    /// are valid on some host. Knobs whose values cannot be compared as texts define [`Knob::same`], too.
    fn canonical(&self, value: &SettingValue) -> Result<String, &'static str>;

    /// Writes a value that [`Knob::canonical`] accepts.
    fn write(&self, host: &Host, value: &SettingValue) -> Result<(), WriteRefusal>;

    fn same(&self, left: &SettingValue, right: &SettingValue) -> bool {
        left == right || self.canonical(left).is_ok_and(|left| self.canonical(right) == Ok(left))
    }

    /// Whether a write of `requested` succeeded if `actual` is read after it.
    fn is_applied(&self, requested: &SettingValue, actual: &SettingValue) -> bool {
        self.same(requested, actual)
    }

    /// Whether an interrupted write of the first value may leave the second one.
    fn can_leave(&self, _requested: &SettingValue, _actual: &SettingValue) -> bool {
        false
    }

    // The reason why it cannot be changed on this host; `None` if it can be changed, or if unknown.
    fn fixed_reason(&self, _host: &Host) -> Option<&'static str> {
        None
    }

    /// The equivalent shell command; `None` if one command does not suffice.
    fn command(&self, _value: &SettingValue) -> Option<String> {
        None
    }
}

/// The reason why a value was not written.
pub(super) enum WriteRefusal {
    /// An invalid value; the text describes the valid values.
    BadValue(&'static str),
    Host(HostError),
    // It would not work, or could not be undone.
    Reason(String),
}

impl From<&'static str> for WriteRefusal {
    fn from(expected: &'static str) -> Self {
        WriteRefusal::BadValue(expected)
    }
}

impl From<HostError> for WriteRefusal {
    fn from(error: HostError) -> Self {
        WriteRefusal::Host(error)
    }
}

/// Quoted for a shell if necessary.
pub(super) fn quote(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:,=+@%".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

pub(super) fn echo(value: &SettingValue, path: &str) -> String {
    format!("echo {} > {path}", quote(value.as_str()))
}
