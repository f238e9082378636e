//! Answers take no memory: not those that are there, nor those that are not, nor those to nonsense.

mod sys;

use std::sync::atomic::Ordering::Relaxed;

use linerate_services::dns::{Answerer, Served, Transport, UDP_SIZE, Zones};
use sys::ALLOCATIONS;

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
    let mut answerer = Answerer::new(Served::new(Zones::parse("example.test", ZONE).expect("a zone")));
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
            assert!(answerer.answer(query, &mut reply, Transport::Udp { most: UDP_SIZE }).is_some());
        }
        ALLOCATIONS.load(Relaxed) - before
    };
    allocations(10);
    let (few, many) = (allocations(10), allocations(100));
    // A thread of the test runner may allocate at any time, but not in step with the answers.
    assert!(many <= few + 8, "{few} for 10 rounds, {many} for 100");
}
