//! A running guest, and commands in it.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek as _, Write};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use linerate_lab::{Lab, LabChild};
use linerate_testkit::reflector::installed::find;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{FdFlags, fcntl_setfd};
use serde_json::Value;

use crate::programs::command_output;
use crate::sys::tsc;

use super::machine::{GuestVariant, TAPS};
use super::{GuestUnavailable, PreparedGuest};

pub(super) const QEMU: &str = "qemu-system-x86_64";

// Lines of the console that are shown when a guest fails.
const LAST_LINES: usize = 40;

// Arguments of the kernel. QEMU exits when the kernel panics. Watchdogs are off, because the CPUs
// of the guest wait for the CPUs of a busy host.
const KERNEL_ARGUMENTS: &str = "console=ttyS0 panic=-1 mitigations=off tsc=reliable nowatchdog \
    rcupdate.rcu_cpu_stall_suppress=1 random.trust_cpu=on";

// The timer frequency of Debian's kernels (CONFIG_HZ, Linux 6.1 and 6.12).
const KERNEL_HERTZ: u64 = 250;

/// A guest that waits for commands. It is switched off when this is dropped.
pub(super) struct GuestSession {
    // Sends commands and receives their results.
    commands: GuestChannel,
    output: GuestChannel,
    errors: GuestChannel,
    /// Output of the console and of QEMU, in files without a name.
    console: File,
    complaints: File,
    // In this order: the machine must end before the host in which it runs.
    _qemu: LabChild,
    host: Lab,
}

/// One end of a port of the guest.
struct GuestChannel {
    stream: UnixStream,
    // Received bytes of an incomplete line.
    begun: Vec<u8>,
}

/// The outputs for a command's output and errors.
pub(super) struct OutputSinks<'a> {
    pub(super) output: &'a mut dyn Write,
    pub(super) errors: &'a mut dyn Write,
}

/// Why the guest stopped answering.
#[derive(Debug, thiserror::Error)]
pub(super) enum GuestUnresponsive {
    #[error("the deadline has passed")]
    DeadlinePassed,
    /// QEMU failed, or the guest's kernel stopped.
    #[error("QEMU has ended")]
    QemuEnded,
}

// Time limit of a command of the checks. Most need less than a second; a change of all settings
// needs some seconds.
const PATIENCE: Duration = Duration::from_secs(180);

/// The output of a command and its exit status.
pub(super) struct CommandOutput {
    pub(super) status: u8,
    pub(super) output: String,
    pub(super) errors: String,
}

impl CommandOutput {
    /// The last lines, in one line.
    pub(super) fn summary(&self) -> String {
        let text = format!("{}\n{}", self.output, self.errors);
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        lines[lines.len().saturating_sub(12)..].join(" | ")
    }
}

impl GuestSession {
    /// Boots a guest and waits until it accepts commands.
    pub(super) fn boot(
        prepared_guest: &PreparedGuest,
        variant: GuestVariant,
        deadline: Duration,
    ) -> anyhow::Result<Self> {
        let host = make_host(variant)?;
        let console = tempfile::tempfile().context("make a file")?;
        let complaints = tempfile::tempfile().context("make a file")?;
        let mut command = qemu(prepared_guest, variant, "")?;
        command.args(["-display", "none", "-serial"]).arg(format!("file:{}", inheritable_path(&console)?));
        command.args(["-device", "virtio-serial-pci,bus=pcie.0"]);
        // QEMU's ends of the channels. They close with QEMU, so that its end is noticed for any
        // cause.
        let mut qemu_ends = Vec::new();
        let mut port = |name| channel(&mut command, name, &mut qemu_ends);
        let (commands, output, errors) = (port("commands")?, port("output")?, port("errors")?);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(complaints.try_clone()?);
        let qemu = host.receiver().spawn(command)?;
        drop(qemu_ends);
        let mut guest = Self { commands, output, errors, console, complaints, _qemu: qemu, host };
        let mut discard = OutputSinks { output: &mut io::sink(), errors: &mut io::sink() };
        let boot_result = guest.await_reply(Instant::now() + deadline, &mut discard);
        let boot_result = boot_result.and_then(|line| match line.as_str() {
            "ready" => Ok(()),
            line => bail!("it said '{line}'"),
        });
        match boot_result {
            Ok(()) => Ok(guest),
            Err(error) => Err(guest.with_console(error, "does not boot")),
        }
    }

    /// Runs a shell script in the guest and returns its exit status.
    pub(super) fn run(
        &mut self,
        script: &str,
        deadline: Duration,
        sinks: &mut OutputSinks<'_>,
    ) -> anyhow::Result<u8> {
        let line = format!("{}\n", STANDARD.encode(script));
        self.commands.send(line.as_bytes())?;
        let answer = self.await_reply(Instant::now() + deadline, sinks).map_err(|error| {
            self.with_console(error, &format!("does not finish '{}'", first_line(script)))
        })?;
        let status = answer.strip_prefix("exit ").and_then(|status| status.parse().ok());
        status.with_context(|| format!("the guest said '{answer}' of '{}'", first_line(script)))
    }

