//! Interrupts: `/proc/interrupts` and `/proc/irq`.

use std::fmt::Write;

use crate::specimen::cpus::{list, mask};
use crate::specimen::{Cpus, Kernel, Tree};

#[derive(Debug, Clone)]
pub struct Interrupt {
    pub irq: u32,
    /// The chip as `/proc/interrupts` names it, such as `PCI-MSI`.
    pub chip: String,
    /// The number at the chip.
    pub hardware: u32,
    /// Who handles it, such as `eth0-TxRx-3`.
    pub name: String,
    /// The CPUs it may go to.
    pub affinity: Vec<u32>,
    /// The CPU it does go to.
    pub effective: u32,
    /// The CPUs its driver would like; empty where it does not say.
    pub hint: Vec<u32>,
    /// The NUMA node of its device.
    pub node: i32,
    /// How often it was handled, by CPU in order.
    pub handled: Vec<u64>,
}

pub(crate) fn write(tree: &mut Tree, kernel: Kernel, cpus: &Cpus, interrupts: &[Interrupt]) {
    tree.file("/proc/interrupts", table(cpus, interrupts));
    let possible = cpus.count();
    tree.line("/proc/irq/default_smp_affinity", mask(&cpus.numbers(), possible));
    for interrupt in interrupts {
        let path = format!("/proc/irq/{}", interrupt.irq);
        tree.line(format!("{path}/smp_affinity"), mask(&interrupt.affinity, possible));
        tree.line(format!("{path}/smp_affinity_list"), list(&interrupt.affinity));
        tree.line(format!("{path}/affinity_hint"), mask(&interrupt.hint, possible));
        tree.line(format!("{path}/node"), interrupt.node);
        // Since commit 0d3f54257dc3 of Linux 4.13, where the architecture has it.
        if kernel.at_least(4, 15) {
            tree.line(format!("{path}/effective_affinity"), mask(&[interrupt.effective], possible));
            tree.line(format!("{path}/effective_affinity_list"), interrupt.effective);
        }
        tree.file(format!("{path}/spurious"), "count 0\nunhandled 0\nlast_unhandled 0 ms\n");
    }
}

/// `/proc/interrupts` (show_interrupts in kernel/irq/proc.c).
fn table(cpus: &Cpus, interrupts: &[Interrupt]) -> String {
    let width = 3;
    let mut text = " ".repeat(width + 8);
    for cpu in &cpus.all {
        let _ = write!(text, "{:<11}", format!("CPU{}", cpu.cpu));
    }
    text.push('\n');
    for interrupt in interrupts {
        let _ = write!(text, "{:>width$}: ", interrupt.irq);
        for count in &interrupt.handled {
            let _ = write!(text, "{count:>10} ");
        }
        let Interrupt { chip, hardware, name, .. } = interrupt;
        let _ = writeln!(text, " {chip:>8} {hardware:>width$}-{:<8}  {name}", "edge");
    }
    for (name, what) in [("NMI", "Non-maskable interrupts"), ("LOC", "Local timer interrupts")] {
        let _ = write!(text, "{name:>width$}: ");
        for _ in &cpus.all {
            let _ = write!(text, "{:>10} ", 0);
        }
        let _ = writeln!(text, "  {what}");
    }
    text.push_str("ERR:          0\nMIS:          0\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::specimen::Cpu;

    #[test]
    fn the_table_is_laid_out_as_the_kernels() {
        let cpus = Cpus {
            all: (0..2).map(|cpu| Cpu { cpu, node: 0, core: cpu }).collect(),
            model: "",
            hypervisor: false,
            governor: None,
        };
        let interrupt = Interrupt {
            irq: 32,
            chip: "PCI-MSIX-0000:00:01.0".into(),
            hardware: 4,
            name: "virtio0-reporting_vq".into(),
            affinity: vec![0, 1],
            effective: 0,
            hint: vec![],
            node: -1,
            handled: vec![2142, 0],
        };
        let text = table(&cpus, &[interrupt]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "           CPU0       CPU1       ");
        assert_eq!(
            lines[1],
            " 32:       2142          0  PCI-MSIX-0000:00:01.0   4-edge      virtio0-reporting_vq"
        );
        assert_eq!(lines[2], "NMI:          0          0   Non-maskable interrupts");
    }
}
