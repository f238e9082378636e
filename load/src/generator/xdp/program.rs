//! The BPF programs of a generator, loaded and attached, and the memory that they share with this
//! process.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use aya::maps::{Map, MapData, RingBuf};
use aya::programs::{
    Program, ProgramError, RawTracePoint, RawTracePointRunOptions, SchedClassifier, TestRun as _, Xdp,
};
use aya::{Ebpf, EbpfLoader};
use linerate_host::netlink;

use super::frame::{self, request_headers};
use super::route::FlowRoutes;
use crate::error::{GeneratorError, invalid};
use crate::generator::options::{GeneratorOptions, LiveFrames};
use crate::generator::tag_salt;
use crate::header::RequestCodec;
use crate::sys::xdp::{
    self, FILL_BYTES, MappedArray, PROBES, ReplyNamespace, RequestOutlet, TupleEntry, XdpFlow, XdpRequest,
    XdpRow, XdpSettings,
};
use crate::workload::{LoadWorkload, PreparedExchange};

// The programs, aligned for the ELF reader.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/../bpf/load.bpf.o"));

// The program that each sending thread runs once.
const ENTER_THREAD: &str = "enter_thread";

const SEND_CLONE: &str = "send_clone";

// Replies that wait for their verdict: 4 MiB.
const VERDICT_RING_BYTES: u32 = 4 << 20;

// Bits of the echo requests that all flows keep in view together: 16 MiB.
const ECHO_VIEW: u64 = 1 << 27;

// View of exchanges, which also store times: 64 MiB.
const EXCHANGE_VIEW: u64 = 1 << 23;

// The largest view of a flow, and the smallest view of an echo flow.
const MOST_IN_VIEW: u64 = 1 << 24;
const LEAST_ECHO_VIEW: u64 = 1 << 12;

// The longest wait for the link after a program was attached, and the interval of reads of its
// carrier.
const LINK_TIMEOUT: Duration = Duration::from_secs(15);
const CARRIER_POLL: Duration = Duration::from_millis(20);

// The most prepared requests. Their map takes 136 MB of kernel memory, which is never swapped.
const MOST_REQUESTS: usize = 1 << 18;

// Programs and maps of a generator. Nothing is pinned, so they end with it or with the process.
pub(super) struct LoadProgram {
    pub(super) rows: MappedArray<XdpRow>,
    pub(super) flows: MappedArray<XdpFlow>,
    pub(super) codec: Option<RequestCodec>,
    pub(super) run: u64,
    /// Of the sending threads, in their order.
    pub(super) cpus: Vec<u32>,
    /// Number of prepared requests.
    pub(super) requests: usize,
    // As in `FlowRoutes`.
    pub(super) hands_over: [bool; 2],
    /// Whether refused requests of this slot are lost in the far end's full queue; otherwise they
    /// never left.
    pub(super) refused_at_far_end: AtomicBool,
    _attached: OwnedFd,
    _namespace: ReplyNamespace,
    ebpf: Ebpf,
    // Echo: each flow's checksum, without the part that differs per slot and request.
    sums: Vec<u32>,
    // A frame of the longest request, without content.
    blank: Vec<u8>,
    // The interface for live frames; `None` if it accepts none.
    frames_by: Option<u32>,
}

#[derive(Debug)]
pub(super) struct RequestOutlets {
    /// Live frames, if the interface accepts them.
    pub(super) frames: Option<RequestOutlet>,
    /// Clones of a socket buffer.
    pub(super) clones: RequestOutlet,
}