    /// Runs a shell script and returns its output.
    pub(super) fn run_script(&mut self, script: &str) -> anyhow::Result<CommandOutput> {
        self.run_script_within(script, PATIENCE)
    }

    /// Runs a shell script that has to succeed.
    pub(super) fn run_successfully(&mut self, script: &str) -> anyhow::Result<CommandOutput> {
        let reply = self.run_script(script)?;
        let status = reply.status;
        ensure!(status == 0, "'{}' ended with {status}: {}", first_line(script), reply.summary());
        Ok(reply)
    }

    // Runs a linerate command, and returns a failure if its exit status is above `max_status`.
    pub(super) fn failure_of(&mut self, command: &str, max_status: u8) -> anyhow::Result<Option<String>> {
        let reply = self.run_script(command)?;
        let failure = format!("{command} ended with {}: {}", reply.status, reply.summary());
        Ok((reply.status > max_status).then_some(failure))
    }

    /// Runs a linerate command that prints JSON. Exit status 1 reports findings.
    pub(super) fn json(&mut self, command: &str) -> anyhow::Result<Value> {
        let reply = self.run_script(command)?;
        ensure!(reply.status < 2, "{command} ended with {}: {}", reply.status, reply.summary());
        serde_json::from_str(&reply.output).with_context(|| format!("{command} printed no JSON"))
    }

    // Starts an echo server on port 4000 and waits until it listens; before that, ICMP errors
    // answer the datagrams.
    pub(super) fn serve(&mut self, address: &str) -> anyhow::Result<()> {
        let start_server = format!("linerate serve echo --bind {address}:4000 >/run/server 2>&1 &");
        let wait_for_listener = "until ss -Huln 'sport = :4000' | grep -q .; do sleep 0.1; done";
        self.run_successfully(&format!("{start_server}\n{wait_for_listener}")).map(drop)
    }

    pub(super) fn run_script_within(
        &mut self,
        script: &str,
        deadline: Duration,
    ) -> anyhow::Result<CommandOutput> {
        let (mut output, mut errors) = (Vec::new(), Vec::new());
        let status =
            self.run(script, deadline, &mut OutputSinks { output: &mut output, errors: &mut errors })?;
        let to_text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(CommandOutput { status, output: to_text(output), errors: to_text(errors) })
    }

    /// A socket on the host's side of the wires.
    pub(super) fn host_socket(&self) -> anyhow::Result<UdpSocket> {
        let any_address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        Ok(self.host.receiver().run(|| UdpSocket::bind(any_address))??)
    }

    // Waits for a line on the command port, and passes on the output of the other ports.
    fn await_reply(&mut self, deadline: Instant, sinks: &mut OutputSinks<'_>) -> anyhow::Result<String> {
        loop {
            if let Some(line) = self.commands.line() {
                // Earlier output has arrived already.
                self.output.forward(sinks.output)?;
                self.errors.forward(sinks.errors)?;
                return Ok(line);
            }
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return Err(GuestUnresponsive::DeadlinePassed.into());
            }
            let mut poll_fds = [&self.commands, &self.output, &self.errors]
                .map(|channel| PollFd::new(&channel.stream, PollFlags::IN));
            match poll(&mut poll_fds, Timespec::try_from(remaining).ok().as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error).context("wait for the guest"),
            }
            self.output.forward(sinks.output)?;
            self.errors.forward(sinks.errors)?;
            self.commands.receive()?;
        }
    }

    // Adds QEMU's messages and the end of the console to an error.
    fn with_console(&self, error: anyhow::Error, problem: &str) -> anyhow::Error {
        let qemu = last_lines(&self.complaints);
        let console = last_lines(&self.console);
        error.context(format!("{qemu}the last lines of its console:\n{console}the guest {problem}"))
    }
}

impl GuestChannel {
    fn send(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.stream.set_nonblocking(false)?;
        self.stream.write_all(bytes).context("send a command to the guest")?;
        Ok(self.stream.set_nonblocking(true)?)
    }

    /// A complete received line.
    fn line(&mut self) -> Option<String> {
        let end = self.begun.iter().position(|byte| *byte == b'\n')?;
        let line: Vec<u8> = self.begun.drain(..=end).collect();
        Some(String::from_utf8_lossy(&line).trim().to_owned())
    }

    fn receive(&mut self) -> anyhow::Result<()> {
        let mut bytes = std::mem::take(&mut self.begun);
        let result = self.forward(&mut bytes);
        self.begun = bytes;
        result
    }

