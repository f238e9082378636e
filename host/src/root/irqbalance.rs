//! irqbalance's control socket: bans of interrupts while it runs.
//!
//! `sock_handle` and `init_socket` in irqbalance.c (1.9.2): one message and one answer per
//! connection, then irqbalance closes it. It checks the sender's credentials and accepts messages
//! from root only. `settings ban irqs 24 25` replaces the interrupts banned before by `--banirq` or
//! by message; `setup` lists them. Bans by its policy script or by module name are not listed. Bans
//! survive its rescans (SIGHUP, new interrupts), and end with the process.

use std::collections::BTreeSet;
use std::io::{self, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, UCred, connect, sendmsg, socket_with,
};
use rustix::param::clock_ticks_per_second;
use rustix::process::{getgid, getpid, getuid};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::{Host, HostError};
use crate::process;

// irqbalance reads a message into 500 bytes and cuts the rest (up to 1.9.4; 16384 bytes since): a
// truncated number would ban another interrupt.
const LONGEST_MESSAGE: usize = 499;

// Up to 1.9.3 irqbalance sleeps for its own interval in the scan after a change of bans, and does
// not answer during that time.
const INTERVAL: Duration = Duration::from_secs(10);

/// Added to the interval.
const GRACE: Duration = Duration::from_secs(15);

// The limit for any interval.
const LONGEST_PATIENCE: Duration = Duration::from_secs(120);

const LONGEST_ANSWER: u64 = 1 << 20;

// irqbalance makes its socket after it has read all CPUs and interrupts (`main` of irqbalance.c,
// 1.9.4), and systemd regards it as started before that (Type=simple).
const STARTUP: Duration = Duration::from_secs(10);
const SOCKET_WAIT: Duration = Duration::from_secs(5);
const SOCKET_RETRY: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IrqbalanceSetup {
    /// Seconds between two scans.
    pub interval_seconds: u32,
    /// Interrupts banned by number, sorted.
    pub banned: BTreeSet<u32>,
}

impl Host {
    /// Waits up to 5 s for the socket if irqbalance started less than 10 s ago.
    ///
    /// # Errors
    /// [`HostError::Call`] if the id is of another process, irqbalance does not answer, or refuses
    /// this user.
    pub fn irqbalance_setup(&self, pid: u32) -> Result<IrqbalanceSetup, HostError> {
        self.call(&setup_key(pid), &format!("asking irqbalance ({pid}) for its setup"), || {
            let deadline = Instant::now() + SOCKET_WAIT;
            let answer = retry_while_absent(
                || send_message(pid, "setup", self.answer_timeout(pid)),
                || Instant::now() < deadline && self.is_starting(pid),
            )?;
            parse_setup(&answer).map_err(|reason| io::Error::new(io::ErrorKind::InvalidData, reason))
        })
    }

    /// Bans these interrupts, and no other interrupts by number.
    ///
    /// # Errors
    /// [`HostError::Call`] as for [`Host::irqbalance_setup`], and if the list exceeds a message.
    pub(crate) fn ban_from_irqbalance(&self, pid: u32, irqs: &BTreeSet<u32>) -> Result<(), HostError> {
        let operation = format!("telling irqbalance ({pid}) what to leave alone");
        let send_ban = || {
            ban_message(irqs)
                .and_then(|message| send_message(pid, &message, self.answer_timeout(pid)))
                .map(drop)
        };
        self.apply_change(&setup_key(pid), &operation, send_ban, |setup: &mut IrqbalanceSetup| {
            setup.banned.clone_from(irqs);
        })
    }

    // Whether the process is so young that its socket may not exist yet.
    fn is_starting(&self, pid: u32) -> bool {
        let Ok(started) = process::start_time(self, &format!("/proc/{pid}")) else { return false };
        let now = u64::try_from(clock_gettime(ClockId::Boottime).tv_sec).unwrap_or(0);
        now.saturating_sub(started / clock_ticks_per_second()) < STARTUP.as_secs()
    }

