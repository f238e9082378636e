//! Hot spots of a real server in a lab: each exists with its cause, and not without it.

use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use linerate_host::setting::Offload;
use linerate_host::{Host, Setting, SettingValue};
use linerate_lab::{Lab, LabHost};
use linerate_testkit::skip;
use linerate_trace::flame::{self, StackProfile, spots};
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery};

use crate::{machine, pin, skip_unless_permitted};

/// Enough for some hundred samples in the packet path, so that a spot of 1 % has some samples.
const LOOK: Duration = Duration::from_millis(1500);

/// Least number of samples of a spot, because fewer may come from other programs.
const ENOUGH: u64 = 4;

const ATTEMPTS: u32 = 3;

const THREADS: usize = 4;

const PORT: u16 = 4000;

/// A lab; `None`, after printing SKIP, with one CPU, without root, or if no lab can be created.
fn lab(test: &str) -> Option<Lab> {
    if thread::available_parallelism().map_or(1, std::num::NonZero::get) < 2 {
        skip(test, "requires two CPUs");
        return None;
    }
    if !rustix::process::geteuid().is_root() {
        skip(test, "requires root");
        return None;
    }
    Lab::builder().start().map_err(|why| skip(test, why)).ok()
}

fn address(lab: &Lab) -> SocketAddr {
    (lab.links()[0].receiver.ipv4[0], PORT).into()
}

/// A socket of the server that shares its port with others (SO_REUSEPORT).
fn bind_socket(lab: &Lab) -> UdpSocket {
    let open = || {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_reuseport(&socket, true)?;
        bind(&socket, &address(lab))?;
        Ok::<_, std::io::Error>(UdpSocket::from(socket))
    };
    let socket = lab.receiver().run(open).expect("run").expect("bound");
    socket.set_read_timeout(Some(Duration::from_millis(50))).expect("set");
    socket
}

/// A sender's socket. It is connected, so its IP IDs do not come from `__ip_select_ident`.
fn connect_socket(lab: &Lab) -> UdpSocket {
    let open = || {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect(address(lab))?;
        socket.set_nonblocking(true)?;
        Ok::<_, std::io::Error>(socket)
    };
    lab.senders()[0].run(open).expect("run").expect("connected")
}

/// Sends from both CPUs to a server with [`THREADS`] threads while `look` runs.
fn under_load<T>(lab: &Lab, sockets: &[UdpSocket], look: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    let go_on = || !over.load(Ordering::Relaxed);
    let serve = |number: usize| {
        pin(None, number % 2);
        let socket = &sockets[number % sockets.len()];
        let mut buffer = [0; 100];
        while go_on() {
            let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
            let _ = socket.send_to(&buffer[..length], from);
        }
    };
    let senders: Vec<UdpSocket> = (0..2).map(|_| connect_socket(lab)).collect();
    let send = |number: usize| {
        pin(None, number % 2);
        while go_on() {
            for _ in 0..32 {
                let _ = senders[number].send(&[0; 64]);
            }
            while senders[number].recv(&mut [0; 64]).is_ok() {}
        }
    };
    let (serve, send) = (&serve, &send);
    thread::scope(|scope| {
        (0..THREADS).for_each(|number| drop(scope.spawn(move || serve(number))));
        (0..2).for_each(|number| drop(scope.spawn(move || send(number))));
        let result = look();
        over.store(true, Ordering::Relaxed);
        result
    })
}

/// A chain at one hook, with rules like those of a small firewall.
const WITH_A_RULE: &str = "add table ip t
    add chain ip t c { type filter hook input priority 0; }
    add rule ip t c ip saddr 192.0.2.1 counter drop
    add rule ip t c udp dport 4000 counter accept";

fn nft(lab: &Lab, rules: &str) {
    let mut command = Command::new("nft");
    command.arg(rules);
    let status = lab.receiver().spawn(command).expect("nft is started").wait().expect("nft ends");
    assert!(status.success(), "{rules}");
}

struct Cause<'a> {
    spot: &'static str,
    set: &'a dyn Fn(bool),
}

#[test]
fn each_spot_is_hot_only_with_its_cause() {
    let test = "each_spot_is_hot_only_with_its_cause";
    let _machine = machine();
    let Some(lab) = lab(test) else { return };
    if Command::new("nft").arg("--version").output().is_err() {
        return skip(test, "requires the program nft");
    }
    let server = [bind_socket(&lab)];
    let setting = |host: &LabHost, setting: Setting, value: &str| {
        host.run(|| setting.write(&Host::live(), &SettingValue::new(value))).expect("run").expect("written");
    };
    let gro = |on| {
        let interface = lab.links()[0].receiver.interface.clone();
        let merging = Setting::Offload { interface, offload: Offload::GenericReceive };
        setting(lab.receiver(), merging, if on { "on" } else { "off" });
    };
    let filter = |on| nft(&lab, if on { WITH_A_RULE } else { "delete table ip t" });
    let validation = |on: bool| {
        let hosts = lab.senders().iter().chain([lab.receiver()]);
        for host in hosts {
            for name in ["all", "eth0"] {
                let path = format!("/proc/sys/net/ipv4/conf/{name}/rp_filter");
                host.run(|| std::fs::write(&path, if on { "1" } else { "0" })).expect("run").expect(&path);
            }
        }
    };
    let numbers = |on| {
        let discovery = if on { Ipv4PathMtuDiscovery::WANT } else { Ipv4PathMtuDiscovery::DO };
        sockopt::set_ip_mtu_discover(&server[0], discovery).expect("set");
    };
    let causes = [
        Cause { spot: "gro", set: &gro },
        Cause { spot: "netfilter", set: &filter },
        Cause { spot: "source-validation", set: &validation },
        Cause { spot: "ip-id", set: &numbers },
    ];
    // A veth merges received packets only if its peer has TSO off (`veth_skb_is_eligible_for_gro`).
    let interface = lab.links()[0].sender.interface.clone();
    setting(&lab.senders()[0], Setting::Offload { interface, offload: Offload::TcpSegmentation }, "off");
    filter(true);
    causes.iter().for_each(|cause| (cause.set)(false));
    let options = flame::ProfileOptions { frequency_hz: 1999, ..flame::ProfileOptions::all(LOOK) };
    let look = || StackProfile::observe(&Host::live(), &options, &|| false);
    let Some(without) = skip_unless_permitted(test, under_load(&lab, &server, look)) else { return };
    for cause in causes {
        (cause.set)(true);
        let summary = judge(cause.spot, &without, || under_load(&lab, &server, look).expect("as before"));
        (cause.set)(false);
        eprintln!("{summary}");
    }
}

