//! A CPU that runs openssl and receives the packets that another CPU sends.

use std::fs;
use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use linerate_lab::{Lab, LabChild, LabHost};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{
    TestChild, await_line, has_two_cpus, is_installed, is_root, program, run_on, shell, signal, start_lab,
};

/// The CPU that receives packets, and the CPU that sends them.
pub(super) const CPU: u32 = 1;
const SENDER: &str = "0";

/// Arguments of chrt for a process that runs before all ordinary threads (SCHED_FIFO), so that only
/// packets take time from it.
const BEFORE_OTHERS: [&str; 2] = ["-f", "1"];

/// Time from the start of a poll to the start of the next poll.
const CYCLE: Duration = Duration::from_millis(3);

/// nftables rules that each packet passes.
const RULES: usize = 2000;

/// A lab whose receiver processes all packets on one CPU.
pub(super) struct CostTestHost(Lab);

/// A generator of frames at a fixed rate, to a port without a listener.
pub(super) struct FrameSender<'h>(LabChild, &'h CostTestHost);

/// A running `linerate cost`.
pub(super) struct CostProcess(TestChild);

/// openssl's speed as it prints it, and its CPU time as the kernel accounts it.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpensslSpeed {
    pub(super) pid: u32,
    /// Bytes encrypted per second of wall time.
    pub(super) bytes_per_second: f64,
    /// CPU time from start to end, in ns.
    pub(super) ran_ns: f64,
}

impl CostTestHost {
    /// Prints a SKIP line and returns `None` if something is missing.
    pub(super) fn up() -> Option<Self> {
        let programs = ["openssl", "taskset", "ethtool", "chrt", "nft"];
        if !is_root() || !has_two_cpus() || !programs.iter().all(|program| is_installed(program)) {
            return None;
        }
        let host = Self(start_lab(Lab::builder().queues(4))?);
        // Without TSO, a veth uses NAPI polls for single packets too (drivers/net/veth.c,
        // veth_skb_is_eligible_for_gro, Linux 6.12).
        let queue = "ethtool -L eth0 rx 1 tx 1; ethtool -K eth0 tso off";
        host.shell(queue);
        shell(host.sender(), queue);
        host.make_packets_expensive();
        Some(host)
    }

    fn shell(&self, script: &str) {
        shell(self.0.receiver(), script);
    }

    fn sender(&self) -> &LabHost {
        &self.0.senders()[0]
    }

    /// Makes each packet pass rules that look up a route and never match, so that few packets take
    /// nearly all of a CPU. A poll then has few packets and ends before the kernel leaves the rest
    /// to ksoftirqd, which does not run before openssl.
    fn make_packets_expensive(&self) {
        self.shell(&format!(
            "{{ echo 'table ip dear {{ chain every {{ type filter hook prerouting priority 0;'
               for rule in $(seq {RULES}); do echo 'fib saddr type broadcast counter'; done
               echo '}}; }}'; }} | nft -f -",
        ));
    }

    /// Makes the CPU poll the link's packets like a NIC with interrupt moderation. The kernel sets
    /// a timer at the end of each poll, so a poll starts every `CYCLE` if packets take this share
    /// of the CPU. RPS would instead send thousands of interrupts per second. The hypervisor's time
    /// for them, which no tracing sees, would dominate the measurement.
    fn poll(&self, share: f64) {
        let pause_ns = (CYCLE.as_nanos() as f64 * (1.0 - share)).round();
        self.shell(&format!(
            "cd /sys/class/net/eth0; echo 1000000 >napi_defer_hard_irqs; echo {pause_ns} >gro_flush_timeout",
        ));
        let program = program();
        let program = program.to_str().expect("a path of text");
        // The CPU that sends the first packet becomes the CPU that polls.
        let arguments = ["-c", &CPU.to_string(), program, "load", "198.18.0.1:9", "--backend", "socket"];
        let few = ["--rate", "10", "--duration", "0.1", "--drain", "0.01"];
        // No host answers, so the exit status has no meaning.
        run_on(self.sender(), "taskset", &[&arguments[..], &few].concat());
    }

    /// Sends this number of frames per second, which should take this share of the CPU, until the
    /// result is dropped.
    pub(super) fn frames(&self, per_second: f64, share: f64) -> FrameSender<'_> {
        self.poll(share);
        self.send(per_second)
    }

    /// Like `frames`, but without batches: another CPU receives each frame, and RPS passes it on
    /// with an interrupt.
    pub(super) fn frames_over_rps(&self, per_second: f64) -> FrameSender<'_> {
        let mask = 1 << CPU;
        self.shell(&format!("nft flush ruleset; echo {mask:x} >/sys/class/net/eth0/queues/rx-0/rps_cpus"));
        self.send(per_second)
    }

    fn send(&self, per_second: f64) -> FrameSender<'_> {
        let rate = format!("{per_second:.0}");
        let mut command = Command::new("chrt");
        command.args(BEFORE_OTHERS).arg(program());
        // Port 9 has no listener: a datagram passes the whole receive path and is dropped at its
        // end.
        command.args(["load", "198.18.0.1:9", "--backend", "xdp", "--cpus", SENDER, "--duration", "600"]);
        command.args(["--rate", &rate, "--flows", "16", "--interval", "0.1", "--json-stream", "-"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = self.sender().spawn(command).expect("the load starts");
        await_line(&mut child.stdout, |line| line.contains("\"interval\"").then_some(()));
        FrameSender(child, self)
    }
}

