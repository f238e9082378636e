//! Transactions do not allocate memory. This is the only test of its binary, so no other test
//! allocates.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use linerate_engine::{Action, Backend, Request, Server};
use linerate_testkit::{ALLOCATIONS, CountingAllocator};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Every kind of reply, selected by the first byte of the request.
fn answer(to: SocketAddr) -> impl FnMut(&Request<'_>, &mut [u8]) -> Action + Send {
    move |request, reply| {
        let payload = request.payload();
        let _ = (request.source(), request.destination(), request.is_truncated());
        reply[..payload.len()].copy_from_slice(payload);
        match payload[0] % 3 {
            0 => Action::Echo,
            1 => Action::Reply(payload.len()),
            _ => Action::ReplyTo { length: payload.len(), to },
        }
    }
}

/// Allocations during this number of transactions, eight at a time. The server also drops one
/// truncated request per transaction.
fn allocations(client: &UdpSocket, server: SocketAddr, transactions: u32) -> std::io::Result<u64> {
    let before = ALLOCATIONS.load(Relaxed);
    let mut buffer = [0; 4096];
    for _ in 0..transactions / 8 {
        for index in 0..8 {
            client.send_to(&[index; 100], server)?;
            // Too long: truncated and dropped.
            client.send_to(&buffer[..3000], server)?;
        }
        for _ in 0..8 {
            client.recv(&mut buffer)?;
        }
    }
    Ok(ALLOCATIONS.load(Relaxed) - before)
}

#[test]
fn allocations_do_not_grow_with_transactions() -> Result<(), Box<dyn std::error::Error>> {
    for backend in [Backend::Recvfrom, Backend::Mmsg { batch: 64 }] {
        for bind in ["127.0.0.1:0", "0.0.0.0:0", "[::]:0"] {
            let client = UdpSocket::bind("127.0.0.1:0")?;
            client.set_read_timeout(Some(Duration::from_secs(5)))?;
            let to = client.local_addr()?;
            let running = Server::builder()
                .bind(bind.parse()?)
                .workers(1)
                .backend(backend)
                .start(move |_| answer(to))?;
            let server = SocketAddr::from(([127, 0, 0, 1], running.local_addr().port()));
            // The first transactions set up resources, which do not count.
            allocations(&client, server, 80)?;
            let few = allocations(&client, server, 80)?;
            let many = allocations(&client, server, 800)?;
            // A thread of the test runner may allocate at any time, but independently of the
            // transactions.
            assert!(many <= few + 8, "{backend:?} {bind}: {few} for 80 transactions, {many} for 800");
            let total = running.stop()?.total();
            assert_eq!((total.answered, total.truncated), (960, 960), "{total:?}");
        }
    }
    Ok(())
}