impl LoadProgram {
    /// Loads the programs and attaches them; flow `id` is kept in the row of CPU
    /// `cpus[id % cpus.len()]`.
    pub(super) fn start(
        routes: &FlowRoutes,
        options: &GeneratorOptions,
        run: u64,
        cpus: Vec<u32>,
    ) -> Result<Self, GeneratorError> {
        let workload = &options.workload;
        let settings = settings(routes, workload, run)?;
        let requests = workload.request_count();
        let row_count = aya::util::nr_cpus()
            .map_err(|(_, error)| GeneratorError::system("cannot count the CPUs", error))?;
        let mut ebpf = load(&settings, workload, routes.ways.len(), row_count, requests)?;
        let rows = map_array(&ebpf, "rows", row_count)?;
        let flows = map_array(&ebpf, "flows", routes.ways.len())?;
        fill_tuples(
            &map_array(&ebpf, "tuples", settings.tuple_mask as usize + 1)?,
            routes,
            settings.tuple_factor,
        );
        if let LoadWorkload::Exchange(exchange) = workload {
            fill_requests(&map_array(&ebpf, "requests", requests)?, exchange);
        }
        for name in ["send", "receive"] {
            program_mut::<Xdp>(&mut ebpf, name)?.load().map_err(|error| program_error(name, &error))?;
        }
        program_mut::<SchedClassifier>(&mut ebpf, SEND_CLONE)?
            .load()
            .map_err(|error| program_error(SEND_CLONE, &error))?;
        for name in ["sent", "not_redirected", ENTER_THREAD] {
            program_mut::<RawTracePoint>(&mut ebpf, name)?
                .load()
                .map_err(|error| program_error(name, &error))?;
        }
        for (name, event) in [("sent", "xdp_devmap_xmit"), ("not_redirected", "xdp_redirect_err")] {
            program_mut::<RawTracePoint>(&mut ebpf, name)?
                .attach(event)
                .map_err(|error| program_error(event, &error))?;
        }
        let namespace = ReplyNamespace::with_program(descriptor(&mut ebpf, "send")?).map_err(|error| {
            GeneratorError::xdp(format!(
                "cannot make a network namespace for the program: {error} (CAP_SYS_ADMIN)"
            ))
        })?;
        let had_carrier = netlink::has_carrier(routes.index).unwrap_or(false);
        let link = xdp::attach(descriptor(&mut ebpf, "receive")?, routes.index)
            .map_err(|error| attach_error(&routes.interface, &error))?;
        if had_carrier {
            await_carrier(routes)?;
        }
        let codec = match workload {
            LoadWorkload::Echo { payload_bytes } => RequestCodec::new(*payload_bytes),
            LoadWorkload::Exchange(_) => None,
        };
        let allows_live_frames = options.live_frames != LiveFrames::Never && routes.no_frames.is_none();
        let headers = request_headers(&routes.ways[0], None);
        let mut blank = vec![0; headers.length + workload.longest_bytes()];
        // The kernel reads the packet type of a socket buffer before the program writes it.
        blank[12..14].copy_from_slice(&headers.bytes[12..14]);
        let mut program = LoadProgram {
            rows,
            flows,
            codec,
            run,
            cpus,
            requests,
            hands_over: routes.hands_over,
            refused_at_far_end: AtomicBool::new(false),
            _attached: link,
            _namespace: namespace,
            ebpf,
            sums: Vec::new(),
            blank,
            frames_by: allows_live_frames.then_some(routes.index),
        };
        program.fill_flows(routes, workload);
        Ok(program)
    }

    /// The counters of a sending thread's CPU.
    pub(super) fn row(&self, thread: usize) -> Option<&XdpRow> {
        self.rows.get(*self.cpus.get(thread)? as usize)
    }

    /// Records the calling thread as the sender of its CPU.
    pub(super) fn enter_thread(&self) -> Result<(), GeneratorError> {
        let program = self.ebpf.program(ENTER_THREAD).ok_or_else(|| missing_error(ENTER_THREAD))?;
        let program: &RawTracePoint =
            program.try_into().map_err(|error| program_error(ENTER_THREAD, &error))?;
        let result = program.test_run(RawTracePointRunOptions::new());
        result.map(drop).map_err(|error| program_error(ENTER_THREAD, &error))
    }

    pub(super) fn outlets(&mut self) -> Result<RequestOutlets, GeneratorError> {
        let duplicate_error =
            |error| GeneratorError::system("cannot duplicate a program's descriptor", error);
        let mut frames = None;
        if self.frames_by.is_some() {
            let program = descriptor(&mut self.ebpf, "send")?;
            let outlet = RequestOutlet::new(program, self.blank.clone(), self.frames_by);
            frames = Some(outlet.map_err(duplicate_error)?);
        }
        let clones = program_mut::<SchedClassifier>(&mut self.ebpf, SEND_CLONE)?;
        let clones = clones.fd().map_err(|error| program_error(SEND_CLONE, &error))?;
        let clones = RequestOutlet::new(clones.as_fd(), self.blank.clone(), None).map_err(duplicate_error)?;
        Ok(RequestOutlets { frames, clones })
    }

    /// The ring of replies to verify.
    pub(super) fn take_verdicts(&mut self) -> Result<RingBuf<MapData>, GeneratorError> {
        let map = self.ebpf.take_map("verdicts").ok_or_else(|| missing_error("verdicts"))?;
        RingBuf::try_from(map).map_err(|error| program_error("verdicts", &error))
    }

