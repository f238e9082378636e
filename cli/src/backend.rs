//! The argument that selects the backend of a load generator.

use clap::ValueEnum;
use linerate_load::generator::GeneratorBackend;

/// How requests reach the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LoadBackendArgument {
    /// xdp if it works here, otherwise socket
    Auto,
    /// Sent by the kernel, replies matched by an XDP program; an error if a requirement is missing
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
