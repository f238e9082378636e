//! `/proc/interrupts`: one line per interrupt, one column per online CPU (kernel/irq/proc.c,
//! `show_interrupts`).

use std::collections::BTreeMap;

/// A numbered interrupt. Interrupts of the machine itself (`NMI`, `LOC`) have no number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InterruptLine {
    /// Pairs of CPU and count, without zeros.
    pub handled: Vec<(u32, u64)>,
    /// Handler names as in the file: `eth0-TxRx-3`, or several separated by commas. Empty without a
    /// handler.
    pub name: String,
}

pub(crate) fn parse(text: &str) -> Result<BTreeMap<u32, InterruptLine>, String> {
    let mut lines = text.lines().enumerate();
    let (_, header) = lines.next().ok_or("no line in it")?;
    let cpus = parse_columns(header).map_err(|item| format!("line 1: '{item}' is not a CPU"))?;
    let mut interrupts = BTreeMap::new();
    for (index, line) in lines {
        let Some((label, rest)) = line.split_once(':') else {
            if line.trim().is_empty() {
                continue;
            }
            return Err(format!("line {}: no colon in '{}'", index + 1, line.trim()));
        };
        let Ok(irq) = label.trim().parse::<u32>() else { continue };
        let interrupt =
            parse_interrupt(&cpus, rest).map_err(|error| format!("line {}: {error}", index + 1))?;
        interrupts.insert(irq, interrupt);
    }
    Ok(interrupts)
}

/// The CPUs of the columns: `CPU0 CPU1 CPU3`.
fn parse_columns(header: &str) -> Result<Vec<u32>, &str> {
    let number = |item: &str| item.strip_prefix("CPU").and_then(|number| number.parse().ok());
    let cpus: Vec<u32> =
        header.split_whitespace().map(|item| number(item).ok_or(item)).collect::<Result<_, _>>()?;
    if cpus.is_empty() { Err(header) } else { Ok(cpus) }
}

fn parse_interrupt(cpus: &[u32], rest: &str) -> Result<InterruptLine, String> {
    let mut handled = Vec::new();
    let mut rest = rest.as_bytes();
    for (column, cpu) in cpus.iter().enumerate() {
        rest = rest.trim_ascii_start();
        let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
        let (item, tail) = rest.split_at(end);
        let count = parse_number(item).ok_or_else(|| {
            let item = String::from_utf8_lossy(item);
            format!("'{item}' is not count {} of {}", column + 1, cpus.len())
        })?;
        if count > 0 {
            handled.push((*cpu, count));
        }
        rest = tail;
    }
    Ok(InterruptLine {
        handled,
        name: handler_names(&String::from_utf8_lossy(rest.trim_ascii_start())).to_owned(),
    })
}

/// Digits only. A file of 128 CPUs and 300 interrupts has 40,000 numbers, nearly all of them zero.
fn parse_number(digits: &[u8]) -> Option<u64> {
    let digit = |sum: u64, byte: &u8| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 { None } else { sum.checked_mul(10)?.checked_add(u64::from(digit)) }
    };
    if digits.is_empty() { None } else { digits.iter().try_fold(0, digit) }
}

/// The names after chip, hardware number and trigger. Without a trigger, the names follow the last
/// two consecutive spaces, which the kernel prints before them.
fn handler_names(rest: &str) -> &str {
    let mut tail = rest;
    while let Some(end) = tail.find(char::is_whitespace) {
        let (word, after) = tail.split_at(end);
        if is_trigger(word) {
            return after.trim();
        }
        tail = after.trim_start();
    }
    if is_trigger(tail) {
        return "";
    }
    rest.rsplit_once("  ").map_or("", |(_, name)| name.trim())
}