    fn fill_flows(&mut self, routes: &FlowRoutes, workload: &LoadWorkload) {
        let payload = self.codec.as_ref().map(RequestCodec::payload_bytes);
        let echo_checksum = self.codec.as_ref().map_or(0, |codec| frame::echo_sum(codec, self.run));
        for (id, (flow, route)) in self.flows.iter().zip(&routes.ways).enumerate() {
            let headers = request_headers(route, payload);
            let (words, _) = headers.bytes.as_chunks::<8>();
            for (head_word, word) in flow.head.iter().zip(words) {
                head_word.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
            }
            flow.sum.store(headers.sum, Ordering::Relaxed);
            self.sums.push(headers.sum + echo_checksum);
            flow.ip_sum.store(headers.ip_sum, Ordering::Relaxed);
            flow.cpu.store(self.cpus[id % self.cpus.len()], Ordering::Relaxed);
            if let LoadWorkload::Exchange(exchange) = workload
                && exchange.order == crate::workload::RequestOrder::InTurn
            {
                flow.salt.store(tag_salt(self.run, id as u32), Ordering::Relaxed);
            }
        }
    }

    /// Prepares an echo flow for a slot.
    pub(super) fn renew_echo(&self, id: u32, epoch: u32) {
        let (Some(codec), Some(flow)) = (&self.codec, self.flows.get(id as usize)) else { return };
        flow.state.store(codec.state_of_flow(self.run, epoch, id), Ordering::Relaxed);
        let mut last_word = [0; 8];
        last_word[..4].copy_from_slice(&epoch.to_be_bytes());
        last_word[4..].copy_from_slice(&id.to_be_bytes());
        flow.head[xdp::HEAD_BYTES / 8 - 1].store(u64::from_ne_bytes(last_word), Ordering::Relaxed);
        let sum = u64::from(self.sums[id as usize]) + frame::sum(&last_word);
        flow.sum.store(u32::from(frame::fold(sum)), Ordering::Relaxed);
        flow.next.store(0, Ordering::Relaxed);
    }
}

fn load(
    settings: &XdpSettings,
    workload: &LoadWorkload,
    flows: usize,
    rows: usize,
    requests: usize,
) -> Result<Ebpf, GeneratorError> {
    let mut fill_pattern = vec![0; FILL_BYTES];
    if let Some(blank) = RequestCodec::new(FILL_BYTES).map(|codec| codec.blank()) {
        fill_pattern.copy_from_slice(&blank);
    }
    let words =
        settings.view * flows as u64 / if matches!(workload, LoadWorkload::Echo { .. }) { 64 } else { 1 };
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    EbpfLoader::new()
        .btf(None)
        .override_global("settings", settings, true)
        .override_global("fill", fill_pattern.as_slice(), true)
        .map_max_entries("rows", count(rows))
        .map_max_entries("flows", count(flows))
        .map_max_entries("tuples", settings.tuple_mask + 1)
        .map_max_entries("views", u32::try_from(words).unwrap_or(u32::MAX))
        .map_max_entries("requests", count(requests))
        .map_max_entries("verdicts", if settings.verify != 0 { VERDICT_RING_BYTES } else { 4096 })
        .load(OBJECT)
        .map_err(|error| program_error("its maps", &error))
}

fn settings(routes: &FlowRoutes, workload: &LoadWorkload, run: u64) -> Result<XdpSettings, GeneratorError> {
    let Some(route) = routes.ways.first() else { return invalid("no flows") };
    let (mask, factor) = tuple_table(routes)?;
    let common_settings = XdpSettings {
        run,
        ipv6: u32::from(route.to.is_ipv6()),
        vlan: u32::from(route.vlan.is_some()),
        interface: routes.index,
        tuple_mask: mask,
        tuple_factor: factor,
        ..XdpSettings::default()
    };
    let flows = routes.ways.len() as u64;
    match workload {
        LoadWorkload::Echo { payload_bytes } => {
            let codec = RequestCodec::for_payload(*payload_bytes)?;
            Ok(XdpSettings {
                echo: 1,
                payload: *payload_bytes as u32,
                body_state: codec.body_state(),
                view: power_below(ECHO_VIEW / flows).clamp(LEAST_ECHO_VIEW, MOST_IN_VIEW),
                ..common_settings
            })
        }
        LoadWorkload::Exchange(exchange) => exchange_settings(common_settings, exchange, flows),
    }
}

