//! An AF_XDP server answers requests in frames like requests from a socket.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::mpsc::channel;
use std::time::SystemTime;

use etherparse::{PacketBuilder, VlanId};
use linerate_engine::{Action, AfXdpSettings, Backend, Echo, ReplyOptions, Request, XdpMode};

use socket2::SockFilter;

use crate::scene::{PATIENCE, PORT, XdpTestLab, XdpTestResult, ask, xdp_server};
use crate::sys;

/// Offset of the VLAN tag for a socket filter (`SKF_AD_OFF + SKF_AD_VLAN_TAG`).
const VLAN_TAG: u32 = (-0x1000_i32 + 44).cast_unsigned();

const LENGTHS: [usize; 8] = [0, 1, 2, 3, 64, 777, 1399, 1400];

pub(crate) fn requests_of_every_length_are_answered_over_ipv4_and_ipv6() -> XdpTestResult {
    let scene = XdpTestLab::new()?;
    for address in scene.addresses() {
        let any: IpAddr = match address {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        for bind in [address, any] {
            let running = scene.start(xdp_server(SocketAddr::new(bind, PORT), 2), |_| Echo)?;
            let client = scene.client(address)?;
            let to = SocketAddr::new(address, PORT);
            for length in LENGTHS {
                let request: Vec<u8> = (0..length).map(|at| at as u8).collect();
                let (answer, from) = ask(&client, to, &request)?;
                assert_eq!((answer, from), (request, to), "{bind}");
            }
            let report = running.xdp().cloned().unwrap_or_default();
            assert_eq!(report.interfaces.len(), 1, "{report:?}");
            let interface = &report.interfaces[0];
            assert_eq!((interface.name.as_str(), interface.mode), ("eth0", XdpMode::Driver));
            assert_eq!(interface.driver.as_deref(), Some("veth"));
            assert_eq!(interface.queues.len(), 2);
            assert!(interface.queues.iter().all(|queue| !queue.zero_copy && queue.need_wakeup));
            let report = running.stop()?;
            let total = report.total();
            let count = LENGTHS.len() as u64;
            assert_eq!((total.received, total.answered, total.frames), (count, count, count), "{total:?}");
            assert!(report.xdp.is_some());
        }
    }
    // A server that is bound to `::` also answers IPv4.
    let running = scene.start(xdp_server((Ipv6Addr::UNSPECIFIED, PORT).into(), 2), |_| Echo)?;
    ask(&scene.client(scene.ipv4())?, SocketAddr::new(scene.ipv4(), PORT), b"four")?;
    assert_eq!(running.stop()?.total().frames, 1);
    Ok(())
}

pub(crate) fn receive_time_of_a_frame_is_set_if_requested() -> XdpTestResult {
    let scene = XdpTestLab::new()?;
    for requested in [true, false] {
        let (sender, times) = channel();
        let at = SocketAddr::new(scene.ipv4(), PORT);
        let builder = xdp_server(at, 2).max_request(8192).receive_times(requested);
        let service = move |_| {
            let sender = sender.clone();
            move |request: &Request<'_>, _: &mut [u8]| {
                let _ = sender.send((request.receive_time(), SystemTime::now()));
                Action::Echo
            }
        };
        let running = scene.start(builder, service)?;
        let client = scene.client(scene.ipv4())?;
        let begun = SystemTime::now();
        ask(&client, at, b"when?")?;
        let (receive_time, processed_at) = times.recv_timeout(PATIENCE)?;
        assert_eq!(receive_time.is_some(), requested);
        assert!(
            receive_time.is_none_or(|time| begun <= time && time <= processed_at),
            "{begun:?} {receive_time:?} {processed_at:?}"
        );
        // A request that arrives through the socket has the kernel's receive time, which is earlier
        // than the time in the worker.
        ask(&client, at, &[7; 4000])?;
        let (receive_time, processed_at) = times.recv_timeout(PATIENCE)?;
        assert_eq!(receive_time.is_some(), requested);
        assert!(receive_time.is_none_or(|time| begun <= time && time <= processed_at));
        let total = running.stop()?.total();
        assert_eq!((total.answered, total.frames), (2, 1), "{total:?}");
    }
    Ok(())
}

