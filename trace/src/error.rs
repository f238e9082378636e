//! Errors of tracing, each one line for people.

use std::io;
use std::time::Duration;

use linerate_host::bpf::{BpfError, BpfFailure, KERNEL_TYPES, ProgramAttachment};

/// Why a kernel before 6.3 lacks a tracepoint.
pub(crate) const SINCE_6_3: &str = "came with Linux 6.3";

#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// A missing privilege.
    #[error("{what} requires {capabilities}: run it as root, or give the program these capabilities")]
    NotPermitted {
        what: &'static str,
        /// Such as `CAP_BPF and CAP_PERFMON`.
        capabilities: &'static str,
    },
    #[error("{what}: this kernel has no {feature}, which {since}")]
    NotHere {
        what: &'static str,
        /// Such as `tracepoint lock:contention_begin`.
        feature: String,
        /// Such as `came with Linux 5.19`.
        since: &'static str,
    },
    #[error("{what}: {source}")]
    Kernel { what: &'static str, source: io::Error },
    #[error(
        "{what}: the events of {asked:?} would take {} MB; the longest window that fits is {:?}",
        (*needed / 1e6).ceil(), Duration::from_millis(longest.as_millis() as u64)
    )]
    TooLarge {
        what: &'static str,
        asked: Duration,
        /// Bytes, at the present rate of events.
        needed: f64,
        longest: Duration,
    },
    #[error(transparent)]
    Host(#[from] linerate_host::HostError),
}

impl From<BpfError> for TraceError {
    fn from(BpfError { operation: what, failure }: BpfError) -> Self {
        match failure {
            BpfFailure::KernelTypes(error) if error.kind() == io::ErrorKind::NotFound => {
                let since = "comes with CONFIG_DEBUG_INFO_BTF (Linux 5.4)";
                Self::NotHere { what, feature: KERNEL_TYPES.to_owned(), since }
            }
            BpfFailure::KernelTypes(error) => {
                let source = io::Error::new(error.kind(), format!("{KERNEL_TYPES}: {error}"));
                Self::Kernel { what, source }
            }
            BpfFailure::NoTracepoint(ProgramAttachment { tracepoint, since, .. }) => {
                Self::NotHere { what, feature: format!("tracepoint {tracepoint}"), since }
            }
            // The verifier's refusal is EACCES, which is not about privileges.
            BpfFailure::Other { errno: Some(libc::EPERM), .. } => {
                Self::NotPermitted { what, capabilities: "CAP_BPF and CAP_PERFMON" }
            }
            BpfFailure::Other { message, .. } => match unknown_helper(&message) {
                Some(feature) => Self::NotHere { what, feature, since: "came with Linux 5.11" },
                None => Self::Kernel { what, source: io::Error::other(without_log(&message)) },
            },
        }
    }
}

// A helper function with a number above those of this kernel (check_helper_call,
// kernel/bpf/verifier.c, Linux 5.10). The newest that programs here call is
// bpf_get_current_task_btf.
fn unknown_helper(message: &str) -> Option<String> {
    let (_, number) = message.split_once("invalid func unknown#")?;
    let number = number.split(|character: char| !character.is_ascii_digit()).next()?;
    Some(format!("BPF helper function {number}"))
}

// The first line, and the last line of the verifier's log before its statistics.
fn without_log(message: &str) -> String {
    let mut lines = message.lines().filter(|line| !line.is_empty() && !line.starts_with("processed "));
    match (lines.next(), lines.next_back()) {
        (Some(first), Some(last)) => format!("{first} [...] {last}"),
        (first, _) => first.unwrap_or_default().to_owned(),
    }
}

/// The result; `None`, after printing SKIP, if this kernel does not permit the observation.
#[cfg(test)]
pub(crate) fn skip_unless_permitted<T>(test: &str, result: Result<T, TraceError>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(why @ (TraceError::NotPermitted { .. } | TraceError::NotHere { .. })) => {
            linerate_testkit::skip(test, why);
            None
        }
        Err(why) => panic!("{why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_programs_are_reported_in_one_line() {
        let refusal = |log: &str| {
            let text = format!("the BPF_PROG_LOAD syscall returned EINVAL. Verifier output: {log}");
            TraceError::from(BpfError::new("cost", io::Error::other(text))).to_string()
        };
        assert_eq!(
            refusal(
                "0: (bf) r6 = r1\n1: (85) call unknown#158\ninvalid func unknown#158\nprocessed 2 insns\n"
            ),
            "cost: this kernel has no BPF helper function 158, which came with Linux 5.11"
        );
        assert_eq!(
            refusal(
                "0: (bf) r6 = r1\n1: (b7) r0 = 0\nR0 invalid mem access\nprocessed 2 insns limit 1000000\n"
            ),
            "cost: the BPF_PROG_LOAD syscall returned EINVAL. Verifier output: 0: (bf) r6 = r1 [...] R0 invalid mem access"
        );
    }

    #[test]
    fn missing_type_information_is_named_with_its_option() {
        let failure = BpfFailure::KernelTypes(io::ErrorKind::NotFound.into());
        assert_eq!(
            TraceError::from(BpfError { operation: "cost", failure }).to_string(),
            "cost: this kernel has no /sys/kernel/btf/vmlinux, which comes with CONFIG_DEBUG_INFO_BTF (Linux 5.4)"
        );
    }
}
