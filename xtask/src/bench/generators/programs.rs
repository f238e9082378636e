//! Generators that other projects publish.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use linerate_lab::LabChild;
use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::NamedTempFile;

use super::PAYLOAD;
use super::contender::{ContenderRun, GeneratorContender};
use super::testbed::GeneratorTestbed;

pub(super) const IPERF: &str = "iperf3";
pub(super) const TRAFGEN: &str = "trafgen";
pub(super) const KXDPGUN: &str = "kxdpgun";

// Time for a program to end after SIGINT.
const PATIENCE: Duration = Duration::from_secs(2);

/// A program that sends, its server and its input. All end when this is dropped.
struct SenderProgram {
    child: LabChild,
    /// Its process group; `None` once it has ended.
    group: Option<Pid>,
    _server: Option<LabChild>,
    _input: Option<NamedTempFile>,
}

impl ContenderRun for SenderProgram {
    fn exit_reason(&mut self) -> anyhow::Result<Option<String>> {
        let Some(status) = self.child.wait_at_most(Duration::ZERO)? else { return Ok(None) };
        let mut error_text = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut error_text)?;
        }
        Ok(Some(format!("{status}: {}", error_text.trim())))
    }

    fn stop(mut self: Box<Self>) -> anyhow::Result<()> {
        self.end()
    }
}

impl SenderProgram {
    /// Ends the program and its forks, because forks of trafgen outlive it.
    fn end(&mut self) -> anyhow::Result<()> {
        // The group gets signals only until the program has been waited for, because its number may
        // belong to another process afterwards.
        let Some(group) = self.group.take() else { return Ok(()) };
        // SIGINT lets the program clean up.
        kill_process_group(group, Signal::INT).context("ending it")?;
        let has_ended = self.child.wait_at_most(PATIENCE)?.is_some();
        match kill_process_group(group, Signal::KILL) {
            Err(rustix::io::Errno::SRCH) if has_ended => {}
            kill_result => kill_result.context("killing it")?,
        }
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for SenderProgram {
    fn drop(&mut self) {
        // The program has ended, or an error was reported already.
        let _ = self.end();
    }
}

/// `program` with its arguments on one CPU.
fn on_cpu(cpu: u32, program: &str, arguments: &str) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", &cpu.to_string(), program]).args(arguments.split_whitespace());
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

// Another project's generator, at full speed on one core.
pub(super) enum ProgramContender {
    /// A stream of datagrams to its own server, which it reaches by TCP.
    Iperf,
    // The same frame repeatedly from a ring shared with the kernel, without the queueing
    // discipline.
    Trafgen,
    /// DNS queries over AF_XDP. It has a thread per queue, here one.
    Kxdpgun,
}

impl ProgramContender {
    fn arguments(&self) -> &'static str {
        match self {
            Self::Iperf => "-u -b 0 -l 100 -t 3600 -c",
            Self::Trafgen => "--dev eth0 --cpus 1 --no-cpu-stats --conf",
            Self::Kxdpgun => "-Q 100000000 -b 24 -r -p 53 -t 3600",
        }
    }

    fn package(&self) -> &'static str {
        match self {
            Self::Iperf => "iperf3",
            Self::Trafgen => "netsniff-ng",
            Self::Kxdpgun => "knot-dnsutils",
        }
    }

    /// The file that describes its packets, if it reads one.
    fn input(&self, testbed: &GeneratorTestbed) -> anyhow::Result<Option<NamedTempFile>> {
        let text = match self {
            Self::Iperf => return Ok(None),
            Self::Trafgen => {
                let list = |bytes: &[u8]| bytes.iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
                let (sender, receiver) = (&testbed.link().sender, &testbed.link().receiver);
                format!(
                    "{{ {}, {}, c16(0x0800), 0x45, 0, c16({}), c16(0), c16(0x4000), 64, 17, csumip(14, 33), {}, {}, \
                     c16(9), c16(7), c16({}), c16(0), fill(0x55, {PAYLOAD}) }}",
                    list(&receiver.mac),
                    list(&sender.mac),
                    28 + PAYLOAD,
                    list(&sender.ipv4[0].octets()),
                    list(&receiver.ipv4[0].octets()),
                    8 + PAYLOAD
                )
            }
            Self::Kxdpgun => {
                // 12 bytes of header, 4 of type and class, 3 of lengths. The two labels of the name
                // fill the rest.
                let letters = PAYLOAD - 12 - 4 - 3;
                format!("{}.{}. A", "a".repeat(letters / 2), "b".repeat(letters - letters / 2))
            }
        };
        let mut file = NamedTempFile::new()?;
        writeln!(file, "{text}")?;
        Ok(Some(file))
    }
}

impl GeneratorContender for ProgramContender {
    fn name(&self) -> &'static str {
        match self {
            Self::Iperf => IPERF,
            Self::Trafgen => TRAFGEN,
            Self::Kxdpgun => KXDPGUN,
        }
    }

    fn describe(&self) -> String {
        let details = match self {
            Self::Iperf => "TARGET; its server on the other CPU: iperf3 -s -1".to_owned(),
            Self::Trafgen => "FILE, one frame without changing parts".to_owned(),
            Self::Kxdpgun => format!("-F CPU -i FILE TARGET, one query of {PAYLOAD} bytes, one queue"),
        };
        format!("taskset -c CPU {} {} {details}", self.name(), self.arguments())
    }

    fn prepare(&mut self, _: &GeneratorTestbed) -> anyhow::Result<()> {
        let (program, package) = (self.name(), self.package());
        let is_installed = std::env::var_os("PATH")
            .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(program).is_file()));
        ensure!(is_installed, "{program} is not installed: apt install {package}");
        Ok(())
    }

    fn start(&mut self, testbed: &GeneratorTestbed) -> anyhow::Result<Box<dyn ContenderRun>> {
        let input = self.input(testbed)?;
        let file = input.as_ref().map(|file| file.path().display().to_string()).unwrap_or_default();
        let mut server = None;
        let target_arguments = match self {
            Self::Iperf => {
                let mut command = on_cpu(testbed.other_cpu, "iperf3", "-s -1 --forceflush");
                command.stdout(Stdio::piped()).stderr(Stdio::null());
                await_line(server.insert(testbed.receiver().spawn(command)?), "listening")?;
                testbed.target().to_string()
            }
            Self::Trafgen => file,
            Self::Kxdpgun => format!("-F {} -i {file} {}", testbed.cpu, testbed.target()),
        };
        let command = on_cpu(testbed.cpu, self.name(), &format!("{} {target_arguments}", self.arguments()));
        let child = testbed.sender().spawn(command)?;
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        Ok(Box::new(SenderProgram { child, group, _server: server, _input: input }))
    }

    // kxdpgun leaves its XDP program, which would block the next generator.
    fn clear(&self, testbed: &GeneratorTestbed) -> anyhow::Result<()> {
        if !matches!(self, Self::Kxdpgun) {
            return Ok(());
        }
        let mut command = Command::new("ip");
        command.args(["link", "set", "dev", &testbed.link().sender.interface, "xdp", "off"]);
        let status = testbed.sender().spawn(command)?.wait()?;
        ensure!(status.success(), "ip cannot remove its XDP program: {status}");
        Ok(())
    }
}

fn await_line(child: &mut LabChild, expected: &str) -> anyhow::Result<()> {
    let output = child.stdout.as_mut().context("its output is not piped")?;
    for line in BufReader::new(output).lines() {
        if line?.contains(expected) {
            return Ok(());
        }
    }
    bail!("it ended without saying {expected:?}")
}
