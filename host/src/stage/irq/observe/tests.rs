use super::*;
use crate::HostRecording;

fn host(files: &[(&str, &str)], links: &[(&str, &str)]) -> Host {
    Host::recorded(HostRecording::from_files(files.iter().copied()).with_links(links.iter().copied()))
}

fn vectors(host: &Host, interface: &str) -> Known<Vec<IrqVector>> {
    IrqState::observe(host, &[interface]).interfaces.remove(0).vectors
}

fn vector_queues(vectors: &Known<Vec<IrqVector>>) -> Vec<(u32, &str, Option<u32>, Option<u32>)> {
    let vectors = vectors.value().map_or(&[][..], Vec::as_slice);
    vectors
        .iter()
        .map(|item| (item.irq, item.name.as_str(), item.receive_queue, item.transmit_queue))
        .collect()
}

/// From a virtual machine with Linux 6.18.
const VIRTIO: &str = "\
           CPU0       CPU1
 36:          0    1065041 PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0
 37:          0          0 PCI-MSIX-0000:00:03.0   0-edge      virtio2-config
 38:          0      20868 PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0
 39:      15604          0 PCI-MSIX-0000:00:03.0   2-edge      virtio2-output.0
";

#[test]
fn virtio_vectors_are_matched_by_device_name() {
    let host = host(
        &[
            ("/proc/interrupts", VIRTIO),
            ("/proc/irq/38/smp_affinity", "3\n"),
            ("/proc/irq/38/effective_affinity_list", "1\n"),
            ("/proc/irq/38/affinity_hint", "00000000\n"),
            ("/proc/irq/39/smp_affinity", "zz\n"),
            ("/proc/irq/39/affinity_hint", ""),
        ],
        &[("/sys/class/net/eth0/device", "../../../virtio2")],
    );
    let vectors = vectors(&host, "eth0");
    assert_eq!(
        vector_queues(&vectors),
        [
            (37, "virtio2-config", None, None),
            (38, "virtio2-input.0", Some(0), None),
            (39, "virtio2-output.0", None, Some(0)),
        ]
    );
    let vectors = vectors.into_value().expect("vectors");
    assert_eq!(vectors[1].affinity, CpuSet::from_list("0-1").into());
    assert_eq!(vectors[1].effective, Known::Value(CpuSet::from_list("1").ok()));
    assert_eq!(vectors[1].hint, Known::Value(None));
    assert_eq!(vectors[1].handled, [(1, 20_868)]);
    assert_eq!(vectors[1].managed, Known::Value(None));
    let why = vectors[2].affinity.why().expect("garbled");
    assert!(why.starts_with("/proc/irq/39/smp_affinity: 'zz' is not"), "{why}");
    assert_eq!(vectors[2].effective, Known::Value(None), "a kernel before 4.15 has no such file");
    assert_eq!(vectors[2].hint.why(), Some("/proc/irq/39/affinity_hint: empty"));
    assert!(vectors[0].affinity.why_contains("/proc/irq/37/smp_affinity"));
}

#[test]
fn vectors_in_sysfs_msi_irqs_need_no_matching_name() {
    let text = "    CPU0 CPU1\n\
                50:  1 0 PCI-MSI 1-edge eth7-TxRx-0\n\
                51:  0 1 PCI-MSI 2-edge eth7-TxRx-1\n\
                52:  0 0 PCI-MSI 3-edge eth7\n\
                53:  0 0 PCI-MSI 4-edge other-TxRx-0\n";
    let host = host(
        &[
            ("/proc/interrupts", text),
            ("/sys/class/net/ens1f0/device/msi_irqs/50", "msix\n"),
            ("/sys/class/net/ens1f0/device/msi_irqs/51", "msix\n"),
            ("/sys/class/net/ens1f0/device/msi_irqs/52", "msix\n"),
        ],
        &[("/sys/class/net/ens1f0/device", "../../../0000:01:00.0")],
    );
    let vectors = vectors(&host, "ens1f0");
    assert_eq!(
        vector_queues(&vectors),
        [
            (50, "eth7-TxRx-0", Some(0), Some(0)),
            (51, "eth7-TxRx-1", Some(1), Some(1)),
            (52, "eth7", None, None),
        ]
    );
}

