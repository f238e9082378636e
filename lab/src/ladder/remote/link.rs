//! The connection to one host: an ssh process, with `linerate load --on-demand` at its other end.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ExitStatus};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use linerate_load::GeneratorDescription;

use super::clock::{ClockOffset, RemoteClock};
use super::protocol::{RemoteAnswer, RemoteOrder};
use super::ssh::{self, RemoteError, RemoteLoad, SshHost};
use super::workload;

/// Longest wait for an ssh process to end after its streams.
const TO_END: Duration = Duration::from_secs(2);
/// A longer line is not the result of a slot.
const LONGEST_LINE: u64 = 1 << 28;
/// Bytes of the messages of ssh and the remote program that are kept.
const KEPT_WORDS: usize = 4096;
/// The exit status of ssh for its own failures, and for a remote program that a signal ended.
const SSH_FAILED: i32 = 255;

/// News of a link, with the index of its host.
pub(super) struct HostEvent {
    pub(super) place: usize,
    pub(super) news: LinkNews,
}

pub(super) enum LinkNews {
    Answer(RemoteAnswer),
    /// A line that is not an answer, after the first answer.
    Odd(String),
    /// The connection ended.
    Gone,
}

#[derive(Debug)]
pub(super) struct HostLink {
    pub(super) host: SshHost,
    /// `None` before the generator is ready.
    pub(super) ready: Option<ReadyGenerator>,
    child: Child,
    line: OrderLine,
    said: Arc<Mutex<Vec<u8>>>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Clone)]
pub(super) struct ReadyGenerator {
    pub(super) version: String,
    pub(super) generator: GeneratorDescription,
    pub(super) cpus: usize,
}

/// The sending side; shared with the thread that keeps the connection alive.
#[derive(Debug, Clone)]
pub(super) struct OrderLine {
    stdin: Arc<Mutex<Option<ChildStdin>>>,
    clock: Arc<Mutex<RemoteClock>>,
}

impl OrderLine {
    pub(super) fn send(&self, order: &RemoteOrder) -> io::Result<()> {
        let mut text = serde_json::to_vec(order)?;
        text.push(b'\n');
        match &mut *lock(&self.stdin) {
            Some(stdin) => stdin.write_all(&text).and_then(|()| stdin.flush()),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Asks for the remote time.
    pub(super) fn ping(&self, number: u64) -> io::Result<()> {
        lock(&self.clock).asked(number);
        self.send(&RemoteOrder::Ping { number })
    }
}

impl HostLink {
    /// Starts ssh. Its answers go to `news`.
    pub(super) fn start(
        ssh: &[String],
        host: &SshHost,
        program: &str,
        load: &RemoteLoad,
        place: usize,
        news: &Sender<HostEvent>,
    ) -> Result<Self, RemoteError> {
        let line = ssh::load_line(program, load)?;
        let mut command = ssh::ssh_command(ssh, host, &line);
        let mut child = command.spawn().map_err(|source| no_ssh(&command, source))?;
        let stdin = child.stdin.take();
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let clock = Arc::new(Mutex::new(RemoteClock::default()));
        let said = Arc::new(Mutex::new(Vec::new()));
        let mut threads = Vec::new();
        if let Some(stderr) = stderr {
            let said = Arc::clone(&said);
            threads.push(thread::spawn(move || keep_words(stderr, &said)));
        }
        if let Some(stdout) = stdout {
            let (said, clock, news) = (Arc::clone(&said), Arc::clone(&clock), news.clone());
            let tell = move |what| {
                // The receiver is gone when the generators are dropped.
                let _ = news.send(HostEvent { place, news: what });
            };
            threads.push(thread::spawn(move || listen(stdout, &said, &clock, &tell)));
        }
        let line = OrderLine { stdin: Arc::new(Mutex::new(stdin)), clock };
        if let Some(contents) = load.workload.clone() {
            // A pipe accepts only 64 kB before ssh has a connection. Orders wait for the lock.
            let stdin = Arc::clone(&line.stdin);
            threads.push(thread::spawn(move || {
                if let Some(stdin) = &mut *lock(&stdin) {
                    // The end of the answers reports a broken connection.
                    let _ = workload::send(&contents, stdin);
                }
            }));
        }
        Ok(HostLink { host: host.clone(), ready: None, child, line, said, threads })
    }

    /// Lets the remote program end, without waiting for it.
    pub(super) fn close(&self) {
        lock(&self.line.stdin).take();
    }

    pub(super) fn line(&self) -> &OrderLine {
        &self.line
    }

    /// Readings of its clock that are kept.
    pub(super) fn clock_readings(&self) -> usize {
        lock(&self.line.clock).readings()
    }

    pub(super) fn clock(&self) -> Option<ClockOffset> {
        lock(&self.line.clock).offset()
    }

    /// Ends ssh, and with it the remote program. Returns its status and its last message.
    fn end(&mut self) -> (Option<ExitStatus>, String) {
        self.close();
        let status = ended_within(&mut self.child, TO_END);
        // The streams end with ssh, unless a program that ssh started (ProxyCommand) holds them open.
        let deadline = Instant::now() + TO_END;
        while self.threads.iter().any(|thread| !thread.is_finished()) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        (status, last_message(&lock(&self.said)))
    }

    /// One line about a connection that ended by itself.
    pub(super) fn why_ended(&mut self) -> String {
        let (status, words) = self.end();
        let code = status.and_then(|status| status.code());
        match (code, words.as_str()) {
            (Some(SSH_FAILED), "") => {
                "the connection ended, or linerate there was killed; ssh said nothing".to_owned()
            }
            (Some(SSH_FAILED), words) => format!("ssh: {words}"),
            (Some(0), "") => "linerate there ended by itself".to_owned(),
            (Some(code), "") => format!("linerate there ended with status {code}"),
            (Some(_), words) => words.to_owned(),
            (None, _) => "ssh here was killed".to_owned(),
        }
    }

    pub(super) fn why_not_ready(&mut self, ssh: &[String], program: &str) -> RemoteError {
        let host = self.host.clone();
        let (status, words) = self.end();
        match status.and_then(|status| status.code()) {
            Some(SSH_FAILED) | None => RemoteError::Ssh {
                host,
                words: if words.is_empty() { "it ended without a word".to_owned() } else { words },
            },
            Some(127) => RemoteError::NoProgram { host, program: program.to_owned() },
            // An older linerate does not have these options.
            Some(_) if words.contains("--on-demand") || words.contains("--workload-from-stdin") => {
                let its = version(ssh, &host, program).unwrap_or_else(|| "of an unknown version".to_owned());
                RemoteError::Version { host, program: program.to_owned(), its }
            }
            Some(code) if words.is_empty() => {
                RemoteError::Refused { host, words: format!("'{program}' there ended with status {code}") }
            }
            Some(_) => RemoteError::Refused { host, words },
        }
    }
}

impl Drop for HostLink {
    fn drop(&mut self) {
        self.end();
    }
}

fn version(ssh: &[String], host: &SshHost, program: &str) -> Option<String> {
    let mut command = ssh::ssh_command(ssh, host, &ssh::version_line(program).ok()?);
    let output = command.stdin(std::process::Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().trim().to_owned();
    (!text.is_empty()).then_some(text)
}

fn no_ssh(command: &std::process::Command, source: io::Error) -> RemoteError {
    RemoteError::NoSsh { program: command.get_program().to_string_lossy().into_owned(), source }
}

/// Waits for the end, and kills the process when it takes too long.
fn ended_within(child: &mut Child, time: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + time;
    let mut pause = Duration::from_millis(1);
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < deadline => {
                // Waiting for a child with a timeout would require a handler of SIGCHLD.
                thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(50));
            }
            Ok(None) | Err(_) => break,
        }
    }
    // A process that cannot be killed is gone already.
    let _ = child.kill();
    child.wait().ok()
}

