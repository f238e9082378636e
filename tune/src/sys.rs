//! System calls that no library wraps.

pub(crate) mod copy;
pub(crate) mod detach;
pub(crate) mod lock;