    fn forward(&self, sink: &mut dyn Write) -> anyhow::Result<()> {
        let mut buffer = [0; 16 * 1024];
        loop {
            match (&self.stream).read(&mut buffer) {
                Ok(0) => return Err(GuestUnresponsive::QemuEnded.into()),
                Ok(length) => {
                    sink.write_all(&buffer[..length]).context("pass on what the guest printed")?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(sink.flush()?),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("hear the guest"),
            }
        }
    }
}

/// A port of the guest, and our end of the port.
fn channel(command: &mut Command, name: &str, qemu_ends: &mut Vec<OwnedFd>) -> anyhow::Result<GuestChannel> {
    let (stream, qemu_end) = UnixStream::pair().context("make a pair of sockets")?;
    stream.set_nonblocking(true)?;
    // QEMU inherits this descriptor.
    fcntl_setfd(&qemu_end, FdFlags::empty()).context("hand a socket to QEMU")?;
    command.arg("-chardev").arg(format!("socket,id={name},fd={}", qemu_end.as_raw_fd()));
    command.arg("-device").arg(format!("virtserialport,chardev={name},name={name}"));
    qemu_ends.push(qemu_end.into());
    Ok(GuestChannel { stream, begun: Vec::new() })
}

/// Creates a network namespace with the tap interfaces of the guest, without routes to other
/// networks. The namespace ends with this process.
pub(super) fn make_host(variant: GuestVariant) -> anyhow::Result<Lab> {
    // The link of the lab is not used.
    let host = Lab::builder().queues(1).start()?;
    for tap in &TAPS {
        let [first, second, third, fourth] = tap.address;
        let multi_queue = if tap.queues(variant) > 1 { " multi_queue" } else { "" };
        for arguments in [
            format!("tuntap add dev {} mode tap{multi_queue}", tap.name),
            format!("addr add {first}.{second}.{third}.{fourth}/24 dev {}", tap.name),
            format!("link set {} up", tap.name),
        ] {
            let mut ip = Command::new(find("ip").context("ip is not installed: apt install iproute2")?);
            ip.args(arguments.split(' '));
            host.receiver().run(|| command_output(&mut ip))?.with_context(|| format!("ip {arguments}"))?;
        }
    }
    Ok(host)
}

/// QEMU without its console options.
pub(super) fn qemu(
    prepared_guest: &PreparedGuest,
    variant: GuestVariant,
    kernel_argument: &str,
) -> anyhow::Result<Command> {
    let mut command = Command::new(QEMU);
    command.args(["-nodefaults", "-no-user-config", "-no-reboot"]).args(variant.arguments());
    command
        .arg("-kernel")
        .arg(&prepared_guest.kernel.image)
        .arg("-initrd")
        .arg(inheritable_path(&prepared_guest.image)?);
    let mut arguments = format!("{KERNEL_ARGUMENTS} {} {kernel_argument}", variant.kernel_arguments());
    // The guest's TSC is the host's. If the guest measured it with emulated timers on a busy host,
    // it might seem many times slower, and the guest's time would run too fast.
    if let Some(kilohertz) = tsc::kilohertz() {
        let ticks_a_jiffy = kilohertz * 1000 / KERNEL_HERTZ;
        arguments.push_str(&format!(" tsc_early_khz={kilohertz} lpj={ticks_a_jiffy}"));
    }
    command.arg("-append").arg(arguments);
    Ok(command)
}

// Fails if QEMU is missing or has no igb.
pub(super) fn check_qemu() -> anyhow::Result<()> {
    let help_output = Command::new(QEMU).args(["-device", "igb,help"]).output();
    match help_output {
        Err(error) => {
            let install_command = "apt install -t bookworm-backports qemu-system-x86";
            Err(GuestUnavailable(format!("{QEMU} cannot be run ({error}): {install_command}")).into())
        }
        Ok(output) if !output.status.success() => {
            Err(GuestUnavailable(format!("this {QEMU} has no igb, which requires version 8 or later")).into())
        }
        Ok(_) => Ok(()),
    }
}

fn first_line(script: &str) -> &str {
    script.trim().lines().next().unwrap_or_default()
}

/// The last lines of a file, each with its end of line.
fn last_lines(file: &File) -> String {
    let mut bytes = Vec::new();
    let read_result = (&*file).rewind().and_then(|()| (&*file).read_to_end(&mut bytes));
    match read_result {
        Ok(_) => {
            let text = String::from_utf8_lossy(&bytes);
            let lines: Vec<&str> = text.lines().collect();
            lines.iter().skip(lines.len().saturating_sub(LAST_LINES)).flat_map(|line| [line, "\n"]).collect()
        }
        Err(error) => format!("(not known: {error})\n"),
    }
}

/// The path by which a started program finds a file of this process.
fn inheritable_path(file: &File) -> anyhow::Result<String> {
    fcntl_setfd(file, FdFlags::empty()).context("hand a file to QEMU")?;
    Ok(format!("/proc/self/fd/{}", file.as_raw_fd()))
}
