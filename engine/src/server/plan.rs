//! The checks of a builder's settings that need no socket.

use std::thread;

use super::Builder;
use super::setup::ServerPlan;
use crate::choices::{AfXdpSettings, Backend, SocketMode, WorkerPinning};
use crate::error::ServerError;
use crate::socket::SocketSetup;
use crate::steer::{CpuTable, SteeringProgram};
use crate::sys::thread::{allowed_cpus, pin};

impl Builder {
    /// # Errors
    /// A setting that is wrong by itself.
    pub(super) fn plan(&self) -> Result<ServerPlan, ServerError> {
        let listeners = self.addresses.len() + self.adopted.len();
        if listeners == 0 {
            return refuse("no address to serve on: give one with Builder::bind");
        }
        if let Backend::Mmsg { batch } = self.worker.backend
            && !(1..=1024).contains(&batch)
        {
            return refuse(format!(
                "a batch of {batch} messages is not possible: recvmmsg accepts 1 to 1024 (UIO_MAXIOV)"
            ));
        }
        if let Backend::Xdp(AfXdpSettings { frames, batch, .. }) = self.worker.backend {
            let is_valid = (128..=65_536).contains(&frames) && frames.is_power_of_two();
            let limit = "a queue has a power of two of them, 128 to 65,536";
            check_size("a number of frames", frames as usize, is_valid, limit)?;
            let limit = "1 to 1024 requests are answered at once";
            check_size("an AF_XDP batch", usize::from(batch), (1..=1024).contains(&batch), limit)?;
        }
        let limit = "a UDP datagram has at most 65,535 bytes, and 0 would hold nothing";
        for (what, bytes) in [("a max_request", self.request_bytes()), ("a max_reply", self.max_reply)] {
            check_size(what, bytes, (1..=65_535).contains(&bytes), limit)?;
        }
        let limit = "the kernel accepts at most 1,073,741,823 bytes, because it doubles them into an int";
        let SocketSetup { receive_buffer, send_buffer, .. } = self.options;
        for (what, bytes) in [("a receive buffer", receive_buffer), ("a send buffer", send_buffer)] {
            let bytes = bytes.unwrap_or(0);
            check_size(what, bytes, bytes < 1 << 30, limit)?;
        }

        let cpus = match &self.cpus {
            Some(cpus) => cpus.clone(),
            None => allowed_cpus().map_err(|source| ServerError::AllowedCpus { source })?,
        };
        if cpus.is_empty() {
            return no_cpu("the workers");
        }
        let workers = self.workers.unwrap_or(cpus.len());
        if workers == 0 {
            return refuse("0 workers cannot answer anything: give at least 1");
        }
        let pinned_cpus = match &self.pinning {
            WorkerPinning::None => None,
            WorkerPinning::Own => Some(&cpus),
            WorkerPinning::Cpus(list) => Some(list),
        };
        // A classic BPF program counts the other server's sockets, too, and one socket has no group.
        let shares_group =
            matches!(self.sockets, SocketMode::Reuseport | SocketMode::SteeredByCpu(SteeringProgram::Ebpf));
        if self.join && !shares_group {
            return refuse(
                "Builder::join requires SocketMode::Reuseport, or SteeredByCpu with SteeringProgram::Ebpf",
            );
        }
        let is_steered = matches!(self.sockets, SocketMode::SteeredByCpu(_));
        if is_steered && !self.adopted.is_empty() {
            return Err(ServerError::Adopted {
                why: "the server does not steer them: call steer::attach, and choose another SocketMode",
            });
        }
        let placement = match pinned_cpus {
            None => vec![None; workers * listeners],
            Some(list) if list.is_empty() => return no_cpu("pinning"),
            Some(list) => {
                check_pinnable(list)?;
                // Steering gives the CPUs to the workers of each address in the same way. Without
                // steering the next address continues with the CPUs that are left.
                let cpu_index = |worker: usize| if is_steered { worker % workers } else { worker };
                (0..workers * listeners).map(|worker| Some(list[cpu_index(worker) % list.len()])).collect()
            }
        };
        let table = match self.sockets {
            SocketMode::SteeredByCpu(_) => Some(cpu_table(&cpus, workers)?),
            SocketMode::Shared | SocketMode::Reuseport => None,
        };
        Ok(ServerPlan { workers, placement, table })
    }
}

// Finds the first CPU of `cpus` that none of our threads can be pinned to. A short-lived thread
// tries each CPU, because only the kernel knows the CPUs that the cpuset and hotplug leave.
fn check_pinnable(cpus: &[u32]) -> Result<(), ServerError> {
    let refused_cpu = thread::scope(|scope| {
        let find_refused = || cpus.iter().copied().find(|cpu| pin(*cpu).is_err());
        // Without the thread nothing is known; the workers then fail if they cannot be pinned.
        scope.spawn(find_refused).join().unwrap_or(None)
    });
    match refused_cpu {
        Some(cpu) => Err(ServerError::Cpu { cpu, allowed: allowed_cpus().unwrap_or_default() }),
        None => Ok(()),
    }
}

fn cpu_table(cpus: &[u32], workers: usize) -> Result<CpuTable, ServerError> {
    let mut distinct_cpus = cpus.to_vec();
    distinct_cpus.sort_unstable();
    distinct_cpus.dedup();
    let cpu_count = distinct_cpus.len();
    if workers > cpu_count {
        return refuse(format!(
            "{workers} workers cannot be steered to by {cpu_count} CPUs: a CPU feeds one socket, so at most \
             {cpu_count} workers would get requests; use fewer workers or list more CPUs"
        ));
    }
    Ok(CpuTable::from_pairs(cpus.iter().enumerate().map(|(index, cpu)| (*cpu, index % workers)))?)
}

fn refuse<T>(why: impl Into<String>) -> Result<T, ServerError> {
    Err(ServerError::Setting(why.into()))
}

fn no_cpu<T>(purpose: &str) -> Result<T, ServerError> {
    refuse(format!("no free CPU: the list of CPUs for {purpose} is empty, give at least one"))
}

fn check_size(what: &str, value: usize, is_valid: bool, limit: &str) -> Result<(), ServerError> {
    if is_valid { Ok(()) } else { refuse(format!("{what} of {value} is not possible: {limit}")) }
}
