//! The connection to one host: an ssh process, with `linerate load --on-demand` at its other end.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{ChildStdin, ExitStatus};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::clock::{ClockOffset, RemoteClock};
use super::protocol::{ReadyGenerator, RemoteAnswer, RemoteOrder};
use super::ssh::{self, RemoteError, RemoteLoad, SshHost};
use super::workload;
use crate::child::LabChild;
use crate::repeating_thread::RepeatingThread;

/// Time between pings. A remote generator ends after a longer silence.
const PING_INTERVAL: Duration = Duration::from_secs(2);
/// Longest wait for an ssh process to end after its streams.
const TO_END: Duration = Duration::from_secs(2);
/// A longer line is not the result of a slot.
const LONGEST_LINE: u64 = 1 << 28;
/// Bytes of the messages of ssh and the remote program that are kept.
const KEPT_WORDS: usize = 4096;
/// The exit status of ssh for its own failures, and for a remote program that a signal ended.
const SSH_FAILED: i32 = 255;

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
    pub(super) ready: Option<Box<ReadyGenerator>>,
    /// Why no other slot can run: the connection ended, or a result did not come.
    pub(super) lost: Option<String>,
    /// Keeps the connection alive with requests for the remote time, whose answers also compare the clocks.
    keepalive: Option<RepeatingThread>,
    child: LabChild,
    line: OrderLine,
    said: Arc<Mutex<Vec<u8>>>,
    threads: Vec<JoinHandle<()>>,
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
        lock(&self.clock).record_ping(number);
        self.send(&RemoteOrder::Ping { number })
    }
}

