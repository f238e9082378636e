//! Packets reach the socket that the CPU table assigns to the CPU that processes them. Loopback
//! processes a packet on the CPU that sends it, so a sender that is bound to a CPU selects the CPU.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Instant;

use crate::support::{EngineTestResult, PATIENCE, ask, client, cpus, local_server, on_cpu, skip};
use linerate_engine::steer::{self, CpuTable, SteeringProgram};
use linerate_engine::{Echo, SocketMode};
use socket2::{Domain, Socket, Type};

const FLOWS: usize = 64;

/// Two CPUs. `None`, after a SKIP message, on a machine with one CPU.
fn two_cpus(test: &str) -> std::io::Result<Option<[u32; 2]>> {
    match cpus()?[..] {
        [first, second, ..] => Ok(Some([first, second])),
        _ => {
            skip(test, "needs two CPUs");
            Ok(None)
        }
    }
}

/// Attaches the program. Returns false, after a SKIP message, if the process lacks the privilege.
fn attach<S: std::os::fd::AsFd>(
    test: &str,
    sockets: &[S],
    table: &CpuTable,
    program: SteeringProgram,
) -> Result<bool, steer::SteeringError> {
    match steer::attach(sockets, table, program) {
        Err(error @ steer::SteeringError::NotPermitted) => {
            skip(test, error);
            Ok(false)
        }
        result => result.map(|()| true),
    }
}

fn udp_group(address: &str, size: usize) -> std::io::Result<(Vec<UdpSocket>, SocketAddr)> {
    let mut address: SocketAddr = address.parse().map_err(std::io::Error::other)?;
    let mut sockets = Vec::new();
    for _ in 0..size {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None)?;
        socket.set_reuse_port(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        let socket = UdpSocket::from(socket);
        address = socket.local_addr()?;
        sockets.push(socket);
    }
    Ok((sockets, address))
}

/// The number of datagrams that each socket receives, of [`FLOWS`] datagrams sent from `cpu`.
fn spread(cpu: u32, sockets: &[UdpSocket], to: SocketAddr) -> std::io::Result<Vec<usize>> {
    let local = if to.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
    on_cpu(cpu, || -> std::io::Result<()> {
        for _ in 0..FLOWS {
            UdpSocket::bind(local)?.send_to(b"x", to)?;
        }
        Ok(())
    })??;
    let mut buffer = [0; 8];
    let mut counts = vec![0; sockets.len()];
    // The datagrams are in the sockets at once, unless ksoftirqd processes them.
    let begun = Instant::now();
    while counts.iter().sum::<usize>() < FLOWS && begun.elapsed() < PATIENCE {
        for (socket, count) in sockets.iter().zip(&mut counts) {
            *count += std::iter::from_fn(|| socket.recv(&mut buffer).ok()).count();
        }
        std::thread::yield_now();
    }
    assert_eq!(counts.iter().sum::<usize>(), FLOWS);
    Ok(counts)
}

#[test]
fn datagrams_reach_the_socket_of_their_cpu_in_any_table_order() -> EngineTestResult {
    let test = "datagrams_reach_the_socket_of_their_cpu_in_any_table_order";
    let Some([a, b]) = two_cpus(test)? else { return Ok(()) };
    for program in [SteeringProgram::Cbpf, SteeringProgram::Ebpf] {
        for address in ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0"] {
            let (sockets, mut to) = udp_group(address, 3)?;
            if to.ip().is_unspecified() {
                to.set_ip("127.0.0.1".parse()?);
            }
            for (cpus, at) in [([[a], [b], [9999]], [0, 1]), ([[b], [9999], [a]], [2, 0])] {
                let table = CpuTable::new(&cpus)?;
                // A socket stays in its eBPF map as long as the map exists, so detach first.
                steer::detach(&sockets[0])?;
                if !attach(test, &sockets, &table, program)? {
                    continue;
                }
                for (cpu, slot) in [(a, at[0]), (b, at[1])] {
                    let counts = spread(cpu, &sockets, to)?;
                    assert_eq!(counts[slot], FLOWS, "{program:?} {address} CPU {cpu}: {counts:?}");
                }
            }
        }
    }
    Ok(())
}

#[test]
fn ebpf_slots_are_independent_of_bind_order_and_closed_sockets() -> EngineTestResult {
    let test = "ebpf_slots_are_independent_of_bind_order_and_closed_sockets";
    let Some([a, b]) = two_cpus(test)? else { return Ok(()) };
    let (mut sockets, to) = udp_group("127.0.0.1:0", 3)?;
    sockets.rotate_left(1);
    if attach(test, &sockets, &CpuTable::new(&[[9999], [b], [a]])?, SteeringProgram::Ebpf)? {
        assert_eq!(spread(a, &sockets, to)?, [0, 0, FLOWS]);
        assert_eq!(spread(b, &sockets, to)?, [0, FLOWS, 0]);
        // When a socket closes, the other sockets keep their slots.
        sockets.remove(0);
        assert_eq!(spread(a, &sockets, to)?, [0, FLOWS]);
        assert_eq!(spread(b, &sockets, to)?, [FLOWS, 0]);
        // The kernel's hash selects a socket for the CPU whose socket has closed.
        sockets.remove(0);
        assert_eq!(spread(b, &sockets, to)?, [FLOWS]);
    }
    Ok(())
}

