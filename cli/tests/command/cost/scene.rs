//! A CPU with work of its own that gets the packets of another.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use linerate_testkit::reflector::installed::find;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{program, skip};
use crate::tune::scene::TuneTestLab;

/// The CPU that packets come to, and the one they are sent from.
pub(super) const CPU: u32 = 1;
const SENDER: &str = "0";

/// Arguments of chrt for what goes before all ordinary threads: packets alone are to take time from it.
const BEFORE_OTHERS: [&str; 2] = ["-f", "1"];

/// From the begin of a poll to that of the next.
const CYCLE: Duration = Duration::from_millis(3);

/// Rules that each packet passes.
const RULES: usize = 2000;

/// A host of a lab whose packets are all taken on one CPU.
pub(super) struct CostTestHost {
    pub(super) scene: TuneTestLab,
}

/// Frames that leave at a fixed rate and find nobody.
pub(super) struct FrameSender<'h>(Child, &'h CostTestHost);

/// `linerate cost` while it looks.
pub(super) struct CostProcess(Child);

/// What openssl did, by itself and by the kernel's accounts.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpensslSpeed {
    pub(super) pid: u32,
    /// Bytes it enciphered a second of the clock.
    pub(super) bytes_per_second: f64,
    /// For how long the scheduler let it run from its start to its end, ns.
    pub(super) ran_ns: f64,
}

impl CostTestHost {
    /// None, and a SKIP, where something is missing.
    pub(super) fn up(test: &str) -> Option<Self> {
        if let Some(missing) = ["openssl", "taskset"].into_iter().find(|name| find(name).is_none()) {
            skip(test, &format!("{missing} is not installed"));
            return None;
        }
        if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
            skip(test, "takes two CPUs");
            return None;
        }
        if let Some(missing) = ["ethtool", "chrt", "nft"].into_iter().find(|name| find(name).is_none()) {
            skip(test, &format!("{missing} is not installed"));
            return None;
        }
        let host = Self { scene: TuneTestLab::up(test)? };
        // Without TSO a veth polls for single packets too (drivers/net/veth.c, veth_skb_is_eligible_for_gro, Linux 6.12).
        let queue = "ethtool -L eth0 rx 1 tx 1; ethtool -K eth0 tso off";
        host.scene.shell(queue);
        let status = host.scene.on("sender0", "sh").args(["-c", queue]).status().expect("a shell");
        assert!(status.success(), "{queue}");
        host.make_packets_dear();
        Some(host)
    }

    /// Has each packet pass rules that look routes up and match none, so that few packets take nearly all of a CPU: a poll has
    /// only some of them, and is never so long that the rest is left to ksoftirqd, which does not go before openssl.
    fn make_packets_dear(&self) {
        self.scene.shell(&format!(
            "{{ echo 'table ip dear {{ chain every {{ type filter hook prerouting priority 0;'
               for rule in $(seq {RULES}); do echo 'fib saddr type broadcast counter'; done
               echo '}}; }}'; }} | nft -f -",
        ));
    }

    /// Has the link's packets taken on the CPU as by a NIC with interrupt moderation: polled there by a timer, which is set
    /// when a poll is over, so that one begins each `CYCLE` if packets take this share of the CPU. Interrupts that RPS would
    /// send come thousands of times a second, and what a hypervisor takes for each, which no tracing sees, would be what is
    /// measured.
    fn poll(&self, share: f64) {
        let pause_ns = (CYCLE.as_nanos() as f64 * (1.0 - share)).round();
        self.scene.shell(&format!(
            "cd /sys/class/net/eth0; echo 1000000 >napi_defer_hard_irqs; echo {pause_ns} >gro_flush_timeout",
        ));
        let mut first = self.scene.on("sender0", "taskset");
        // The first packet decides the CPU, which is the one that it is sent from.
        first.args(["-c", &CPU.to_string()]).arg(program()).args([
            "load",
            "198.18.0.1:9",
            "--backend",
            "socket",
        ]);
        first.args(["--rate", "10", "--duration", "0.1", "--drain", "0.01", "--quiet"]);
        // Nobody answers, so that its status says nothing.
        first.output().expect("the load starts");
    }

    /// Sends so many a second, which should take this share of the CPU, from when it returns until it is dropped.
    pub(super) fn frames(&self, per_second: f64, share: f64) -> FrameSender<'_> {
        self.poll(share);
        self.send(per_second)
    }

    /// The same, where each comes alone and another CPU takes it first: RPS hands it on, with an interrupt.
    pub(super) fn handed_on(&self, per_second: f64) -> FrameSender<'_> {
        let mask = 1 << CPU;
        self.scene
            .shell(&format!("nft flush ruleset; echo {mask:x} >/sys/class/net/eth0/queues/rx-0/rps_cpus"));
        self.send(per_second)
    }

    fn send(&self, per_second: f64) -> FrameSender<'_> {
        let rate = format!("{per_second:.0}");
        let mut command = self.scene.on("sender0", "chrt");
        command.args(BEFORE_OTHERS).arg(program());
        // Port 9 has no listener: a datagram goes up the whole path and is dropped at its end.
        command.args(["load", "198.18.0.1:9", "--backend", "xdp", "--cpus", SENDER, "--duration", "600"]);
        command.args([
            "--rate",
            &rate,
            "--flows",
            "16",
            "--interval",
            "0.1",
            "--quiet",
            "--json-stream",
            "-",
        ]);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the load starts");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let began = lines.by_ref().any(|line| line.is_ok_and(|line| line.contains("\"interval\"")));
        assert!(began, "the load begins");
        // The rest is read, so that the pipe never fills.
        std::thread::spawn(move || lines.for_each(drop));
        FrameSender(child, self)
    }
}

