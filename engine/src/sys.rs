//! All `unsafe` of this crate: the system calls that no library wraps, behind safe functions.

pub(crate) mod batch;
pub(crate) mod bpf;
pub(crate) mod control;
pub(crate) mod guard;
pub(crate) mod interface;
pub(crate) mod mapping;
pub(crate) mod name;
pub(crate) mod option;
pub(crate) mod single_message;
pub(crate) mod stamp;
pub(crate) mod thread;
pub(crate) mod xsk;