/// `1-edge`, `-event` of Xen, `IR-PCI-MSI-edge` of kernels before 3.19, `Level` of Arm.
fn is_trigger(word: &str) -> bool {
    const KINDS: [&str; 10] =
        ["edge", "level", "fasteoi", "edge-eoi", "event", "virq", "ipi", "pirq", "eoi", "percpu"];
    matches!(word, "Edge" | "Level")
        || word.split_once('-').is_some_and(|(prefix, kind)| {
            let has_number = prefix.bytes().all(|byte| byte.is_ascii_digit());
            if has_number {
                KINDS.contains(&kind)
            } else {
                kind.ends_with("-edge") || kind.ends_with("-fasteoi") || kind == "edge" || kind == "fasteoi"
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(line: &str) -> String {
        let text = format!("           CPU0       CPU1\n{line}\n");
        parse(&text).expect("parsed").into_values().next().expect("a line").name
    }

    /// From a virtual machine with Linux 6.18; CPU 1 of three is offline.
    const VIRTUAL: &str = "\
           CPU0       CPU2
 26:          0         15  IO-APIC   4-edge      ttyS0
 37:          0          0 PCI-MSIX-0000:00:03.0   0-edge      virtio2-config
 38:          0      20868 PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0
 39:      15604          7 PCI-MSIX-0000:00:03.0   2-edge      virtio2-output.0
NMI:          0          0   Non-maskable interrupts
LOC:   39781910   32816087   Local timer interrupts
ERR:          0
MIS:          0
";

    #[test]
    fn counts_belong_to_the_cpu_of_their_column() {
        let lines = parse(VIRTUAL).expect("parsed");
        assert_eq!(lines.keys().copied().collect::<Vec<_>>(), [26, 37, 38, 39]);
        assert_eq!(lines[&38], InterruptLine { handled: vec![(2, 20_868)], name: "virtio2-input.0".into() });
        assert_eq!(lines[&39].handled, [(0, 15_604), (2, 7)]);
        assert_eq!(lines[&37].handled, []);
    }

    #[test]
    fn interrupt_names_are_parsed_for_every_irq_chip() {
        for (line, expected) in [
            // kernel/irq/proc.c: chip, hardware number, trigger, names.
            (" 24:  1  0  PCI-MSI 524288-edge      eth0-TxRx-0", "eth0-TxRx-0"),
            ("105:  1  0  IR-PCI-MSI-edge      ens1f0-TxRx-0", "ens1f0-TxRx-0"),
            (" 16:  1  0  IO-APIC  16-fasteoi   i801_smbus, eth0", "i801_smbus, eth0"),
            (" 72:  1  0  xen-dyn    -event     eth0-q0-tx", "eth0-q0-tx"),
            (" 11:  1  0  GICv3  27 Level     arch_timer", "arch_timer"),
            (
                " 55:  1  0  ITS-PCI-MSIX-0000:81:00.0   1 Edge      mlx5_comp0@pci:0000:81:00.0",
                "mlx5_comp0@pci:0000:81:00.0",
            ),
            (" 60:  1  0  ITS-MSI 67633152 Edge      eth0 (queue 3)", "eth0 (queue 3)"),
            (" 30:  1  0  XICS 4097 Edge      bnxt: eth0-TxRx-1", "bnxt: eth0-TxRx-1"),
            (" 31:  1  0  PCI-MSI 1-edge", ""),
            (" 32:  1  0  MIPS   7  timer", "timer"),
        ] {
            assert_eq!(name(line), expected, "{line}");
        }
    }

    #[test]
    fn parse_errors_name_the_line() {
        for (text, expected) in [
            ("", "no line in it"),
            ("\n", "line 1: '' is not a CPU"),
            ("  CPU0 core1\n", "line 1: 'core1' is not a CPU"),
            ("  CPU0 CPU1\n 24:  1", "line 2: '' is not count 2 of 2"),
            ("  CPU0 CPU1\n 24:  1 x2  IO-APIC\n", "line 2: 'x2' is not count 2 of 2"),
            ("  CPU0\n 24 no colon\n", "line 2: no colon in '24 no colon'"),
        ] {
            assert_eq!(parse(text).expect_err("garbled"), expected);
        }
    }
}