impl Drop for FrameSender<'_> {
    fn drop(&mut self) {
        signal(&self.0, Signal::INT);
        let _ = self.0.wait();
        // The timer is not set again after its next poll.
        self.1.scene.shell("echo 0 >/sys/class/net/eth0/gro_flush_timeout");
    }
}

impl CostProcess {
    /// Starts, and returns once it looks.
    pub(super) fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(program());
        command.arg("cost").args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the command starts");
        let mut errors = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut line = String::new();
        errors.read_line(&mut line).expect("a line");
        assert!(line.starts_with("looking at "), "{line}");
        std::thread::spawn(move || errors.lines().for_each(drop));
        Self(child)
    }

    pub(super) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Ends it, by its document.
    pub(super) fn document(mut self) -> Value {
        signal(&self.0, Signal::INT);
        let mut text = String::new();
        self.0.stdout.take().expect("a pipe").read_to_string(&mut text).expect("text");
        assert!(self.0.wait().expect("a child").success());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Ends it in the middle of its work.
    pub(super) fn kill(mut self) {
        self.0.kill().expect("killed");
        self.0.wait().expect("reaped");
    }
}

impl Drop for CostProcess {
    fn drop(&mut self) {
        // Waited for already, unless the test failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Lets openssl encipher for so many seconds on the CPU, and asks `meanwhile` before it is forgotten.
pub(super) fn openssl<T>(seconds: u32, meanwhile: impl FnOnce() -> T) -> (OpensslSpeed, T) {
    let cpu = CPU.to_string();
    let mut command = Command::new("chrt");
    // By the clock and not by its own account of CPU time, which is what is doubted.
    command
        .args(BEFORE_OTHERS)
        .args(["taskset", "-c", &cpu, "openssl", "speed", "-mr", "-elapsed", "-seconds"]);
    command.args([&seconds.to_string(), "-bytes", "1024", "-evp", "aes-256-cbc"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("openssl starts");
    let pid = child.id();
    let mut said = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut said).expect("text");
    // It has ended and is not waited for: what the kernel holds of it can still be read.
    let result = meanwhile();
    let run = fs::read_to_string(format!("/proc/{pid}/schedstat")).expect("its times");
    child.wait().expect("reaped");
    let ran_ns = run.split(' ').next().and_then(|ns| ns.parse().ok()).expect("ns");
    (OpensslSpeed { pid, bytes_per_second: bytes_per_second(&said), ran_ns }, result)
}

/// The last field of openssl's line of figures, `+F:25:AES-256-CBC:946838528.00`.
fn bytes_per_second(said: &str) -> f64 {
    let line = said.lines().find(|line| line.starts_with("+F:"));
    let figure = line.and_then(|line| line.rsplit(':').next()?.parse().ok());
    figure.unwrap_or_else(|| panic!("openssl says no speed: {said}"))
}

fn signal(child: &Child, signal: Signal) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a process");
    // Gone already, if it does not exist.
    let _ = kill_process(pid, signal);
}