/// Replies with the source and destination addresses of the request.
fn reply_with_addresses(request: &Request<'_>, reply: &mut [u8]) -> Action {
    let text = format!("{} {:?}", request.source(), request.destination());
    reply[..text.len()].copy_from_slice(text.as_bytes());
    Action::Reply(text.len())
}

pub(crate) fn service_gets_source_and_destination_addresses() -> XdpTestResult {
    let scene = XdpTestLab::new()?;
    for wildcard in [false, true] {
        for address in scene.addresses() {
            let bind = if wildcard { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { address };
            let running =
                scene.start(xdp_server(SocketAddr::new(bind, PORT), 2), |_| reply_with_addresses)?;
            let client = scene.client(address)?;
            client.connect((address, PORT))?;
            client.send(b"who am I")?;
            let mut answer = [0; 256];
            let length = client.recv(&mut answer)?;
            let destination = wildcard.then_some(address);
            let expected = format!("{} {destination:?}", client.local_addr()?);
            assert_eq!(String::from_utf8_lossy(&answer[..length]), expected);
            assert_eq!(running.stop()?.total().frames, 1);
        }
    }
    Ok(())
}

pub(crate) fn long_deferred_and_redirected_replies_leave_through_the_socket() -> XdpTestResult {
    let scene = XdpTestLab::new()?;
    for wildcard in [false, true] {
        for address in scene.addresses() {
            let bind = if wildcard { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { address };
            let third = scene.client(address)?;
            let end = &scene.lab.links()[0].sender;
            let ip = if address.is_ipv4() { IpAddr::V4(end.ipv4[0]) } else { IpAddr::V6(end.ipv6[0]) };
            let to = SocketAddr::new(ip, third.local_addr()?.port());
            let builder = xdp_server(SocketAddr::new(bind, PORT), 1).max_reply(4000);
            let running = scene.start(builder.receive_traffic_class(true), move |_| {
                move |request: &Request<'_>, reply: &mut [u8]| match request.payload() {
                    b"long" => {
                        reply[..3001].fill(7);
                        Action::Reply(3001)
                    }
                    b"later" => {
                        let reply = request.defer();
                        std::thread::spawn(move || reply.send(b"now"));
                        Action::Defer
                    }
                    b"class" => {
                        reply[0] = request.traffic_class().unwrap_or(255);
                        let options = ReplyOptions { traffic_class: Some(0x2e << 2), ..Default::default() };
                        Action::ReplyWith { length: 1, options }
                    }
                    _ => {
                        reply[..5].copy_from_slice(b"hello");
                        Action::ReplyTo { length: 5, to }
                    }
                }
            })?;
            let server = SocketAddr::new(address, PORT);
            let client = scene.client(address)?;
            let (answer, from) = ask(&client, server, b"long")?;
            assert_eq!((answer, from), (vec![7; 3001], server), "{bind}");
            assert_eq!(ask(&client, server, b"later")?, (b"now".to_vec(), server), "{bind}");
            assert_eq!(ask(&client, server, b"class")?, (vec![0], server), "{bind}");
            client.send_to(b"tell them", server)?;
            let mut answer = [0; 16];
            let (length, from) = third.recv_from(&mut answer)?;
            assert_eq!((&answer[..length], from), (b"hello".as_slice(), server), "{bind}");
            let total = running.stop()?.total();
            assert_eq!((total.received, total.frames, total.answered, total.redirected), (4, 4, 3, 1));
            assert_eq!((total.deferred, total.deferred_sent), (1, 1));
        }
    }
    Ok(())
}

pub(crate) fn dropped_truncated_and_unsent_requests_are_counted() -> XdpTestResult {
    let scene = XdpTestLab::new()?;
    let service = |_| {
        |request: &Request<'_>, reply: &mut [u8]| match request.payload() {
            b"none" => Action::Drop,
            b"long" => Action::Reply(reply.len() + 1),
            _ => Action::Echo,
        }
    };
    let address = SocketAddr::new(scene.ipv4(), PORT);
    let running = scene.start(xdp_server(address, 2).max_request(100), service)?;
    let client = scene.client(scene.ipv4())?;
    for request in [b"none".as_slice(), b"long", &[1; 101], &[2; 100]] {
        client.send_to(request, address)?;
    }
    let mut answer = [0; 200];
    assert_eq!(client.recv(&mut answer)?, 100);
    let total = running.stop()?.total();
    assert_eq!((total.received, total.frames, total.answered), (4, 4, 1), "{total:?}");
    assert_eq!((total.dropped, total.truncated, total.send_failed.too_long), (1, 1, 1), "{total:?}");
    Ok(())
}

