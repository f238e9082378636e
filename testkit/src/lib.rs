//! What tests need beside linerate: servers with faults on demand, and hosts with known faults as trees of files.

#![deny(unsafe_code)]

pub mod reflector;
pub mod specimen;
