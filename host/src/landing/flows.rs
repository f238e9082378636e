//! Which clients of a server got replies before a change, and which do after it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;

use aya::maps::Array;
use aya::{Btf, Ebpf, EbpfLoader};
use serde::Serialize;

use super::program::{bits, entries, missing, program, refused};
use crate::root::pause_after_burst;
use crate::stage::socket::chain;
use crate::{Host, HostError};

static OBJECT: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/../bpf/flows.bpf.o"));

const PROGRAMS: [(&str, &str); 2] = [("comes", "netif_receive_skb"), ("goes", "net_dev_queue")];

const WHAT: &str = "counting replies per client (BPF; requires CAP_BPF and CAP_PERFMON)";

/// A client that got this many replies before, to nearly all of its requests, is known to be answered.
const KNOWN: u32 = 3;

/// From this many requests after the change on, too few replies are told from a chance loss.
const MANY: u32 = 10;

/// Counts the requests and replies of each client, until it is dropped. It is of the live host only.
#[derive(Debug)]
pub struct FlowWatch {
    object: Ebpf,
}

/// Clients of a server, by what became of their requests. A client is an address and port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct FlowCounts {
    /// Clients that got replies before, and now get none although they wait for one.
    pub silenced: u64,
    /// Clients that got replies before, and now get replies to fewer than 70 % of their requests. A
    /// server with a rate limit does that in some seconds and not in others.
    pub curtailed: u64,
    /// Clients that got replies before and do now.
    pub answered: u64,
    /// All clients that wait for a reply and got none since the change.
    pub waiting: u64,
    /// All clients that got a reply since the change.
    pub served: u64,
}

impl FlowWatch {
    /// Begins to count the UDP packets of these ports in the calling thread's network namespace, as
    /// of before the change.
    ///
    /// # Errors
    /// [`HostError::Call`] where the kernel refuses, [`HostError::NotLive`] for a capture.
    pub fn start(host: &Host, ports: &[u16]) -> Result<Self, HostError> {
        if !host.is_live() {
            return Err(HostError::NotLive { what: WHAT.to_owned() });
        }
        load(ports).map(|object| Self { object }).map_err(call)
    }

    /// What comes from now on comes after the change.
    ///
    /// # Errors
    /// [`HostError::Call`] where the kernel's table cannot be written.
    pub fn changed(&mut self) -> Result<(), HostError> {
        let mut set = || {
            let map = self.object.map_mut("phase").ok_or_else(|| missing("phase"))?;
            let mut phase: Array<_, u32> = map.try_into().map_err(chain)?;
            phase.set(0, 1, 0).map_err(chain)
        };
        set().map_err(call)
    }

    /// The clients until now.
    ///
    /// # Errors
    /// [`HostError::Call`] where the kernel's table cannot be read.
    pub fn read(&self) -> Result<FlowCounts, HostError> {
        let flows: BTreeMap<[u32; 5], [u32; 6]> = entries(&self.object, "flows").map_err(call)?;
        Ok(FlowCounts::of(flows.into_values()))
    }
}

impl FlowCounts {
    /// From values of `struct flow` in bpf/flows.bpf.c.
    fn of(flows: impl IntoIterator<Item = [u32; 6]>) -> Self {
        let mut counts = Self::default();
        for [requests_before, requests_after, replies_before, replies_after, waiting, _] in flows {
            let known =
                replies_before >= KNOWN && u64::from(replies_before) * 10 >= u64::from(requests_before) * 9;
            let (served, waits) = (replies_after > 0, replies_after == 0 && waiting > 0);
            // Of what waits yet it is not known whether it will be answered.
            let due = requests_after.saturating_sub(waiting);
            let few = due >= MANY && u64::from(replies_after) * 10 < u64::from(due) * 7;
            counts.served += u64::from(served);
            counts.waiting += u64::from(waits);
            counts.answered += u64::from(served && known && !few);
            counts.silenced += u64::from(waits && known);
            counts.curtailed += u64::from(few && known && !waits);
        }
        counts
    }
}

fn call(source: io::Error) -> HostError {
    HostError::Call { what: WHAT.to_owned(), source }
}

fn load(ports: &[u16]) -> io::Result<Ebpf> {
    let btf = Btf::from_sys_fs().map_err(chain)?;
    pause_after_burst();
    let network = u32::try_from(fs::metadata("/proc/thread-self/ns/net")?.ino()).map_err(io::Error::other)?;
    let mut loader = EbpfLoader::new();
    pause_after_burst();
    let mut object = loader
        .btf(Some(&btf))
        .override_global("network", &network, true)
        .override_global("ports", bits(ports).as_slice(), true)
        .load(OBJECT)
        .map_err(chain)?;
    for (name, tracepoint) in PROGRAMS {
        pause_after_burst();
        program(&mut object, name)?.load(tracepoint, &btf).map_err(|error| refused(tracepoint, error))?;
    }
    for (name, _) in PROGRAMS {
        program(&mut object, name)?.attach().map_err(chain)?;
    }
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_silenced_when_it_waits_and_was_answered_before() {
        let flows = [
            // Answered before and after; answered before and not after.
            [90, 50, 90, 49, 1, 0],
            [90, 50, 90, 0, 50, 0],
            // It sent nothing since, and waits for nothing.
            [90, 0, 90, 0, 0, 0],
            // Its last request came right before the changes.
            [91, 0, 90, 0, 1, 0],
            // A port for each request, and a client that was never answered well.
            [1, 0, 0, 0, 1, 0],
            [90, 50, 30, 0, 110, 0],
            [0, 1, 0, 1, 0, 0],
            // Half of its packets come to a thread that does not know it, as seen with coturn.
            [27, 32, 27, 17, 0, 0],
        ];
        let counts = FlowCounts::of(flows);
        assert_eq!(counts, FlowCounts { silenced: 2, curtailed: 1, answered: 1, waiting: 4, served: 3 });
    }
}
