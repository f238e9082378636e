//! CPUs.

use linerate_host::PacketPath;

use super::{CounterReset, GatheredSamples};
use crate::metrics::families::{CPU_SECONDS, KERNEL_INFO};

pub(super) fn gather(path: &PacketPath, all: &mut GatheredSamples) {
    for times in path.machine.cpu_times.value().into_iter().flatten() {
        let cpu = times.cpu.to_string();
        let modes = [
            ("user", times.user),
            ("system", times.system),
            ("idle", times.idle),
            ("irq", times.irq),
            ("softirq", times.softirq),
            ("steal", times.steal),
        ];
        for (mode, ticks) in modes {
            all.add_source_counter(&CPU_SECONDS, &[&cpu, mode], (0, CounterReset::Never), ticks);
        }
    }
    if let Some(release) = path.machine.kernel.value() {
        all.add_gauge(&KERNEL_INFO, &[release], 1.0);
    }
}
