//! `/proc/net/softnet_stat`: one line per online CPU (net/core/net-procfs.c, `softnet_seq_show`).
//!
//! Hexadecimal columns: 0 processed, 1 dropped, 2 time_squeeze, 9 received_rps (2.6.35), 10 flow
//! limit (3.11), and since 5.10 11 backlog length and 12 the CPU. Before 5.10, the n-th line is for
//! the n-th online CPU. Each counter is 32 bits wide and wraps.

use super::SoftnetCpu;
use crate::CpuSet;

/// `online` identifies the lines if they have no CPU column.
pub(crate) fn parse(text: &str, online: Option<&CpuSet>) -> Result<Vec<SoftnetCpu>, String> {
    let mut online = online.map(CpuSet::iter);
    let mut cpus = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let error = |reason: String| format!("line {}: {reason}", index + 1);
        let columns = line
            .split_whitespace()
            .map(|item| {
                u32::from_str_radix(item, 16).map_err(|_| error(format!("'{item}' is no hexadecimal number")))
            })
            .collect::<Result<Vec<u32>, _>>()?;
        let next_online = online.as_mut().and_then(Iterator::next);
        let column = |number: usize| columns.get(number).copied().map(u64::from);
        let (Some(processed), Some(dropped), Some(time_squeeze)) = (column(0), column(1), column(2)) else {
            return Err(error(format!("{} columns", columns.len())));
        };
        let cpu = columns
            .get(12)
            .copied()
            .or(next_online)
            .ok_or_else(|| error("has no CPU number, and the online CPUs are unknown".to_owned()))?;
        cpus.push(SoftnetCpu {
            cpu,
            processed,
            dropped,
            time_squeeze,
            received_rps: column(9),
            flow_limit: column(10),
            backlog: column(11).filter(|_| columns.len() > 12),
        });
    }
    if cpus.is_empty() { Err("no line in it".to_owned()) } else { Ok(cpus) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From Linux 6.18, with 15 columns; CPU 1 is offline.
    const NEW: &str = "\
264ad425 00000d5c 0000002c 00000000 00000000 00000000 00000000 00000000 00000000 00b6531e 00000000 00000000 00000000 00000000 00000000
212e1240 00000000 00000030 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000007 00000003 00000002 00000001 00000002
";

    /// From Linux 3.10, with ten.
    const OLD: &str = "\
6dcad223 00000000 00000001 00000000 00000000 00000000 00000000 00000000 00000000 00000000
000000ff 00000002 00000000 00000000 00000000 00000000 00000000 00000000 00000000 0000000a
";

    #[test]
    fn new_kernels_report_the_cpu_in_each_softnet_line() {
        let lines = parse(NEW, None).expect("parsed");
        assert_eq!(
            lines[0],
            SoftnetCpu {
                cpu: 0,
                processed: 0x264a_d425,
                dropped: 3420,
                time_squeeze: 44,
                received_rps: Some(0x00b6_531e),
                flow_limit: Some(0),
                backlog: Some(0),
            }
        );
        assert_eq!((lines[1].cpu, lines[1].backlog, lines[1].flow_limit), (2, Some(3), Some(7)));
    }

    #[test]
    fn softnet_lines_of_old_kernels_map_to_online_cpus() {
        let online = CpuSet::from_list("0,4").expect("a list");
        let lines = parse(OLD, Some(&online)).expect("parsed");
        assert_eq!(lines.iter().map(|line| line.cpu).collect::<Vec<_>>(), [0, 4]);
        assert_eq!((lines[1].dropped, lines[1].received_rps, lines[1].flow_limit), (2, Some(10), None));
        assert!(parse(OLD, None).expect_err("unknown CPUs").starts_with("line 1: has no CPU number"));
        let one_cpu = CpuSet::from_list("0").expect("a list");
        assert!(parse(OLD, Some(&one_cpu)).expect_err("a line too many").starts_with("line 2: "));
    }

    #[test]
    fn malformed_softnet_lines_are_named_in_the_error() {
        assert_eq!(parse("", None).expect_err("empty"), "no line in it");
        assert_eq!(parse("00000001 00\n", None).expect_err("short"), "line 1: 2 columns");
        assert_eq!(
            parse(&format!("{OLD}zz\n"), CpuSet::from_list("0-9").ok().as_ref()).expect_err("garbled"),
            "line 3: 'zz' is no hexadecimal number"
        );
    }
}
