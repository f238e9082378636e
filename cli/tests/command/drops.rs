//! `linerate drops` against losses that are made, and counted by the kernel or by those who made them.

mod balanced;
mod forwarded;
mod host_wide;
pub(crate) mod killed;
mod losses;
mod refused;
mod replies;
pub(crate) mod scene;
mod virtual_machines;
