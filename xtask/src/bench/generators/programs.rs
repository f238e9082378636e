//! The generators, each a program that sends at full speed from one core.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use linerate_lab::LabChild;
use linerate_testkit::reflector::installed::find;
use rustix::process::{Pid, Signal, kill_process_group};

use super::testbed::GeneratorTestbed;
use super::{GeneratorsBench, PAYLOAD};

pub(super) const XDP: &str = "linerate-xdp";
pub(super) const BARE_LOOP: &str = "bare-loop";
const IPERF: &str = "iperf3";
const KXDPGUN: &str = "kxdpgun";

/// The document of a generator that matches replies, in the directory of the run.
const DOCUMENT: &str = "load.json";

/// The least share of returned requests that must be matched for the figure to count.
const MATCHED: f64 = 0.99;

// Time for a program to end after SIGINT.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) struct GeneratorProgram {
    pub(super) name: &'static str,
    /// Its command line. `{...}` are values of the run.
    pub(super) command: &'static str,
    /// Its Debian package; `None` for ours.
    package: Option<&'static str>,
    /// The least ratio of the rate of our XDP generator to the rate of this one.
    pub(super) min_ratio: Option<f64>,
}

/// Generators that only send.
pub(super) const SENDING: [GeneratorProgram; 6] = [
    GeneratorProgram {
        name: XDP,
        command: "{linerate} load {target}:7 --flood --backend xdp --flows {flows} --cpus {cpu} --duration 3600 --no-reply --quiet",
        package: None,
        min_ratio: None,
    },
    GeneratorProgram {
        name: BARE_LOOP,
        command: "{xtask} bench bare-loop --index {index} --frame {frame}",
        package: None,
        min_ratio: Some(0.9),
    },
    GeneratorProgram {
        name: "linerate-socket",
        command: "{linerate} load {target}:7 --flood --backend socket --flows {flows} --cpus {cpu} --duration 3600 --no-reply --quiet",
        package: None,
        min_ratio: None,
    },
    // A stream of datagrams to its own server, which it reaches by TCP.
    GeneratorProgram {
        name: IPERF,
        command: "iperf3 -u -b 0 -l 100 -t 3600 -c {target}",
        package: Some("iperf3"),
        min_ratio: Some(10.0),
    },
    // The same frame repeatedly from a ring shared with the kernel, without the queueing
    // discipline.
    GeneratorProgram {
        name: "trafgen",
        command: "trafgen --dev eth0 --cpus 1 --no-cpu-stats --conf {directory}/trafgen",
        package: Some("netsniff-ng"),
        min_ratio: Some(4.0),
    },
    // DNS queries over AF_XDP. It has a thread per queue, here one.
    GeneratorProgram {
        name: KXDPGUN,
        command: "kxdpgun -Q 100000000 -b 24 -r -p 53 -t 3600 -F {cpu} -i {directory}/query {target}",
        package: Some("knot-dnsutils"),
        min_ratio: Some(4.0),
    },
];

/// Generators that also receive every reply: ours matches and times it, the bare loop drops it.
pub(super) const MATCHING: [GeneratorProgram; 2] = [
    GeneratorProgram {
        name: XDP,
        command: "{linerate} load {target}:7 --flood --backend xdp --flows {flows} --cpus {cpu} --duration 3600 --drain 0.2 --quiet --json {directory}/load.json",
        package: None,
        min_ratio: None,
    },
    GeneratorProgram {
        name: BARE_LOOP,
        command: "{xtask} bench bare-loop --index {index} --frame {frame} --drop-replies eth0",
        package: None,
        // Single measurements of a second: 0.52 to 0.65 on an Intel Xeon at 2.1 GHz.
        min_ratio: Some(0.5),
    },
];

/// A program that sends, and its server. Both end when this is dropped.
pub(super) struct SenderProgram {
    child: LabChild,
    /// Its process group; `None` once it has ended.
    group: Option<Pid>,
    _server: Option<LabChild>,
}

impl GeneratorProgram {
    pub(super) fn check_installed(&self) -> anyhow::Result<()> {
        let Some(package) = self.package else { return Ok(()) };
        ensure!(find(self.name).is_some(), "{} is not installed: apt install {package}", self.name);
        Ok(())
    }