impl HostLink {
    /// Starts ssh. Its news go to `event_sender`, with the index of the host.
    pub(super) fn start(
        ssh: &[String],
        host: &SshHost,
        program: &str,
        load: &RemoteLoad,
        host_index: usize,
        event_sender: &SyncSender<(usize, LinkNews)>,
    ) -> Result<Self, RemoteError> {
        let line = ssh::load_line(program, load)?;
        let mut command = ssh::ssh_command(ssh, host, &line);
        let mut child = command.spawn().and_then(LabChild::new).map_err(|source| no_ssh(&command, source))?;
        let stdin = child.stdin.take();
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let clock = Arc::new(Mutex::new(RemoteClock::default()));
        let output_tail = Arc::new(Mutex::new(Vec::new()));
        let mut threads = Vec::new();
        if let Some(stderr) = stderr {
            let output_tail = Arc::clone(&output_tail);
            threads.push(thread::spawn(move || collect_stderr(stderr, &output_tail)));
        }
        if let Some(stdout) = stdout {
            let (output_tail, clock, event_sender) =
                (Arc::clone(&output_tail), Arc::clone(&clock), event_sender.clone());
            // The receiver is gone when the generators are dropped. Nobody takes the time between slots.
            let send_news = move |link_news| match link_news {
                LinkNews::Answer(RemoteAnswer::Pong { .. }) => {
                    drop(event_sender.try_send((host_index, link_news)));
                }
                _ => drop(event_sender.send((host_index, link_news))),
            };
            threads.push(thread::spawn(move || listen(stdout, &output_tail, &clock, &send_news)));
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
        let (host, said) = (host.clone(), output_tail);
        Ok(HostLink { host, ready: None, lost: None, keepalive: None, child, line, said, threads })
    }

    /// Starts the pings.
    pub(super) fn keep_alive(&mut self) {
        let (line, mut number) = (self.line.clone(), 0);
        self.keepalive = Some(RepeatingThread::start(PING_INTERVAL, move || {
            number += 1;
            // The thread that reads the answers notices a broken connection.
            let _ = line.ping(number);
            true
        }));
    }

    /// Lets the remote program end, without waiting for it. Returns `false` if another thread is
    /// sending.
    pub(super) fn close(&self) -> bool {
        match self.line.stdin.try_lock() {
            Ok(mut stdin) => drop(stdin.take()),
            Err(TryLockError::Poisoned(stdin)) => drop(stdin.into_inner().take()),
            Err(TryLockError::WouldBlock) => return false,
        }
        true
    }

    fn close_within(&self, time: Duration) -> bool {
        let deadline = Instant::now() + time;
        while !self.close() {
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(Duration::from_millis(1));
        }
        true
    }

    pub(super) fn line(&self) -> &OrderLine {
        &self.line
    }

    pub(super) fn clock_readings(&self) -> usize {
        lock(&self.line.clock).readings()
    }

    pub(super) fn clock(&self) -> Option<ClockOffset> {
        lock(&self.line.clock).offset()
    }

    /// Ends ssh, and with it the remote program. Returns its status and its last message.
    fn end(&mut self) -> (Option<ExitStatus>, String) {
        if !self.close_within(TO_END) {
            // ssh does not read the workload. Writing fails when ssh has ended.
            let _ = self.child.kill();
            self.close_within(TO_END);
        }
        let status = match self.child.wait_at_most(TO_END) {
            Ok(Some(status)) => Some(status),
            Ok(None) | Err(_) => self.child.kill().ok(),
        };
        // The streams end with ssh, unless a program that ssh started (ProxyCommand) holds them open.
        let deadline = Instant::now() + TO_END;
        while self.threads.iter().any(|thread| !thread.is_finished()) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        (status, last_message(&lock(&self.said)))
    }

    /// Records that the connection ended by itself, and returns the reason.
    pub(super) fn record_loss(&mut self) -> String {
        let why = self.end_reason();
        self.lost.get_or_insert(why).clone()
    }

    fn end_reason(&mut self) -> String {
        let (status, message) = self.end();
        let code = status.and_then(|status| status.code());
        match (code, message.as_str()) {
            (Some(SSH_FAILED), "") => {
                "the connection ended, or linerate there was killed; ssh said nothing".to_owned()
            }
            (Some(SSH_FAILED), message) => format!("ssh: {message}"),
            (Some(0), "") => "linerate there ended by itself".to_owned(),
            (Some(code), "") => format!("linerate there ended with status {code}"),
            (Some(_), message) => message.to_owned(),
            (None, _) => "ssh here was killed".to_owned(),
        }
    }

    pub(super) fn ready_error(&mut self, ssh: &[String], program: &str) -> RemoteError {
        let host = self.host.clone();
        let (status, message) = self.end();
        match status.and_then(|status| status.code()) {
            Some(SSH_FAILED) | None => RemoteError::Ssh {
                host,
                words: if message.is_empty() { "it ended without a word".to_owned() } else { message },
            },
            Some(127) => RemoteError::NoProgram { host, program: program.to_owned() },
            // An older linerate does not have these options.
            Some(_) if message.contains("--on-demand") || message.contains("--workload-from-stdin") => {
                let remote_version =
                    version(ssh, &host, program).unwrap_or_else(|| "of an unknown version".to_owned());
                RemoteError::Version { host, program: program.to_owned(), its: remote_version }
            }
            Some(code) if message.is_empty() => {
                RemoteError::Refused { host, words: format!("'{program}' there ended with status {code}") }
            }
            Some(_) => RemoteError::Refused { host, words: message },
        }
    }
}

impl Drop for HostLink {
    fn drop(&mut self) {
        // ssh without a connection does not notice that its input has ended.
        if self.ready.is_none() {
            let _ = self.child.kill();
        }
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

fn listen(
    stdout: impl Read,
    output_tail: &Mutex<Vec<u8>>,
    clock: &Mutex<RemoteClock>,
    send_news: &dyn Fn(LinkNews),
) {
    let mut lines = BufReader::new(stdout);
    let mut is_ready = false;
    loop {
        let mut line = Vec::new();
        match lines.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return send_news(LinkNews::Gone),
            Ok(_) => {}
        }
        match serde_json::from_slice(&line) {
            Ok(RemoteAnswer::Pong { number, realtime_ns }) => {
                lock(clock).record_pong(number, realtime_ns);
                send_news(LinkNews::Answer(RemoteAnswer::Pong { number, realtime_ns }));
            }
            Ok(answer) => {
                // Earlier messages (a new host key, a greeting) do not explain a later end of the
                // connection.
                if !is_ready {
                    lock(output_tail).clear();
                }
                is_ready = true;
                send_news(LinkNews::Answer(answer));
            }
            // A login shell can print a greeting first.
            Err(_) if !is_ready => append_tail(&mut lock(output_tail), &line),
            Err(_) => {
                let line_start = String::from_utf8_lossy(line.get(..60).unwrap_or(&line)).trim().to_owned();
                send_news(LinkNews::Odd(line_start));
            }
        }
    }
}

fn collect_stderr(mut stderr: impl Read, output_tail: &Mutex<Vec<u8>>) {
    let mut chunk = [0; 1024];
    loop {
        match stderr.read(&mut chunk) {
            Ok(0) => return,
            Ok(count) => append_tail(&mut lock(output_tail), chunk.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

fn append_tail(output_tail: &mut Vec<u8>, bytes: &[u8]) {
    output_tail.extend_from_slice(bytes);
    let excess = output_tail.len().saturating_sub(KEPT_WORDS);
    output_tail.drain(..excess);
}

/// The last line that is not empty, without control characters because it is shown on a terminal.
fn last_message(output_tail: &[u8]) -> String {
    let text = String::from_utf8_lossy(output_tail);
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
    let line = line.strip_prefix("linerate: ").or_else(|| line.strip_prefix("ssh: ")).unwrap_or(line);
    line.chars().filter(|letter| !letter.is_control()).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use linerate_load::workload::WorkloadContents;

    use super::*;

    #[test]
    fn a_link_whose_ssh_does_not_read_the_workload_can_be_dropped() {
        let source = "dns:queries".parse().expect("a source");
        // More than a pipe holds.
        let workload = WorkloadContents { source, bytes: vec![b'a'; 1 << 20] };
        let load = RemoteLoad { workload: Some(workload), ..RemoteLoad::default() };
        let ssh = ["sh", "-c", "exec sleep 600", "ssh"].map(str::to_owned);
        let (event_sender, _events) = std::sync::mpsc::sync_channel(1);
        let host = "ssh://far1".parse().expect("a host");
        let link = HostLink::start(&ssh, &host, "linerate", &load, 0, &event_sender).expect("it starts");
        while !matches!(link.line.stdin.try_lock(), Err(TryLockError::WouldBlock)) {
            thread::yield_now();
        }
        drop(link);
    }

    #[test]
    fn last_message_is_the_last_nonempty_line() {
        for (stderr, message) in [
            ("", ""),
            (
                "Warning: added\r\nssh: connect to host a port 22: Connection refused\r\n",
                "connect to host a port 22: Connection refused",
            ),
            ("linerate: no way\n\n \n", "no way"),
            ("\u{1b}[31mred\u{7}\n", "[31mred"),
        ] {
            assert_eq!(last_message(stderr.as_bytes()), message);
        }
        let mut stderr = Vec::new();
        for _ in 0..100 {
            append_tail(&mut stderr, &[b'x'; 1000]);
        }
        assert_eq!(stderr.len(), KEPT_WORDS);
    }
}
