//! `linerate boost` against servers that people run, unmodified, as root runs it: in a lab, whose receiver is the host.

mod echo;
mod harm;
mod healthy;
mod ladder;
mod nsd;
mod random;
mod refused;
pub(crate) mod scene;
mod single;
mod traces;
mod worker;
