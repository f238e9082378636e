//! `linerate tune`, run as root. The receiver of a lab is the host.

mod documents;
mod faults;
mod flow;
mod guarded;
mod lasting;
mod measured;
mod namespace;
mod plan;
mod refused;
mod round_trip;
pub(crate) mod scene;
