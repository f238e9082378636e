//! The names of the stages.

use std::fmt;

use serde::de::IntoDeserializer as _;
use serde::de::value::{self, StrDeserializer};
use serde::{Deserialize, Serialize};

// In packet order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StageName {
    Machine,
    Link,
    Rss,
    Irq,
    Softirq,
    Filter,
    Route,
    Socket,
    Thread,
    Transmit,
}

impl StageName {
    pub fn from_name(name: &str) -> Option<Self> {
        let name: StrDeserializer<'_, value::Error> = name.into_deserializer();
        Self::deserialize(name).ok()
    }

    /// The name in JSON and in the ids of findings.
    pub fn name(self) -> &'static str {
        match self {
            StageName::Machine => "machine",
            StageName::Link => "link",
            StageName::Rss => "rss",
            StageName::Irq => "irq",
            StageName::Softirq => "softirq",
            StageName::Filter => "filter",
            StageName::Route => "route",
            StageName::Socket => "socket",
            StageName::Thread => "thread",
            StageName::Transmit => "transmit",
        }
    }
}

impl fmt::Display for StageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
