//! System calls that no library wraps. All unsafe code of the crate is below this module.

pub(crate) mod audit;
pub(crate) mod ethtool;
pub(crate) mod iptables;
pub(crate) mod sockopt;
pub(crate) mod tcx;
