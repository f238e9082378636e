//! `linerate boost`, run as root, on servers such as NSD. The receiver of a lab is the host.

mod echo;
mod harm;
mod healthy;
mod ladder;
mod nsd;
mod random;
mod refused;
pub(crate) mod scene;
mod single;
pub(crate) mod traces;
mod worker;
