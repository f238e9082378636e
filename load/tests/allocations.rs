//! Sending and receiving do not allocate memory per request. This is the only test of its binary,
//! so no other test allocates.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use linerate_load::generator::GeneratorOptions;
use linerate_load::workload::raw;
use linerate_load::{LoadSlot, LoadWorkload, PacingMode};
use linerate_testkit::{ALLOCATIONS, CountingAllocator};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn allocations_do_not_grow_with_the_slot_length() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    // Every 10th request is dropped, so that losses are covered. The thread ends with the process.
    std::thread::spawn(move || {
        let mut buffer = [0; 2_048];
        for number in 0u64.. {
            let (length, source) = server.recv_from(&mut buffer).unwrap();
            if number % 10 != 0 {
                server.send_to(&buffer[..length], source).unwrap();
            }
        }
    });
    let exchange = raw::from_hex("0000 01020304\n0000 05", "requests", "0:2".parse().ok()).unwrap();
    for workload in [LoadWorkload::Echo { payload_bytes: 100 }, LoadWorkload::Exchange(Arc::new(exchange))] {
        assert_allocations_constant(address, workload);
    }
}

fn assert_allocations_constant(address: SocketAddr, workload: LoadWorkload) {
    let options = GeneratorOptions { flows: 8, threads: 2, workload, ..GeneratorOptions::new(vec![address]) };
    let mut generator = options.start_socket().unwrap();
    let mut count = |slot: &LoadSlot| {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        let outcome = generator.run(slot).unwrap();
        (ALLOCATIONS.load(Ordering::Relaxed) - before, outcome.sent)
    };
    // A short slot and a long slot have the same number of intervals.
    let parts = |slot: LoadSlot| LoadSlot { interval: Some(slot.duration / 5), ..slot };
    for slot in [
        |time| LoadSlot::rate(10_000.0, time),
        |time| LoadSlot::window(2, time),
        |time| LoadSlot::new(PacingMode::Flood, time),
    ] {
        // The first slot is the warm-up.
        count(&parts(slot(Duration::from_millis(50))));
        let (few, sent_few) = count(&parts(slot(Duration::from_millis(100))));
        let (more, sent_more) = count(&parts(slot(Duration::from_millis(600))));
        assert!(sent_more > sent_few);
        // A channel may allocate an entry for a waiting thread. The number of such waits varies,
        // but is far below a thousand.
        assert!(more <= few + 24, "{few} for {sent_few} requests, {more} for {sent_more}");
    }
}
