//! Answers allocate no memory: for existing names, for missing names, and for malformed queries.
//! Zones use little memory, also while they are reloaded.

mod sys;

use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;

use linerate_services::dns::{DnsAnswerer, QueryTransport, ServedZones, UDP_SIZE, Zones};
use sys::{ALLOCATIONS, LIVE, PEAK};

/// Held by each test, because the counters are global.
static COUNTING: Mutex<()> = Mutex::new(());

const ZONE: &str = "\
$TTL 60
@ IN SOA ns hostmaster 1 2 3 4 5
@ IN NS ns
@ IN MX 1 www
ns IN A 192.0.2.1
www IN A 192.0.2.2
c1 IN CNAME c2
c2 IN CNAME www
*.wild IN A 192.0.2.3
cut IN NS ns.cut
ns.cut IN A 192.0.2.4
";

fn query(name: &str, qtype: u8) -> Vec<u8> {
    let mut message = b"\0\x01\x01\0\0\x01\0\0\0\0\0\x01".to_vec();
    for label in name.split('.') {
        message.push(label.len() as u8);
        message.extend_from_slice(label.as_bytes());
    }
    message.extend_from_slice(&[0, 0, qtype, 0, 1, 0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
    message
}

#[test]
fn ten_times_the_answers_allocate_no_more() {
    let _alone = COUNTING.lock();
    let mut answerer =
        DnsAnswerer::new(ServedZones::new(Zones::parse("example.test", ZONE).expect("a zone")));
    let mut queries: Vec<Vec<u8>> = [
        "example.test",
        "www.example.test",
        "c1.example.test",
        "x.wild.example.test",
        "a.cut.example.test",
        "no.example.test",
        "elsewhere",
    ]
    .iter()
    .flat_map(|name| [1, 15, 28, 255].map(|qtype| query(name, qtype)))
    .collect();
    queries.push(queries[0][..20].to_vec());
    let mut reply = [0; 2048];
    let mut allocations = |rounds: usize| {
        let before = ALLOCATIONS.load(Relaxed);
        for query in queries.iter().cycle().take(rounds * queries.len()) {
            assert!(answerer.answer(query, &mut reply, QueryTransport::Udp { most: UDP_SIZE }).is_some());
        }
        ALLOCATIONS.load(Relaxed) - before
    };
    allocations(10);
    let (few, many) = (allocations(10), allocations(100));
    // A thread of the test runner may allocate at any time, but independently of the answers.
    assert!(many <= few + 100, "{few} for 10 rounds, {many} for 100");
}

/// A zone like those of hosting providers: `records` records, an A and an AAAA record per name. The
/// first `changed` names have other addresses.
fn hosts(records: usize, changed: usize) -> String {
    let mut text = ZONE.to_owned();
    for number in 0..records / 2 {
        let byte = if number < changed { 9 } else { number % 8 };
        let _ =
            writeln!(text, "host-{number} 1h IN A 192.0.2.{byte}\nhost-{number} IN AAAA 2001:db8::{byte}");
    }
    text
}

#[test]
fn zones_are_small_also_while_they_are_read_again() {
    const RECORDS: usize = 60_000;
    let _alone = COUNTING.lock();
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("zone");
    std::fs::write(&file, hosts(RECORDS, 0)).expect("written");
    let files = [("example.test", &file)];
    let (before, read) = (LIVE.load(Relaxed), || PEAK.load(Relaxed));
    PEAK.store(before, Relaxed);
    let zones = Zones::load(&files).expect("zones");
    let (takes, peak) = (LIVE.load(Relaxed) - before, read() - before);
    let per_record = |bytes: u64| bytes as f64 / RECORDS as f64;
    println!("a record takes {:.0} bytes, {:.0} while it is read", per_record(takes), per_record(peak));
    assert!(per_record(takes) < 100.0 && per_record(peak) < 250.0, "{takes} {peak}");
    // Reloads without a change, with 10 changed names, and with 100 more records.
    for (records, changed) in [(RECORDS, 0), (RECORDS, 10), (RECORDS + 100, 0)] {
        std::fs::write(&file, hosts(records, changed)).expect("written");
        PEAK.store(LIVE.load(Relaxed), Relaxed);
        let again = zones.reload(&files).expect("zones");
        let both = read() - before;
        println!("both take {:.2} times as much", both as f64 / takes as f64);
        assert!(again.record_count() >= zones.record_count());
        assert!(both as f64 <= takes as f64 * 1.3, "{both} of {takes}");
    }
}

#[test]
fn an_exchange_frees_the_old_zones_even_if_an_answerer_is_idle() {
    const RECORDS: usize = 20_000;
    let _alone = COUNTING.lock();
    let zones = || Zones::parse("example.test", &hosts(RECORDS, 0)).expect("zones");
    let before = LIVE.load(Relaxed);
    let served = ServedZones::new(zones());
    let takes = LIVE.load(Relaxed) - before;
    let idle = DnsAnswerer::new(std::sync::Arc::clone(&served));
    for _ in 0..3 {
        served.exchange(zones());
    }
    let now = LIVE.load(Relaxed) - before;
    assert!(now < takes + takes / 10, "{now} of {takes}");
    drop(idle);
}
