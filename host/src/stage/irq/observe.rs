//! Reads the vectors of interfaces.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::served_queues::{ServedQueues, VectorNames};
use super::{InterfaceVectors, IrqState, IrqVector};
use crate::cpu_set::ParseCpuSetError;
use crate::interrupts::{self, InterruptLine};
use crate::known::number;
use crate::stage::softirq::NapiInstance;
use crate::{CpuSet, Host, HostError, Known};

const INTERRUPTS: &str = "/proc/interrupts";
const DEBUG: &str = "/sys/kernel/debug/irq/irqs";

impl IrqState {
    pub fn observe(host: &Host, interfaces: &[&str]) -> Self {
        let lines = host.read_parsed(INTERRUPTS, interrupts::parse);
        let source = VectorSource {
            host,
            napi: NapiInstance::all(host).into_value().flatten().unwrap_or_default(),
            tells_managed: host.list(DEBUG).is_ok(),
        };
        let interfaces: Vec<InterfaceVectors> = interfaces
            .iter()
            .map(|interface| InterfaceVectors {
                interface: (*interface).to_owned(),
                vectors: match &lines {
                    Ok(lines) => source.vectors(lines, interface),
                    Err(error) => Known::unknown(error.to_string()),
                },
            })
            .collect();
        Self { owners: super::owner::observe(host), isolated: isolated_cpus(host), interfaces }
    }
}

/// Handler names by interrupt; a shared interrupt has several, separated by commas.
pub fn handler_names(host: &Host) -> Known<BTreeMap<u32, String>> {
    let names =
        |lines: BTreeMap<u32, InterruptLine>| lines.into_iter().map(|(irq, line)| (irq, line.name)).collect();
    host.read_known(INTERRUPTS, interrupts::parse).map(names)
}

/// Both files exist since Linux 4.2 (drivers/base/cpu.c).
fn isolated_cpus(host: &Host) -> Known<Option<CpuSet>> {
    let (scheduler, tick) = (cpu_list(host, "isolated"), cpu_list(host, "nohz_full"));
    match (scheduler, tick) {
        (Known::Value(Some(scheduler_cpus)), Known::Value(Some(tick_cpus))) => {
            Known::Value(Some(scheduler_cpus.iter().chain(tick_cpus.iter()).collect()))
        }
        (scheduler, Known::Value(_)) => scheduler,
        (_, unknown) => unknown,
    }
}

fn cpu_list(host: &Host, file: &str) -> Known<Option<CpuSet>> {
    let parse = |text: &str| match text.trim() {
        // Printed for a mask that was never allocated (lib/vsprintf.c).
        "(null)" => Ok(None),
        list => CpuSet::from_list(list).map(Some),
    };
    host.read_optional(&format!("/sys/devices/system/cpu/{file}"), parse).map(Option::flatten)
}

struct VectorSource<'a> {
    host: &'a Host,
    napi: Vec<NapiInstance>,
    tells_managed: bool,
}

/// Properties of an interface's device that matter for its interrupts.
struct IrqDevice {
    /// The name on its bus.
    name: Option<String>,
    /// Whether it is on a bus whose devices have no interrupt of their own.
    shares_interrupts: bool,
}

