//! ethtool structures of 32-bit words: rings, channels, interrupt moderation (linux/ethtool.h).
//!
//! netlink has the same fields (linux/ethtool_netlink.h). The attribute number of a word is its
//! index plus one, because word 0 is the command and attribute 1 the header.

use std::io;

use serde_json::{Map, Value};

use super::ioctl;

// Words of a structure by index. netlink leaves out words that the device does not have; the ioctl
// cannot express that, and has zeros.
pub(crate) type EthtoolWords = Vec<Option<u32>>;

/// A structure, the commands that read and write it, and its parameters.
pub(crate) struct WordStructure {
    /// The name in captures.
    pub(crate) name: &'static str,
    get: u32,
    set: u32,
    pub(crate) netlink_get: u8,
    pub(crate) netlink_set: u8,
    /// Words of the structure, including the command.
    pub(crate) length: usize,
    pub(crate) parameters: &'static [WordParameter],
}

#[derive(PartialEq)]
pub(crate) struct WordParameter {
    /// As in ethtool(8).
    pub(crate) name: &'static str,
    /// Index of its word.
    pub(crate) index: usize,
    /// Index of the word with the device's limit, which is 0 if the device does not have the
    /// parameter.
    limit: Option<usize>,
}

const fn limited(name: &'static str, index: usize, limit: usize) -> WordParameter {
    WordParameter { name, index, limit: Some(limit) }
}

const fn unlimited(name: &'static str, index: usize) -> WordParameter {
    WordParameter { name, index, limit: None }
}

pub(crate) const COALESCE: WordStructure = WordStructure {
    name: "coalesce",
    get: 0x0e,
    set: 0x0f,
    netlink_get: 19,
    netlink_set: 20,
    length: 23,
    parameters: &[
        unlimited("adaptive-rx", 10),
        unlimited("adaptive-tx", 11),
        unlimited("rx-usecs", 1),
        unlimited("rx-frames", 2),
        unlimited("tx-usecs", 5),
        unlimited("tx-frames", 6),
    ],
};
pub(crate) const RINGS: WordStructure = WordStructure {
    name: "rings",
    get: 0x10,
    set: 0x11,
    netlink_get: 15,
    netlink_set: 16,
    length: 9,
    parameters: &[limited("rx", 5, 1), limited("tx", 8, 4)],
};
pub(crate) const CHANNELS: WordStructure = WordStructure {
    name: "channels",
    get: 0x3c,
    set: 0x3d,
    netlink_get: 17,
    netlink_set: 18,
    length: 9,
    parameters: &[limited("rx", 5, 1), limited("tx", 6, 2), limited("combined", 8, 4)],
};

impl WordStructure {
    pub(crate) fn read(&self, interface: &str) -> io::Result<EthtoolWords> {
        Ok(self.words(interface)?.into_iter().map(Some).collect())
    }

    /// Reads the structure, changes these words, and writes it.
    pub(crate) fn change(&self, interface: &str, changes: &[(&WordParameter, u32)]) -> io::Result<()> {
        let mut words = self.words(interface)?;
        words[0] = self.set;
        for (parameter, value) in changes {
            words[parameter.index] = *value;
        }
        call_ioctl(interface, &mut words)
    }

    fn words(&self, interface: &str) -> io::Result<Vec<u32>> {
        let mut words = vec![0; self.length];
        words[0] = self.get;
        call_ioctl(interface, &mut words)?;
        Ok(words)
    }

    pub(crate) fn parameter(&self, name: &str) -> Option<&WordParameter> {
        self.parameters.iter().find(|parameter| parameter.name == name)
    }

    /// The parameters and limits that the device has, with the field names of
    /// [`crate::ethtool::RingLengths`] and the other structures.
    pub(crate) fn answer(&self, words: &EthtoolWords) -> Value {
        let word = |index: usize| words.get(index).copied().flatten();
        let mut fields = Map::new();
        for parameter in self.parameters {
            let value = word(parameter.index).map(|word| (parameter.field(), parameter.json(word)));
            let limit = parameter.limit.and_then(word).map(|limit| (parameter.limit_field(), limit.into()));
            fields.extend([value, limit].into_iter().flatten());
        }
        fields.into()
    }
}

impl WordParameter {
    pub(crate) fn is_flag(&self) -> bool {
        self.name.starts_with("adaptive-")
    }

    /// The field of an answer.
    pub(crate) fn field(&self) -> String {
        self.name.replace('-', "_")
    }

    fn limit_field(&self) -> String {
        format!("{}_max", self.field())
    }

    /// The value of the field.
    pub(crate) fn json(&self, word: u32) -> Value {
        if self.is_flag() { (word != 0).into() } else { word.into() }
    }

    /// The value as ethtool(8) writes it; `None` if the device does not have the parameter.
    pub(crate) fn text_in(&self, answer: &Value) -> Option<String> {
        if self.limit.is_some() && answer.get(self.limit_field())?.as_u64() == Some(0) {
            return None;
        }
        match answer.get(self.field())? {
            Value::Null => None,
            Value::Bool(on) => Some(if *on { "on" } else { "off" }.to_owned()),
            number => Some(number.to_string()),
        }
    }
}

// `words` is as long as the structure of the command in its first word.
fn call_ioctl(interface: &str, words: &mut [u32]) -> io::Result<()> {
    // SAFETY: only this module calls it, with the length of the structure, which contains only words.
    unsafe { ioctl(interface, words.as_mut_ptr().cast()) }
}
