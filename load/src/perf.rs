//! Cycles and instructions of the whole machine: all CPUs, user and kernel.
//!
//! On a machine with few CPUs, cycles and instructions per transaction are often a better measure
//! than transactions per second.

use std::io;

use perf_event::events::Hardware;
use perf_event::{Builder, Counter, ReadFormat};

use linerate_host::Known;

/// Hardware counters over all CPUs.
#[derive(Debug)]
pub struct MachineCounters {
    cycles: Vec<Counter>,
    instructions: Vec<Counter>,
}

/// Counts between [`MachineCounters::start`] and [`MachineCounters::stop`], scaled up if others
/// used the counters as well.
#[derive(Debug)]
pub struct PerfCounts {
    /// CPU cycles, halted ones not included.
    pub cycles: Known<u64>,
    /// Instructions retired.
    pub instructions: Known<u64>,
}

impl MachineCounters {
    /// Opens cycles and instructions on every online CPU, stopped.
    ///
    /// # Errors
    /// The reason why they cannot be opened, in one line for a person.
    pub fn open() -> Result<Self, String> {
        let mut counters = MachineCounters { cycles: Vec::new(), instructions: Vec::new() };
        let cpus = aya::util::online_cpus().map_err(|(file, error)| format!("{file}: {error}"))?;
        for cpu in cpus {
            for (event, counters) in [
                (Hardware::CPU_CYCLES, &mut counters.cycles),
                (Hardware::INSTRUCTIONS, &mut counters.instructions),
            ] {
                match open_counter(event, cpu as usize) {
                    Ok(counter) => counters.push(counter),
                    // It has gone offline since.
                    Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
                    Err(error) => return Err(explain(&error)),
                }
            }
        }
        if counters.cycles.is_empty() { Err("no CPU could be counted on".to_owned()) } else { Ok(counters) }
    }

    /// Starts counting from zero.
    pub fn start(&mut self) -> Result<(), String> {
        for counter in self.counters_mut() {
            counter.reset().and_then(|()| counter.enable()).map_err(|error| explain(&error))?;
        }
        Ok(())
    }

    /// Stops counting and returns the counts since [`MachineCounters::start`].
    pub fn stop(&mut self) -> PerfCounts {
        // All counters are stopped before any counter is read, so that they cover the same time.
        let stop_result: io::Result<()> = self.counters_mut().try_for_each(Counter::disable);
        if let Err(error) = stop_result {
            let reason = explain(&error);
            return PerfCounts {
                cycles: Known::unknown(reason.clone()),
                instructions: Known::unknown(reason),
            };
        }
        PerfCounts {
            cycles: sum_counters(&mut self.cycles),
            instructions: sum_counters(&mut self.instructions),
        }
    }

    fn counters_mut(&mut self) -> impl Iterator<Item = &mut Counter> {
        self.cycles.iter_mut().chain(&mut self.instructions)
    }
}

fn open_counter(event: Hardware, cpu: usize) -> io::Result<Counter> {
    let mut builder = Builder::new(event);
    builder
        .any_pid()
        .one_cpu(cpu)
        .include_kernel()
        .include_hv()
        .read_format(ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING);
    builder.build()
}

fn sum_counters(counters: &mut [Counter]) -> Known<u64> {
    let mut sum = 0.0;
    for counter in counters {
        let (count, enabled, running) = match counter.read_full() {
            Ok(data) => (data.count(), data.time_enabled(), data.time_running()),
            Err(error) => return Known::unknown(explain(&error)),
        };
        let times = enabled.map(|time| time.as_nanos()).zip(running.map(|time| time.as_nanos()));
        let ratio = match times {
            Some((enabled, running)) if enabled > running => running as f64 / enabled as f64,
            _ => 1.0,
        };
        if ratio == 0.0 {
            return Known::unknown("the hardware counters were in use by others all the time");
        }
        sum += count as f64 / ratio;
    }
    // A CPU that runs counts cycles: all zero means a PMU that is offered but does not count.
    if sum > 0.0 { Known::Value(sum as u64) } else { Known::unknown("the hardware counters stayed at zero") }
}

fn explain(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            "no permission to count on whole CPUs: needs CAP_PERFMON (or root), or \
             kernel.perf_event_paranoid of 0 or less"
                .to_owned()
        }
        Some(libc::ENOENT | libc::EOPNOTSUPP) => {
            "no hardware counters (virtual machine without a PMU?)".to_owned()
        }
        Some(libc::ENOSYS) => "this kernel is built without perf events".to_owned(),
        Some(libc::EMFILE | libc::ENFILE) => {
            "too few open files for two counters a CPU: raise RLIMIT_NOFILE (ulimit -n)".to_owned()
        }
        _ => format!("perf_event_open: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_count_instructions_or_report_the_reason() {
        let mut counters = match MachineCounters::open() {
            Ok(counters) => counters,
            Err(why) => {
                assert!(!why.is_empty());
                linerate_testkit::skip("counters_count_instructions_or_report_the_reason", &why);
                return;
            }
        };
        counters.start().unwrap();
        let mut sum = 0u64;
        for value in 0..1_000_000u64 {
            sum = std::hint::black_box(sum + value);
        }
        let counts = counters.stop();
        match (counts.instructions.value(), counts.instructions.why()) {
            (Some(instructions), _) => assert!(*instructions >= 1_000_000, "{counts:?}"),
            (None, why) => {
                linerate_testkit::skip(
                    "counters_count_instructions_or_report_the_reason",
                    why.unwrap_or_default(),
                );
            }
        }
    }

    #[test]
    fn perf_errors_name_the_missing_capability_or_pmu() {
        let of = |code| explain(&io::Error::from_raw_os_error(code));
        assert!(of(libc::EACCES).contains("CAP_PERFMON") && of(libc::EACCES).contains("perf_event_paranoid"));
        assert!(of(libc::ENOENT).contains("PMU"));
    }
}
