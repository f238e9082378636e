//! The least there is: an echo server with a worker a CPU.
//!
//! `cargo run -p linerate-engine --example echo -- 127.0.0.1:7007`, then `echo hello | nc -u 127.0.0.1 7007`. Enter ends it.

use std::net::SocketAddr;

use linerate_engine::{Echo, RunningServer, Server, ServerError, SocketMode, SteeringProgram, WorkerPinning};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7007".to_owned());
    let running = start(address.parse()?)?;
    println!("serving on {}; Enter ends it", running.local_addr());
    std::io::stdin().read_line(&mut String::new())?;
    println!("{:?}", running.stop()?.total());
    Ok(())
}

/// Serves until the returned server is dropped or stopped.
pub fn start(address: SocketAddr) -> Result<RunningServer, ServerError> {
    Server::builder()
        .bind(address)
        // A socket for each worker, and each packet to the worker on the CPU that got it.
        .sockets(SocketMode::SteeredByCpu(SteeringProgram::Cbpf))
        .pinning(WorkerPinning::Own)
        .start(|_worker| Echo)
}
