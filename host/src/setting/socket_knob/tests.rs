use std::net::UdpSocket;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};

use linerate_testkit::skip;
use proptest::prelude::*;

use super::*;
use crate::{Setting, SettingError};

/// A process that only holds a socket, as its descriptor 0.
struct Holder(Child);

impl Holder {
    fn of(socket: &UdpSocket) -> Self {
        let socket = OwnedFd::from(socket.try_clone().expect("another descriptor"));
        Self(Command::new("sleep").arg("600").stdin(Stdio::from(socket)).spawn().expect("sleep runs"))
    }

    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.end();
    }
}

fn location(socket: &UdpSocket, (pid, descriptor): (u32, u32)) -> SocketAt {
    let inode = rustix::fs::fstat(socket).expect("an inode").st_ino;
    SocketAt { cookie: socket_cookie(socket).expect("a cookie"), inode, pid, descriptor }
}

fn own_location(socket: &UdpSocket) -> SocketAt {
    location(socket, (std::process::id(), u32::try_from(socket.as_raw_fd()).expect("a descriptor")))
}

fn setting(socket: SocketAt, knob: SocketKnob) -> Setting {
    Setting::Socket { socket, knob }
}

fn read(setting: &Setting) -> String {
    setting.read(&Host::live()).expect("read").as_str().to_owned()
}

fn write(setting: &Setting, value: &str) {
    setting.write(&Host::live(), &SettingValue::new(value)).expect("written");
}

/// Whether sockets can be copied and, with `capable`, buffers forced; prints SKIP and the reason if
/// not.
fn is_permitted(test: &str, capable: bool) -> bool {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
    let buffer = setting(own_location(&socket), SocketKnob::ReceiveBuffer);
    let done = buffer.read(&Host::live()).and_then(|_| {
        if capable { buffer.write(&Host::live(), &SettingValue::new("1000000000")) } else { Ok(()) }
    });
    match done {
        Err(error) if error.is_denied() => {
            skip(test, error);
            false
        }
        done => {
            done.expect("a copy, or no right to it");
            true
        }
    }
}

#[test]
fn socket_options_are_set_and_restored_exactly() {
    if !is_permitted("socket_options_are_set_and_restored_exactly", true) {
        return;
    }
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
    let mut child = Holder::of(&socket);
    let socket_at = location(&socket, (child.0.id(), 0));
    for (knob, to) in [
        (SocketKnob::IncomingCpu, "1"),
        (SocketKnob::BusyPoll, "50"),
        (SocketKnob::ReceiveBuffer, "8388608"),
        (SocketKnob::PathMtu, "do"),
    ] {
        let setting = setting(socket_at, knob);
        let before = read(&setting);
        assert_ne!(before, to);
        write(&setting, to);
        assert_eq!(read(&setting), to, "{setting}");
        // The copy is the same socket, so its options are those of the original descriptor.
        assert_eq!(OptionValue::read(knob, &socket).expect("read").to_string(), to);
        write(&setting, &before);
        assert_eq!(read(&setting), before, "{setting}");
    }
    child.end();
}

#[test]
fn receive_buffer_value_marks_the_default_size() {
    if !is_permitted("receive_buffer_value_marks_the_default_size", true) {
        return;
    }
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
    let buffer = setting(own_location(&socket), SocketKnob::ReceiveBuffer);
    let first = read(&buffer);
    assert!(first.ends_with(" by default"), "{first}");
    rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 50_000).expect("set");
    assert_eq!(read(&buffer), "100000");
    write(&buffer, "9000001");
    assert_eq!(read(&buffer), "9000000", "the kernel rounds to even numbers");
    write(&buffer, "100000");
    assert_eq!(read(&buffer), "100000");
    write(&buffer, "2");
    assert!(read(&buffer).parse::<u32>().is_ok_and(|bytes| bytes > 2), "the kernel has a minimum");
    write(&buffer, &first);
    assert_eq!(read(&buffer), first);
    // The lock of the send buffer's size stays set (SO_BUF_LOCK).
    rustix::net::sockopt::set_socket_send_buffer_size(&socket, 50_000).expect("set");
    write(&buffer, "100000");
    write(&buffer, &first);
    assert_eq!(crate::sys::sockopt::word(&socket, libc::SOL_SOCKET, 72).expect("a lock"), 1);
}