fn exchange_settings(
    common_settings: XdpSettings,
    exchange: &PreparedExchange,
    flows: u64,
) -> Result<XdpSettings, GeneratorError> {
    let Some(tag) = exchange.tag else {
        return Err(GeneratorError::xdp(format!(
            "{} requests have no tag by which replies can be matched",
            exchange.protocol
        )));
    };
    if exchange.requests.len() > MOST_REQUESTS {
        return Err(GeneratorError::xdp(format!(
            "{} prepared requests: a program has room for {MOST_REQUESTS}",
            exchange.requests.len()
        )));
    }
    let shortest = exchange.requests.iter().map(Vec::len).min().unwrap_or(0);
    let longest = exchange.requests.iter().map(Vec::len).max().unwrap_or(0);
    let mut marks = [xdp::XdpMark::default(); xdp::MARKS];
    if exchange.marks.len() > marks.len() || exchange.shortest_reply_bytes > REPLY_BYTES {
        return Err(GeneratorError::xdp(format!(
            "replies with {} marks within {} bytes: a program reads {} marks within {REPLY_BYTES} bytes",
            exchange.marks.len(),
            exchange.shortest_reply_bytes,
            marks.len()
        )));
    }
    for (program_mark, mark) in marks.iter_mut().zip(&exchange.marks) {
        *program_mark =
            xdp::XdpMark { offset: mark.offset as u16, mask: mark.mask, value: mark.value & mark.mask };
    }
    let truncated = exchange.code.and_then(|code| code.truncated);
    let by_tag = exchange.order == crate::workload::RequestOrder::ByTag;
    let affordable = power_below(EXCHANGE_VIEW / flows).min(MOST_IN_VIEW);
    Ok(XdpSettings {
        view: affordable.min(tag.mask().saturating_add(1)).max(2),
        request_count: exchange.requests.len() as u32,
        request_mask: if by_tag { exchange.requests.len() as u32 - 1 } else { 0 },
        longest: longest as u32,
        one_length: u32::from(shortest == longest),
        by_tag: u32::from(by_tag),
        tag_bytes: tag.bytes as u32,
        tag_request: tag.request_offset as u32,
        tag_reply: tag.reply_offset as u32,
        shortest_reply: exchange.shortest_reply_bytes as u32,
        mark_count: exchange.marks.len() as u32,
        code_offset: exchange.code.map_or(0, |code| code.offset as u32),
        code_mask: exchange.code.map_or(0, |code| u32::from(code.mask)),
        verify: u32::from(exchange.verify.is_some()),
        truncated_offset: truncated.map_or(0, |mark| mark.offset as u16),
        truncated_mask: truncated.map_or(0, |mark| u16::from(mark.mask)),
        marks,
        ..common_settings
    })
}

// Bytes of a reply that a program reads.
const REPLY_BYTES: usize = 1024;

/// The greatest power of two that is not greater; 1 for none.
fn power_below(number: u64) -> u64 {
    1 << number.max(1).ilog2()
}

// Start of the search for a flow; must agree with `tuple_hash` of bpf/load.bpf.c.
fn tuple_place(route: &frame::FlowRoute, factor: u32) -> u32 {
    let low_word = |address: std::net::IpAddr| match address {
        std::net::IpAddr::V4(v4) => u32::from_ne_bytes(v4.octets()),
        std::net::IpAddr::V6(v6) => {
            let octets = v6.octets();
            u32::from_ne_bytes([octets[12], octets[13], octets[14], octets[15]])
        }
    };
    let [a, b] = route.from.port().to_be_bytes();
    let [c, d] = route.to.port().to_be_bytes();
    let ports = u32::from_ne_bytes([a, b, c, d]);
    let swapped_target = u32::from_be(low_word(route.to.ip()));
    let hash =
        (low_word(route.from.ip()) ^ swapped_target ^ ports.wrapping_mul(0x9e37_79b1)).wrapping_mul(factor);
    hash ^ hash >> 15
}

// A table size and a factor with which the program finds every flow within its limited search.
fn tuple_table(routes: &FlowRoutes) -> Result<(u32, u32), GeneratorError> {
    let mut random = fastrand::Rng::with_seed(routes.ways.len() as u64);
    let min_size = (routes.ways.len() * 4).next_power_of_two().max(1024);
    for size in [min_size, min_size * 2, min_size * 4] {
        for _ in 0..16 {
            let factor = random.u32(..) | 1;
            if build_tuple_table(routes, size as u32 - 1, factor).is_some() {
                return Ok((size as u32 - 1, factor));
            }
        }
    }
    Err(GeneratorError::xdp(format!(
        "{} flows are too many to match replies in time: use fewer",
        routes.ways.len()
    )))
}