/// The audit rule `never,task`, which is removed when this is dropped.
struct AuditExemption;

impl AuditExemption {
    /// Tasks that start from now on have no audit context.
    fn tasks() -> std::io::Result<Self> {
        audit_rule(AUDIT_ADD_RULE)?;
        Ok(Self)
    }
}

impl Drop for AuditExemption {
    fn drop(&mut self) {
        audit_rule(AUDIT_DEL_RULE).expect("the rule is removed");
    }
}

const AUDIT_ADD_RULE: u16 = 1011;
const AUDIT_DEL_RULE: u16 = 1012;

/// Adds or removes `never,task`, a `struct audit_rule_data` of linux/audit.h.
fn audit_rule(kind: u16) -> std::io::Result<()> {
    use rustix::net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
    };
    const RULE: usize = 1040;
    const FILTER_TASK: u32 = 1;
    // A request that the kernel acknowledges (NLM_F_REQUEST and NLM_F_ACK).
    const FLAGS: u16 = 5;
    let length = 16 + RULE;
    let mut message = vec![0; length];
    message[..4].copy_from_slice(&u32::try_from(length).expect("short").to_ne_bytes());
    message[4..6].copy_from_slice(&kind.to_ne_bytes());
    message[6..8].copy_from_slice(&FLAGS.to_ne_bytes());
    message[16..20].copy_from_slice(&FILTER_TASK.to_ne_bytes());
    let audit =
        socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(netlink::AUDIT))?;
    send(&audit, &message, SendFlags::empty())?;
    let mut answer = [0; 36];
    recv(&audit, &mut answer, RecvFlags::empty())?;
    let error = i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]);
    if error == 0 { Ok(()) } else { Err(std::io::Error::from_raw_os_error(-error)) }
}

#[test]
fn audit_spot_is_hot_only_for_audited_threads() {
    let test = "audit_spot_is_hot_only_for_audited_threads";
    if std::env::var_os("LINERATE_TEST_HOST_WIDE").is_none() {
        return skip(test, "switches auditing of the whole machine; LINERATE_TEST_HOST_WIDE=1 permits this");
    }
    let _machine = machine();
    let Some(lab) = lab(test) else { return };
    let server = [bind_socket(&lab)];
    let look = || {
        let mut profile = under_load(&lab, &server, || {
            let options = flame::ProfileOptions { frequency_hz: 1999, ..flame::ProfileOptions::all(LOOK) };
            StackProfile::observe(&Host::live(), &options, &|| false)
        });
        // Only samples of this process, because others may be audited or not.
        if let Ok(profile) = &mut profile {
            profile.stacks.retain(|stack| stack.pid == std::process::id());
        }
        profile
    };
    let exempt = AuditExemption::tasks().map_err(|error| skip(test, format!("audit rules: {error}")));
    let Ok(spared) = exempt else { return };
    let Some(without) = skip_unless_permitted(test, look()) else { return };
    drop(spared);
    let original = Setting::Audit.read(&Host::live()).expect("read");
    if let Err(error) = Setting::Audit.write(&Host::live(), &SettingValue::new("1")) {
        return skip(test, error.to_string());
    }
    let summary = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        judge("audit", &without, || look().expect("as before"))
    }));
    Setting::Audit.write(&Host::live(), &original).expect("auditing is restored");
    eprintln!("{}", summary.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
}

/// Asserts that a spot is hot with its cause and not without it. Observes again if the machine gave
/// too little time.
fn judge(spot: &str, without: &StackProfile, look: impl Fn() -> StackProfile) -> String {
    let mut summary = String::new();
    for _ in 0..ATTEMPTS {
        let with = look();
        let ((samples, share), (samples_without, share_without)) = (share(&with, spot), share(without, spot));
        summary = format!(
            "{spot}: {samples} samples, {:.2} % of busy samples; without its cause {samples_without}, {:.2} %",
            share * 100.0,
            share_without * 100.0
        );
        if samples >= ENOUGH && share > 5.0 * share_without {
            return summary;
        }
    }
    panic!("{summary}");
}

/// Samples of a spot, and its share of all samples that are not idle.
fn share(profile: &StackProfile, id: &str) -> (u64, f64) {
    let spots = spots::find(profile);
    spots.iter().find(|spot| spot.id == id).map_or((0, 0.0), |spot| (spot.samples, spot.share_of_busy))
}