fn listen(stdout: impl Read, said: &Mutex<Vec<u8>>, clock: &Mutex<RemoteClock>, tell: &dyn Fn(LinkNews)) {
    let mut lines = BufReader::new(stdout);
    let mut ready = false;
    loop {
        let mut line = Vec::new();
        match lines.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return tell(LinkNews::Gone),
            Ok(_) => {}
        }
        match serde_json::from_slice(&line) {
            Ok(RemoteAnswer::Pong { number, realtime_ns }) => {
                lock(clock).answered(number, realtime_ns);
                tell(LinkNews::Answer(RemoteAnswer::Pong { number, realtime_ns }));
            }
            Ok(answer) => {
                // Earlier messages (a new host key, a greeting) do not explain a later end of the
                // connection.
                if !ready {
                    lock(said).clear();
                }
                ready = true;
                tell(LinkNews::Answer(answer));
            }
            // A login shell can print a greeting first.
            Err(_) if !ready => keep(&mut lock(said), &line),
            Err(_) => {
                let start = String::from_utf8_lossy(line.get(..60).unwrap_or(&line)).trim().to_owned();
                tell(LinkNews::Odd(start));
            }
        }
    }
}

fn keep_words(mut stderr: impl Read, said: &Mutex<Vec<u8>>) {
    let mut chunk = [0; 1024];
    loop {
        match stderr.read(&mut chunk) {
            Ok(0) => return,
            Ok(count) => keep(&mut lock(said), chunk.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

fn keep(said: &mut Vec<u8>, more: &[u8]) {
    said.extend_from_slice(more);
    let too_much = said.len().saturating_sub(KEPT_WORDS);
    said.drain(..too_much);
}

/// The last line that is not empty, without control characters because it is shown on a terminal.
fn last_message(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said);
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
    let line = line.strip_prefix("linerate: ").or_else(|| line.strip_prefix("ssh: ")).unwrap_or(line);
    line.chars().filter(|letter| !letter.is_control()).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Time between pings. A remote generator ends after a longer silence.
const PING_INTERVAL: Duration = Duration::from_secs(2);

/// A thread that keeps connections alive with requests for the remote time, whose answers also
/// compare the clocks. It ends when this is dropped.
#[derive(Debug, Default)]
pub(super) struct KeepalivePinger {
    running: Option<(Sender<()>, JoinHandle<()>)>,
}

impl KeepalivePinger {
    pub(super) fn start(links: &[HostLink]) -> Self {
        let lines: Vec<OrderLine> = links.iter().map(|link| link.line().clone()).collect();
        let (end, ended) = mpsc::channel();
        let thread = thread::spawn(move || {
            let mut number = 0;
            while ended.recv_timeout(PING_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                number += 1;
                for line in &lines {
                    // The thread that reads the answers notices a broken connection.
                    let _ = line.ping(number);
                }
            }
        });
        KeepalivePinger { running: Some((end, thread)) }
    }
}

impl Drop for KeepalivePinger {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.running.take() {
            drop(end);
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_message_is_the_last_line_that_is_not_empty() {
        for (said, words) in [
            ("", ""),
            (
                "Warning: added\r\nssh: connect to host a port 22: Connection refused\r\n",
                "connect to host a port 22: Connection refused",
            ),
            ("linerate: no way\n\n \n", "no way"),
            ("\u{1b}[31mred\u{7}\n", "[31mred"),
        ] {
            assert_eq!(last_message(said.as_bytes()), words);
        }
        let mut said = Vec::new();
        for _ in 0..100 {
            keep(&mut said, &[b'x'; 1000]);
        }
        assert_eq!(said.len(), KEPT_WORDS);
    }
}