#[test]
fn vectors_of_a_shared_device_are_assigned_by_interface_name() {
    let text = "    CPU0\n\
                50:  1 PCI-MSI 1-edge p0-TxRx-0\n51:  1 PCI-MSI 2-edge p0-TxRx-1\n\
                52:  1 PCI-MSI 3-edge p1-TxRx-0\n53:  1 PCI-MSI 4-edge p1-TxRx-1\n";
    let files: Vec<(String, &str)> = (50..54)
        .map(|irq| (format!("/sys/class/net/p1/device/msi_irqs/{irq}"), "msix\n"))
        .chain([("/proc/interrupts".to_owned(), text)])
        .collect();
    let vectors = vectors(&Host::scripted(files), "p1");
    assert_eq!(vector_queues(&vectors).iter().map(|item| item.0).collect::<Vec<_>>(), [52, 53]);
}

#[test]
fn gve_notify_blocks_map_to_transmit_queues_then_receive_queues() {
    let name = |block| {
        format!(
            " {}: 1 PCI-MSIX-0000:00:04.0 {block}-edge gve-ntfy-blk{block}@pci:0000:00:04.0\n",
            30 + block
        )
    };
    let text: String = std::iter::once("  CPU0\n".to_owned()).chain((0..4).map(name)).collect();
    let host =
        host(&[("/proc/interrupts", &text)], &[("/sys/class/net/eth0/device", "../../../0000:00:04.0")]);
    let vectors = vectors(&host, "eth0");
    let queues: Vec<_> = vector_queues(&vectors).iter().map(|item| (item.2, item.3)).collect();
    assert_eq!(queues, [(None, Some(0)), (None, Some(1)), (Some(0), None), (Some(1), None)]);
}

#[test]
fn receive_vectors_that_tg3_numbers_from_1_serve_the_queues_from_0() {
    let vectors_of = |queues: &[&str], names: &[&str]| {
        let lines: Vec<String> =
            (30..).zip(names).map(|(irq, name)| format!("{irq}: 0 PCI-MSI {irq}-edge {name}\n")).collect();
        let text = format!("    CPU0\n{}", lines.concat());
        let mut files = vec![("/proc/interrupts", text.as_str())];
        files.extend(queues.iter().map(|path| (*path, "0\n")));
        let vectors =
            vectors(&host(&files, &[("/sys/class/net/eno1/device", "../../../0000:01:00.0")]), "eno1");
        let queues = vector_queues(&vectors).into_iter().map(|(.., receive, transmit)| (receive, transmit));
        queues.collect::<Vec<_>>()
    };
    let two = ["/sys/class/net/eno1/queues/rx-0/rps_cpus", "/sys/class/net/eno1/queues/rx-1/rps_cpus"];
    let tg3 = ["eno1-tx-0", "eno1-rx-1", "eno1-rx-2"];
    assert_eq!(vectors_of(&two, &tg3), [(None, Some(0)), (Some(0), None), (Some(1), None)]);
    let both = ["eno1-0", "eno1-txrx-1", "eno1-txrx-2"];
    assert_eq!(vectors_of(&two, &both), [(None, None), (Some(0), Some(0)), (Some(1), Some(1))]);
    // Vectors of unused queues, as of mlx5.
    let unused = ["eno1-rx-0", "eno1-rx-1", "eno1-rx-2"];
    assert_eq!(vectors_of(&two, &unused), [(Some(0), None), (Some(1), None), (Some(2), None)]);
}

