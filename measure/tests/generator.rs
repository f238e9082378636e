//! The socket generator against servers on loopback.

use std::net::UdpSocket;
use std::time::Duration;

use linerate_measure::{Generator, Slot, SocketGenerator};

#[test]
fn an_echo_is_fully_answered() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((length, from)) = server.recv_from(&mut buffer) {
            server.send_to(&buffer[..length], from).unwrap();
        }
    });
    let mut generator =
        SocketGenerator::builder().targets(vec![address]).flows(4).threads(2).start().unwrap();
    for slot in [Slot::rate(5_000.0, Duration::from_millis(300)), Slot::window(1, Duration::from_millis(300))]
    {
        let outcome = generator.run(&slot).unwrap();
        eprintln!("{}", serde_json::to_string_pretty(&outcome).unwrap());
        assert_eq!(outcome.sent, outcome.answered + outcome.lost);
    }
}
