//! Throw-away hosts from network namespaces and veth pairs.

mod child;
mod error;
pub mod hold;
mod host;
mod lab;
mod namespace;
mod probe;
mod process;
pub mod registry;
mod resident;
mod rtnetlink;
mod sys;
pub mod topology;
pub mod userns;

pub use child::LabChild;
pub use error::{Error, Result};
pub use host::LabHost;
pub use lab::{Builder, Lab};
pub use namespace::NamespaceId;
pub use probe::{Ability, Probe, probe};
pub use process::{ProcessId, Resident};
pub use registry::{CleanReport, LabState, Registry, Scope};
pub use topology::{End, Link, Shape};
