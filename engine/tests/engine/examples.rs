//! The examples work as documented.

#[path = "../../examples/deferred.rs"]
#[allow(dead_code, unreachable_pub)] // Its main.
mod deferred;
#[path = "../../examples/echo.rs"]
#[allow(dead_code, unreachable_pub)]
mod echo;
#[path = "../../examples/tokio_steer.rs"]
#[allow(dead_code, unreachable_pub)]
mod tokio_steer;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::support::{EngineTestResult, ask, client, cpus, on_cpu};

const ANY_PORT: &str = "127.0.0.1:0";
/// Number of clients, each with its own port. Without steering, their requests reach several sockets.
const CLIENTS: u64 = 16;

/// Sends a request per client from the last CPU. Returns the replies expected from each thread of a
/// server that is steered by CPU.
fn ask_on_last_cpu(address: SocketAddr) -> Result<Vec<u64>, Box<dyn std::error::Error>> {
    let cpus = cpus()?;
    on_cpu(cpus[cpus.len() - 1], || -> std::io::Result<()> {
        for _ in 0..CLIENTS {
            assert_eq!(ask(&client(ANY_PORT)?, address, b"hello")?.0, b"hello");
        }
        Ok(())
    })??;
    let mut expected = vec![0; cpus.len() - 1];
    expected.push(CLIENTS);
    Ok(expected)
}

#[test]
fn echo_example_echoes() -> EngineTestResult {
    let running = echo::start(ANY_PORT.parse()?)?;
    assert_eq!(ask(&client(ANY_PORT)?, running.local_addr(), b"hello")?.0, b"hello");
    assert_eq!(running.stop()?.total().answered, 1);
    Ok(())
}

/// The programs in docs/embedding.md are the examples, so they are built and tested here.
#[test]
fn embedding_manual_contains_the_example_programs() {
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
fn deferred_example_sends_deferred_replies() -> EngineTestResult {
    let example = deferred::start(ANY_PORT.parse()?)?;
    let client = client(ANY_PORT)?;
    assert_eq!(ask(&client, example.running.local_addr(), b"hello")?.0, b"HELLO");
    // The replying thread counts a reply after sending it, so the client may be first.
    let deadline = Instant::now() + Duration::from_secs(10);
    while example.running.total().deferred_sent == 0 && Instant::now() < deadline {
        std::thread::yield_now();
    }
    let total = example.running.stop()?.total();
    assert_eq!((total.deferred, total.deferred_sent), (1, 1));
    example.threads.into_iter().try_for_each(std::thread::JoinHandle::join).map_err(|_| "a panic")?;
    Ok(())
}

#[test]
fn tokio_example_answers_every_client() -> EngineTestResult {
    let example = tokio_steer::start(ANY_PORT.parse()?).map_err(|error| error.to_string())?;
    let expected = ask_on_last_cpu(example.address)?;
    assert_eq!(example.stop().map_err(|error| error.to_string())?, expected);
    Ok(())
}
