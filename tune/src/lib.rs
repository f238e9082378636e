//! Settings of a packet path, changed as one step that can be undone.
//!
//! A [`plan`] is made from doctor's findings for the goal of a profile. [`conflicts`] finds other
//! tools that manage the same settings. A [`transaction`] writes a [`journal`] record to disk
//! before each change, so that every change is known and can be undone however the program ends.
//! Nothing here prints.

pub mod boost;
pub mod claim;
pub mod conflicts;
pub mod device;
pub mod flow;
pub mod guard;
pub mod journal;
mod layout;
pub mod measure;
#[doc(hidden)]
pub mod parse;
pub mod persist;
pub mod plan;
pub mod profile;
pub mod report;
pub mod status;
mod sys;
pub mod transaction;

pub use device::NamedDevice;
pub use plan::TunePlan;
pub use profile::TuneProfile;
