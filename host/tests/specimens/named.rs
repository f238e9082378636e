//! Each specimen's faults by name.

use std::collections::BTreeSet;

use linerate_host::Severity::{self, High, Low, Medium, Note};
use linerate_host::capture::OpenedCapture;
use linerate_host::{Diagnosis, PacketPath, Scope};

use crate::{diagnose, judge, known};

/// What the slides of 2016 name, and what finds it; none where neither the kernel of that time nor the slides show it.
const SLIDES: &[(&str, Option<&str>)] = &[
    ("irqbalance put every interrupt on NUMA node 0", Some("irq.one-node")),
    ("several queues interrupt one CPU", Some("irq.stacked")),
    ("the driver's affinity_hint is not honoured", Some("irq.not-hint")),
    ("the indirection table reaches 16 of 20 queues", Some("rss.table-misses-queues")),
    ("no RPS for the four cores without a queue", Some("softirq.rps-missing")),
    ("half the CPUs are in softirq all the time, the others never", Some("irq.one-node")),
    ("20 threads on one socket and its lock", Some("socket.shared-by-threads")),
    ("threads run where the scheduler puts them", Some("thread.unpinned")),
    ("GRO costs 4.9 % of CPU", Some("link.gro-for-udp")),
    ("iptables' hooks cost 3.0 % with no rule loaded", Some("filter.hooks-without-rules")),
    ("source validation looks up the route again, 1.8 %", Some("route.source-validation")),
    ("audit costs 2.5 %", Some("thread.audit")),
    // These are options of the server's sockets, which a kernel before 5.6 shows to nobody else.
    ("the socket is not chosen by CPU", None),
    ("choosing an IP ID costs 4.8 %", None),
    // The kernel tells since 4.19 whether hyper-threading is off.
    ("hyper-threading is off", None),
    // ixgbe had set XPS.
    ("XPS, switched off for comparison", None),
];

fn found(diagnosis: &Diagnosis) -> Vec<(Severity, &'static str)> {
    diagnosis.findings.iter().map(|finding| (finding.severity, finding.id)).collect()
}

fn above_note(diagnosis: &Diagnosis) -> Vec<String> {
    let above = diagnosis.findings.iter().filter(|finding| finding.severity > Note);
    above.map(|finding| format!("{} {}: {}", finding.severity, finding.id, finding.title)).collect()
}

#[test]
fn the_machine_of_2016_has_every_fault_of_the_slides() {
    let diagnosis = diagnose(&known("makita-2016"), &Scope::default());
    let ids: BTreeSet<&str> = diagnosis.findings.iter().map(|finding| finding.id).collect();
    for (fault, id) in SLIDES {
        assert!(id.is_none_or(|id| ids.contains(id)), "{fault}: {id:?} is not among {ids:?}");
    }
    let expected = [
        (High, "socket.shared-by-threads"),
        (High, "irq.one-node"),
        (High, "irq.stacked"),
        (Medium, "rss.table-misses-queues"),
        (Medium, "irq.not-hint"),
        (Medium, "softirq.rps-missing"),
        (Low, "thread.unpinned"),
        (Low, "thread.audit"),
        (Low, "filter.hooks-without-rules"),
        (Low, "link.gro-for-udp"),
        (Low, "route.source-validation"),
        (Note, "machine.kernel-age"),
    ];
    assert_eq!(found(&diagnosis), expected);
    let named: BTreeSet<&str> = SLIDES.iter().filter_map(|(_, id)| *id).collect();
    let more: Vec<&str> = ids.into_iter().filter(|id| !named.contains(id)).collect();
    assert_eq!(more, ["machine.kernel-age"], "not on the slides");
}

#[test]
fn the_machine_of_2016_has_nothing_above_a_note_when_mended() {
    let diagnosis = diagnose(&known("makita-2016-fixed"), &Scope::default());
    assert_eq!(above_note(&diagnosis), [""; 0]);
}