    /// Starts to send without end, as fast as possible.
    pub(super) fn start(
        &self,
        settings: &GeneratorsBench,
        linerate: &Path,
        testbed: &GeneratorTestbed,
        directory: &Path,
    ) -> anyhow::Result<SenderProgram> {
        let trafgen_bytes: Vec<String> = testbed.frame(9)?.iter().map(u8::to_string).collect();
        std::fs::write(directory.join("trafgen"), format!("{{ {} }}\n", trafgen_bytes.join(", ")))?;
        // 12 bytes of header, 4 of type and class, 3 of lengths. The two labels of the name fill
        // the rest.
        let letters = PAYLOAD - 12 - 4 - 3;
        let labels = ("a".repeat(letters / 2), "b".repeat(letters - letters / 2));
        std::fs::write(directory.join("query"), format!("{}.{}. A\n", labels.0, labels.1))?;
        let mut server = None;
        if self.name == IPERF {
            let mut command = on_cpu(testbed.other_cpu, "iperf3 -s -1 --forceflush");
            command.stdout(Stdio::piped()).stderr(Stdio::null());
            await_line(server.insert(testbed.receiver().spawn(command)?), "listening")?;
        }
        let mut line = self.command.to_owned();
        for (placeholder, value) in [
            ("{linerate}", linerate.display().to_string()),
            ("{xtask}", std::env::current_exe()?.display().to_string()),
            ("{target}", testbed.target().to_string()),
            ("{flows}", settings.flows.to_string()),
            ("{cpu}", settings.cpu.to_string()),
            ("{index}", testbed.link().sender.index.to_string()),
            ("{frame}", STANDARD.encode(testbed.frame(0)?)),
            ("{directory}", directory.display().to_string()),
        ] {
            line = line.replace(placeholder, &value);
        }
        let child = testbed.sender().spawn(on_cpu(settings.cpu, &line))?;
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        Ok(SenderProgram { child, group, _server: server })
    }

    // kxdpgun leaves its XDP program, which would block the next generator.
    pub(super) fn clear(&self, testbed: &GeneratorTestbed) -> anyhow::Result<()> {
        if self.name != KXDPGUN {
            return Ok(());
        }
        let mut command = Command::new("ip");
        command.args(["link", "set", "dev", &testbed.link().sender.interface, "xdp", "off"]);
        let status = testbed.sender().spawn(command)?.wait()?;
        ensure!(status.success(), "ip cannot remove its XDP program: {status}");
        Ok(())
    }

    /// Checks that a generator with a document matched and timed what the receiver returned.
    pub(super) fn check_matched(&self, directory: &Path, returned_requests: u64) -> anyhow::Result<()> {
        if !self.command.contains(DOCUMENT) {
            return Ok(());
        }
        let text = std::fs::read(directory.join(DOCUMENT)).context("it wrote no document")?;
        let document: serde_json::Value = serde_json::from_slice(&text).context("its document")?;
        let count = |value: &serde_json::Value| value.as_u64().context("its document has no counts");
        let answered = count(&document["result"]["answered"])?;
        ensure!(count(&document["result"]["latency_ns"]["count"])? == answered, "not every answer was timed");
        ensure!(
            answered as f64 >= MATCHED * returned_requests as f64,
            "of {returned_requests} requests returned only {answered} were matched"
        );
        Ok(())
    }
}

impl SenderProgram {
    /// The reason of its end; `None` while it runs.
    pub(super) fn exit_reason(&mut self) -> anyhow::Result<Option<String>> {
        let Some(status) = self.child.wait_at_most(Duration::ZERO)? else { return Ok(None) };
        let mut error_text = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut error_text)?;
        }
        Ok(Some(format!("{status}: {}", error_text.trim())))
    }

    /// Ends the program and its forks, because forks of trafgen outlive it.
    pub(super) fn end(&mut self) -> anyhow::Result<()> {
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

/// A command line on one CPU.
fn on_cpu(cpu: u32, line: &str) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", &cpu.to_string()]).args(line.split_whitespace());
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generator_that_matches_must_write_what_it_matched() -> anyhow::Result<()> {
        let [matching, bare_loop] = &MATCHING;
        let document = |answered, timed| {
            format!(r#"{{"result": {{"answered": {answered}, "latency_ns": {{"count": {timed}}}}}}}"#)
        };
        for (program, text, is_accepted) in [
            (matching, None, false),
            (matching, Some(String::new()), false),
            (matching, Some(document(100, 99)), false),
            (matching, Some(document(98, 98)), false),
            (matching, Some(document(100, 100)), true),
            (bare_loop, None, true),
        ] {
            let directory = tempfile::tempdir()?;
            if let Some(text) = &text {
                std::fs::write(directory.path().join(DOCUMENT), text)?;
            }
            let check = program.check_matched(directory.path(), 100);
            assert_eq!(check.is_ok(), is_accepted, "{} {text:?}: {check:?}", program.name);
        }
        Ok(())
    }
}