#[test]
fn path_mtu_of_a_dual_stack_socket_is_set_for_ipv4() {
    let test = "path_mtu_of_a_dual_stack_socket_is_set_for_ipv4";
    let Ok(both) = UdpSocket::bind("[::]:0") else {
        return skip(test, "no IPv6");
    };
    if !is_permitted(test, false) {
        return;
    }
    let v6_alone = UdpSocket::bind("[::1]:0").expect("bound");
    let word = |socket: &UdpSocket, level, option| {
        crate::sys::sockopt::word(socket, level, option).expect("an option")
    };
    if word(&both, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) != 0 {
        return skip(test, "net.ipv6.bindv6only is set");
    }
    let paths = |socket: &UdpSocket| {
        [(libc::IPPROTO_IP, libc::IP_MTU_DISCOVER), (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER)]
            .map(|(level, option)| word(socket, level, option))
    };
    // A socket bound to an IPv6 address is for IPv6 only (`__inet6_bind` of net/ipv6/af_inet6.c).
    for (socket, set) in [(&both, 0), (&v6_alone, 1)] {
        let mut expected = paths(socket);
        write(&setting(own_location(socket), SocketKnob::PathMtu), "do");
        expected[set] = libc::IP_PMTUDISC_DO;
        assert_eq!(paths(socket), expected);
    }
}

#[test]
fn socket_option_is_accessible_until_the_last_holder_exits() {
    if !is_permitted("socket_option_is_accessible_until_the_last_holder_exits", false) {
        return;
    }
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
    let (mut first, mut second) = (Holder::of(&socket), Holder::of(&socket));
    let cpu = setting(location(&socket, (first.0.id(), 0)), SocketKnob::IncomingCpu);
    drop(socket);
    write(&cpu, "0");
    first.end();
    assert_eq!(read(&cpu), "0");
    write(&cpu, "none");
    second.end();
    // Children of concurrent tests hold the socket between fork and exec.
    let error =
        (0..1000).find_map(|_| cpu.write(&Host::live(), &SettingValue::new("0")).err()).expect("closed");
    assert!(error.is_gone() || error.is_denied(), "{error}");
}

#[test]
fn a_socket_with_another_cookie_is_not_changed() {
    if !is_permitted("a_socket_with_another_cookie_is_not_changed", false) {
        return;
    }
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
    let mut other = own_location(&socket);
    other.cookie += 1;
    let cpu = setting(other, SocketKnob::IncomingCpu);
    for error in [cpu.read(&Host::live()).map(drop), cpu.write(&Host::live(), &SettingValue::new("0"))] {
        let error = error.expect_err("another socket");
        assert!(error.is_gone(), "{error}");
    }
    assert_eq!(read(&setting(own_location(&socket), SocketKnob::IncomingCpu)), "none");
}

#[test]
fn scripted_host_writes_and_refuses_buffer_sizes() {
    let socket = SocketAt { cookie: 41, inode: 9000, pid: 812, descriptor: 3 };
    let path = "/calls/socket/41/receive_buffer.json";
    let buffer = setting(socket, SocketKnob::ReceiveBuffer);
    assert_eq!(buffer.to_string(), "receive buffer of socket 41 (descriptor 3 of process 812)");
    let host = Host::scripted([(path, "\"212992 by default\"")]);
    buffer.write(&host, &SettingValue::new("425985")).expect("written");
    assert_eq!(buffer.read(&host).expect("read").as_str(), "425984");
    assert!(buffer.can_leave(&SettingValue::new("425985 by default"), &SettingValue::new("425984")));
    let denying_host = host.refusing(path, libc::EPERM);
    assert!(buffer.write(&denying_host, &SettingValue::new("1000")).expect_err("refused").is_denied());
    let gone = Host::scripted([(path, r#"{"errno": 2}"#)]);
    assert!(buffer.write(&gone, &SettingValue::new("1000")).expect_err("gone").is_gone());
}

#[test]
fn invalid_socket_option_values_are_refused() {
    let socket = SocketAt { cookie: 1, inode: 1, pid: 1, descriptor: 1 };
    for (knob, bad) in [
        (SocketKnob::IncomingCpu, ["-1", "", "2147483648"]),
        (SocketKnob::BusyPoll, ["none", "-1", "1.5"]),
        (SocketKnob::ReceiveBuffer, ["0", "by default", "4k"]),
        (SocketKnob::PathMtu, ["2", "", "DO"]),
    ] {
        for bad in bad {
            let error = setting(socket, knob).check(&SettingValue::new(bad)).expect_err(bad);
            assert!(matches!(error, SettingError::BadValue { .. }), "{error}");
        }
    }
}

proptest! {
    #[test]
    fn socket_option_values_round_trip_through_text(number in 1..=i32::MAX.unsigned_abs(), word in 0_u32..6, flag: bool) {
        for (knob, value) in [
            (SocketKnob::IncomingCpu, OptionValue::Cpu(flag.then_some(number))),
            (SocketKnob::BusyPoll, OptionValue::Microseconds(number)),
            (SocketKnob::ReceiveBuffer, OptionValue::Buffer { bytes: number, asked: flag }),
            (SocketKnob::PathMtu, OptionValue::PathMtu(word)),
        ] {
            prop_assert_eq!(OptionValue::parse(knob, &value.to_string()), Ok(value));
            prop_assert!(value.is_applied(value.rounded()));
        }
    }
}