pub(crate) fn panic_loses_its_request_only() -> XdpTestResult {
    let scene = XdpTestLab::new()?;
    let address = SocketAddr::new(scene.ipv4(), PORT);
    let running = scene.start(xdp_server(address, 2), |_| {
        |request: &Request<'_>, _: &mut [u8]| {
            assert!(request.payload() != b"panic", "the test requests a panic");
            Action::Echo
        }
    })?;
    let client = scene.client(scene.ipv4())?;
    for round in 0..3u8 {
        client.send_to(b"panic", address)?;
        for _ in 0..100 {
            assert_eq!(ask(&client, address, &[round; 3])?.0, [round; 3]);
        }
    }
    let total = running.stop()?.total();
    assert_eq!((total.panicked, total.restarts, total.frames, total.answered), (3, 3, 303, 300), "{total:?}");
    Ok(())
}

pub(crate) fn two_workers_or_one_worker_serve_both_queues() -> XdpTestResult {
    let (scene, address, running) = XdpTestLab::with_echo()?;
    let workers: Vec<usize> = running
        .xdp()
        .into_iter()
        .flat_map(|xdp| &xdp.interfaces[0].queues)
        .map(|queue| queue.worker)
        .collect();
    assert_eq!(workers, [0, 1]);
    // The kernel selects the queue of each flow by a hash.
    for number in 0..64u8 {
        let (answer, _) = ask(&scene.client(scene.ipv4())?, address, &[number; 5])?;
        assert_eq!(answer, [number; 5]);
    }
    let report = running.stop()?;
    assert!(report.workers.iter().all(|counts| counts.frames > 0), "{report:?}");
    assert_eq!(report.total().frames, 64);
    // One worker serves both queues, which share one UMEM.
    let running = scene.start(xdp_server(address, 1), |_| Echo)?;
    assert_eq!(running.fallbacks(), []);
    assert_eq!(running.xdp().map(|xdp| xdp.interfaces[0].queues.len()), Some(2));
    for number in 0..64u8 {
        let (answer, _) = ask(&scene.client(scene.ipv4())?, address, &[number; 5])?;
        assert_eq!(answer, [number; 5]);
    }
    assert_eq!(running.stop()?.total().frames, 64);
    Ok(())
}

/// The Ethernet frame of a request from the sender, with VLAN tag 42 if `tagged`.
fn frame(scene: &XdpTestLab, tagged: bool, payload: &[u8]) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let (sender, receiver) = (&scene.lab.links()[0].sender, &scene.lab.links()[0].receiver);
    let (from, to) = (sender.ipv4[0].octets(), receiver.ipv4[0].octets());
    let mut frame = Vec::new();
    let ethernet = PacketBuilder::ethernet2(sender.mac, receiver.mac);
    if tagged {
        let packet = ethernet.single_vlan(VlanId::try_new(42)?).ipv4(from, to, 9).udp(4321, PORT);
        packet.write(&mut frame, payload)?;
    } else {
        ethernet.ipv4(from, to, 9).udp(4321, PORT).write(&mut frame, payload)?;
    }
    Ok(frame)
}

