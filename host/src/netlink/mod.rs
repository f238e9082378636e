//! Netlink: routes, and the capabilities and counters of interfaces.
//!
//! A socket belongs to the network namespace of the thread that opens it, so these functions refer
//! to the calling thread's namespace.

pub(crate) mod address;
pub(crate) mod attribute;
pub(crate) mod audit;
pub(crate) mod connection;
pub(crate) mod ethtool;
mod generic;
pub(crate) mod link;
pub(crate) mod napi;
pub(crate) mod nfnetlink;
mod path;
pub(crate) mod qdisc;
pub(crate) mod qstats;
pub(crate) mod sock_diag;
pub(crate) mod tc;
mod xdp;

pub use address::addresses;
pub(crate) use connection::any_acknowledgement;
#[doc(hidden)]
pub use connection::{NetlinkAnswer, NetlinkConnection, errno};
pub use link::has_carrier;
pub use path::{Mac, PathError, RoutePath, path_to};
pub use qdisc::has_root_queue;
pub use sock_diag::DiagSocket;
pub(crate) use sock_diag::{parse as diag_socket, sockets as diag_sockets};
pub use xdp::{AttachedXdp, XdpAttachKind, XdpFeatures, XdpState, xdp_attached, xdp_features, xdp_state};
