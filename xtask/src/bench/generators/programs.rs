//! Generators of others, each as fast as it goes on one core.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use linerate_lab::{LabChild, LabHost};
use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::NamedTempFile;

use super::PAYLOAD;
use super::contender::{ContenderRun, GeneratorContender};
use super::scene::GeneratorTestbed;

pub(super) const IPERF: &str = "iperf3";
pub(super) const TRAFGEN: &str = "trafgen";
pub(super) const KXDPGUN: &str = "kxdpgun";

/// Longer than any measurement: they are ended.
const SECONDS: &str = "3600";

/// How long a program that was asked to end may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// A program that sends, and what it needs beside it. All end when this is dropped.
struct SenderProgram {
    child: LabChild,
    /// Of processes; none once it has ended.
    group: Option<Pid>,
    server: Option<LabChild>,
    input: Option<NamedTempFile>,
}

impl ContenderRun for SenderProgram {
    fn over(&mut self) -> anyhow::Result<Option<String>> {
        let Some(status) = self.child.wait_at_most(Duration::ZERO)? else { return Ok(None) };
        let mut said = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut said)?;
        }
        Ok(Some(format!("{status}: {}", said.trim())))
    }

    fn stop(mut self: Box<Self>) -> anyhow::Result<()> {
        self.end()
    }
}

impl SenderProgram {
    fn start(host: &LabHost, command: Command) -> anyhow::Result<Self> {
        let child = host.spawn(command)?;
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        Ok(Self { child, group, server: None, input: None })
    }

    /// Ends it with what it has forked: trafgen's forks outlive it.
    fn end(&mut self) -> anyhow::Result<()> {
        // Only until it has been waited for: its number may be another's then.
        let Some(group) = self.group.take() else { return Ok(()) };
        // Asked first, so that it can end what it has begun.
        kill_process_group(group, Signal::INT).context("ending it")?;
        let asked = self.child.wait_at_most(PATIENCE)?.is_some();
        match kill_process_group(group, Signal::KILL) {
            Err(rustix::io::Errno::SRCH) if asked => {}
            done => done.context("killing it")?,
        }
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for SenderProgram {
    fn drop(&mut self) {
        // It has ended, or an error is being told already.
        let _ = self.end();
    }
}

fn find(program: &str, package: &str) -> anyhow::Result<()> {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(program).is_file()));
    if !found {
        bail!("{program} is not installed: apt install {package}");
    }
    Ok(())
}

/// `program` with its arguments on one CPU.
fn on_cpu(cpu: u32, program: &str, arguments: &str) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", &cpu.to_string(), program]).args(arguments.split_whitespace());
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// A stream of datagrams, with a server of its own that TCP reaches.
pub(super) struct Iperf;

impl Iperf {
    const CLIENT: &str = "-u -b 0 -l 100 -t 3600 -c";
}

impl GeneratorContender for Iperf {
    fn name(&self) -> &'static str {
        IPERF
    }

    fn how(&self) -> String {
        format!("taskset -c CPU iperf3 {} TARGET; its server on the other CPU: iperf3 -s -1", Self::CLIENT)
    }

    fn prepare(&mut self, _: &GeneratorTestbed) -> anyhow::Result<()> {
        find("iperf3", "iperf3")
    }

    fn start(&mut self, scene: &GeneratorTestbed) -> anyhow::Result<Box<dyn ContenderRun>> {
        let mut server = on_cpu(scene.other_cpu, "iperf3", "-s -1 --forceflush");
        server.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut server = scene.receiver().spawn(server)?;
        await_line(&mut server, "listening")?;
        let client = on_cpu(scene.cpu, "iperf3", &format!("{} {}", Self::CLIENT, scene.target()));
        let mut program = SenderProgram::start(scene.sender(), client)?;
        program.server = Some(server);
        Ok(Box::new(program))
    }
}

fn await_line(child: &mut LabChild, wanted: &str) -> anyhow::Result<()> {
    let output = child.stdout.as_mut().context("its output is not piped")?;
    for line in BufReader::new(output).lines() {
        if line?.contains(wanted) {
            return Ok(());
        }
    }
    bail!("it ended without saying {wanted:?}")
}

