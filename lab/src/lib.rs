//! Throw-away hosts from network namespaces and veth pairs.

mod child;
mod error;
mod host;
mod lab;
mod namespace;
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
pub use topology::{End, Link, Shape};
