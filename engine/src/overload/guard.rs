//! The guard: its program loaded and attached, the credit that workers grant it, and its counters.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use aya::maps::{Map, MapData, PerCpuArray};
use aya::programs::{ProgramError, Xdp};
use aya::{Ebpf, EbpfLoader};
use serde::{Deserialize, Serialize};

use super::admission::random_seed;
use super::credit::AdmissionCredit;
use super::interfaces::{self, GuardedInterfaces};
use super::{SourceGrouping, XdpGuard};
use crate::socket::Fallback;
use crate::sys::bpf;
use crate::sys::bpf::XdpMode;
use crate::sys::guard::MappedGuardState;
use crate::sys::interface;

static OBJECT: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/../bpf/guard.bpf.o"));

const PROGRAM: &str = "linerate_guard";
// The same program without packets of several pages. Kernels before 5.18 refuse the flag for such
// packets (kernel/bpf/syscall.c, `bpf_prog_load`: BPF_F_XDP_HAS_FRAGS).
const PROGRAM_BEFORE_5_18: &str = "guard_one_page";

// Socket memory that one request can take, in bytes: a page, plus the kernel's own structures
// (`SKB_TRUESIZE`, include/linux/skbuff.h).
const REQUEST_MEMORY: usize = 4096 + 256;

/// Where a guard is attached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardedInterface {
    /// Name of the interface.
    pub name: String,
    /// Where its program runs. In generic mode it saves less.
    pub mode: XdpMode,
}

/// Counters of a guard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct GuardCounts {
    /// Requests let through to the sockets.
    pub admitted: u64,
    /// Requests refused, whose senders get no answer.
    pub refused: u64,
    /// Requests of a source that had more than its share. They are in `refused`, or in `opened` if no
    /// worker took any.
    pub over_share: u64,
    /// Requests let through uncounted, since no worker took any.
    pub opened: u64,
}

/// A guard at work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct GuardReport {
    /// Where it is attached.
    pub interfaces: Vec<GuardedInterface>,
    /// [`XdpGuard::wait`], seconds.
    pub wait_seconds: f64,
    /// Most requests that may wait now, for all workers together: as many as they take in that
    /// time.
    pub outstanding: u32,
    /// Counters since the start.
    pub counts: GuardCounts,
}

/// An attached guard. Dropping it detaches the guard.
#[derive(Debug)]
pub(crate) struct AttachedGuard {
    object: Ebpf,
    _links: Vec<OwnedFd>,
    interfaces: Vec<GuardedInterface>,
    credit: Arc<AdmissionCredit>,
}

/// Requests per second of one worker that its receive buffer has room for.
const PEAK_RATE: f64 = 500e3;

// Bounds of the number of requests that the receive buffer holds, for any time.
const ROOM: std::ops::RangeInclusive<usize> = 256..=1 << 16;

// Bytes of receive buffer to ask the system for, so that requests can wait for `wait`. The kernel
// doubles the number, and may give a quarter back late (net/ipv4/udp.c, `udp_rmem_release`).
pub(crate) fn receive_buffer(wait: Duration) -> usize {
    let requests = ((wait.as_secs_f64() * PEAK_RATE) as usize).clamp(*ROOM.start(), *ROOM.end());
    (requests * REQUEST_MEMORY * 4).div_ceil(3).div_ceil(2) + REQUEST_MEMORY
}

impl AttachedGuard {
    /// Attaches a guard for the sockets on `addresses`, which have these receive buffers, and their
    /// workers. Interfaces that refuse it are in `fallbacks`. The error is the reason why there is no
    /// guard.
    pub(crate) fn start(
        guard: &XdpGuard,
        fairness: Option<SourceGrouping>,
        addresses: &[SocketAddr],
        only_v6: bool,
        buffers_bytes: &[usize],
        workers: usize,
        fallbacks: &mut Vec<Fallback>,
    ) -> Result<Self, String> {
        let devices =
            interface::interfaces().map_err(|error| format!("cannot list the interfaces: {error}"))?;
        let guarded = interfaces::find_all(&devices, addresses, only_v6, &guard.interfaces)?;
        let mut object = load(guard, fairness, addresses)?;
        fill_addresses(&mut object, &guarded)?;
        let credit =
            AdmissionCredit::new(map_state(&object)?, guard.wait, &buffer_capacities(buffers_bytes), workers);
        let program = match load_program(&mut object, PROGRAM)? {
            Err(error) if bpf::errno(&error) == Some(libc::EINVAL) => {
                load_program(&mut object, PROGRAM_BEFORE_5_18)?
                    .map_err(|error| format!("{}; the guard requires Linux 5.11", bpf::load_error(&error)))?;
                PROGRAM_BEFORE_5_18
            }
            result => result.map(|()| PROGRAM).map_err(|error| bpf::load_error(&error))?,
        };
        let program =
            bpf::program::<Xdp>(&mut object, program)?.fd().map_err(|error| bpf::load_error(&error))?.as_fd();
        let (mut links, mut interfaces, mut refusals) = (Vec::new(), Vec::new(), Vec::new());
        for name in guarded.interfaces {
            match attach(program, &name) {
                Ok((link, mode)) => {
                    links.push(link);
                    interfaces.push(GuardedInterface { name, mode });
                }
                Err(why) => refusals.push((name, why)),
            }
        }
        if interfaces.is_empty() {
            return Err(refusals.into_iter().map(|(_, why)| why).collect::<Vec<_>>().join("; "));
        }
        fallbacks.extend(refusals.into_iter().map(|(name, why)| Fallback {
            what: format!("the guard against overload on {name}; requests there are not limited"),
            why,
        }));
        Ok(Self { object, _links: links, interfaces, credit: Arc::new(credit) })
    }

