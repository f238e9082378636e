//! Steering, pinning and tuning of a running, unmodified UDP server from outside.
//!
//! An [`ObservedServer`] has the server's processes, threads, sockets and reuseport groups, and the
//! threads that read each socket. From these and the packet path, a [`BoostPlan`] decides which
//! CPU's packets each socket receives and where its threads run. It is applied as a tune:
//! journalled, verified and undoable. Nothing here prints.

pub mod answers;
pub mod catalog;
pub mod delivery;
pub mod discovery;
pub mod plan;
pub mod replicas;
pub mod report;
pub mod watch;

pub use discovery::ObservedServer;
pub use plan::BoostPlan;

fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}
