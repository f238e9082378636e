//! The generator on ordinary UDP sockets.

mod account;
mod inbox;
mod matching;
mod pace;
mod window;
mod worker;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::setpriority_process;
use rustix::thread::{CpuSet, sched_setaffinity, set_current_timer_slack};
use socket2::{Domain, Protocol, Socket, Type};

use super::builder::Builder;
use super::{Description, Generator, Mode, Slot, clock};
use crate::error::Error;
use crate::header::Codec;
use crate::outcome::{Interval, SlotOutcome};
use crate::sys;
use crate::workload::Workload;
use account::account;
use inbox::Flow;
use matching::Ledger;
use worker::{Plan, Report, Timing, Worker};

/// Receive buffer asked for, bytes: replies must not be lost here while a thread is held up.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// From the command to the start of a slot: time for all threads to wake up and clear their ledgers.
const LEAD_NS: u64 = 2_000_000;

/// The same for each flow of a thread: time to make it ready.
const FLOW_LEAD_NS: u64 = 4_000;

/// Bytes of UDP and IP headers in front of a payload.
const fn headers_bytes(v4: bool) -> usize {
    if v4 { 28 } else { 48 }
}

/// A load generator on connected UDP sockets: one socket a flow, sendmmsg and recvmmsg, any number of threads.
///
/// Threads and sockets live until it is dropped.
#[derive(Debug)]
pub struct SocketGenerator {
    threads: Vec<Thread>,
    description: Description,
    timeout: Duration,
    epoch: u32,
    cancel: std::sync::Arc<std::sync::atomic::AtomicBool>,
}

#[derive(Debug)]
struct Thread {
    /// None once the thread was told to end.
    plans: Option<SyncSender<Plan>>,
    reports: Receiver<Report>,
    handle: Option<JoinHandle<()>>,
}

impl SocketGenerator {
    pub(super) fn start(builder: &Builder) -> Result<Self, Error> {
        let Workload::Echo { payload_bytes } = builder.workload else {
            return Err(Error::WorkloadNeeds { workload: builder.workload.name(), needs: "another backend" });
        };
        let codec = Codec::new(payload_bytes).ok_or(Error::PayloadTooSmall(payload_bytes))?;
        let mut receive_buffer_bytes = u64::MAX;
        let mut shares: Vec<Vec<Flow>> = Vec::new();
        shares.resize_with(builder.threads, Vec::new);
        for id in 0..builder.flows {
            let socket = open(builder, id)?;
            let granted = socket
                .recv_buffer_size()
                .map_err(|source| Error::system("cannot read SO_RCVBUF of a generator socket", source))?;
            receive_buffer_bytes = receive_buffer_bytes.min(granted as u64);
            shares[id % builder.threads].push(Flow { id: id as u32, socket, ledger: Ledger::new() });
        }
        let mut fallbacks = Vec::new();
        if receive_buffer_bytes < RECEIVE_BUFFER_BYTES as u64 {
            fallbacks.push(format!(
                "receive buffers of {receive_buffer_bytes} bytes instead of {RECEIVE_BUFFER_BYTES}: more needs CAP_NET_ADMIN or a larger net.core.rmem_max"
            ));
        }
        let run = fastrand::u64(..);
        let mut generator = SocketGenerator {
            threads: Vec::with_capacity(builder.threads),
            description: builder.describe(receive_buffer_bytes, fallbacks),
            timeout: builder.timeout,
            epoch: 0,
            cancel: builder.cancel.clone(),
        };
        for (index, flows) in shares.into_iter().enumerate() {
            let cpu = builder.cpus.as_ref().and_then(|cpus| cpus.get(index % cpus.len()).copied());
            let parts = (flows, codec.clone(), run, builder.burst, builder.cancel.clone());
            let thread = Thread::start(index, cpu, builder.nice, move || {
                let (flows, codec, run, burst, cancel) = parts;
                Worker::new(flows, codec, run, burst, cancel)
            })?;
            generator.threads.push(thread);
        }
        Ok(generator)
    }

