//! Settings of a packet path, changed as one step that can be undone.
//!
//! A [`plan`] is made from what doctor found, for a goal that a profile names. The arbiter tells who else sets what it
//! would set. Carrying it out writes a [`journal`] record before each change, so that whatever ends the program, what was
//! done is known and can be undone. Nothing here prints.

pub mod arbiter;
pub mod boost;
pub mod claim;
pub mod device;
pub mod guard;
pub mod journal;
mod layout;
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
