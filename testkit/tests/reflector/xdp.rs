//! XDP services between two hosts.

use std::net::{SocketAddr, UdpSocket};
use std::process::Command;

use linerate_lab::Lab;
use linerate_testkit::reflector::{XdpAccount, XdpBuilder, XdpService};

use linerate_testkit::skip;

use crate::PATIENCE;

/// A lab with `service` on the receiver. The sender completes checksums and accepts XDP frames.
struct Scene {
    lab: Lab,
    service: XdpService,
    /// A program at the sender that does nothing.
    _passer: XdpService,
}

fn scene(test: &str, service: XdpBuilder) -> Option<Scene> {
    let lab = Lab::builder().start().map_err(|why| skip(test, why)).ok()?;
    let interface = lab.links()[0].receiver.interface.clone();
    let service = match lab.receiver().run(|| service.attach(&interface)).unwrap() {
        Ok(service) => service,
        // EPERM; what the verifier refuses is EACCES.
        Err(why) if why.to_string().contains("(os error 1)") => {
            skip(test, why);
            return None;
        }
        Err(why) => panic!("{why}"),
    };
    let mut ethtool = Command::new("ethtool");
    ethtool.args(["-K", "eth0", "tx", "off"]);
    let mut child = lab.senders()[0].spawn(ethtool).map_err(|why| skip(test, why)).ok()?;
    assert!(child.wait().unwrap().success());
    let passer = lab.senders()[0].run(|| XdpService::sink().port(1).attach("eth0")).unwrap().unwrap();
    Some(Scene { lab, service, _passer: passer })
}

fn client(lab: &Lab, to: SocketAddr) -> UdpSocket {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let client = lab.senders()[0].run(|| UdpSocket::bind(any)).unwrap().unwrap();
    client.connect(to).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client
}

fn addresses(lab: &Lab, port: u16) -> Vec<SocketAddr> {
    let end = &lab.links()[0].receiver;
    let v6 = end.ipv6.first().map(|ip| (*ip, port).into());
    std::iter::once((end.ipv4[0], port).into()).chain(v6).collect()
}

#[test]
fn xdp_reflector_replies_have_valid_checksums() {
    let test = "xdp_reflector_replies_have_valid_checksums";
    let Some(Scene { lab, service, _passer }) = scene(test, XdpService::reflector().port(7_000)) else {
        return;
    };
    let mut request_count = 0;
    for address in addresses(&lab, 7_000) {
        let client = client(&lab, address);
        for length in [0, 1, 2, 100, 1_400] {
            let request: Vec<u8> = (0..length).map(|at| (at * 7) as u8).collect();
            client.send(&request).unwrap();
            // The kernel would not deliver a reply with a wrong checksum.
            let mut reply = [0; 2_000];
            let reply_length = client.recv(&mut reply).unwrap();
            assert_eq!(reply[..reply_length], request[..], "{address}");
            request_count += 1;
        }
    }
    let expected = XdpAccount { received: request_count, answered: request_count, ..XdpAccount::default() };
    assert_eq!(service.account().unwrap(), expected);
}

#[test]
fn xdp_sink_passes_shorter_payloads_to_sockets() {
    let service = XdpService::sink().port(7_000).shortest_payload(5);
    let Some(Scene { lab, service, _passer }) = scene("xdp_sink_passes_shorter_payloads_to_sockets", service)
    else {
        return;
    };
    for address in addresses(&lab, 7_000) {
        let server = lab.receiver().run(|| UdpSocket::bind(address)).unwrap().unwrap();
        server.set_read_timeout(Some(PATIENCE)).unwrap();
        let client = client(&lab, address);
        client.send(b"this is for the sink").unwrap();
        client.send(b"this").unwrap();
        assert_eq!(server.recv(&mut [0; 100]).unwrap(), 4, "{address}");
    }
    let sink_count = addresses(&lab, 7_000).len() as u64;
    assert_eq!(
        service.account().unwrap(),
        XdpAccount { received: sink_count, dropped: sink_count, ..XdpAccount::default() }
    );
}