impl VectorSource<'_> {
    fn vectors(&self, lines: &BTreeMap<u32, InterruptLine>, interface: &str) -> Known<Vec<IrqVector>> {
        let Some(device) = self.device(interface) else { return Known::Value(Vec::new()) };
        let names = VectorNames { interface, device: device.name.as_deref() };
        let queues = self.reported_queues(interface);
        let irqs = self.vector_irqs(interface, lines, &names, &queues);
        if irqs.is_empty() && !device.shares_interrupts && self.is_up(interface) {
            let device_note =
                device.name.as_ref().map(|name| format!(" or its device {name}")).unwrap_or_default();
            return Known::unknown(format!(
                "{INTERRUPTS}: no vector is named after {interface}{device_note}"
            ));
        }
        let queue_numbers = self.host.list_numbers(&format!("/sys/class/net/{interface}/queues"), "rx-");
        let named_queues = queues_by_name(&irqs, lines, &names, &queue_numbers.unwrap_or_default());
        let vector = |irq: &u32| {
            let (receive_queue, transmit_queue) =
                queues.get(irq).or_else(|| named_queues.get(irq)).copied().unwrap_or_default();
            let line = lines.get(irq);
            self.vector(*irq, line, receive_queue, transmit_queue)
        };
        Known::Value(irqs.iter().map(vector).collect())
    }

    /// `None` for a virtual interface.
    fn device(&self, interface: &str) -> Option<IrqDevice> {
        let path = format!("/sys/class/net/{interface}/device");
        let name = match self.host.read_link(&path) {
            Ok(target) => target.rsplit('/').next().filter(|name| !name.is_empty()).map(str::to_owned),
            // A tree may have a directory in place of the link.
            Err(_) if self.host.list(&path).is_ok() => self.slot(&path),
            Err(_) => return None,
        };
        // USB devices use the controller's interrupts; interrupts of Hyper-V channels have no
        // number.
        let bus = self.host.read_link(&format!("{path}/subsystem")).unwrap_or_default();
        let shares_interrupts = matches!(bus.rsplit('/').next(), Some("usb" | "vmbus"));
        Some(IrqDevice { name, shares_interrupts })
    }

    fn slot(&self, device: &str) -> Option<String> {
        let text = self.host.read(&format!("{device}/uevent")).ok()?;
        text.lines().find_map(|line| line.strip_prefix("PCI_SLOT_NAME=")).map(|slot| slot.trim().to_owned())
    }

    fn is_up(&self, interface: &str) -> bool {
        let state = self.host.read(&format!("/sys/class/net/{interface}/operstate"));
        state.is_ok_and(|state| state.trim() != "down")
    }

    /// Receive and transmit queue by interrupt, as the kernel reports them.
    fn reported_queues(&self, interface: &str) -> BTreeMap<u32, Queues> {
        let path = format!("/sys/class/net/{interface}/ifindex");
        let Ok(index) = self.host.read_parsed(&path, number::<u32>) else { return BTreeMap::new() };
        let mut queues: BTreeMap<u32, Queues> = BTreeMap::new();
        for napi in self.napi.iter().filter(|napi| napi.interface_index == index) {
            let Some(irq) = napi.irq else { continue };
            let (receive, transmit) = queues.entry(irq).or_default();
            *receive = receive.or(napi.receive_queues.first().copied());
            *transmit = transmit.or(napi.transmit_queues.first().copied());
        }
        queues
    }

    /// Vectors in use, in ascending order.
    fn vector_irqs(
        &self,
        interface: &str,
        lines: &BTreeMap<u32, InterruptLine>,
        names: &VectorNames<'_>,
        reported_queues: &BTreeMap<u32, Queues>,
    ) -> Vec<u32> {
        let msi_directory = format!("/sys/class/net/{interface}/device/msi_irqs");
        let msi_irqs = self.host.list_numbers(&msi_directory, "").unwrap_or_default();
        let mut irqs: BTreeSet<u32> = if msi_irqs.is_empty() {
            lines.iter().filter(|(_, line)| names.owns_any(&line.name)).map(|(irq, _)| *irq).collect()
        } else {
            lines
                .iter()
                .filter(|(irq, line)| msi_irqs.contains(irq) && !line.name.is_empty())
                .map(|(irq, _)| *irq)
                .collect()
        };
        // A device with several interfaces has the vectors of all of them. The names of vectors
        // distinguish them if they contain the name of an interface.
        let interface_irqs: BTreeSet<u32> = irqs
            .iter()
            .copied()
            .filter(|irq| lines.get(irq).is_some_and(|line| names.names_interface(&line.name)))
            .collect();
        if interface_irqs.len() > 1 {
            irqs = interface_irqs;
        }
        irqs.extend(reported_queues.keys().filter(|irq| lines.contains_key(irq)));
        irqs.into_iter().collect()
    }

    fn vector(
        &self,
        irq: u32,
        line: Option<&InterruptLine>,
        receive_queue: Option<u32>,
        transmit_queue: Option<u32>,
    ) -> IrqVector {
        IrqVector {
            irq,
            name: line.map(|line| line.name.clone()).unwrap_or_default(),
            receive_queue,
            transmit_queue,
            affinity: self.affinity(irq),
            effective: self.effective(irq),
            hint: self.hint(irq),
            handled: line.map(|line| line.handled.clone()).unwrap_or_default(),
            managed: self.managed(irq),
        }
    }

    fn affinity(&self, irq: u32) -> Known<CpuSet> {
        match self.mask(irq, "smp_affinity") {
            Err(error) if error.is_missing() => {
                self.cpu_list(irq, "smp_affinity_list").map_err(|_| error).into()
            }
            mask => mask.into(),
        }
    }

    /// Since Linux 4.15, on some architectures (kernel/irq/proc.c).
    fn effective(&self, irq: u32) -> Known<Option<CpuSet>> {
        let cpus = match self.cpu_list(irq, "effective_affinity_list") {
            Err(error) if error.is_missing() => self.mask(irq, "effective_affinity"),
            cpus => cpus,
        };
        match cpus {
            Err(error) if error.is_missing() => Known::Value(None),
            cpus => Known::from(cpus).map(Some),
        }
    }

    /// An empty hint means no hint (Linux 2.6.35, kernel/irq/proc.c,
    /// `irq_affinity_hint_proc_show`).
    fn hint(&self, irq: u32) -> Known<Option<CpuSet>> {
        Known::from(self.mask(irq, "affinity_hint")).map(|cpus| Some(cpus).filter(|cpus| !cpus.is_empty()))
    }

    /// Only in debugfs (kernel/irq/debugfs.c, `IRQD_AFFINITY_MANAGED`), which few kernels have.
    fn managed(&self, irq: u32) -> Known<Option<bool>> {
        if !self.tells_managed {
            return Known::Value(None);
        }
        let text = self.host.read(&format!("{DEBUG}/{irq}"));
        Known::Value(text.ok().map(|text| text.contains("IRQD_AFFINITY_MANAGED")))
    }

    fn mask(&self, irq: u32, file: &str) -> Result<CpuSet, HostError> {
        self.cpus(irq, file, CpuSet::from_mask)
    }

    fn cpu_list(&self, irq: u32, file: &str) -> Result<CpuSet, HostError> {
        self.cpus(irq, file, CpuSet::from_list)
    }

    fn cpus(
        &self,
        irq: u32,
        file: &str,
        parse: fn(&str) -> Result<CpuSet, ParseCpuSetError>,
    ) -> Result<CpuSet, HostError> {
        self.host.read_parsed(&format!("/proc/irq/{irq}/{file}"), |text| match text {
            "" => Err("empty".to_owned()),
            text => parse(text).map_err(|error| error.to_string()),
        })
    }
}

