//! Packets that are not requests to the server pass to the network stack.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};

use linerate_engine::Echo;

use crate::scene::{PATIENCE, PORT, XdpTestLab, XdpTestResult, ask, run, xdp_server};

pub(crate) fn other_ports_tcp_and_arp_pass_to_the_stack() -> XdpTestResult {
    let (scene, address, running) = XdpTestLab::with_echo()?;

    // Another UDP port.
    let other = SocketAddr::new(scene.ipv4(), PORT + 1);
    let socket = scene.lab.receiver().run(|| UdpSocket::bind(other))??;
    socket.set_read_timeout(Some(PATIENCE))?;
    let client = scene.client(scene.ipv4())?;
    client.send_to(b"other", other)?;
    let mut buffer = [0; 16];
    assert_eq!(socket.recv(&mut buffer)?, 5);

    // A closed UDP port: the stack replies with ICMP port unreachable.
    let unserved_client = scene.client(scene.ipv4())?;
    unserved_client.connect(SocketAddr::new(scene.ipv4(), PORT + 2))?;
    unserved_client.send(b"anybody?")?;
    let error = unserved_client.recv(&mut buffer).map_err(|error| error.kind());
    assert_eq!(error, Err(ErrorKind::ConnectionRefused));

    // TCP on the same port number.
    let listener = scene.lab.receiver().run(|| TcpListener::bind(address))??;
    let mut stream = scene.sender().run(|| TcpStream::connect(address))??;
    stream.set_read_timeout(Some(PATIENCE))?;
    let (mut accepted, _) = listener.accept()?;
    stream.write_all(b"tcp")?;
    accepted.read_exact(&mut buffer[..3])?;
    assert_eq!(&buffer[..3], b"tcp");

    // ARP: the sender's permanent neighbour entry is deleted, so the sender must resolve the
    // address.
    let ip = scene.ipv4().to_string();
    run(scene.sender(), "ip", &["neigh", "del", &ip, "dev", "eth0"])?;
    assert_eq!(ask(&client, address, b"where are you?")?.0, b"where are you?");
    let neighbours = run(scene.sender(), "ip", &["neigh", "show", &ip])?;
    assert!(!neighbours.contains("PERMANENT"), "{neighbours}");

    let total = running.stop()?.total();
    assert_eq!((total.received, total.frames), (1, 1), "{total:?}");
    Ok(())
}

pub(crate) fn fragmented_requests_arrive_through_the_socket() -> XdpTestResult {
    let scene = XdpTestLab::new()?;
    for address in scene.addresses() {
        let address = SocketAddr::new(address, PORT);
        let running = scene.start(xdp_server(address, 2).max_request(8000), |_| Echo)?;
        let client = scene.client(address.ip())?;
        let long = vec![9; 5001];
        for request in [long.as_slice(), b"short", &long] {
            assert_eq!(ask(&client, address, request)?.0, request);
        }
        let total = running.stop()?.total();
        assert_eq!((total.received, total.frames, total.answered), (3, 1, 3), "{total:?}");
    }
    Ok(())
}
