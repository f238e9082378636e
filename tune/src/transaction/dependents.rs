//! Settings that a change of another setting resets.
//!
//! If the number of channels or the length of rings changes, drivers free their queues and vectors and
//! allocate new ones (Linux 6.18: igb `igb_reinit_queues`, ixgbe `ixgbe_setup_tc`;
//! `netif_set_real_num_tx_queues` of net/core/dev.c drops the XPS masks of removed queues). Masks,
//! affinities and the indirection table are lost, and drivers without `netif_napi_add_config` lose how
//! each queue polls. The files of the interface for that set all its queues.

use linerate_host::setting::QueueDirection;
use linerate_host::{Host, HostError, Setting};

/// Flow types whose hash fields drivers reset with their queues.
const FLOWS: [&str; 4] = ["udp4", "udp6", "tcp4", "tcp6"];

/// The existing settings that a change of this one may reset.
pub(super) fn dependents(host: &Host, setting: &Setting) -> Vec<Setting> {
    let interface = match setting {
        Setting::Channels { interface } | Setting::Rings { interface } => interface,
        Setting::Napi { interface, .. } => return polling(host, interface),
        // An interrupt whose CPUs all go offline gets all others (irq_migrate_all_off_this_cpu, kernel/irq/cpuhotplug.c, Linux
        // 6.18).
        Setting::SmtControl => return interrupts(host, host.list_numbers("/proc/irq", "")),
        _ => return Vec::new(),
    };
    let mut settings = vec![Setting::RssTable { interface: interface.clone() }];
    settings
        .extend(FLOWS.map(|flow| Setting::FlowHash { interface: interface.clone(), flow: flow.to_owned() }));
    settings.extend(queues(host, interface));
    settings.extend(polling(host, interface));
    settings.extend(vectors(host, interface));
    settings
}

fn queues(host: &Host, interface: &str) -> Vec<Setting> {
    let names = host.list(&format!("/sys/class/net/{interface}/queues")).unwrap_or_default();
    let name = || interface.to_owned();
    let queue = |file: &String| {
        let (direction, number) = file.split_once('-')?;
        let queue = number.parse().ok()?;
        let cpus = |direction| Setting::QueueCpus { interface: name(), direction, queue };
        match direction {
            "rx" => Some([cpus(QueueDirection::Receive), Setting::QueueFlows { interface: name(), queue }]),
            "tx" => {
                Some([cpus(QueueDirection::Transmit), Setting::QueueReceivers { interface: name(), queue }])
            }
            _ => None,
        }
    };
    names.iter().filter_map(queue).flatten().collect()
}

/// Queues without a NAPI instance of their own cannot be read, and are omitted then.
fn polling(host: &Host, interface: &str) -> Vec<Setting> {
    let queues = host.list_numbers(&format!("/sys/class/net/{interface}/queues"), "rx-").unwrap_or_default();
    queues.into_iter().map(|queue| Setting::QueuePolling { interface: interface.to_owned(), queue }).collect()
}

fn vectors(host: &Host, interface: &str) -> Vec<Setting> {
    let numbers =
        |device: &str| host.list_numbers(&format!("/sys/class/net/{interface}/{device}/msi_irqs"), "");
    // The vectors of a virtio device belong to its parent PCI device.
    interrupts(host, numbers("device").or_else(|_| numbers("device/..")))
}

fn interrupts(host: &Host, numbers: Result<Vec<u32>, HostError>) -> Vec<Setting> {
    let interrupt = |irq: u32| {
        let actions = host.list(&format!("/proc/irq/{irq}")).unwrap_or_default();
        // The action is the only directory among the files of an interrupt.
        let action =
            actions.into_iter().find(|name| host.list(&format!("/proc/irq/{irq}/{name}")).is_ok())?;
        Some(Setting::IrqAffinity { irq, action })
    };
    numbers.unwrap_or_default().into_iter().filter_map(interrupt).collect()
}
