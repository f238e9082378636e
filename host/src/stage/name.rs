//! The names of the stages.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr};

// In packet order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[derive(Display, EnumString, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
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
    /// The name in JSON and in the ids of findings.
    pub fn name(self) -> &'static str {
        self.into()
    }
}
