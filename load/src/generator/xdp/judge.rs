//! A thread that verifies replies from a ring buffer, because the BPF program cannot.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use aya::maps::{MapData, RingBuf};

use crate::error::GeneratorError;
use crate::sys::xdp::VERDICT_BYTES;
use crate::workload::{PreparedExchange, ReplyVerifier};

// Polling interval of an empty ring.
const LOOK_AGAIN: Duration = Duration::from_micros(500);

// The longest wait for the ring at the end of a slot.
const PATIENCE: Duration = Duration::from_secs(10);

/// A reply that the program counted as an answer and that does not verify.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BadReply {
    pub(super) latency_ns: u64,
    pub(super) intended_ns: u64,
    pub(super) in_time: bool,
    pub(super) code: Option<u8>,
    /// It answers an earlier request with the same tag.
    pub(super) late: bool,
}

#[derive(Debug)]
pub(super) struct ReplyJudge {
    shared: Arc<JudgeShared>,
    handle: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct JudgeShared {
    /// The start of the slot, ns. Replies to earlier requests are not judged.
    start_ns: AtomicU64,
    judged: AtomicU64,
    failures: Mutex<Vec<BadReply>>,
    stop: AtomicBool,
}

/// `struct verdict` of bpf/load.h.
struct VerdictRecord<'a> {
    flow: u32,
    sequence: u64,
    latency_ns: u64,
    intended_ns: u64,
    in_time: bool,
    reply: &'a [u8],
}

impl ReplyJudge {
    pub(super) fn start(
        mut ring: RingBuf<MapData>,
        exchange: Arc<PreparedExchange>,
        verify: Arc<dyn ReplyVerifier>,
    ) -> Result<Self, GeneratorError> {
        let shared = Arc::new(JudgeShared::default());
        let thread_shared = Arc::clone(&shared);
        let handle = thread::Builder::new()
            .name("load-judge".to_owned())
            .spawn(move || {
                while !thread_shared.stop.load(Ordering::Relaxed) {
                    let mut is_idle = true;
                    while let Some(record) = ring.next() {
                        is_idle = false;
                        let Some(record) = parse_record(&record) else { continue };
                        if record.intended_ns < thread_shared.start_ns.load(Ordering::Acquire) {
                            continue;
                        }
                        if let Some(failure) = find_bad_reply(&record, &exchange, &*verify) {
                            thread_shared
                                .failures
                                .lock()
                                .unwrap_or_else(PoisonError::into_inner)
                                .push(failure);
                        }
                        // After the failure was pushed, because `finish` takes the failures once
                        // the count is reached.
                        thread_shared.judged.fetch_add(1, Ordering::Release);
                    }
                    if is_idle {
                        thread::sleep(LOOK_AGAIN);
                    }
                }
            })
            .map_err(|source| {
                GeneratorError::system("cannot start the thread that verifies replies", source)
            })?;
        Ok(ReplyJudge { shared, handle: Some(handle) })
    }

    // Begins a slot. Late replies to the requests of the last slot may still be on their way.
    pub(super) fn begin(&self, start_ns: u64) {
        self.shared.start_ns.store(start_ns, Ordering::Release);
        self.shared.failures.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.shared.judged.store(0, Ordering::Release);
    }

    // Waits until `handed_over` replies have been verified since the slot began. Returns the bad replies and
    // the number of replies that were not verified in time.
    pub(super) fn finish(&self, handed_over: u64) -> (Vec<BadReply>, u64) {
        let deadline = Instant::now() + PATIENCE;
        while self.shared.judged.load(Ordering::Acquire) < handed_over && Instant::now() < deadline {
            thread::sleep(LOOK_AGAIN);
        }
        let failures =
            std::mem::take(&mut *self.shared.failures.lock().unwrap_or_else(PoisonError::into_inner));
        let judged_count = self.shared.judged.load(Ordering::Acquire);
        (failures, handed_over.saturating_sub(judged_count))
    }
}

impl Drop for ReplyJudge {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(handle) = self.handle.take() {
            // A panic of a verifier shows as replies not judged.
            let _ = handle.join();
        }
    }
}

fn find_bad_reply(
    record: &VerdictRecord<'_>,
    exchange: &PreparedExchange,
    verify: &dyn ReplyVerifier,
) -> Option<BadReply> {
    let answered = exchange.find_answered(verify, (record.flow, record.sequence), record.reply);
    (answered != Some(0)).then(|| BadReply {
        latency_ns: record.latency_ns,
        intended_ns: record.intended_ns,
        in_time: record.in_time,
        code: exchange.code_of(record.reply),
        late: answered.is_some(),
    })
}

fn parse_record(record: &[u8]) -> Option<VerdictRecord<'_>> {
    let record = record.first_chunk::<VERDICT_BYTES>()?;
    let (words, _) = record.as_chunks::<8>();
    let word = |index: usize| u64::from_ne_bytes(words[index]);
    let (halves, _) = record.as_chunks::<4>();
    let length = u32::from_ne_bytes(halves[1]) as usize;
    Some(VerdictRecord {
        flow: u32::from_ne_bytes(halves[0]),
        sequence: word(1),
        latency_ns: word(2),
        intended_ns: word(3),
        in_time: word(4) != 0,
        reply: record.get(40..)?.get(..length)?,
    })
}
