//! Receivers that send no replies, such as a syslog server: the kernel counts the datagrams that
//! they read.

use std::fs;
use std::time::{Duration, Instant};

use linerate_host::stage::route::parse_snmp;
use linerate_load::{Generator, GeneratorDescription, GeneratorError, LoadSlot, SlotInterval, SlotOutcome};

/// Time between two readings of the counter after a slot. The kernel has no event for it.
const POLL: Duration = Duration::from_millis(2);

/// A generator whose requests count as answered when the server's host has read them.
pub(crate) struct ReadCountGenerator {
    inner: Box<dyn Generator>,
    /// `/proc/.../net/snmp` of the server's network namespace, in which no other program receives
    /// UDP.
    counters: String,
}

impl ReadCountGenerator {
    pub(crate) fn new(inner: Box<dyn Generator>, counters: String) -> Self {
        Self { inner, counters }
    }

    /// UDP datagrams that programs read (`UDP_MIB_INDATAGRAMS` counts in udp_recvmsg, net/ipv4/udp.c, Linux 6.18).
    fn datagrams_read(&self) -> Result<u64, GeneratorError> {
        let failed = |why: String| GeneratorError::Incomplete {
            who: "counting what the server reads".to_owned(),
            why: format!("{}: {why}", self.counters),
            others: None,
        };
        let text = fs::read_to_string(&self.counters).map_err(|error| failed(error.to_string()))?;
        let counters = parse_snmp(&text).map_err(failed)?;
        counters.get("Udp.InDatagrams").copied().ok_or_else(|| failed("it has no Udp InDatagrams".to_owned()))
    }
}

impl Generator for ReadCountGenerator {
    fn describe(&self) -> GeneratorDescription {
        self.inner.describe()
    }

    fn watch(
        &mut self,
        slot: &LoadSlot,
        observer: &mut dyn FnMut(&SlotInterval),
    ) -> Result<SlotOutcome, GeneratorError> {
        let before = self.datagrams_read()?;
        let mut outcome = self.inner.watch(&LoadSlot { drain: Duration::ZERO, ..*slot }, observer)?;
        let load_end = Instant::now();
        let read_in_slot = self.datagrams_read()?.saturating_sub(before).min(outcome.sent);
        let mut read_count = read_in_slot;
        while read_count < outcome.sent && load_end.elapsed() < slot.drain {
            std::thread::sleep(POLL);
            read_count = self.datagrams_read()?.saturating_sub(before).min(outcome.sent);
        }
        outcome.answered = read_count;
        outcome.lost = outcome.sent - read_count;
        outcome.answered_per_second =
            read_in_slot as f64 / outcome.duration.as_secs_f64().max(f64::MIN_POSITIVE);
        Ok(outcome)
    }
}
