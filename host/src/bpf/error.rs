//! Failures of BPF programs.

use std::error::Error;
use std::io;

use super::ProgramAttachment;

/// A failure to load, attach or read BPF programs.
#[derive(Debug)]
pub struct BpfError {
    /// For the error message.
    pub operation: &'static str,
    pub failure: BpfFailure,
}

#[derive(Debug)]
pub enum BpfFailure {
    /// [`KERNEL_TYPES`](super::KERNEL_TYPES) cannot be read.
    KernelTypes(io::Error),
    /// This kernel lacks the tracepoint of a program that is not optional.
    NoTracepoint(ProgramAttachment),
    Other {
        /// Of the system call, if there is one.
        errno: Option<i32>,
        /// With all causes. The log of the verifier, if it is part of them, has several lines.
        message: String,
    },
}

impl BpfError {
    pub fn new(operation: &'static str, error: impl Error + 'static) -> Self {
        let mut message = error.to_string();
        let mut errno = None;
        let mut next_error: Option<&(dyn Error + 'static)> = Some(&error);
        while let Some(error) = next_error {
            errno = errno.or(error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error));
            // Some of the library's errors include the message of their cause.
            let text = error.to_string();
            if !message.contains(&text) {
                message = format!("{message}: {text}");
            }
            next_error = error.source();
        }
        Self { operation, failure: BpfFailure::Other { errno, message } }
    }

    pub(super) fn missing(operation: &'static str, name: &str) -> Self {
        let message = format!("the BPF object lacks {name}: rebuild it with cargo xtask bpf");
        Self { operation, failure: BpfFailure::Other { errno: None, message } }
    }
}

/// The system error if there is one, because captures store its number; otherwise all messages.
impl From<BpfError> for io::Error {
    fn from(error: BpfError) -> Self {
        match error.failure {
            BpfFailure::KernelTypes(error) => error,
            BpfFailure::NoTracepoint(ProgramAttachment { tracepoint, since, .. }) => {
                let message = format!("the kernel has no tracepoint {tracepoint}: it {since}");
                Self::new(io::ErrorKind::Unsupported, message)
            }
            BpfFailure::Other { errno: Some(errno), .. } => Self::from_raw_os_error(errno),
            BpfFailure::Other { message, .. } => {
                Self::other(message.lines().next().unwrap_or_default().to_owned())
            }
        }
    }
}

/// Converts an error of aya to its system error if there is one, otherwise to its messages.
pub(crate) fn error(error: impl Error + 'static) -> io::Error {
    BpfError::new("", error).into()
}

pub(crate) fn missing(name: &str) -> io::Error {
    BpfError::missing("", name).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_error_keeps_its_number() {
        let error = io::Error::from_raw_os_error(libc::EMFILE);
        assert_eq!(super::error(error).raw_os_error(), Some(libc::EMFILE));
    }
}
