//! The examples work as documented.

#[path = "../../examples/deferred.rs"]
#[allow(dead_code, unreachable_pub)] // Its main.
mod deferred;
#[path = "../../examples/dns_stub.rs"]
#[allow(dead_code, unreachable_pub)] // Its main.
mod dns_stub;
#[path = "../../examples/echo.rs"]
#[allow(dead_code, unreachable_pub)]
mod echo;
#[path = "../../examples/own_event_loop.rs"]
#[allow(dead_code, unreachable_pub)]
mod own_event_loop;
#[path = "../../examples/tokio_steer.rs"]
#[allow(dead_code, unreachable_pub)]
mod tokio_steer;

use std::time::{Duration, Instant};

use crate::support::{EngineTestResult, ask, client};

const ANY_PORT: &str = "127.0.0.1:0";
/// Number of clients, each with its own port, so that requests reach several sockets on a machine
/// with several CPUs.
const CLIENTS: u64 = 16;

#[test]
fn echo_echoes() -> EngineTestResult {
    let running = echo::start(ANY_PORT.parse()?)?;
    assert_eq!(ask(&client(ANY_PORT)?, running.local_addr(), b"hello")?.0, b"hello");
    assert_eq!(running.stop()?.total().answered, 1);
    Ok(())
}

/// The programs in docs/embedding.md are the examples, so they are built and tested here.
#[test]
fn the_programs_in_the_manual_are_the_examples() {
    let manual = include_str!("../../../docs/embedding.md");
    let programs: Vec<&str> =
        manual.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    let examples = [
        include_str!("../../examples/echo.rs"),
        include_str!("../../examples/deferred.rs"),
        include_str!("../../examples/tokio_steer.rs"),
    ];
    assert_eq!(programs.len(), examples.len());
    for (program, example) in programs.into_iter().zip(examples) {
        assert!(example.ends_with(program) && program.contains("fn main"), "{program}");
    }
}

#[test]
fn deferred_replies_come() -> EngineTestResult {
    let served = deferred::start(ANY_PORT.parse()?)?;
    let client = client(ANY_PORT)?;
    assert_eq!(ask(&client, served.running.local_addr(), b"hello")?.0, b"HELLO");
    // The replying thread counts a reply after sending it, so the client may be first.
    let deadline = Instant::now() + Duration::from_secs(10);
    while served.running.total().deferred_sent == 0 && Instant::now() < deadline {
        std::thread::yield_now();
    }
    let total = served.running.stop()?.total();
    assert_eq!((total.deferred, total.deferred_sent), (1, 1));
    served.threads.into_iter().try_for_each(std::thread::JoinHandle::join).map_err(|_| "a panic")?;
    Ok(())
}

#[test]
fn dns_stub_knows_one_address() -> EngineTestResult {
    let running = dns_stub::start(ANY_PORT.parse()?)?;
    let (client, name) = (client(ANY_PORT)?, b"\x03any\x04name\x00");
    let query = |kind: u8, flags: u8| {
        [&[7, 8, flags, 0, 0, 1, 0, 0, 0, 0, 0, 0], &name[..], &[0, kind, 0, 1]].concat()
    };
    let (answer, _) = ask(&client, running.local_addr(), &query(1, 1))?;
    assert_eq!(answer[..12], [7, 8, 0x85, 0, 0, 1, 0, 1, 0, 0, 0, 0]);
    assert_eq!(answer[answer.len() - 4..], [192, 0, 2, 1]);
    // The server drops a DNS response (QR set), so the next reply belongs to the query after it,
    // for a type without data.
    client.send_to(&query(1, 0x80), running.local_addr())?;
    let (answer, _) = ask(&client, running.local_addr(), &query(28, 0))?;
    assert_eq!(answer[2..8], [0x84, 0, 0, 1, 0, 0]);
    assert_eq!(running.stop()?.total().dropped, 1);
    Ok(())
}

#[test]
fn an_own_event_loop_is_steered() -> EngineTestResult {
    let served = own_event_loop::start(ANY_PORT.parse()?)?;
    for _ in 0..CLIENTS {
        assert_eq!(ask(&client(ANY_PORT)?, served.address, b"hello")?.0, b"hello");
    }
    assert_eq!(served.stop()?.iter().sum::<u64>(), CLIENTS);
    Ok(())
}

#[test]
fn tokio_is_steered() -> EngineTestResult {
    let served = tokio_steer::start(ANY_PORT.parse()?).map_err(|error| error.to_string())?;
    for _ in 0..CLIENTS {
        assert_eq!(ask(&client(ANY_PORT)?, served.address, b"hello")?.0, b"hello");
    }
    let answered = served.stop().map_err(|error| error.to_string())?;
    assert_eq!(answered.iter().sum::<u64>(), CLIENTS);
    Ok(())
}
