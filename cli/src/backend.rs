//! The choice of a generator's way into the kernel.

use clap::ValueEnum;
use linerate_load::generator::GeneratorBackend;

/// How requests reach the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LoadBackendArgument {
    /// Live XDP frames where they work, else sockets
    Auto,
    /// Live XDP frames, or an error that says what is missing
    Xdp,
    /// Ordinary UDP sockets
    Socket,
}

impl From<LoadBackendArgument> for GeneratorBackend {
    fn from(argument: LoadBackendArgument) -> Self {
        match argument {
            LoadBackendArgument::Auto => GeneratorBackend::Auto,
            LoadBackendArgument::Xdp => GeneratorBackend::Xdp,
            LoadBackendArgument::Socket => GeneratorBackend::Socket,
        }
    }
}