#[test]
fn cpus_without_a_socket_use_the_hash() -> EngineTestResult {
    let test = "cpus_without_a_socket_use_the_hash";
    let Some([a, b]) = two_cpus(test)? else { return Ok(()) };
    for program in [SteeringProgram::Cbpf, SteeringProgram::Ebpf] {
        let (sockets, to) = udp_group("127.0.0.1:0", 2)?;
        let table = CpuTable::from_pairs([(a, 1)])?;
        if !attach(test, &sockets, &table, program)? {
            continue;
        }
        assert_eq!(spread(a, &sockets, to)?, [0, FLOWS], "{program:?}");
        let counts = spread(b, &sockets, to)?;
        assert!(counts.iter().all(|count| *count > 0), "{program:?}: {counts:?}");

        steer::detach(&sockets[1])?;
        let counts = spread(a, &sockets, to)?;
        assert!(counts.iter().all(|count| *count > 0), "{program:?} detached: {counts:?}");
    }
    Ok(())
}

#[test]
fn tcp_listener_slots_follow_the_listen_order() -> EngineTestResult {
    let test = "tcp_listener_slots_follow_the_listen_order";
    let Some([a, b]) = two_cpus(test)? else { return Ok(()) };
    for program in [SteeringProgram::Cbpf, SteeringProgram::Ebpf] {
        let mut address: SocketAddr = "127.0.0.1:0".parse()?;
        let mut sockets = Vec::new();
        for _ in 0..2 {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            socket.set_reuse_port(true)?;
            socket.bind(&address.into())?;
            address = socket.local_addr()?.as_socket().ok_or("no address")?;
            sockets.push(socket);
        }
        // The sockets listen in the reverse order of their binds.
        sockets.reverse();
        let mut listeners = Vec::new();
        for socket in sockets {
            socket.listen(128)?;
            socket.set_nonblocking(true)?;
            listeners.push(TcpListener::from(socket));
        }
        if !attach(test, &listeners, &CpuTable::new(&[[b], [a]])?, program)? {
            continue;
        }
        for (cpu, slot) in [(a, 1), (b, 0)] {
            let streams = on_cpu(cpu, || {
                (0..16).map(|_| TcpStream::connect(address)).collect::<std::io::Result<Vec<_>>>()
            })??;
            for mut stream in streams {
                let (mut accepted, _) = listeners[slot].accept()?;
                accepted.write_all(b"k")?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.read_exact(&mut [0])?;
            }
            assert!(listeners[1 - slot].accept().is_err(), "{program:?}");
        }
    }
    Ok(())
}

#[test]
fn steered_workers_answer_requests_of_their_cpu_in_any_order() -> EngineTestResult {
    let test = "steered_workers_answer_requests_of_their_cpu_in_any_order";
    let Some([a, b]) = two_cpus(test)? else { return Ok(()) };
    for program in [SteeringProgram::Cbpf, SteeringProgram::Ebpf] {
        for order in [[a, b], [b, a]] {
            let result = local_server()
                .cpus(order)
                .sockets(SocketMode::SteeredByCpu(program))
                .pinning(linerate_engine::WorkerPinning::Own)
                .start(|_| Echo);
            let running = match result {
                Err(linerate_engine::ServerError::Steer(error @ steer::SteeringError::NotPermitted)) => {
                    skip(test, error);
                    continue;
                }
                result => result?,
            };
            for (worker, cpu) in order.into_iter().enumerate() {
                let before = running.counters()[worker].answered;
                on_cpu(cpu, || -> std::io::Result<()> {
                    for _ in 0..FLOWS {
                        ask(&client("127.0.0.1:0")?, running.local_addr(), b"where")?;
                    }
                    Ok(())
                })??;
                assert_eq!(running.sockets()[worker].cpus, [cpu]);
                // The other worker's counter does not change now, so the test need not wait for it.
                let other = running.counters()[1 - worker].answered;
                assert_eq!(other, if worker == 0 { 0 } else { FLOWS as u64 });
                assert_eq!(before, 0);
            }
            let report = running.stop()?;
            assert!(report.workers.iter().all(|worker| worker.answered == FLOWS as u64), "{report:?}");
        }
    }
    Ok(())
}

#[test]
fn longest_cbpf_program_attaches_or_the_error_names_optmem_max() -> EngineTestResult {
    let (sockets, to) = udp_group("127.0.0.1:0", 2)?;
    let cpu = cpus()?[0];
    let table = CpuTable::from_pairs((0..819).map(|other| (other, usize::from(other == cpu))))?;
    match steer::attach(&sockets, &table, SteeringProgram::Cbpf) {
        Ok(()) => assert_eq!(spread(cpu, &sockets, to)?, [0, FLOWS]),
        Err(error @ steer::SteeringError::NoRoom { cpus: 819 }) => {
            assert!(error.to_string().contains("optmem_max"), "{error}");
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

#[test]
fn attach_and_detach_refuse_invalid_sockets_and_slots() -> EngineTestResult {
    let lone = UdpSocket::bind("127.0.0.1:0")?;
    let table = CpuTable::from_pairs([(0, 0)])?;
    for program in [SteeringProgram::Cbpf, SteeringProgram::Ebpf] {
        let error = steer::attach(&[&lone], &table, program);
        assert!(
            matches!(
                error,
                Err(steer::SteeringError::NotReuseport
                    | steer::SteeringError::Member { slot: 0, .. }
                    | steer::SteeringError::NotPermitted)
            ),
            "{error:?}"
        );
        let out_of_range = CpuTable::from_pairs([(0, 1)])?;
        let error = steer::attach(&[&lone], &out_of_range, program);
        assert!(
            matches!(error, Err(steer::SteeringError::NoSuchSocket { slot: 1, sockets: 1 })),
            "{error:?}"
        );
        let no_sockets: [UdpSocket; 0] = [];
        assert!(matches!(steer::attach(&no_sockets, &table, program), Err(steer::SteeringError::Empty)));
    }
    assert!(matches!(steer::detach(&lone), Err(steer::SteeringError::NotReuseport)));
    Ok(())
}
