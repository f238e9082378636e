//! Labs that this process starts.

use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::Duration;

use linerate_lab::{Lab, LabError, LabHost, LabShape};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::TrialResult;
use crate::scene::{Scene, eventually, interfaces, processes_in};

fn socket(host: &LabHost, address: IpAddr, port: u16) -> UdpSocket {
    let socket = host
        .run(|| UdpSocket::bind(SocketAddr::new(address, port)))
        .unwrap()
        .unwrap_or_else(|e| panic!("{}: bind {address}: {e}", host.name()));
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket
}

/// Sends a datagram from a sender to the receiver and back.
fn round_trip(lab: &Lab, sender: usize, from: IpAddr, to: IpAddr) {
    let server = socket(lab.receiver(), to, 4000);
    let client = socket(&lab.senders()[sender], from, 0);
    let mut buffer = [0; 64];
    client.send_to(b"there", (to, 4000)).unwrap();
    let (length, source) = server.recv_from(&mut buffer).unwrap();
    assert_eq!((&buffer[..length], source.ip()), (&b"there"[..], from));
    server.send_to(b"back", source).unwrap();
    let (length, source) = client.recv_from(&mut buffer).unwrap();
    assert_eq!((&buffer[..length], source.ip()), (&b"back"[..], to));
}

pub(crate) fn packets_pass_both_ways() -> TrialResult {
    let scene = Scene::new();
    let lab = scene.builder().senders(3).start().unwrap();
    assert_eq!((lab.senders().len(), lab.links().len()), (3, 3));
    for (number, link) in lab.links().iter().enumerate() {
        let (from, to) = (&link.sender, &link.receiver);
        round_trip(&lab, number, from.ipv4[0].into(), to.ipv4[0].into());
    }
    if let Some(why) = lab.no_ipv6() {
        return Err(why.to_owned());
    }
    for (number, link) in lab.links().iter().enumerate() {
        let (from, to) = (&link.sender, &link.receiver);
        round_trip(&lab, number, from.ipv6[0].into(), to.ipv6[0].into());
    }
    Ok(())
}

pub(crate) fn extra_addresses_exchange_packets() -> TrialResult {
    let scene = Scene::new();
    let shape = LabShape { addresses: 5, sender_addresses: 2, ..LabShape::default() };
    let lab = scene.builder().shape(shape).start().unwrap();
    let link = &lab.links()[0];
    for to in &link.receiver.ipv4 {
        for from in &link.sender.ipv4 {
            round_trip(&lab, 0, (*from).into(), (*to).into());
        }
    }
    for to in &link.receiver.ipv6 {
        for from in &link.sender.ipv6 {
            round_trip(&lab, 0, (*from).into(), (*to).into());
        }
    }
    Ok(())
}

pub(crate) fn sysfs_lists_only_the_interfaces_of_the_host() -> TrialResult {
    let scene = Scene::new();
    let shape = LabShape { senders: 2, queues: 5, mtu: 9000, ..LabShape::default() };
    let lab = scene.builder().shape(shape).start().unwrap();
    let receiver = lab.receiver().sys_path().map_err(|e| e.to_string())?;
    let sender = lab.senders()[1].sys_path().map_err(|e| e.to_string())?;
    assert_eq!(interfaces(receiver), ["eth0", "eth1", "lo"]);
    assert_eq!(interfaces(sender), ["eth0", "lo"]);
    let link = &lab.links()[1];
    for (sys, end) in [(receiver, &link.receiver), (sender, &link.sender)] {
        let device = sys.join("class/net").join(&end.interface);
        let read = |file: &str| {
            let text = std::fs::read_to_string(device.join(file)).unwrap();
            text.trim().to_owned()
        };
        for queue in 0..5 {
            assert!(device.join(format!("queues/rx-{queue}")).exists());
            assert!(device.join(format!("queues/tx-{queue}")).exists());
        }
        assert!(!device.join("queues/rx-5").exists());
        assert_eq!(read("mtu"), "9000");
        assert_eq!(read("operstate"), "up");
        assert_eq!(read("ifindex"), end.index.to_string());
        let mac = end.mac.map(|byte| format!("{byte:02x}")).join(":");
        assert_eq!(read("address"), mac);
    }
    // The path shows the same interfaces to a thread inside the host. `/proc/sys` of a host shows
    // only the host's interfaces, too.
    let inside = lab.receiver().run(|| interfaces(receiver)).unwrap();
    assert_eq!(inside, interfaces(receiver));
    let settings = lab.senders()[0].run(|| crate::scene::names("/proc/sys/net/ipv4/conf".as_ref())).unwrap();
    assert!(settings.contains("eth0") && !settings.contains("eth1"));
    // The interface has only the configured IPv6 address, so no other address causes neighbour
    // discovery during a measurement.
    if lab.no_ipv6().is_none() {
        let table = "/proc/thread-self/net/if_inet6";
        let read = || std::fs::read_to_string(table).unwrap();
        let addresses = lab.senders()[0].run(read).unwrap();
        assert_eq!(addresses.matches("eth0").count(), 1, "{addresses}");
    }
    Ok(())
}

