//! The remote side: `linerate load --on-demand`, which offers load as its standard input orders, until the input ends.

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use linerate_load::report::LoadReport;
use linerate_load::{Generator, GeneratorDescription, GeneratorError, LoadSlot, SlotInterval, SlotOutcome};

use super::clock;
use super::protocol::{ReadyGenerator, RemoteAnswer, RemoteOrder, SCHEMA, SlotOrder};
use crate::process::wait_readable;

/// After this silence the local side is considered gone, because a broken link leaves the
/// connection open.
const SILENCE: Duration = Duration::from_secs(15);
/// How often the reader checks whether it should end.
const END_POLL: Duration = Duration::from_millis(500);
/// A longer line is not an order.
const LONGEST_LINE: usize = 1 << 16;
/// A start further in the future is a sign that a clock was set.
const FURTHEST_NS: u64 = 30_000_000_000;

/// Runs slots on `generator` as `input` orders them, and answers on `output`, until `input` ends or is silent for 15 s.
/// `cancel` is the flag that ends the generator's slot. It is set when the local side stops the slot or is gone, and cleared
/// before the next slot.
///
/// # Errors
/// If answers cannot be written or input cannot be read. The current slot ends then, too.
pub fn serve(
    generator: &mut dyn Generator,
    input: impl AsFd + Send,
    output: impl Write + Send,
    cancel: &AtomicBool,
) -> io::Result<()> {
    let output = AnswerOutput(Mutex::new(output));
    output.write_answer(&RemoteAnswer::Ready(Box::new(ReadyGenerator {
        schema: SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        generator: with_sources(generator.describe()),
        cpus: thread::available_parallelism().map_or(1, usize::from),
    })))?;
    let over = AtomicBool::new(false);
    let (order_sender, orders) = mpsc::channel();
    thread::scope(|scope| {
        let (output, over) = (&output, &over);
        let reader = scope.spawn(move || {
            let read_result = OrderReader { output, cancel, over, asked: order_sender }.read(&input);
            // Without orders the current slot has no purpose.
            cancel.store(true, Ordering::Relaxed);
            read_result
        });
        let run_result = run(generator, &orders, output, cancel);
        over.store(true, Ordering::Relaxed);
        let read_result =
            reader.join().unwrap_or_else(|_| Err(io::Error::other("the thread that reads orders is gone")));
        run_result.and(read_result)
    })
}

/// Fills in the addresses that the kernel chooses, so that the other side can distinguish this load
/// from other clients.
fn with_sources(mut generator: GeneratorDescription) -> GeneratorDescription {
    if generator.sources.is_empty() {
        let mut sources: Vec<_> =
            generator.targets.iter().filter_map(|target| source_to(*target).ok()).collect();
        sources.sort_unstable();
        sources.dedup();
        generator.sources = sources;
    }
    generator
}

fn source_to(target: SocketAddr) -> io::Result<IpAddr> {
    let any_address = if target.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
    let socket = UdpSocket::bind((any_address, 0))?;
    socket.connect(target)?;
    Ok(socket.local_addr()?.ip())
}

fn run(
    generator: &mut dyn Generator,
    orders: &Receiver<SlotOrder>,
    output: &AnswerOutput<impl Write>,
    cancel: &AtomicBool,
) -> io::Result<()> {
    // The channel ends with the reader.
    for order in orders {
        let number = order.number;
        let mut write_result = Ok(());
        let mut observer = |interval: &SlotInterval| {
            if write_result.is_ok() {
                write_result =
                    output.write_answer(&RemoteAnswer::Interval { slot: number, interval: interval.clone() });
            }
            if write_result.is_err() {
                cancel.store(true, Ordering::Relaxed);
            }
        };
        let outcome = begin(generator, &order.slot, &mut observer);
        write_result?;
        output.write_answer(&answer(number, generator, outcome))?;
    }
    Ok(())
}

/// Runs a slot at the ordered time, or at once if that time has passed. The result has the actual
/// start.
fn begin(
    generator: &mut dyn Generator,
    slot: &LoadSlot,
    observer: &mut dyn FnMut(&SlotInterval),
) -> Result<SlotOutcome, GeneratorError> {
    let is_soon = |at_ns: &u64| *at_ns <= clock::realtime_ns().saturating_add(FURTHEST_NS);
    let slot = LoadSlot { start_at_realtime_ns: slot.start_at_realtime_ns.filter(is_soon), ..*slot };
    match generator.watch(&slot, observer) {
        Err(GeneratorError::StartIsOver { .. }) => {
            generator.watch(&LoadSlot { start_at_realtime_ns: None, ..slot }, observer)
        }
        other => other,
    }
}

fn answer(
    slot: u64,
    generator: &dyn Generator,
    outcome: Result<SlotOutcome, GeneratorError>,
) -> RemoteAnswer {
    match outcome {
        Ok(outcome) => {
            let report = LoadReport { generator: generator.describe(), outcome, ..LoadReport::default() };
            RemoteAnswer::Done { slot, report: Box::new(report) }
        }
        Err(error) => RemoteAnswer::Failed {
            slot,
            cancelled: matches!(error, GeneratorError::Cancelled),
            why: error.to_string(),
        },
    }
}

/// Writes answers as whole lines.
struct AnswerOutput<W>(Mutex<W>);

impl<W: Write> AnswerOutput<W> {
    fn write_answer(&self, answer: &RemoteAnswer) -> io::Result<()> {
        let mut line = serde_json::to_vec(answer)?;
        line.push(b'\n');
        let mut output = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        output.write_all(&line)?;
        output.flush()
    }
}

/// Reads orders, also during a slot.
struct OrderReader<'a, W> {
    output: &'a AnswerOutput<W>,
    cancel: &'a AtomicBool,
    /// Set when the reader should end.
    over: &'a AtomicBool,
    asked: Sender<SlotOrder>,
}

impl<W: Write> OrderReader<'_, W> {
    fn read(self, input: &impl AsFd) -> io::Result<()> {
        let mut pending = Vec::new();
        let mut last_input = Instant::now();
        while !self.over.load(Ordering::Relaxed) && last_input.elapsed() < SILENCE {
            if !wait_readable(input.as_fd(), END_POLL)? {
                continue;
            }
            let mut chunk = [0; 4096];
            let count = match rustix::io::read(input, &mut chunk) {
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(rustix::io::Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            last_input = Instant::now();
            pending.extend(chunk.iter().take(count));
            while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = pending.drain(..=end).collect();
                self.handle_order(&line)?;
            }
            if pending.len() > LONGEST_LINE {
                return Err(io::Error::other(format!("an order of more than {LONGEST_LINE} bytes")));
            }
        }
        Ok(())
    }

    fn handle_order(&self, line: &[u8]) -> io::Result<()> {
        let order = serde_json::from_slice(line).map_err(|error| {
            let excerpt = String::from_utf8_lossy(line.get(..60).unwrap_or(line)).trim().to_owned();
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("'{excerpt}' is not an order ({SCHEMA}): {error}"),
            )
        })?;
        match order {
            RemoteOrder::Ping { number } => {
                self.output.write_answer(&RemoteAnswer::Pong { number, realtime_ns: clock::realtime_ns() })
            }
            RemoteOrder::Stop => {
                self.cancel.store(true, Ordering::Relaxed);
                Ok(())
            }
            RemoteOrder::Slot(order) => {
                self.cancel.store(false, Ordering::Relaxed);
                // The receiver is gone only after a failure to answer, which it reports.
                let _ = self.asked.send(order);
                Ok(())
            }
        }
    }
}
