//! Rules about sockets.

pub(in crate::stage) mod buffer;
pub(in crate::stage) mod group;
pub(in crate::stage) mod memory;
pub(in crate::stage) mod sharing;
pub(in crate::stage) mod steered;
