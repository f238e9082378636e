//! The choice of a generator's way into the kernel.

use clap::ValueEnum;
use linerate_load::generator::Backend;

/// How requests reach the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BackendArgument {
    /// Live XDP frames where they work, else sockets
    Auto,
    /// Live XDP frames, or an error that says what is missing
    Xdp,
    /// Ordinary UDP sockets
    Socket,
}

impl From<BackendArgument> for Backend {
    fn from(argument: BackendArgument) -> Self {
        match argument {
            BackendArgument::Auto => Backend::Auto,
            BackendArgument::Xdp => Backend::Xdp,
            BackendArgument::Socket => Backend::Socket,
        }
    }
}
