//! Ways to call the kernel. Each backend is a loop that runs until the worker stops.

pub(crate) mod job;
pub(crate) mod mmsg;
pub(crate) mod recvfrom;
pub(crate) mod xdp;

pub use xdp::{XdpInterface, XdpQueue, XdpReport};

use crate::choices::Backend;
use crate::socket::Fallback;

// `requested_backend` if it can run here, else the default; `fallbacks` gets the reason.
pub(crate) fn available_backend(requested_backend: Backend, fallbacks: &mut Vec<Fallback>) -> Backend {
    match requested_backend {
        Backend::Recvfrom | Backend::Mmsg { .. } => requested_backend,
        Backend::Xdp(_) => match xdp::probe() {
            Ok(()) => requested_backend,
            Err(why) => {
                fallbacks.push(Fallback { what: "AF_XDP, mmsg is used instead".to_owned(), why });
                Backend::default()
            }
        },
    }
}
