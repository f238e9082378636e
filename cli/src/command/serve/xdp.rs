//! Options of the AF_XDP backend, and its messages at the start.

use clap::Args;
use linerate_engine::{AfXdpSettings, XdpMode, XdpReport};

#[derive(Debug, Args)]
pub(crate) struct XdpArguments {
    /// Interface whose queues the xdp backend serves, or where --overload protect attaches its
    /// guard; repeatable [default: those of the address]
    #[arg(long, value_name = "NAME")]
    pub(crate) xdp_interface: Vec<String>,
    /// Run the xdp backend's program after the driver, for drivers that have no XDP
    #[arg(long)]
    xdp_generic: bool,
    /// Use copy mode even if the driver supports zero-copy
    #[arg(long)]
    xdp_copy: bool,
    /// Frames per queue of the xdp backend, a power of two [default: 4096]
    #[arg(long, value_name = "N")]
    xdp_frames: Option<u32>,
    /// Most requests the xdp backend answers before it sends [default: 64]
    #[arg(long, value_name = "N")]
    xdp_batch: Option<u16>,
    /// SO_PREFER_BUSY_POLL for the xdp backend, microseconds [default: 0]
    #[arg(long, value_name = "US")]
    xdp_busy_poll: Option<u32>,
    /// Have the xdp backend check the checksums of requests
    #[arg(long)]
    verify_checksums: bool,
}

impl XdpArguments {
    /// The settings of these options.
    pub(crate) fn settings(&self) -> AfXdpSettings {
        let default = AfXdpSettings::default();
        AfXdpSettings {
            frames: self.xdp_frames.unwrap_or(default.frames),
            batch: self.xdp_batch.unwrap_or(default.batch),
            mode: if self.xdp_generic { XdpMode::Generic } else { XdpMode::Driver },
            zero_copy: !self.xdp_copy,
            busy_poll_us: self.xdp_busy_poll.unwrap_or(0),
            verify_checksums: self.verify_checksums,
            ..default
        }
    }

    /// An option that only the xdp backend uses, if one is given.
    pub(crate) fn used_option(&self) -> Option<&'static str> {
        let options = [
            (self.xdp_generic, "--xdp-generic"),
            (self.xdp_copy, "--xdp-copy"),
            (self.xdp_frames.is_some(), "--xdp-frames"),
            (self.xdp_batch.is_some(), "--xdp-batch"),
            (self.xdp_busy_poll.is_some(), "--xdp-busy-poll"),
            (self.verify_checksums, "--verify-checksums"),
        ];
        options.into_iter().find(|(is_used, _)| *is_used).map(|(_, option)| option)
    }
}

/// The mode of each queue, one per line, with notes.
pub(crate) fn describe_queues(report: &XdpReport) -> String {
    let mut text = String::new();
    for interface in &report.interfaces {
        let mode = match interface.mode {
            XdpMode::Driver => "driver",
            XdpMode::Generic => "generic",
        };
        let driver = interface.driver.as_deref().unwrap_or("unknown");
        for queue in &interface.queues {
            text.push_str(&format!(
                "AF_XDP on {} queue {}: worker {}, driver {driver}, {mode} mode, {}, {}, {} frames of {} bytes\n",
                interface.name,
                queue.queue,
                queue.worker,
                if queue.zero_copy { "zero-copy" } else { "copy" },
                if queue.need_wakeup { "need-wakeup" } else { "no need-wakeup" },
                queue.frames,
                queue.frame_bytes,
            ));
        }
    }
    for warning in &report.warnings {
        text.push_str(&format!("AF_XDP: {warning}\n"));
    }
    text
}