    pub(crate) fn credit(&self) -> Arc<AdmissionCredit> {
        Arc::clone(&self.credit)
    }

    pub(crate) fn report(&self) -> GuardReport {
        GuardReport {
            interfaces: self.interfaces.clone(),
            wait_seconds: self.credit.wait().as_secs_f64(),
            outstanding: self.credit.limit(),
            counts: self.counts().unwrap_or_default(),
        }
    }

    fn counts(&self) -> Option<GuardCounts> {
        let table: PerCpuArray<&MapData, [u64; 4]> = self.object.map("guard_counts")?.try_into().ok()?;
        let mut total = GuardCounts::default();
        for [admitted, refused, over_share, opened] in table.get(&0, 0).ok()?.iter() {
            total.admitted += admitted;
            total.refused += refused;
            total.over_share += over_share;
            total.opened += opened;
        }
        Some(total)
    }
}

/// Loads a program; the inner error is the kernel's.
fn load_program(object: &mut Ebpf, name: &str) -> Result<Result<(), ProgramError>, String> {
    Ok(bpf::program::<Xdp>(object, name)?.load())
}

/// Attaches the program in driver mode, or in generic mode if the driver has no native XDP. The
/// generic mode costs a socket buffer per packet, but works everywhere.
fn attach(program: BorrowedFd<'_>, name: &str) -> Result<(OwnedFd, XdpMode), String> {
    let index = interface::index(name).map_err(|error| format!("no interface {name}: {error}"))?;
    let (link, mode) = match bpf::attach_xdp(program, index, XdpMode::Driver) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            (bpf::attach_xdp(program, index, XdpMode::Generic), XdpMode::Generic)
        }
        link => (link, XdpMode::Driver),
    };
    Ok((link.map_err(|error| bpf::attach_error(name, mode, &error))?, mode))
}

/// The number of requests that each receive buffer holds.
fn buffer_capacities(buffers_bytes: &[usize]) -> Vec<u64> {
    buffers_bytes.iter().map(|bytes| (bytes * 3 / 4 / REQUEST_MEMORY).max(1) as u64).collect()
}

fn load(
    guard: &XdpGuard,
    fairness: Option<SourceGrouping>,
    addresses: &[SocketAddr],
) -> Result<Ebpf, String> {
    let mut ports: Vec<u16> = addresses.iter().map(SocketAddr::port).collect();
    ports.dedup();
    let port = if let [port] = ports[..] { port } else { 0 };
    let ip = addresses.first().map_or(Ipv4Addr::UNSPECIFIED.into(), |address| address.ip().to_canonical());
    let open_after = u64::try_from(guard.open_after.as_nanos()).unwrap_or(u64::MAX / 4);
    let (v4_mask, v6_mask) = fairness.unwrap_or_default().masks();
    EbpfLoader::new()
        .override_global("port", &port.to_be(), true)
        .override_global("any_address", &u8::from(ip.is_unspecified() || addresses.len() > 1), true)
        .override_global("address", &interfaces::address_words(ip), true)
        .override_global("open_after", &open_after, true)
        .override_global("fair", &u8::from(fairness.is_some()), true)
        .override_global("v4_mask", &v4_mask, true)
        .override_global("v6_mask", &v6_mask, true)
        .override_global("seed", &random_seed(), true)
        .load(OBJECT)
        .map_err(|error| bpf::load_error(&error))
}

fn fill_addresses(object: &mut Ebpf, guarded: &GuardedInterfaces) -> Result<(), String> {
    let mut table: aya::maps::HashMap<&mut MapData, [u32; 5], u8> = bpf::map(object, "guard_addresses")?;
    for address in &guarded.addresses {
        // Packets to addresses that have no room in the table pass the guard.
        let _ = table.insert(interfaces::address_key(*address), 1, 0);
    }
    Ok(())
}

fn map_state(object: &Ebpf) -> Result<MappedGuardState, String> {
    let Some(Map::Array(data)) = object.map("guard_state") else {
        return Err(bpf::lacks("guard_state"));
    };
    MappedGuardState::new(data.fd().as_fd()).map_err(|error| format!("cannot map the guard's state: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_programs_load() -> Result<(), Box<dyn std::error::Error>> {
        let object = load(&XdpGuard::default(), None, &["192.0.2.1:53".parse()?]);
        let skip = |why| linerate_testkit::skip("both_programs_load", why);
        let Ok(mut object) = object.map_err(skip) else { return Ok(()) };
        for name in [PROGRAM, PROGRAM_BEFORE_5_18] {
            load_program(&mut object, name)?.map_err(|error| format!("{name}: {error:?}"))?;
        }
        Ok(())
    }
}