pub(crate) fn labs_with_equal_addresses_run_side_by_side() -> TrialResult {
    let scene = Scene::new();
    let first = scene.builder().name("first").start().unwrap();
    let second = scene.builder().name("second").start().unwrap();
    assert_eq!(first.links(), second.links());
    assert_ne!(first.receiver().namespace_id(), second.receiver().namespace_id());
    let link = first.links()[0].clone();
    for lab in [&first, &second, &first] {
        round_trip(lab, 0, link.sender.ipv4[0].into(), link.receiver.ipv4[0].into());
    }
    let error = scene.builder().name("first").start().unwrap_err();
    assert!(matches!(error, LabError::NameTaken { .. }), "{error}");
    drop(first);
    round_trip(&second, 0, link.sender.ipv4[0].into(), link.receiver.ipv4[0].into());
    Ok(())
}

pub(crate) fn threads_spawned_in_a_host_stay_in_its_namespace() -> TrialResult {
    let scene = Scene::new();
    let lab = scene.builder().start().unwrap();
    let address = IpAddr::from(lab.links()[0].receiver.ipv4[0]);
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let thread = lab
        .receiver()
        .run(|| {
            std::thread::spawn(move || {
                wait.recv().unwrap();
                UdpSocket::bind((address, 0)).is_ok()
            })
        })
        .unwrap();
    assert!(UdpSocket::bind((address, 0)).is_err());
    go.send(()).unwrap();
    assert!(thread.join().unwrap());
    Ok(())
}

pub(crate) fn a_panic_in_a_host_is_an_error_and_the_host_stays_usable() -> TrialResult {
    let scene = Scene::new();
    let lab = scene.builder().start().unwrap();
    // Not `panic!`, whose message would also go to the test's output.
    let panic = || -> () { std::panic::resume_unwind(Box::new("number 3".to_owned())) };
    let error = lab.receiver().run(panic).unwrap_err().to_string();
    assert_eq!(error, "code run in lab host receiver panicked: number 3");
    let bind = || lab.receiver().run(|| UdpSocket::bind((lab.links()[0].receiver.ipv4[0], 0)));
    // Work in a host may run work in another host, and in the same one.
    let from_both = lab.receiver().run(|| (bind().unwrap(), lab.senders()[0].run(bind).unwrap().unwrap()));
    assert!(matches!(from_both, Ok((Ok(_), Ok(_)))));
    Ok(())
}

pub(crate) fn invalid_shapes_are_refused_and_leave_no_files() -> TrialResult {
    let scene = Scene::new();
    let default = LabShape::default;
    for (shape, message) in [
        (LabShape { senders: 0, ..default() }, "senders 0 is out of range: 1 to 64"),
        (LabShape { queues: 0, ..default() }, "queues 0 is out of range: 1 to 64"),
        (LabShape { addresses: 100, ..default() }, "addresses 100 is out of range: 1 to 99"),
        (LabShape { mtu: 100, ..default() }, "mtu 100 is out of range: 1280 to 65521"),
    ] {
        assert_eq!(scene.builder().shape(shape).start().unwrap_err().to_string(), message);
    }
    let error = scene.builder().name("../etc").start().unwrap_err();
    assert!(matches!(error, LabError::BadName { .. }), "{error}");
    assert_eq!(scene.files(), [""; 0]);
    // Values at the limits work.
    for mtu in [1280, 65521] {
        scene.builder().shape(LabShape { mtu, queues: 64, ..default() }).start().unwrap();
    }
    assert_eq!(scene.files(), [""; 0]);
    Ok(())
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]).stdin(Stdio::null());
    command
}