    /// Has each thread carry out its plan; none if one of them is gone.
    fn run_all(&self, plans: &[Plan]) -> Option<Vec<Report>> {
        for (thread, plan) in self.threads.iter().zip(plans) {
            thread.plans.as_ref()?.send(*plan).ok()?;
        }
        self.threads.iter().map(|thread| thread.reports.recv().ok()).collect()
    }

    fn timing(&self, slot: &Slot, thread: usize) -> Timing {
        match slot.mode {
            Mode::Rate { per_second } => {
                let stride = self.threads.len() as u64;
                Timing::Paced {
                    interval_ns: 1e9 / per_second,
                    first: thread as u64,
                    stride,
                    total: (per_second * slot.duration.as_secs_f64()).round().max(1.0) as u64,
                    tick_ns: pace::tick_ns(per_second / stride as f64),
                }
            }
            Mode::Window { outstanding } => Timing::Window {
                outstanding: u64::from(outstanding),
                timeout_ns: clock::whole_ns(self.timeout).max(1_000_000),
            },
            Mode::Flood => {
                Timing::Window { outstanding: u64::from(super::MAX_WINDOW), timeout_ns: 1_000_000 }
            }
        }
    }
}

impl Generator for SocketGenerator {
    fn describe(&self) -> Description {
        self.description.clone()
    }

    fn watch(&mut self, slot: &Slot, _observer: &mut dyn FnMut(&Interval)) -> Result<SlotOutcome, Error> {
        slot.check()?;
        if self.threads.is_empty() {
            return Err(Error::Worker);
        }
        if self.cancel.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(Error::Cancelled);
        }
        self.epoch = self.epoch.wrapping_add(1);
        let flows_each = self.description.flows.div_ceil(self.threads.len()) as u64;
        let start_ns = clock::now_ns() + LEAD_NS + FLOW_LEAD_NS * flows_each;
        let start_realtime_ns = start_ns.saturating_add_signed(clock::realtime_offset_ns());
        let duration_ns = clock::whole_ns(slot.duration);
        let plan = |thread| Plan {
            epoch: self.epoch,
            start_ns,
            duration_ns,
            drain: slot.drain,
            timing: self.timing(slot, thread),
        };
        let plans: Vec<Plan> = (0..self.threads.len()).map(plan).collect();
        let Some(reports) = self.run_all(&plans) else {
            // What the other threads have to tell of this slot must not be taken for the next one's.
            self.threads.clear();
            return Err(Error::Worker);
        };
        let cancelled = self.cancel.load(std::sync::atomic::Ordering::Relaxed);
        Ok(account(slot, self.timing(slot, 0), start_ns, start_realtime_ns, cancelled, &reports))
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.plans = None;
        if let Some(handle) = self.handle.take() {
            // A panic has been reported already, as `Error::Worker`.
            let _ = handle.join();
        }
    }
}

impl Thread {
    /// Starts a thread and waits until it is pinned and has its worker.
    fn start(
        index: usize,
        cpu: Option<u32>,
        nice: Option<i32>,
        make: impl FnOnce() -> Result<Worker, Error> + Send + 'static,
    ) -> Result<Self, Error> {
        let (plans, orders) = sync_channel::<Plan>(1);
        let (answers, reports) = sync_channel::<Report>(1);
        let (ready, is_ready) = sync_channel::<Result<(), Error>>(1);
        let handle = thread::Builder::new()
            .name(format!("load-{index}"))
            .spawn(move || {
                let worker = prepare(cpu, nice).and_then(|()| make());
                let mut worker = match worker {
                    Ok(worker) => worker,
                    Err(error) => {
                        // If nobody waits any more, there is nobody to tell.
                        let _ = ready.send(Err(error));
                        return;
                    }
                };
                if ready.send(Ok(())).is_err() {
                    return;
                }
                while let Ok(plan) = orders.recv() {
                    if answers.send(worker.run(&plan)).is_err() {
                        return;
                    }
                }
            })
            .map_err(|source| Error::system("cannot start a generator thread", source))?;
        is_ready.recv().map_err(|_| Error::Worker)??;
        Ok(Thread { plans: Some(plans), reports, handle: Some(handle) })
    }
}

