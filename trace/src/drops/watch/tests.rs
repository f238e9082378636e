//! Which readings belong to the same time.

use linerate_testkit::skip;

use super::*;

#[test]
fn device_counters_of_the_first_moment_are_read_when_packets_are() {
    let test = "device_counters_of_the_first_moment_are_read_when_packets_are";
    let subject = PortSubject::default();
    let tracer = DropsTracer::start(&Host::live(), &subject);
    let Ok(tracer) = tracer.map_err(|error| skip(test, error)) else { return };
    let unsent = "/sys/class/net/eth0/statistics/tx_dropped";
    let host = Host::scripted([
        ("/sys/class/net/eth0/device/features", "0"),
        (unsent, "5"),
        ("/proc/net/snmp", "Udp: InDatagrams NoPorts\nUdp: 5 8\n"),
    ]);
    let early = DropsReading::observe(&host, &subject, &[]);
    // The time until the programs are attached.
    host.write(unsent, "9").unwrap();
    host.write("/proc/net/snmp", "Udp: InDatagrams NoPorts\nUdp: 5 9\n").unwrap();
    let first = DropsMoment::first(&host, &tracer, early.clone(), &subject, &[]).unwrap();
    let growth = |later: &DropsReading, earlier: &DropsReading| {
        let evidence = later.since(earlier, subject.clone(), PacketCounts::default());
        evidence.grown.into_iter().map(|counter| (counter.name, counter.packets)).collect::<Vec<_>>()
    };
    assert_eq!(growth(&first.reading, &early), [("tx_dropped".to_owned(), 4)]);
    host.write(unsent, "12").unwrap();
    let last = DropsReading::observe(&host, &subject, &[]);
    assert_eq!(
        growth(&last, &first.reading),
        [("tx_dropped".to_owned(), 3), ("Udp.NoPorts".to_owned(), 1)],
        "other counters include all packets that the tracepoints see"
    );
}
