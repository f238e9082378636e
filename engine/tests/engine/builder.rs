//! Invalid settings: the one-line error names the setting, its value and the fix.

use std::net::{SocketAddr, UdpSocket};

use crate::support::{EngineTestResult, cpus, skip};
use linerate_engine::{
    Backend, Builder, Echo, Server, ServerError, SocketMode, SteeringProgram, StrayRequests, WorkerPinning,
};

const STEERED: SocketMode = SocketMode::SteeredByCpu(SteeringProgram::Cbpf);

fn local() -> Builder {
    Server::builder().bind(SocketAddr::from(([127, 0, 0, 1], 0)))
}

/// Returns the error of `prepare`. Checks that its text contains `words`.
#[track_caller]
fn refused(builder: Builder, words: &[&str]) -> ServerError {
    match builder.prepare() {
        Ok(server) => panic!("it was built: {server:?}"),
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
fn settings_that_make_no_sense() -> EngineTestResult {
    let all = cpus()?;
    refused(Server::builder(), &["Builder::bind"]);
    refused(local().workers(0), &["0 workers"]);
    refused(local().cpus([]), &["no free CPU", "workers"]);
    refused(local().pinning(WorkerPinning::Cpus(vec![])), &["no free CPU", "pinning"]);
    refused(local().backend(Backend::Mmsg { batch: 0 }), &["batch of 0", "1 to 1024"]);
    refused(local().backend(Backend::Mmsg { batch: 1025 }), &["1025"]);
    refused(local().max_request(0), &["max_request of 0"]);
    refused(local().max_request(65_536), &["65536"]);
    refused(local().max_reply(0), &["max_reply of 0"]);
    refused(local().receive_buffer(1 << 30), &["receive buffer"]);
    refused(local().send_buffer(usize::MAX), &["send buffer"]);
    refused(local().sockets(STEERED).workers(all.len() + 1), &["at most", "fewer workers"]);
    refused(local().sockets(STEERED).cpus([all[0], all[0]]), &["at most 1"]);
    refused(local().sockets(STEERED).workers(1).stray(StrayRequests::Worker(1)), &["worker 1", "1 workers"]);
    refused(
        local().sockets(STEERED).workers(1).stray(StrayRequests::Map(vec![(9999, 1)])),
        &["worker 1", "1 workers"],
    );
    refused(local().sockets(STEERED).workers(1).stray(StrayRequests::Map(vec![(all[0], 0)])), &["not stray"]);
    refused(local().stray(StrayRequests::Worker(0)), &["steering"]);
    Ok(())
}

#[test]
fn cpus_that_do_not_exist() {
    let error = refused(
        local().pinning(WorkerPinning::Cpus(vec![60_000])),
        &["CPU 60000", "offline", "allowed here"],
    );
    assert!(matches!(error, ServerError::Cpu { cpu: 60_000, .. }));
    refused(local().pinning(WorkerPinning::Own).cpus([u32::MAX]), &["CPU 4294967295"]);
}

#[test]
fn a_port_in_use() -> EngineTestResult {
    let owner = UdpSocket::bind("127.0.0.1:0")?;
    let address = owner.local_addr()?;
    for sockets in [SocketMode::Shared, SocketMode::Reuseport] {
        let builder = local().bind(address).sockets(sockets);
        let error = refused(builder, &[&address.to_string(), "in use", "ss -ulpn"]);
        assert!(matches!(error, ServerError::InUse { shareable: false, .. }), "{error:?}");
    }
    Ok(())
}

#[test]
fn a_port_that_another_server_shares_is_joined_only_when_asked() -> EngineTestResult {
    let first = local().workers(2).start(|_| Echo)?;
    let again = local().bind(first.local_addr()).workers(1);
    let error = refused(again.clone(), &["Builder::join"]);
    assert!(matches!(error, ServerError::InUse { shareable: true, .. }), "{error:?}");
    let second = again.join(true).start(|_| Echo)?;
    assert_eq!(second.local_addr(), first.local_addr());
    Ok(())
}

#[test]
fn an_address_of_another_host() -> EngineTestResult {
    refused(local().bind("192.0.2.1:0".parse()?), &["192.0.2.1", "ip address"]);
    Ok(())
}

#[test]
fn a_port_that_needs_privilege() -> EngineTestResult {
    match local().bind("127.0.0.1:1".parse()?).prepare() {
        Ok(_) => skip("a_port_that_needs_privilege", "low ports are allowed here"),
        Err(error) => assert!(error.to_string().contains("CAP_NET_BIND_SERVICE"), "{error}"),
    }
    Ok(())
}

#[test]
fn a_nice_value_that_needs_privilege_leaves_nothing_running() -> EngineTestResult {
    match local().nice(-20).start(|_| Echo) {
        Ok(_) => {
            skip(
                "a_nice_value_that_needs_privilege_leaves_nothing_running",
                "any nice value is allowed here",
            );
        }
        Err(error) => assert!(error.to_string().contains("CAP_SYS_NICE"), "{error}"),
    }
    Ok(())
}

#[test]
fn all_sockets_get_the_port_the_first_was_given() -> EngineTestResult {
    for address in ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0", "[::]:0"] {
        for sockets in [SocketMode::Shared, SocketMode::Reuseport] {
            let server = Server::builder().bind(address.parse()?).workers(4).sockets(sockets).prepare()?;
            assert_ne!(server.local_addr().port(), 0);
            assert_eq!(server.sockets().len(), if sockets == SocketMode::Shared { 1 } else { 4 });
        }
    }
    Ok(())
}