// The table: flow numbers plus one. `None` if a flow finds no free place within the search limit.
fn build_tuple_table(routes: &FlowRoutes, mask: u32, factor: u32) -> Option<Vec<u32>> {
    let mut table = vec![0u32; mask as usize + 1];
    for (id, route) in routes.ways.iter().enumerate() {
        let start = tuple_place(route, factor);
        let mut indices = (0..PROBES as u32).map(|probe| (start.wrapping_add(probe) & mask) as usize);
        let index = indices.find(|index| table[*index] == 0)?;
        table[index] = id as u32 + 1;
    }
    Some(table)
}

fn fill_tuples(tuples: &MappedArray<TupleEntry>, routes: &FlowRoutes, factor: u32) {
    let table = build_tuple_table(routes, tuples.len() as u32 - 1, factor).unwrap_or_default();
    for (entry, flow) in tuples.iter().zip(table) {
        entry.flow.store(flow, Ordering::Relaxed);
    }
}

fn fill_requests(requests: &MappedArray<XdpRequest>, exchange: &PreparedExchange) {
    for (entry, bytes) in requests.iter().zip(&exchange.requests) {
        let mut bytes = bytes.clone();
        if let (crate::workload::RequestOrder::InTurn, Some(tag)) = (exchange.order, exchange.tag) {
            tag.write(0, &mut bytes);
        }
        entry.length.store(bytes.len() as u32, Ordering::Relaxed);
        entry.sum.store(u32::from(frame::fold(frame::sum(&bytes))), Ordering::Relaxed);
        for (word, chunk) in entry.bytes.iter().zip(bytes.chunks(8)) {
            let mut padded_word = [0; 8];
            padded_word[..chunk.len()].copy_from_slice(chunk);
            word.store(u64::from_ne_bytes(padded_word), Ordering::Relaxed);
        }
    }
}

fn map_array<T: xdp::Shared>(
    ebpf: &Ebpf,
    name: &'static str,
    count: usize,
) -> Result<MappedArray<T>, GeneratorError> {
    let Some(Map::Array(data)) = ebpf.map(name) else { return Err(missing_error(name)) };
    MappedArray::new(data.fd().as_fd(), count)
        .map_err(|error| GeneratorError::xdp(format!("cannot map the BPF map {name}: {error}")))
}

fn program_mut<'a, P>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut P, GeneratorError>
where
    &'a mut P: TryFrom<&'a mut Program, Error = ProgramError>,
{
    let program = ebpf.program_mut(name).ok_or_else(|| missing_error(name))?;
    program.try_into().map_err(|error| program_error(name, &error))
}

fn descriptor<'a>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<BorrowedFd<'a>, GeneratorError> {
    let program = program_mut::<Xdp>(ebpf, name)?;
    program.fd().map(AsFd::as_fd).map_err(|error| program_error(name, &error))
}

fn missing_error(name: &str) -> GeneratorError {
    GeneratorError::xdp(format!("the BPF object lacks {name}: rebuild it with cargo xtask bpf"))
}

// The error of the kernel or the loader as one line. The verifier's log is left out, because only a
// developer of the program can use it.
fn program_error(name: &str, error: &dyn std::error::Error) -> GeneratorError {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    let line = text.lines().next().unwrap_or_default();
    GeneratorError::xdp(format!("the kernel does not accept the BPF program ({name}): {line}"))
}

// With many drivers, attaching a program resets the queues, which takes the link down for a moment.
fn await_carrier(routes: &FlowRoutes) -> Result<(), GeneratorError> {
    let began = Instant::now();
    while !netlink::has_carrier(routes.index).unwrap_or(true) {
        if began.elapsed() > LINK_TIMEOUT {
            return Err(GeneratorError::xdp(format!(
                "{} has no link {} s after its XDP program was attached",
                routes.interface,
                LINK_TIMEOUT.as_secs()
            )));
        }
        std::thread::sleep(CARRIER_POLL);
    }
    Ok(())
}

fn attach_error(interface: &str, error: &std::io::Error) -> GeneratorError {
    GeneratorError::xdp(match error.raw_os_error() {
        Some(libc::EBUSY | libc::EEXIST) => {
            format!("{interface} runs an XDP program already: it is left alone, detach it or use sockets")
        }
        Some(libc::EOPNOTSUPP) => format!("{interface} runs no XDP programs in the driver"),
        _ => format!("cannot attach an XDP program to {interface}: {error}"),
    })
}

impl std::fmt::Debug for LoadProgram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoadProgram")
            .field("frames_by", &self.frames_by)
            .field("flows", &self.flows.len())
            .finish()
    }
}
