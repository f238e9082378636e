//! Invalid settings: the one-line error names the setting, its value and the fix.

use std::fs;
use std::net::UdpSocket;

use crate::support::{EngineTestResult, cpus, local_server, skip};
use linerate_engine::{
    Backend, Builder, Echo, Server, ServerError, SocketMode, SteeringProgram, WorkerPinning,
};

const STEERED: SocketMode = SocketMode::SteeredByCpu(SteeringProgram::Cbpf);

/// Returns the error of `prepare`. Checks that its text contains `words`.
#[track_caller]
fn prepare_error(builder: Builder, words: &[&str]) -> ServerError {
    match builder.prepare() {
        Ok(server) => panic!("the server was built: {server:?}"),
        Err(error) => {
            let text = error.to_string();
            for word in words {
                assert!(text.contains(word), "{word:?} is not in {text:?}");
            }
            error
        }
    }
}

#[test]
fn errors_for_invalid_settings_name_the_setting() -> EngineTestResult {
    let all = cpus()?;
    prepare_error(Server::builder(), &["Builder::bind"]);
    prepare_error(local_server().workers(0), &["0 workers"]);
    prepare_error(local_server().cpus([]), &["no free CPU", "workers"]);
    prepare_error(local_server().pinning(WorkerPinning::Cpus(vec![])), &["no free CPU", "pinning"]);
    prepare_error(local_server().backend(Backend::Mmsg { batch: 0 }), &["batch of 0", "1 to 1024"]);
    prepare_error(local_server().backend(Backend::Mmsg { batch: 1025 }), &["1025"]);
    prepare_error(local_server().max_request(0), &["max_request of 0"]);
    prepare_error(local_server().max_request(65_536), &["65536"]);
    prepare_error(local_server().max_reply(0), &["max_reply of 0"]);
    prepare_error(local_server().receive_buffer(1 << 30), &["receive buffer"]);
    prepare_error(local_server().send_buffer(usize::MAX), &["send buffer"]);
    prepare_error(local_server().sockets(STEERED).workers(all.len() + 1), &["at most", "fewer workers"]);
    prepare_error(local_server().sockets(STEERED).cpus([all[0], all[0]]), &["at most 1"]);
    Ok(())
}

#[test]
fn pinning_to_a_missing_cpu_is_refused() {
    let error = prepare_error(
        local_server().pinning(WorkerPinning::Cpus(vec![60_000])),
        &["CPU 60000", "offline", "allowed here"],
    );
    assert!(matches!(error, ServerError::Cpu { cpu: 60_000, .. }));
    prepare_error(local_server().pinning(WorkerPinning::Own).cpus([u32::MAX]), &["CPU 4294967295"]);
}

#[test]
fn binding_a_port_in_use_is_refused() -> EngineTestResult {
    let owner = UdpSocket::bind("127.0.0.1:0")?;
    let address = owner.local_addr()?;
    for sockets in [SocketMode::Shared, SocketMode::Reuseport] {
        let builder = local_server().bind(address).sockets(sockets);
        let error = prepare_error(builder, &[&address.to_string(), "in use", "ss -ulpn"]);
        assert!(matches!(error, ServerError::InUse { shareable: false, .. }), "{error:?}");
    }
    Ok(())
}

#[test]
fn sharing_the_port_of_another_server_requires_join() -> EngineTestResult {
    let first = local_server().workers(2).start(|_| Echo)?;
    let second_builder = local_server().bind(first.local_addr()).workers(1);
    let error = prepare_error(second_builder.clone(), &["share the port"]);
    assert!(matches!(error, ServerError::InUse { shareable: true, .. }), "{error:?}");
    let second = second_builder.join(true).start(|_| Echo)?;
    assert_eq!(second.local_addr(), first.local_addr());
    for sockets in [SocketMode::Shared, STEERED] {
        prepare_error(local_server().workers(1).sockets(sockets).join(true), &["Builder::join requires"]);
    }
    Ok(())
}

#[test]
fn binding_an_address_of_another_host_is_refused() -> EngineTestResult {
    prepare_error(local_server().bind("192.0.2.1:0".parse()?), &["192.0.2.1", "ip address"]);
    Ok(())
}

#[test]
fn low_port_error_names_cap_net_bind_service() -> EngineTestResult {
    match local_server().bind("127.0.0.1:1".parse()?).prepare() {
        Ok(_) => skip("low_port_error_names_cap_net_bind_service", "low ports are allowed here"),
        Err(error) => assert!(error.to_string().contains("CAP_NET_BIND_SERVICE"), "{error}"),
    }
    Ok(())
}

#[test]
fn negative_nice_value_error_names_cap_sys_nice() -> EngineTestResult {
    let address = UdpSocket::bind("127.0.0.9:0")?.local_addr()?;
    match local_server().bind(address).workers(2).nice(-20).start(|_| Echo) {
        Ok(_) => {
            skip("negative_nice_value_error_names_cap_sys_nice", "any nice value is allowed here");
        }
        Err(error) => {
            assert!(error.to_string().contains("CAP_SYS_NICE"), "{error}");
            UdpSocket::bind(address).expect("the workers have closed their sockets");
        }
    }
    Ok(())
}

#[test]
fn port_zero_binds_one_socket_or_one_per_worker_to_a_free_port() -> EngineTestResult {
    for address in ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0", "[::]:0"] {
        for sockets in [SocketMode::Shared, SocketMode::Reuseport] {
            let server = Server::builder().bind(address.parse()?).workers(4).sockets(sockets).prepare()?;
            let count = if sockets == SocketMode::Shared { 1 } else { 4 };
            assert_eq!(server.sockets().len(), count);
            let table = if server.local_addr().is_ipv4() { "udp" } else { "udp6" };
            let table = fs::read_to_string(format!("/proc/thread-self/net/{table}"))?;
            let port = format!(":{:04X}", server.local_addr().port());
            let local_addresses = table.lines().filter_map(|line| line.split_whitespace().nth(1));
            let bound = local_addresses.filter(|local| local.ends_with(&port)).count();
            assert_eq!(bound, count, "{address} {sockets:?}: sockets with port {port} in {table}");
        }
    }
    Ok(())
}
