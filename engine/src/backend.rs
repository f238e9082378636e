//! Ways to call the kernel. Each backend is a loop that runs until the worker stops.

pub(crate) mod job;
pub(crate) mod mmsg;
pub(crate) mod recvfrom;
pub(crate) mod xdp;

pub use xdp::{XdpInterface, XdpQueue, XdpReport};

use crate::choices::Backend;
use crate::socket::Fallback;

// The backend `wanted` if it can run here, else the default; `fallbacks` gets the reason.
pub(crate) fn available_backend(wanted: Backend, fallbacks: &mut Vec<Fallback>) -> Backend {
    match wanted {
        Backend::Recvfrom | Backend::Mmsg { .. } => wanted,
        Backend::Xdp(_) => match xdp::probe() {
            Ok(()) => wanted,
            Err(why) => {
                fallbacks.push(Fallback { what: "AF_XDP, mmsg is used instead".to_owned(), why });
                Backend::default()
            }
        },
    }
}