impl Drop for FrameSender<'_> {
    fn drop(&mut self) {
        let _ = self.0.signal(Signal::INT);
        let _ = self.0.wait();
        // The kernel does not set the timer again after its next poll.
        self.1.shell("echo 0 >/sys/class/net/eth0/gro_flush_timeout");
    }
}

impl CostProcess {
    /// Starts `linerate cost` and returns once it measures.
    pub(super) fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(program());
        command.arg("cost").args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the command starts");
        await_line(&mut child.stderr, |line| line.starts_with("looking at ").then_some(()));
        Self(TestChild(child))
    }

    /// Ends it with SIGINT and returns its document.
    pub(super) fn document(mut self) -> Value {
        signal(self.0.id(), Signal::INT);
        let mut text = String::new();
        self.0.stdout.take().expect("a pipe").read_to_string(&mut text).expect("text");
        assert!(self.0.wait().expect("a child").success());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }
}

/// Runs openssl on `CPU` for this number of seconds. Calls `meanwhile` before it reaps the process.
pub(super) fn openssl<T>(seconds: u32, meanwhile: impl FnOnce() -> T) -> (OpensslSpeed, T) {
    let cpu = CPU.to_string();
    let mut command = Command::new("chrt");
    // -elapsed uses wall time. The CPU time that openssl itself accounts is what this test doubts.
    command
        .args(BEFORE_OTHERS)
        .args(["taskset", "-c", &cpu, "openssl", "speed", "-mr", "-elapsed", "-seconds"]);
    command.args([&seconds.to_string(), "-bytes", "1024", "-evp", "aes-256-cbc"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("openssl starts");
    let pid = child.id();
    let mut output = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut output).expect("text");
    // openssl has ended but is not reaped yet, so its values in /proc can still be read.
    let result = meanwhile();
    let run = fs::read_to_string(format!("/proc/{pid}/schedstat")).expect("its times");
    child.wait().expect("reaped");
    let ran_ns = run.split(' ').next().and_then(|ns| ns.parse().ok()).expect("ns");
    (OpensslSpeed { pid, bytes_per_second: bytes_per_second(&output), ran_ns }, result)
}

/// The last field of openssl's line of figures, `+F:25:AES-256-CBC:946838528.00`.
fn bytes_per_second(output: &str) -> f64 {
    let line = output.lines().find(|line| line.starts_with("+F:"));
    let figure = line.and_then(|line| line.rsplit(':').next()?.parse().ok());
    figure.unwrap_or_else(|| panic!("openssl prints no speed: {output}"))
}
