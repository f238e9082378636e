//! `linerate drops` on deliberate losses that the kernel or the test counts too.

mod balanced;
mod forwarded;
mod host_wide;
mod killed;
mod losses;
mod refused;
mod replies;
mod scene;
mod virtual_machines;
