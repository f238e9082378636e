//! Threads of this process, whose sockets are in a lab.

use std::net::UdpSocket;
use std::os::fd::OwnedFd;

use linerate_tune::boost::discovery::{DiscoveryError, ReaderEvidence, ServerQuery};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with, sockopt};

use crate::scene::{Scene, observation_options, on_port};

/// Sockets of one reuseport group.
fn group(scene: &Scene, port: u16, count: usize) -> Vec<OwnedFd> {
    let address = std::net::SocketAddr::new(scene.address(), port);
    let make = || {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None).expect("a socket");
        sockopt::set_socket_reuseport(&socket, true).expect("set");
        bind(&socket, &address).expect("bound");
        socket
    };
    scene.lab.receiver().run(|| (0..count).map(|_| make()).collect()).expect("made")
}

/// Receives until an empty datagram arrives or the socket is shut down.
fn serve(socket: &OwnedFd) {
    let mut buffer = [0_u8; 64];
    while recv(socket, &mut buffer, RecvFlags::empty()).is_ok_and(|(_, bytes)| bytes > 0) {}
}

#[test]
fn each_thread_is_observed_as_the_reader_of_its_socket() {
    let Some(scene) = Scene::set("each_thread_is_observed_as_the_reader_of_its_socket") else { return };
    let sockets = group(&scene, 4000, 3);
    let server = std::thread::scope(|scope| {
        for socket in &sockets {
            scope.spawn(|| serve(socket));
        }
        let server = scene.observe(&on_port(4000), observation_options(200, false));
        for socket in &sockets {
            // Ends each thread through its own socket: a datagram would go to the socket that the
            // hash chooses.
            rustix::net::shutdown(socket, rustix::net::Shutdown::Read).ok();
        }
        server.expect("a server")
    });
    assert_eq!(server.processes[0].pid, std::process::id());
    let [group] = server.groups.as_slice() else { panic!("{server:#?}") };
    assert!(group.reuseport && group.members.len() == 3, "{group:#?}");
    for member in &group.members {
        let readers: Vec<_> = server.readers_of(member.socket.cookie).collect();
        assert_eq!(readers.len(), 1, "{server:#?}");
        assert!(
            readers[0].seen == ReaderEvidence::InCall
                && readers[0].sockets.len() == 1
                && readers[0].started > 0
        );
    }
}

#[test]
fn process_in_another_network_namespace_is_refused_with_a_netns_hint() {
    let Some(scene) = Scene::set("process_in_another_network_namespace_is_refused_with_a_netns_hint") else {
        return;
    };
    let pid = std::process::id();
    let refusal = scene
        .observe(&ServerQuery { pid: Some(pid), ..ServerQuery::default() }, observation_options(0, false))
        .expect_err("elsewhere");
    assert!(matches!(refusal, DiscoveryError::Elsewhere(_)));
    assert!(refusal.to_string().contains(&format!("--netns {pid} ")), "{refusal}");
}

#[test]
fn socket_outside_any_reuseport_group_is_observed() {
    let Some(scene) = Scene::set("socket_outside_any_reuseport_group_is_observed") else { return };
    let address = (scene.address(), 4001);
    let _socket = scene.lab.receiver().run(|| UdpSocket::bind(address)).expect("ran").expect("bound");
    let server = scene.observe(&on_port(4001), observation_options(0, false)).expect("a server");
    assert!(server.groups.len() == 1 && !server.groups[0].reuseport, "{server:#?}");
}
