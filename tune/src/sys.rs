//! System calls that no library wraps.

pub(crate) mod detach;
pub(crate) mod lock;
