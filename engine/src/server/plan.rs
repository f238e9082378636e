//! The checks of a builder's settings that need no socket.

use super::Builder;
use super::setup::ServerPlan;
use crate::choices::{AfXdpSettings, Backend, SocketMode, StrayRequests, WorkerPinning};
use crate::cpus;
use crate::error::ServerError;
use crate::steer::{CpuTable, SteeringProgram};

impl Builder {
    /// # Errors
    /// A setting that is wrong by itself.
    pub(super) fn plan(&self) -> Result<ServerPlan, ServerError> {
        let listeners = self.addresses.len() + self.adopted.len();
        if listeners == 0 {
            return Err(ServerError::NoAddress);
        }
        if let Backend::Mmsg { batch } = self.backend
            && !(1..=1024).contains(&batch)
        {
            return Err(ServerError::Batch { batch });
        }
        if let Backend::Xdp(AfXdpSettings { frames, batch, .. }) = self.backend {
            let limit = "a queue has a power of two of them, 128 to 65,536";
            check_size("a number of frames", frames as usize, 128..=65_536, limit)?;
            if !frames.is_power_of_two() {
                return Err(ServerError::Size { what: "a number of frames", value: frames as usize, limit });
            }
            let limit = "1 to 1024 requests are answered at once";
            check_size("an AF_XDP batch", usize::from(batch), 1..=1024, limit)?;
        }
        let datagram_limit = "a UDP datagram has at most 65,535 bytes, and 0 would hold nothing";
        check_size("a max_request", self.request_bytes(), 1..=65_535, datagram_limit)?;
        check_size("a max_reply", self.max_reply, 1..=65_535, datagram_limit)?;
        let buffer_limit =
            "the kernel accepts at most 1,073,741,823 bytes, because it doubles them into an int";
        check_size(
            "a receive buffer",
            self.options.receive_buffer.unwrap_or(0),
            0..=(1 << 30) - 1,
            buffer_limit,
        )?;
        check_size("a send buffer", self.options.send_buffer.unwrap_or(0), 0..=(1 << 30) - 1, buffer_limit)?;

        let cpus = match &self.cpus {
            Some(cpus) => cpus.clone(),
            None => cpus::allowed().map_err(|source| ServerError::AllowedCpus { source })?,
        };
        if cpus.is_empty() {
            return Err(ServerError::NoCpu { purpose: "the workers" });
        }
        let workers = self.workers.unwrap_or(cpus.len());
        if workers == 0 {
            return Err(ServerError::NoWorkers);
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
            return Err(ServerError::CannotJoin);
        }
        let is_steered = matches!(self.sockets, SocketMode::SteeredByCpu(_));
        if is_steered && !self.adopted.is_empty() {
            return Err(ServerError::Adopted {
                why: "the server does not steer them: call steer::attach, and choose another SocketMode",
            });
        }
        let placement = match pinned_cpus {
            None => vec![None; workers * listeners],
            Some(list) if list.is_empty() => return Err(ServerError::NoCpu { purpose: "pinning" }),
            Some(list) => {
                cpus::check_pinnable(list)?;
                // Steering gives the CPUs to the workers of each address in the same way. Without
                // steering the next address continues with the CPUs that are left.
                let cpu_index = |worker: usize| if is_steered { worker % workers } else { worker };
                (0..workers * listeners).map(|worker| Some(list[cpu_index(worker) % list.len()])).collect()
            }
        };
        let table = match self.sockets {
            SocketMode::SteeredByCpu(_) => Some(self.cpu_table(&cpus, workers)?),
            SocketMode::Shared | SocketMode::Reuseport if self.stray != StrayRequests::Hash => {
                return Err(ServerError::StrayUnsteered);
            }
            SocketMode::Shared | SocketMode::Reuseport => None,
        };
        Ok(ServerPlan { workers, placement, table })
    }

    fn cpu_table(&self, cpus: &[u32], workers: usize) -> Result<CpuTable, ServerError> {
        let mut distinct_cpus = cpus.to_vec();
        distinct_cpus.sort_unstable();
        distinct_cpus.dedup();
        if workers > distinct_cpus.len() {
            return Err(ServerError::MoreWorkersThanCpus { workers, cpus: distinct_cpus.len() });
        }
        let mut table =
            CpuTable::from_pairs(cpus.iter().enumerate().map(|(index, cpu)| (*cpu, index % workers)))?;
        let check_worker = |worker: usize| {
            if worker < workers { Ok(worker) } else { Err(ServerError::StrayWorker { worker, workers }) }
        };
        match &self.stray {
            StrayRequests::Hash => {}
            StrayRequests::Worker(worker) => table.set_default(check_worker(*worker)?)?,
            StrayRequests::Map(pairs) => {
                for (cpu, worker) in pairs {
                    if distinct_cpus.contains(cpu) {
                        return Err(ServerError::NotStray { cpu: *cpu });
                    }
                    table.insert(*cpu, check_worker(*worker)?)?;
                }
            }
        }
        Ok(table)
    }
}

fn check_size(
    what: &'static str,
    value: usize,
    range: std::ops::RangeInclusive<usize>,
    limit: &'static str,
) -> Result<(), ServerError> {
    if range.contains(&value) { Ok(()) } else { Err(ServerError::Size { what, value, limit }) }
}
