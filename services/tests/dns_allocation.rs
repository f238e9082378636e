//! Answers allocate no memory: for existing names, for missing names, and for malformed queries.
//! Zones use little memory.

use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;

use linerate_services::dns::{DnsAnswerer, QueryTransport, ServedZones, UDP_SIZE, Zones};
use linerate_testkit::{ALLOCATIONS, CountingAllocator, LIVE_BYTES, PEAK_BYTES};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

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
fn allocations_do_not_grow_with_the_number_of_answers() {
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

/// A zone like those of hosting providers: `records` records, an A and an AAAA record per name.
fn hosts(records: usize) -> String {
    let mut text = ZONE.to_owned();
    for number in 0..records / 2 {
        let byte = number % 8;
        let _ =
            writeln!(text, "host-{number} 1h IN A 192.0.2.{byte}\nhost-{number} IN AAAA 2001:db8::{byte}");
    }
    text
}

#[test]
fn zone_memory_is_bounded_during_load() {
    const RECORDS: usize = 60_000;
    let _alone = COUNTING.lock();
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("zone");
    std::fs::write(&file, hosts(RECORDS)).expect("written");
    let before = LIVE_BYTES.load(Relaxed);
    PEAK_BYTES.store(before, Relaxed);
    let _zones = Zones::load(&[("example.test", &file)]).expect("zones");
    let (zone_bytes, peak) = (LIVE_BYTES.load(Relaxed) - before, PEAK_BYTES.load(Relaxed) - before);
    let per_record = |bytes: u64| bytes as f64 / RECORDS as f64;
    println!("{:.0} bytes per record, at most {:.0} while loading", per_record(zone_bytes), per_record(peak));
    assert!(per_record(zone_bytes) < 100.0 && per_record(peak) < 250.0, "{zone_bytes} {peak}");
}

#[test]
fn exchanging_zones_frees_the_old_zones_despite_idle_answerers() {
    const RECORDS: usize = 20_000;
    let _alone = COUNTING.lock();
    let zones = || Zones::parse("example.test", &hosts(RECORDS)).expect("zones");
    let before = LIVE_BYTES.load(Relaxed);
    let served = ServedZones::new(zones());
    let zone_bytes = LIVE_BYTES.load(Relaxed) - before;
    let idle = DnsAnswerer::new(std::sync::Arc::clone(&served));
    for _ in 0..3 {
        served.exchange(zones());
    }
    let live_bytes = LIVE_BYTES.load(Relaxed) - before;
    assert!(live_bytes < zone_bytes + zone_bytes / 10, "{live_bytes} of {zone_bytes}");
    drop(idle);
}
