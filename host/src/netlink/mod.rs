//! What the kernel tells over netlink: the way to a destination, and what an interface can do.
//!
//! A socket belongs to the network namespace of the thread that opens it, so that all of this is about the calling
//! thread's namespace.

mod connection;
pub(crate) mod ethtool;
mod generic;
pub(crate) mod napi;
mod path;
mod xdp;

pub use path::{Mac, Path, PathError, path_to};
pub use xdp::{Attached, Mode, XdpFeatures, XdpState, xdp_state};
