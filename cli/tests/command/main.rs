//! The command, run as a user runs it.

mod bad_input;
mod doctor;
mod documents;
mod host_wide;
mod kill;
mod load;
mod support;
