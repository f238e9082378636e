//! Steering, pinning and tuning of a UDP server that is running, unmodified, from outside.
//!
//! [`ObservedServer`] is what is seen of it: processes, threads, sockets, reuseport groups, and who reads which socket. A
//! [`BoostPlan`] decides from that and the packet path which CPU's packets each socket gets and where the threads that read it
//! belong. It is carried out as a tune of `linerate_tune`: journalled, verified, undoable. Nothing here prints.

pub mod answers;
pub mod catalog;
pub mod conformity;
pub mod plan;
pub mod report;
pub mod sight;
pub mod verify;
pub mod watch;

pub use plan::BoostPlan;
pub use sight::ObservedServer;