#[test]
fn the_machine_of_a_million_packets_has_its_faults() {
    let diagnosis = diagnose(&known("million-packets"), &Scope::default());
    let expected = [
        // Two threads on one socket were slower than one: 480 instead of 1,100 kpps with a socket each.
        (High, "socket.shared-by-threads"),
        // One queue, and so one CPU, takes everything, for the hash does not see ports.
        (High, "softirq.skew"),
        (High, "link.hardware-drops"),
        (High, "rss.hash-without-ports"),
        (High, "rss.queue-imbalance"),
        // RcvbufErrors.
        (High, "socket.receive-drops"),
        (Medium, "socket.buffer-small"),
        (Low, "thread.unpinned"),
        // Not in the article, but stock settings of that kernel.
        (Low, "link.gro-for-udp"),
        (Low, "route.source-validation"),
        (Note, "link.queues-below-cpus"),
        (Note, "machine.smt"),
        (Note, "machine.kernel-age"),
        (Note, "softirq.rps-missing"),
    ];
    assert_eq!(found(&diagnosis), expected);
}

#[test]
fn a_small_virtual_machine_has_nothing_above_a_note() {
    let diagnosis = diagnose(&known("small-vm"), &Scope::default());
    assert_eq!(above_note(&diagnosis), [""; 0]);
}

/// The two ways a command may ask: for everything, and for the service alone.
#[test]
fn a_service_asked_for_by_port_or_process_has_the_same_faults() {
    let specimen = known("makita-2016");
    let all = found(&diagnose(&specimen, &Scope::default()));
    let of = |scope: &Scope| {
        let ids: BTreeSet<&str> = found(&diagnose(&specimen, scope)).into_iter().map(|(_, id)| id).collect();
        all.iter().filter(|(severity, id)| *severity > Note && !ids.contains(id)).count()
    };
    assert_eq!(of(&Scope { port: Some(10_000), ..Scope::default() }), 0);
    assert_eq!(of(&Scope { pid: Some(4711), ..Scope::default() }), 0);
}

#[test]
fn a_directory_is_judged_as_the_tree_it_was_written_from() {
    for name in ["makita-2016", "million-packets", "small-vm"] {
        let specimen = known(name);
        let directory = tempfile::tempdir().expect("a directory");
        specimen.write(directory.path()).expect("written");
        let capture = OpenedCapture::open(directory.path()).expect("a capture");
        let scope = Scope::default();
        let hosts = std::iter::once(&capture.first).chain(&capture.later);
        let states: Vec<PacketPath> = hosts.map(|host| PacketPath::observe(host, &scope)).collect();
        let json = |diagnosis: &Diagnosis| serde_json::to_value(diagnosis).expect("a diagnosis");
        assert_eq!(json(&judge(&states)), json(&diagnose(&specimen, &scope)), "{name}");
    }
}

#[test]
fn a_big_machine_whose_sockets_are_steered_by_cpu_has_nothing_above_a_note() {
    let diagnosis = diagnose(&known("many"), &Scope::default());
    assert_eq!(above_note(&diagnosis), [""; 0]);
    assert_eq!(diagnosis.unknown, []);
}

#[test]
fn limits_in_the_way_of_a_server_are_named_and_not_taken_for_a_full_receive_buffer() {
    let diagnosis = diagnose(&known("held-back-vm"), &Scope::default());
    let above: BTreeSet<&str> = diagnosis
        .findings
        .iter()
        .filter(|finding| finding.severity > Note)
        .map(|finding| finding.id)
        .collect();
    let expected = BTreeSet::from(["filter.rule-drops", "socket.memory-full", "thread.held-back"]);
    assert!(above.is_superset(&expected), "{:#?}", above_note(&diagnosis));
    assert!(!above.contains("socket.receive-drops") && !above.contains("socket.buffer-small"), "{above:?}");
    assert_eq!(diagnosis.findings[0].id, "socket.memory-full", "loss comes first");
}

#[test]
fn a_socket_that_does_nothing_is_no_reason_to_switch_gro_off() {
    // Its name server takes merged datagrams, and its DHCP client does not.
    let diagnosis = diagnose(&known("tracked-vm"), &Scope::default());
    let ids: Vec<&str> = diagnosis.findings.iter().map(|finding| finding.id).collect();
    assert!(ids.contains(&"socket.gro-buffer-small") && !ids.contains(&"link.gro-for-udp"), "{ids:?}");
}