pub(crate) fn vlan_tagged_requests_are_answered() -> XdpTestResult {
    let (scene, _, running) = XdpTestLab::with_echo()?;
    let (sender, receiver) = (&scene.lab.links()[0].sender, &scene.lab.links()[0].receiver);
    let wire = scene.sender().run(|| sys::packet_socket(sender.index, PATIENCE))??;
    // The kernel removes the outer VLAN tag before a packet socket receives the frame. The filter
    // passes frames that had VLAN tag 42.
    wire.attach_filter(&[
        SockFilter::new((libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, 0, 0, VLAN_TAG),
        SockFilter::new((libc::BPF_JMP | libc::BPF_JEQ) as u16, 0, 1, 42),
        SockFilter::new(libc::BPF_RET as u16, 0, 0, u32::MAX),
        SockFilter::new(libc::BPF_RET as u16, 0, 0, 0),
    ])?;
    wire.send(&frame(&scene, true, b"tagged")?)?;
    let mut expected = Vec::new();
    let (from, to) = (receiver.ipv4[0].octets(), sender.ipv4[0].octets());
    PacketBuilder::ethernet2(receiver.mac, sender.mac)
        .ipv4(from, to, 64)
        .udp(PORT, 4321)
        .write(&mut expected, b"tagged")?;
    loop {
        let reply = sys::receive(&wire).map_err(|error| format!("no reply with the VLAN tag: {error}"))?;
        if reply.len() >= 12 && reply[..6] == sender.mac && reply.ends_with(b"tagged") {
            // Like the frame that etherparse builds, the reply has Don't Fragment set and
            // identification 0.
            assert_eq!(reply, expected);
            break;
        }
    }
    let total = running.stop()?.total();
    assert_eq!((total.frames, total.answered), (1, 1));
    Ok(())
}

pub(crate) fn requests_with_wrong_checksums_are_counted_and_not_answered() -> XdpTestResult {
    let scene = XdpTestLab::new()?;
    let address = SocketAddr::new(scene.ipv4(), PORT);
    let settings = AfXdpSettings { verify_checksums: true, ..AfXdpSettings::default() };
    let builder = xdp_server(address, 2).backend(Backend::Xdp(settings));
    let running = scene.start(builder, |_| Echo)?;
    let wire = scene.sender().run(|| sys::packet_socket(scene.lab.links()[0].sender.index, PATIENCE))??;
    let mut damaged_frame = frame(&scene, false, b"damaged")?;
    if let Some(last) = damaged_frame.last_mut() {
        *last ^= 1;
    }
    wire.send(&damaged_frame)?;
    // Intact requests, enough for both queues. The sender is on the same machine, so their
    // checksums are incomplete (checksum offload).
    for number in 0..32u8 {
        assert_eq!(ask(&scene.client(scene.ipv4())?, address, &[number])?.0, [number]);
    }
    let total = running.stop()?.total();
    assert_eq!((total.checksum_errors, total.received, total.answered), (1, 32, 32), "{total:?}");
    Ok(())
}

pub(crate) fn servers_with_non_default_settings_answer_requests() -> XdpTestResult {
    let scene = XdpTestLab::new()?;
    let address = SocketAddr::new(scene.ipv4(), PORT);
    let plain = AfXdpSettings::default();
    let settings = [
        AfXdpSettings { mode: XdpMode::Generic, ..plain },
        AfXdpSettings { zero_copy: false, frames: 128, batch: 1, ..plain },
        AfXdpSettings { need_wakeup: false, ..plain },
        AfXdpSettings { busy_poll_us: 20, busy_poll_budget: 8, ..plain },
    ];
    for settings in settings {
        let builder = xdp_server(address, 2).backend(Backend::Xdp(settings));
        let running = scene.start(builder, |_| Echo)?;
        let client = scene.client(scene.ipv4())?;
        // More requests than the smallest number of frames in `settings` (128).
        for number in 0..300u16 {
            let request = number.to_be_bytes();
            assert_eq!(ask(&client, address, &request)?.0, request, "{settings:?}");
        }
        let mode = running.xdp().map(|xdp| xdp.interfaces[0].mode);
        assert_eq!(mode, Some(settings.mode));
        let total = running.stop()?.total();
        assert_eq!((total.frames, total.answered), (300, 300), "{settings:?} {total:?}");
    }
    Ok(())
}
