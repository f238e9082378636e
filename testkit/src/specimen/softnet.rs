//! Packet processing: `/proc/net/softnet_stat` and `/proc/softirqs`.

use std::fmt::Write;

use crate::specimen::{Cpus, Kernel, Tree};

/// What a CPU's softirqs did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Softnet {
    pub processed: u32,
    /// Packets lost because its backlog was full.
    pub dropped: u32,
    /// Times it stopped with work left.
    pub squeezed: u32,
    /// Times another CPU handed it packets.
    pub received_rps: u32,
    /// NET_RX softirqs it ran.
    pub net_rx: u64,
    /// NET_TX softirqs it ran.
    pub net_tx: u64,
}

pub(crate) fn write(tree: &mut Tree, kernel: Kernel, cpus: &Cpus, softnet: &[Softnet]) {
    tree.file("/proc/net/softnet_stat", softnet_stat(kernel, cpus, softnet));
    tree.file("/proc/softirqs", softirqs(cpus, softnet));
}

/// softnet_seq_show in net/core/net-procfs.c: 11 columns; the backlog's length and the CPU's number since 5.10, the
/// lengths of its two queues since 6.4.
fn softnet_stat(kernel: Kernel, cpus: &Cpus, softnet: &[Softnet]) -> String {
    let mut text = String::new();
    for (cpu, row) in cpus.all.iter().zip(softnet) {
        let Softnet { processed, dropped, squeezed, received_rps, .. } = row;
        let mut columns = vec![*processed, *dropped, *squeezed, 0, 0, 0, 0, 0, 0, *received_rps, 0];
        if kernel.at_least(5, 10) {
            columns.extend([0, cpu.cpu]);
        }
        if kernel.at_least(6, 4) {
            columns.extend([0, 0]);
        }
        let columns: Vec<String> = columns.iter().map(|column| format!("{column:08x}")).collect();
        let _ = writeln!(text, "{}", columns.join(" "));
    }
    text
}

fn softirqs(cpus: &Cpus, softnet: &[Softnet]) -> String {
    let mut text = " ".repeat(20);
    for cpu in &cpus.all {
        let _ = write!(text, "{:<11}", format!("CPU{}", cpu.cpu));
    }
    text.push('\n');
    for name in ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"]
    {
        let _ = write!(text, "{name:>12}:");
        for row in softnet {
            let count = match name {
                "NET_RX" => row.net_rx,
                "NET_TX" => row.net_tx,
                _ => 0,
            };
            let _ = write!(text, " {count:>10}");
        }
        text.push('\n');
    }
    text
}