/// One frame over and over from a ring shared with the kernel, past the queueing discipline.
pub(super) struct Trafgen;

impl Trafgen {
    const ARGUMENTS: &str = "--dev eth0 --cpus 1 --no-cpu-stats --conf";
}

impl GeneratorContender for Trafgen {
    fn name(&self) -> &'static str {
        TRAFGEN
    }

    fn how(&self) -> String {
        format!("taskset -c CPU trafgen {} FILE, one frame without changing parts", Self::ARGUMENTS)
    }

    fn prepare(&mut self, _: &GeneratorTestbed) -> anyhow::Result<()> {
        find("trafgen", "netsniff-ng")
    }

    fn start(&mut self, scene: &GeneratorTestbed) -> anyhow::Result<Box<dyn ContenderRun>> {
        let link = scene.link();
        let list = |bytes: &[u8]| bytes.iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
        let (source, target) = (link.sender.ipv4[0].octets(), link.receiver.ipv4[0].octets());
        let mut input = NamedTempFile::new()?;
        writeln!(
            input,
            "{{ {}, {}, c16(0x0800), 0x45, 0, c16({}), c16(0), c16(0x4000), 64, 17, csumip(14, 33), {}, {}, \
             c16(9), c16(7), c16({}), c16(0), fill(0x55, {PAYLOAD}) }}",
            list(&link.receiver.mac),
            list(&link.sender.mac),
            28 + PAYLOAD,
            list(&source),
            list(&target),
            8 + PAYLOAD
        )?;
        let arguments = format!("{} {}", Self::ARGUMENTS, input.path().display());
        let mut program = SenderProgram::start(scene.sender(), on_cpu(scene.cpu, "trafgen", &arguments))?;
        program.input = Some(input);
        Ok(Box::new(program))
    }
}

/// DNS queries over AF_XDP; a thread for each queue, of which there is one.
pub(super) struct Kxdpgun;

impl Kxdpgun {
    const ARGUMENTS: &str = "-Q 100000000 -b 24 -r -p 53 -t";
}

impl GeneratorContender for Kxdpgun {
    fn name(&self) -> &'static str {
        KXDPGUN
    }

    fn how(&self) -> String {
        format!(
            "taskset -c CPU kxdpgun {} {SECONDS} -F CPU -i FILE TARGET, one query of {PAYLOAD} bytes, one queue",
            Self::ARGUMENTS
        )
    }

    fn prepare(&mut self, _: &GeneratorTestbed) -> anyhow::Result<()> {
        find("kxdpgun", "knot-dnsutils")
    }

    fn start(&mut self, scene: &GeneratorTestbed) -> anyhow::Result<Box<dyn ContenderRun>> {
        let mut input = NamedTempFile::new()?;
        // 12 bytes of header, 4 of type and class, 3 of lengths: the name's two labels are the rest.
        let letters = PAYLOAD - 12 - 4 - 3;
        let (first, second) = (letters / 2, letters - letters / 2);
        writeln!(input, "{}.{}. A", "a".repeat(first), "b".repeat(second))?;
        let arguments = format!(
            "{} {SECONDS} -F {} -i {} {}",
            Self::ARGUMENTS,
            scene.cpu,
            input.path().display(),
            scene.target()
        );
        let mut program = SenderProgram::start(scene.sender(), on_cpu(scene.cpu, "kxdpgun", &arguments))?;
        program.input = Some(input);
        Ok(Box::new(program))
    }

    /// It leaves its XDP program, which would be in the way of the next.
    fn clear(&self, scene: &GeneratorTestbed) -> anyhow::Result<()> {
        let mut command = Command::new("ip");
        command.args(["link", "set", "dev", &scene.link().sender.interface, "xdp", "off"]);
        let status = scene.sender().spawn(command)?.wait()?;
        ensure!(status.success(), "ip cannot take its XDP program away: {status}");
        Ok(())
    }
}
