//! System calls.

pub(crate) mod adjtimex;
