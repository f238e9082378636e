//! The shortest program that sends live frames.

use anyhow::Context;
use aya::programs::{TestRun, TestRunOptions, Xdp};
use aya::{EbpfLoader, include_bytes_aligned};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use linerate_testkit::reflector::XdpService;

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/../bpf/bare.bpf.o"));

// Frames per batch: the maximum of the kernel (`TEST_XDP_MAX_BATCH`, net/bpf/test_run.c, Linux
// 6.18).
const BATCH: u32 = 256;

// Frames per system call: about 0.2 s at 5 million frames per second. Each call creates and
// destroys a page pool, which waits for RCU. With calls of a few milliseconds, the loop would wait
// most of the time.
const REPEAT: u32 = 1 << 20;

/// A loop of live frames from a program that picks a random source port and redirects: it neither
/// matches nor times. It runs until it is killed.
#[derive(Debug, Args)]
pub(crate) struct BareLoop {
    /// Index of the interface that sends.
    #[arg(long)]
    index: u32,
    /// The frame, in base64.
    #[arg(long)]
    frame: String,
    /// Drop the replies that arrive at this interface, by an XDP program.
    #[arg(long)]
    drop_replies: Option<String>,
}

impl BareLoop {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let interface = self.drop_replies.as_deref();
        let _sink = interface.map(|interface| XdpService::sink().attach(interface)).transpose()?;
        let mut ebpf = EbpfLoader::new()
            .override_global("interface_index", &self.index, true)
            .load(OBJECT)
            .context("loading bpf/bare.bpf.o")?;
        let program: &mut Xdp =
            ebpf.program_mut("bare").context("the object has no such program")?.try_into()?;
        program.load()?;
        let frame = STANDARD.decode(&self.frame)?;
        // struct xdp_md: data, data_end, data_meta, ingress_ifindex, rx_queue_index,
        // egress_ifindex.
        let context: Vec<u8> = [0, u32::try_from(frame.len())?, 0, self.index, 0, 0]
            .iter()
            .flat_map(|field: &u32| field.to_ne_bytes())
            .collect();
        loop {
            let mut options = TestRunOptions::new();
            options.data_in = Some(&frame);
            options.ctx_in = Some(&context);
            options.repeat = REPEAT;
            options.attrs = options.attrs.xdp_live_frames(BATCH);
            program.test_run(options)?;
        }
    }
}