    // The longest wait for an answer.
    fn answer_timeout(&self, pid: u32) -> Duration {
        let arguments = self.read(&format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let arguments: Vec<&str> = arguments.split('\0').collect();
        let interval = parse_interval(&arguments).map_or(INTERVAL, Duration::from_secs);
        interval.saturating_add(GRACE).min(LONGEST_PATIENCE)
    }
}

fn setup_key(pid: u32) -> String {
    format!("irqbalance/{pid}/setup")
}

/// The message that bans these interrupts.
pub(crate) fn ban_message(irqs: &BTreeSet<u32>) -> io::Result<String> {
    // irqbalance reads numbers until one is 0.
    if irqs.contains(&0) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it cannot ban interrupt 0"));
    }
    let numbers: Vec<String> = irqs.iter().map(u32::to_string).collect();
    let list = if numbers.is_empty() { "NONE".to_owned() } else { numbers.join(" ") };
    let message = format!("settings ban irqs {list}");
    if message.len() > LONGEST_MESSAGE {
        let reason = format!(
            "{} interrupts need {} bytes, and a message has at most {LONGEST_MESSAGE}",
            numbers.len(),
            message.len()
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    }
    Ok(message)
}

/// The seconds of `--interval=60`, `--interval 60`, `-t 60` and `-t60`.
fn parse_interval(arguments: &[&str]) -> Option<u64> {
    let mut words = arguments.iter();
    let mut seconds = None;
    while let Some(word) = words.next() {
        let value = match *word {
            "-t" | "--interval" => words.next().copied(),
            word => word.strip_prefix("--interval=").or_else(|| word.strip_prefix("-t")),
        };
        seconds = value.and_then(|value| value.parse().ok()).or(seconds);
    }
    seconds
}

/// Repeats a request while nothing listens on the socket and `may_appear` permits.
fn retry_while_absent<T>(
    request: impl Fn() -> io::Result<T>,
    may_appear: impl Fn() -> bool,
) -> io::Result<T> {
    loop {
        match request() {
            Err(error) if is_absent(&error) && may_appear() => std::thread::sleep(SOCKET_RETRY),
            result => return result,
        }
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

/// Sends a message, and reads until irqbalance closes the connection after it has acted.
fn send_message(pid: u32, message: &str, timeout: Duration) -> io::Result<String> {
    let socket = open_connection(pid, timeout)?;
    let sender = UCred { pid: getpid(), uid: getuid(), gid: getgid() };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    let mut credentials = SendAncillaryBuffer::new(&mut space);
    credentials.push(SendAncillaryMessage::ScmCredentials(sender));
    sendmsg(&socket, &[IoSlice::new(message.as_bytes())], &mut credentials, SendFlags::NOSIGNAL)?;
    let mut answer = Vec::new();
    match UnixStream::from(socket).take(LONGEST_ANSWER).read_to_end(&mut answer) {
        Ok(_) => Ok(String::from_utf8_lossy(&answer).into_owned()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            let reason = format!("it has not answered for {} s", timeout.as_secs());
            Err(io::Error::new(io::ErrorKind::TimedOut, reason))
        }
        Err(error) => Err(error),
    }
}

fn open_connection(pid: u32, timeout: Duration) -> io::Result<rustix::fd::OwnedFd> {
    let mut last_error = io::Error::from(io::ErrorKind::NotFound);
    for address in socket_addresses(pid)? {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        set_socket_timeout(&socket, Timeout::Send, Some(timeout))?;
        set_socket_timeout(&socket, Timeout::Recv, Some(timeout))?;
        match connect(&socket, &address) {
            // Another process may have this socket name by now.
            Ok(()) => match u32::try_from(socket_peercred(&socket)?.pid.as_raw_nonzero().get()) {
                Ok(peer) if peer == pid => return Ok(socket),
                _ => last_error = io::Error::other("its socket is that of another process"),
            },
            Err(error) => last_error = error.into(),
        }
    }
    Err(last_error)
}

// The possible addresses of irqbalance's socket: in its runtime directory; an abstract name up to
// 1.4; otherwise a name of zeros.
fn socket_addresses(pid: u32) -> io::Result<[SocketAddrUnix; 3]> {
    Ok([
        SocketAddrUnix::new_abstract_name(&[0; 107])?,
        SocketAddrUnix::new_abstract_name(format!("irqbalance{pid}.sock").as_bytes())?,
        SocketAddrUnix::new(format!("/run/irqbalance/irqbalance{pid}.sock"))?,
    ])
}

/// Reads `SLEEP 10 IRQ 38 LOAD 0 DIFF 0 CLASS 0 BANNED 00000000`.
pub(crate) fn parse_setup(answer: &str) -> Result<IrqbalanceSetup, String> {
    let mut words = answer.split([' ', '\n', '\0']).filter(|word| !word.is_empty());
    let mut interval = None;
    let mut banned = BTreeSet::new();
    while let Some(key) = words.next() {
        if key == "BANNED" {
            let interval_seconds = interval.ok_or("its answer has no SLEEP")?;
            return Ok(IrqbalanceSetup { interval_seconds, banned });
        }
        let value = words.next().unwrap_or_default();
        let number = || value.parse::<u32>().map_err(|_| format!("'{value}' after {key} is no number"));
        match key {
            "SLEEP" => interval = Some(number()?),
            "IRQ" => {
                banned.insert(number()?);
            }
            // LOAD, DIFF and CLASS of an interrupt, and items of later versions.
            _ => {}
        }
    }
    // The answer is incomplete, or not from irqbalance.
    Err("its answer has no BANNED".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setup_reply_of_irqbalance_1_9_2_is_parsed() {
        let answer = "SLEEP 10 IRQ 40 LOAD 0 DIFF 0 CLASS 0 IRQ 38 LOAD 0 DIFF 0 CLASS 0 BANNED 00000000";
        let expected = IrqbalanceSetup { interval_seconds: 10, banned: [38, 40].into() };
        assert_eq!(parse_setup(answer), Ok(expected));
        let none = IrqbalanceSetup { interval_seconds: 3, banned: BTreeSet::new() };
        assert_eq!(parse_setup("SLEEP 3 BANNED 00000000,00000fff"), Ok(none));
    }

    #[test]
    fn requests_are_repeated_only_until_the_socket_of_a_young_process_exists() {
        use io::ErrorKind::{ConnectionRefused, NotFound, PermissionDenied};
        for (errors, young_for, expected_requests) in [
            (&[][..], 9, 1),
            (&[NotFound, ConnectionRefused], 9, 3),
            (&[NotFound, NotFound, NotFound], 1, 2),
            (&[NotFound], 0, 1),
            (&[PermissionDenied], 9, 1),
        ] {
            let (requests, checks) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
            let request = || {
                requests.set(requests.get() + 1);
                errors.get(requests.get() - 1).map_or(Ok(()), |kind| Err(io::Error::from(*kind)))
            };
            let may_appear = || checks.replace(checks.get() + 1) < young_for;
            let result = retry_while_absent(request, may_appear);
            assert_eq!(requests.get(), expected_requests, "{errors:?}");
            assert_eq!(result.is_ok(), requests.get() > errors.len(), "{errors:?}");
        }
    }

    #[test]
    fn incomplete_setup_replies_are_errors() {
        assert_eq!(parse_setup(""), Err("its answer has no BANNED".into()));
        assert_eq!(parse_setup("SLEEP 10 IRQ 38 LOAD 0 DIFF"), Err("its answer has no BANNED".into()));
        assert_eq!(parse_setup("IRQ 38 BANNED 0"), Err("its answer has no SLEEP".into()));
        assert_eq!(parse_setup("SLEEP 10 IRQ x BANNED 0"), Err("'x' after IRQ is no number".into()));
    }

    #[test]
    fn interval_argument_is_read_in_every_form() {
        assert_eq!(parse_interval(&["irqbalance", "--foreground"]), None);
        for arguments in [&["x", "--interval=60"][..], &["x", "--interval", "60"], &["-t5", "-t", "60", "-f"]]
        {
            assert_eq!(parse_interval(arguments), Some(60), "{arguments:?}");
        }
    }

    #[test]
    fn ban_messages_over_499_bytes_or_with_irq_0_are_refused() {
        assert_eq!(ban_message(&[].into()).expect("fits"), "settings ban irqs NONE");
        assert_eq!(ban_message(&[25, 24].into()).expect("fits"), "settings ban irqs 24 25");
        assert!(ban_message(&(100..220).collect()).is_ok());
        let error = ban_message(&(100..221).collect()).expect_err("too long");
        assert_eq!(error.to_string(), "121 interrupts need 501 bytes, and a message has at most 499");
        assert!(ban_message(&[0, 5].into()).is_err());
    }
}