/// Makes the calling thread a punctual one on its CPU.
fn prepare(cpu: Option<u32>, nice: Option<i32>) -> Result<(), Error> {
    if let Some(cpu) = cpu {
        let mut set = CpuSet::new();
        let known = (cpu as usize) < CpuSet::MAX_CPU;
        if known {
            set.set(cpu as usize);
        }
        let pinned = if known { sched_setaffinity(None, &set) } else { Err(rustix::io::Errno::INVAL) };
        pinned.map_err(|source| Error::Cpu { cpu, source: source.into() })?;
    }
    if let Some(nice) = nice {
        // On Linux the niceness of "the calling process" is that of the calling thread (setpriority(2)).
        setpriority_process(None, nice).map_err(|source| Error::Nice { nice, source: source.into() })?;
    }
    // The default slack of 50 us would make every sleep that much longer (prctl(2), PR_SET_TIMERSLACK). Without it
    // requests only leave later, which their latency shows.
    let _ = set_current_timer_slack(std::num::NonZeroU64::new(1));
    Ok(())
}

/// Opens and connects the socket of a flow.
fn open(builder: &Builder, id: usize) -> Result<Socket, Error> {
    let target = builder.targets[id % builder.targets.len()];
    let v4 = target.is_ipv4();
    let domain = if v4 { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, Type::DGRAM.cloexec(), Some(Protocol::UDP)).map_err(|source| {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
        match source.raw_os_error() {
            Some(libc::EMFILE) => Error::TooManyFlows {
                flows: builder.flows,
                wanted: limit.saturating_add(builder.flows as u64),
                limit,
            },
            _ => Error::system(format!("cannot open socket {id} of {}", builder.flows), source),
        }
    })?;
    let sources: Vec<IpAddr> = builder.sources.iter().copied().filter(|ip| ip.is_ipv4() == v4).collect();
    if !sources.is_empty() {
        // Flows of one target differ by the number of targets, so that is divided out first.
        let source = sources[id / builder.targets.len() % sources.len()];
        socket
            .bind(&SocketAddr::new(source, 0).into())
            .map_err(|error| Error::system(format!("cannot send from {source}"), error))?;
    }
    socket.connect(&target.into()).map_err(|source| {
        Error::system(
            format!("cannot connect flow {id} of {} to {target}", builder.flows),
            ports_used_up(source),
        )
    })?;
    if builder.no_fragment {
        sys::forbid_fragments(socket.as_fd(), v4)
            .map_err(|source| Error::system("cannot forbid fragments (IP_MTU_DISCOVER)", source))?;
        let mtu = sys::path_mtu(socket.as_fd(), v4)
            .map_err(|source| Error::system(format!("cannot read the path MTU to {target}"), source))?;
        let most = mtu.saturating_sub(headers_bytes(v4));
        if builder.workload.longest_bytes() > most {
            return Err(Error::PayloadOverMtu {
                payload: builder.workload.longest_bytes(),
                mtu,
                most,
                target,
            });
        }
    }
    // Beyond net.core.rmem_max where that is permitted, else as far as it allows; what was granted is reported.
    if sys::force_receive_buffer(socket.as_fd(), RECEIVE_BUFFER_BYTES as i32).is_err() {
        let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES);
    }
    sys::request_receive_stamps(socket.as_fd())
        .map_err(|source| Error::system("cannot ask for receive times (SO_TIMESTAMPNS)", source))?;
    Ok(socket)
}

/// EAGAIN from connect means that no source port is left (ip(7)).
fn ports_used_up(source: io::Error) -> io::Error {
    match source.raw_os_error() {
        Some(libc::EAGAIN | libc::EADDRINUSE) => io::Error::new(
            source.kind(),
            "no free source port: fewer flows, more source addresses, or a wider net.ipv4.ip_local_port_range",
        ),
        _ => source,
    }
}
