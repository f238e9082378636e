//! The names of the stages.

use std::fmt;

use serde::{Deserialize, Serialize};

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
    /// In packet order.
    const ALL: [StageName; 10] = [
        StageName::Machine,
        StageName::Link,
        StageName::Rss,
        StageName::Irq,
        StageName::Softirq,
        StageName::Filter,
        StageName::Route,
        StageName::Socket,
        StageName::Thread,
        StageName::Transmit,
    ];

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stage| stage.name() == name)
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
