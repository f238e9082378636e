//! All `unsafe` of the chores.

pub(crate) mod echo;
pub(crate) mod trace;
pub(crate) mod tsc;
pub(crate) mod usage;
