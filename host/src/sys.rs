//! System calls that no library wraps. All unsafe code of the crate is in this module.

pub(crate) mod child;
pub(crate) mod ethtool;
pub(crate) mod iptables;
pub(crate) mod scheduler;
pub(crate) mod socket_array;
pub(crate) mod sockopt;
pub(crate) mod tcx;