#[test]
fn the_busiest_of_several_vectors_with_one_name_serves_the_only_queue() {
    let text =
        "    CPU0\n30: 5 GICv2 189 Level eth0\n31: 9 GICv2 190 Level eth0\n32: 9 GICv2 191 Level eth0\n";
    let queue = "/sys/class/net/eth0/queues/rx-0/rps_cpus";
    let device = [("/sys/class/net/eth0/device", "../../../fd580000.ethernet")];
    let receive_queues = |files: &[(&str, &str)]| {
        let vectors = vectors(&host(files, &device), "eth0");
        vector_queues(&vectors).into_iter().map(|vector| vector.2).collect::<Vec<_>>()
    };
    let one = [("/proc/interrupts", text), (queue, "0\n")];
    assert_eq!(receive_queues(&one), [None, Some(0), None]);
    let two = [one[0], one[1], ("/sys/class/net/eth0/queues/rx-1/rps_cpus", "0\n")];
    assert_eq!(receive_queues(&two), [None; 3], "any of them may serve a queue");
}

#[test]
fn missing_vectors_are_unknown_only_for_pci_interfaces_that_are_up() {
    let host = host(
        &[
            ("/proc/interrupts", VIRTIO),
            ("/sys/class/net/eth1/operstate", "up\n"),
            ("/sys/class/net/eth2/operstate", "down\n"),
            ("/sys/class/net/usb0/operstate", "up\n"),
        ],
        &[
            ("/sys/class/net/eth1/device", "../../../0000:05:00.0"),
            ("/sys/class/net/eth2/device", "../../../0000:06:00.0"),
            ("/sys/class/net/usb0/device", "../../../1-1:1.0"),
            ("/sys/class/net/usb0/device/subsystem", "../../../../../bus/usb"),
        ],
    );
    assert_eq!(vectors(&host, "veth0").value().map(Vec::len), Some(0));
    assert_eq!(
        vectors(&host, "eth2").value().map(Vec::len),
        Some(0),
        "the driver requests vectors when the interface comes up"
    );
    assert_eq!(vectors(&host, "usb0").value().map(Vec::len), Some(0));
    assert_eq!(
        vectors(&host, "eth1").why(),
        Some("/proc/interrupts: no vector is named after eth1 or its device 0000:05:00.0")
    );
}

#[test]
fn netdev_napi_queues_override_vector_names() {
    let napi = r#"[{"interface_index": 2, "id": 8193, "irq": 51, "pid": null, "receive_queues": [0], "transmit_queues": [0]},
                   {"interface_index": 2, "id": 8194, "irq": 50, "pid": null, "receive_queues": [1]},
                   {"interface_index": 3, "id": 8195, "irq": 52, "pid": null, "receive_queues": [0]}]"#;
    let text = "  CPU0\n50: 1 PCI-MSI 1-edge eth0-TxRx-0\n51: 1 PCI-MSI 2-edge eth0-TxRx-1\n52: 1 PCI-MSI 3-edge eth9\n";
    let host = host(
        &[
            ("/proc/interrupts", text),
            ("/sys/class/net/eth0/ifindex", "2\n"),
            ("/calls/netdev/napi.json", napi),
        ],
        &[("/sys/class/net/eth0/device", "../../../0000:01:00.0")],
    );
    assert_eq!(
        vector_queues(&vectors(&host, "eth0")),
        [(50, "eth0-TxRx-0", Some(1), None), (51, "eth0-TxRx-1", Some(0), Some(0))]
    );
}

#[test]
fn managed_vectors_are_read_from_debugfs() {
    let host = host(
        &[
            ("/proc/interrupts", VIRTIO),
            (
                "/sys/kernel/debug/irq/irqs/38",
                "handler:  handle_edge_irq\ndstate:   0x37408200\n            IRQD_ACTIVATED\n            IRQD_AFFINITY_MANAGED\n",
            ),
            ("/sys/kernel/debug/irq/irqs/39", "handler:  handle_edge_irq\n"),
        ],
        &[("/sys/class/net/eth0/device", "../../../virtio2")],
    );
    let managed: Vec<_> = vectors(&host, "eth0")
        .into_value()
        .expect("vectors")
        .into_iter()
        .map(|vector| vector.managed)
        .collect();
    assert_eq!(managed, [Known::Value(None), Known::Value(Some(true)), Known::Value(Some(false))]);
}