/// Receive and transmit queue of a vector.
type Queues = (Option<u32>, Option<u32>);

/// Receive and transmit queue by interrupt, derived from the names of the vectors.
fn queues_by_name(
    irqs: &[u32],
    lines: &BTreeMap<u32, InterruptLine>,
    names: &VectorNames<'_>,
    queue_numbers: &[u32],
) -> BTreeMap<u32, Queues> {
    let roles: Vec<(u32, ServedQueues)> = irqs
        .iter()
        .filter_map(|irq| lines.get(irq).map(|line| (*irq, names.served_queues(&line.name))))
        .filter(|(_, role)| *role != ServedQueues::None)
        .collect();
    let blocks = roles.iter().filter(|(_, role)| matches!(role, ServedQueues::Block(_))).count();
    let half = u32::try_from(blocks / 2).unwrap_or(u32::MAX);
    // Drivers such as bcmgenet (Linux 6.18) request several interrupts by one name. Of these the
    // busiest receives, if there is one queue.
    let is_one_queue = roles.len() == 1
        || queue_numbers.len() == 1 && roles.iter().all(|(_, role)| *role == ServedQueues::Whole);
    let handled = |irq: u32| {
        lines.get(&irq).map_or(0, |line| line.handled.iter().map(|(_, count)| *count).sum::<u64>())
    };
    let busiest = roles.iter().map(|(irq, _)| *irq).min_by_key(|irq| Reverse(handled(*irq)));
    let queues = |irq, role| match role {
        ServedQueues::Receive(queue) => (Some(queue), None),
        ServedQueues::Transmit(queue) => (None, Some(queue)),
        ServedQueues::Both(queue) => (Some(queue), Some(queue)),
        ServedQueues::Block(block) if block >= half => (Some(block - half), None),
        ServedQueues::Block(block) => (None, Some(block)),
        ServedQueues::Whole if is_one_queue && busiest == Some(irq) => (Some(0), Some(0)),
        ServedQueues::Whole | ServedQueues::None => (None, None),
    };
    let mut by_irq: BTreeMap<u32, Queues> =
        roles.iter().map(|(irq, role)| (*irq, queues(*irq, *role))).collect();
    // tg3 numbers the vectors of receive queues from 1, and with several transmit queues its vector 0
    // has none (tg3_request_irq, tg3_enable_msix in drivers/net/ethernet/broadcom/tg3.c).
    let has_name = |irq: &u32, suffix: &str| {
        lines.get(irq).is_some_and(|line| line.name == format!("{}{suffix}", names.interface))
    };
    if irqs.iter().any(|irq| has_name(irq, "-txrx-1")) {
        by_irq.retain(|irq, _| !has_name(irq, "-0"));
    }
    let named: BTreeSet<u32> = by_irq.values().filter_map(|(receive, _)| *receive).collect();
    if named.into_iter().eq(queue_numbers.iter().map(|queue| queue + 1)) {
        for (receive, transmit) in by_irq.values_mut().filter(|(receive, _)| receive.is_some()) {
            *receive = receive.map(|queue| queue - 1);
            *transmit = transmit.and_then(|queue| queue.checked_sub(1));
        }
    }
    by_irq
}

#[cfg(test)]
mod tests;