pub(crate) fn child_processes_run_in_the_namespace_of_the_host() -> TrialResult {
    let scene = Scene::new();
    let lab = scene.builder().senders(2).start().unwrap();
    let mut command = shell("ls /sys/class/net; exit 3");
    command.stdout(Stdio::piped());
    let mut child = lab.receiver().spawn(command).unwrap();
    let mut listing = String::new();
    child.stdout.take().unwrap().read_to_string(&mut listing).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(3));
    if let Err(error) = lab.receiver().sys_path() {
        return Err(error.to_string());
    }
    let listing: Vec<&str> = listing.lines().filter(|l| *l != "bonding_masters").collect();
    assert_eq!(listing, ["eth0", "eth1", "lo"]);
    // The sysfs that a child mounts is not visible to this process.
    assert_ne!(interfaces("/sys".as_ref()), interfaces(lab.receiver().sys_path().unwrap()));
    let mut child = lab.receiver().spawn(shell("sleep 600")).unwrap();
    let status = child.wait_at_most(Duration::from_millis(1)).unwrap();
    assert_eq!(status, None);
    assert!(!child.kill().unwrap().success());
    Ok(())
}

pub(crate) fn a_program_may_use_the_cpus_of_the_thread_that_starts_it() -> TrialResult {
    let scene = Scene::new();
    let lab = scene.builder().start().unwrap();
    let start_on_one_cpu = || {
        let allowed = sched_getaffinity(None).unwrap();
        let last = (0..CpuSet::MAX_CPU).rfind(|cpu| allowed.is_set(*cpu)).unwrap();
        let mut only = CpuSet::new();
        only.set(last);
        sched_setaffinity(None, &only).unwrap();
        let mut command = shell("grep Cpus_allowed_list /proc/self/status");
        command.stdout(Stdio::piped());
        (last, lab.receiver().spawn(command).unwrap())
    };
    let (cpu, mut child) = std::thread::scope(|scope| scope.spawn(start_on_one_cpu).join().unwrap());
    let mut line = String::new();
    child.stdout.take().unwrap().read_to_string(&mut line).unwrap();
    assert_eq!(line.trim(), format!("Cpus_allowed_list:\t{cpu}"));
    Ok(())
}

pub(crate) fn drop_removes_processes_files_and_interfaces() -> TrialResult {
    let scene = Scene::new();
    let lab = scene.builder().senders(2).start().unwrap();
    let namespaces =
        [lab.receiver().namespace_id(), lab.senders()[0].namespace_id(), lab.senders()[1].namespace_id()];
    assert_eq!(scene.files().len(), 1);

    // A child that is waited for, a child that is not, and an orphaned grandchild.
    let mut waited_for = lab.receiver().spawn(shell("sleep 600")).unwrap();
    let waiter = std::thread::spawn(move || waited_for.wait());
    let _ignored = lab.senders()[0].spawn(shell("exec sleep 600")).unwrap();
    let mut command = shell("(trap '' HUP TERM; sleep 600 >/dev/null & echo $!) ; exec sleep 600");
    command.stdout(Stdio::piped());
    let mut parent = lab.senders()[1].spawn(command).unwrap();
    let mut line = String::new();
    BufReader::new(parent.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let grandchild: i32 = line.trim().parse().unwrap();
    assert!(processes_in(&namespaces).contains(&grandchild));

    // This descriptor keeps the namespace, so that its interfaces can be listed after the lab is
    // dropped.
    let receiver_namespace: OwnedFd = lab.receiver().namespace().try_clone_to_owned().unwrap();
    drop(lab);

    assert!(!waiter.join().unwrap().unwrap().success());
    assert_eq!(scene.files(), [""; 0]);
    assert_eq!(interfaces_of(receiver_namespace), ["lo"]);
    eventually("no process or thread in the namespaces", || processes_in(&namespaces).is_empty());
    Ok(())
}

/// The interfaces of a namespace, listed by a thread that enters it.
fn interfaces_of(namespace: OwnedFd) -> Vec<String> {
    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
    use std::os::fd::AsFd;
    let look = move || {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        let table = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        let names = table.lines().filter_map(|line| line.split_once(':'));
        names.map(|(name, _)| name.trim().to_owned()).collect()
    };
    std::thread::spawn(look).join().unwrap()
}

pub(crate) fn the_namespace_limit_is_reported_and_leaves_no_files() -> TrialResult {
    let scene = Scene::new();
    let limit = std::path::Path::new("/proc/sys/user/max_net_namespaces");
    // The test changes the limit only in a user namespace of its own, never for the whole machine.
    let own_map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    if own_map.split_ascii_whitespace().nth(2) != Some("1") {
        return Err("needs a user namespace of its own".to_owned());
    }
    let before = std::fs::read_to_string(limit).map_err(|e| e.to_string())?;
    std::fs::write(limit, "1").map_err(|e| e.to_string())?;
    let outcome = scene.builder().start().map(drop);
    std::fs::write(limit, before.trim()).unwrap();
    let error = outcome.unwrap_err().to_string();
    assert!(error.starts_with("cannot make a network namespace") && error.contains("limit"), "{error}");
    assert_eq!(scene.files(), [""; 0]);
    Ok(())
}
