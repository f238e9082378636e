//! For tests: servers with faults on demand, and fixture hosts.

#![deny(unsafe_code)]

pub mod fixture;
pub mod reflector;
