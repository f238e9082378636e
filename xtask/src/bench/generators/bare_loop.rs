//! The shortest program that sends live frames.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use aya::programs::{TestRun, TestRunOptions, Xdp};
use aya::{Ebpf, EbpfLoader, include_bytes_aligned};
use linerate_lab::LabLink;
use linerate_testkit::reflector::XdpService;

use super::contender::{ContenderRun, GeneratorContender, LoopThread};
use super::testbed::GeneratorTestbed;
use super::{PAYLOAD, RUN_UP};
use crate::machine;

pub(super) const NAME: &str = "bare-loop";

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/../bpf/bare.bpf.o"));

// Frames per batch: the maximum of the kernel (`TEST_XDP_MAX_BATCH`, net/bpf/test_run.c, Linux
// 6.18).
const BATCH: u32 = 256;

// Frames per system call: about 0.2 s at 5 million frames per second. Each call creates and
// destroys a page pool, which waits for RCU. With calls of a few milliseconds, the loop would wait
// most of the time.
const REPEAT: u32 = 1 << 20;

const DESTINATION_PORT: u16 = 7;

/// A loop of live frames from a program that picks a random source port and redirects: it neither
/// matches nor times.
#[derive(Default)]
pub(super) struct BareLoop {
    /// Whether replies arrive, which an XDP program of the sender drops.
    takes_replies: bool,
}

impl BareLoop {
    /// A loop whose host drops the replies.
    pub(super) fn with_reply_sink() -> Self {
        Self { takes_replies: true }
    }
}

impl GeneratorContender for BareLoop {
    fn name(&self) -> &'static str {
        NAME
    }

    fn describe(&self) -> String {
        let replies = if self.takes_replies { ", replies dropped by XDP_DROP" } else { "" };
        format!(
            "BPF_PROG_TEST_RUN, BPF_F_TEST_XDP_LIVE_FRAMES, batch {BATCH}, repeat {REPEAT}, bpf/bare.bpf.c{replies}"
        )
    }

    fn prepare(&mut self, testbed: &GeneratorTestbed) -> anyhow::Result<()> {
        load(testbed.link().sender.index).map(drop)
    }

    fn start(&mut self, testbed: &GeneratorTestbed) -> anyhow::Result<Box<dyn ContenderRun>> {
        let mut ebpf = load(testbed.link().sender.index)?;
        let program: &mut Xdp =
            ebpf.program_mut("bare").context("the object has no such program")?.try_into()?;
        program.load()?;
        let frame = frame(testbed.link());
        // struct xdp_md: data, data_end, data_meta, ingress_ifindex, rx_queue_index,
        // egress_ifindex.
        let length = u32::try_from(frame.len())?;
        let context: Vec<u8> = [0, length, 0, testbed.link().sender.index, 0, 0]
            .iter()
            .flat_map(|field: &u32| field.to_ne_bytes())
            .collect();
        let stop = Arc::new(AtomicBool::new(false));
        let (stop_flag, cpu) = (Arc::clone(&stop), testbed.cpu);
        // In the sender's namespace, because the index above is looked up in the namespace of the
        // calling thread.
        let handle = testbed.sender().run(|| {
            thread::spawn(move || {
                machine::pin(None, cpu)?;
                let program: &Xdp =
                    ebpf.program("bare").context("the object has no such program")?.try_into()?;
                while !stop_flag.load(Ordering::Relaxed) {
                    let mut options = TestRunOptions::new();
                    options.data_in = Some(&frame);
                    options.ctx_in = Some(&context);
                    options.repeat = REPEAT;
                    options.attrs = options.attrs.xdp_live_frames(BATCH);
                    program.test_run(options)?;
                }
                Ok(())
            })
        })?;
        Ok(Box::new(LoopThread::new(stop, handle)))
    }

    fn replies(&mut self, testbed: &GeneratorTestbed, time: Duration) -> anyhow::Result<f64> {
        let interface = testbed.link().sender.interface.clone();
        let sink = testbed.sender().run(|| XdpService::sink().attach(&interface))??;
        let sender_run = self.start(testbed)?;
        thread::sleep(RUN_UP);
        let (first_count, begin) = (sink.account()?.received, Instant::now());
        thread::sleep(time);
        let (last_count, seconds) = (sink.account()?.received, begin.elapsed().as_secs_f64());
        sender_run.stop()?;
        Ok((last_count - first_count) as f64 / seconds)
    }
}

fn load(interface_index: u32) -> anyhow::Result<Ebpf> {
    EbpfLoader::new()
        .override_global("interface_index", &interface_index, true)
        .load(OBJECT)
        .context("loading bpf/bare.bpf.o")
}

/// Ethernet, IPv4, UDP without a checksum, payload.
fn frame(link: &LabLink) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.extend_from_slice(&link.receiver.mac);
    frame.extend_from_slice(&link.sender.mac);
    frame.extend_from_slice(&[8, 0]);
    frame.extend_from_slice(&ipv4_header(link));
    frame.extend_from_slice(&[0, 0]);
    frame.extend_from_slice(&DESTINATION_PORT.to_be_bytes());
    frame.extend_from_slice(&(8 + PAYLOAD as u16).to_be_bytes());
    frame.extend_from_slice(&[0, 0]);
    frame.resize(frame.len() + PAYLOAD, 0x55);
    frame
}

fn ipv4_header(link: &LabLink) -> [u8; 20] {
    let mut header = [0; 20];
    header[0] = 0x45;
    header[2..4].copy_from_slice(&(28 + PAYLOAD as u16).to_be_bytes());
    header[6] = 0x40; // not to be fragmented
    header[8] = 64;
    header[9] = 17;
    header[12..16].copy_from_slice(&link.sender.ipv4[0].octets());
    header[16..20].copy_from_slice(&link.receiver.ipv4[0].octets());
    let sum: u32 = header.as_chunks::<2>().0.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    header[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    header
}
