//! CPU time of packet processing.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::Duration;

use linerate_host::Host;
use linerate_trace::TraceError;
use linerate_trace::cost::{self, CostSession, CpuCost};

use super::{MeasuringThread, MetricCollector};
use crate::metrics::families::{COST_LOOK, COST_SECONDS, COST_STOLEN};
use crate::metrics::gather::GatheredSamples;

// Length of a sampling period; its samples are added to the totals at its end.
const LAP: Duration = Duration::from_secs(2);

/// A thread that measures in windows that keep it below 1 % of a CPU (see
/// [`linerate_trace::cost`]).
#[derive(Debug)]
pub(crate) struct CostCollector(MeasuringThread<CostTotals>);

#[derive(Debug, Default)]
struct CostTotals {
    cpus: BTreeMap<u32, CpuNanoseconds>,
    share: Option<f64>,
}

#[derive(Debug, Default, Clone, Copy)]
struct CpuNanoseconds {
    net_rx: u64,
    net_tx: u64,
    nic_irq: u64,
    stolen: u64,
}

impl CostCollector {
    /// Starts the measurement.
    pub(crate) fn start() -> Result<Self, TraceError> {
        // Reports a missing privilege or kernel feature at once. A session counts the CPU time of the
        // thread that starts it as its own.
        CostSession::start(&Host::live(), None, false)?;
        Ok(Self(MeasuringThread::<CostTotals>::start(move |sums, is_stopped| {
            let host = Host::live();
            let mut session = CostSession::start(&host, None, false)?;
            while !is_stopped() {
                session.wait(LAP, is_stopped)?;
                let cost = session.read(&host)?;
                sums.lock().unwrap_or_else(PoisonError::into_inner).add(&cost);
            }
            Ok(())
        })))
    }
}

impl MetricCollector for CostCollector {
    fn gather(&mut self, _host: &Host, samples: &mut GatheredSamples) -> Result<(), String> {
        let sums = self.0.values()?;
        for (cpu, totals) in &sums.cpus {
            let cpu = cpu.to_string();
            for (context, ns) in
                [("net_rx", totals.net_rx), ("net_tx", totals.net_tx), ("nic_irq", totals.nic_irq)]
            {
                samples.add_counter(&COST_SECONDS, &[&cpu, context], ns);
            }
            samples.add_counter(&COST_STOLEN, &[&cpu], totals.stolen);
        }
        samples.add_gauge(&COST_LOOK, &[], sums.share);
        Ok(())
    }
}

impl CostTotals {
    fn add(&mut self, cost: &cost::CostReport) {
        for cpu in &cost.cpus {
            self.cpus.entry(cpu.cpu).or_default().add(cpu);
        }
        self.share = cost.own.share.value().copied();
    }
}

impl CpuNanoseconds {
    fn add(&mut self, cpu: &CpuCost) {
        self.net_rx += cpu.net_rx_ns;
        self.net_tx += cpu.net_tx_ns;
        self.nic_irq += cpu.nic_irq_ns;
        // Time taken from the idle task, and work of kernel threads that exist for packet
        // processing, was not taken from another task.
        let from_no_task = cpu.from_idle_ns + cpu.in_ksoftirqd_ns + cpu.in_threads_ns;
        self.stolen += (cpu.net_rx_ns + cpu.net_tx_ns + cpu.nic_irq_ns).saturating_sub(from_no_task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_excludes_idle_ksoftirqd_and_napi_thread_time() {
        let cpu = CpuCost {
            net_rx_ns: 50,
            net_tx_ns: 5,
            nic_irq_ns: 10,
            from_idle_ns: 20,
            in_ksoftirqd_ns: 15,
            in_threads_ns: 5,
            ..CpuCost::default()
        };
        let mut total = CpuNanoseconds::default();
        total.add(&cpu);
        total.add(&cpu);
        assert_eq!((total.net_rx, total.stolen), (100, 50));
    }
}
