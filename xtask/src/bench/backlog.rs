//! Room for what RPS brings to a CPU while its server has a turn of the scheduler.
//!
//! `process_backlog` hands what is left after a budget to ksoftirqd, which shares the CPU with the server. Where that takes turns by ticks, 250 a
//! second, the kernel's 1,000 packets are full within one from 250,000 a second on.

use std::path::Path;

use anyhow::Context;

/// The most packets that wait for a CPU's `process_backlog`; of the whole machine (net/core/sysctl_net_core.c).
const FILE: &str = "/proc/sys/net/core/netdev_max_backlog";

/// Packets: some 30 ms of the highest rate that a socket server was seen to answer.
const WANTED: u64 = 16_384;

/// While it lives, a CPU's backlog has at least [`WANTED`] places.
#[derive(Debug)]
pub(super) struct LongBacklog {
    before: String,
}

impl LongBacklog {
    pub(super) fn deepen() -> anyhow::Result<Option<Self>> {
        let text = std::fs::read_to_string(FILE).with_context(|| format!("reading {FILE}"))?;
        let before = text.trim().to_owned();
        if before.parse::<u64>().with_context(|| format!("{FILE}: {before}"))? >= WANTED {
            return Ok(None);
        }
        write(&WANTED.to_string())?;
        Ok(Some(Self { before }))
    }
}

impl Drop for LongBacklog {
    fn drop(&mut self) {
        if let Err(why) = write(&self.before) {
            eprintln!("{why:#}: put it back by hand");
        }
    }
}

fn write(value: &str) -> anyhow::Result<()> {
    let here = Path::new(FILE);
    std::fs::write(here, value).with_context(|| format!("writing {value} to {FILE}"))
}
