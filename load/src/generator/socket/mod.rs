//! The generator on ordinary UDP sockets.

mod flood;
mod flow_track;
mod inbox;
mod intervals;
mod open;
mod outcome;
mod pace;
mod requests;
mod send_drops;
mod sequence_window;
#[cfg(test)]
mod simulation;
mod totals;
mod window;
mod worker;

use std::sync::Arc;
use std::sync::mpsc::channel;

use super::options::GeneratorOptions;
use super::plan::{SlotFacts, SlotPlan, SlotSpan};
use super::thread::GeneratorThread;
use super::{Generator, GeneratorDescription, LoadSlot};
use crate::error::GeneratorError;
use crate::header::RequestCodec;
use crate::outcome::{SlotInterval, SlotOutcome};
use crate::workload::LoadWorkload;
use flow_track::FlowTrack;
use inbox::SocketFlow;
use intervals::{IntervalMessage, IntervalSource, ThreadIntervals};
use open::{RECEIVE_BUFFER_BYTES, SourceAddresses, open};
use outcome::outcome;
use requests::{EchoRequests, RequestSource, ScriptedRequests};
use worker::SocketWorker;

// Lead time of a slot, in which all threads wake up and clear their state.
const LEAD_NS: u64 = 2_000_000;

/// Additional lead time per flow of a thread.
const FLOW_LEAD_NS: u64 = 4_000;

/// A load generator on connected UDP sockets: one socket per flow, sendmmsg and recvmmsg, any number
/// of threads.
#[derive(Debug)]
pub(super) struct SocketGenerator {
    threads: Vec<GeneratorThread>,
    /// In the order of the threads.
    interval_sources: Vec<IntervalSource>,
    description: GeneratorDescription,
    options: GeneratorOptions,
    epoch: u32,
}

impl SocketGenerator {
    /// `no_xdp_reason`: why the preferred backend is not used.
    pub(super) fn start(
        options: &GeneratorOptions,
        no_xdp_reason: Option<String>,
    ) -> Result<Self, GeneratorError> {
        options.check_files()?;
        let run = fastrand::u64(..);
        let sources = SourceAddresses::from_options(options);
        let mut receive_buffer_bytes = u64::MAX;
        let mut flows_by_thread: Vec<Vec<SocketFlow>> = Vec::new();
        flows_by_thread.resize_with(options.threads, Vec::new);
        for id in 0..options.flows {
            let socket = open(options, &sources, id)?;
            let buffer_bytes = socket.recv_buffer_size().map_err(|source| {
                GeneratorError::system("cannot read SO_RCVBUF of a generator socket", source)
            })?;
            receive_buffer_bytes = receive_buffer_bytes.min(buffer_bytes as u64);
            flows_by_thread[id % options.threads]
                .push(SocketFlow { socket, track: flow_track(options, run, id as u32) });
        }
        let mut fallbacks = Vec::from_iter(no_xdp_reason);
        if receive_buffer_bytes < RECEIVE_BUFFER_BYTES as u64 {
            fallbacks.push(format!(
                "receive buffers of {receive_buffer_bytes} bytes instead of {RECEIVE_BUFFER_BYTES}: more needs CAP_NET_ADMIN or a larger net.core.rmem_max"
            ));
        }
        let mut generator = SocketGenerator {
            threads: Vec::with_capacity(options.threads),
            interval_sources: Vec::with_capacity(options.threads),
            description: options.describe(receive_buffer_bytes, fallbacks),
            options: options.clone(),
            epoch: 0,
        };
        for (index, flows) in flows_by_thread.into_iter().enumerate() {
            let cpu = options.cpus.as_ref().and_then(|cpus| cpus.get(index % cpus.len()).copied());
            let (requests, blank) = requests(options, run, index)?;
            let (burst, cancel) = (options.burst, options.cancel.clone());
            // Not bounded, so that a thread never waits for the reader of its messages.
            let (message_sender, messages) = channel();
            let (emptied, empty_receiver) = channel();
            let thread = GeneratorThread::start(index, cpu, options.nice, move || {
                let intervals = ThreadIntervals::new(message_sender.clone(), empty_receiver);
                let mut worker = SocketWorker::new(flows, requests, &blank, burst, cancel, intervals)?;
                Ok(move |plan| {
                    message_sender.send(IntervalMessage::Done(Box::new(worker.run(&plan)))).is_ok()
                })
            })?;
            generator.threads.push(thread);
            generator.interval_sources.push(IntervalSource { messages, emptied });
        }
        Ok(generator)
    }

    // Runs a plan per thread and returns their reports; `None` if a thread is gone.
    fn run_all(
        &self,
        plans: &[SlotPlan],
        span: &SlotSpan,
        observer: &mut dyn FnMut(&SlotInterval),
    ) -> Option<(Vec<intervals::SocketWorkerReport>, Vec<SlotInterval>)> {
        for (thread, plan) in self.threads.iter().zip(plans) {
            thread.send_plan(*plan)?;
        }
        intervals::merge_intervals(&self.interval_sources, span, observer)
    }
}

impl Generator for SocketGenerator {
    fn describe(&self) -> GeneratorDescription {
        self.description.clone()
    }

    fn watch(
        &mut self,
        slot: &LoadSlot,
        observer: &mut dyn FnMut(&SlotInterval),
    ) -> Result<SlotOutcome, GeneratorError> {
        slot.check_runnable(self.threads.len(), &self.options.cancel)?;
        self.epoch = self.epoch.wrapping_add(1);
        let (flows, threads) = (self.options.flows, self.threads.len());
        let lead_ns = LEAD_NS + FLOW_LEAD_NS * flows.div_ceil(threads) as u64;
        let span = SlotSpan::new(slot, self.epoch, lead_ns, &self.options.cancel)?;
        let plans = SlotPlan::for_threads(slot, span, (flows, threads), self.options.timeout, pace::tick_ns);
        let Some((reports, intervals)) = self.run_all(&plans, &span, observer) else {
            // Messages of the other threads must not count as messages of the next slot.
            self.threads.clear();
            return Err(GeneratorError::Worker);
        };
        Ok(outcome(&SlotFacts::new(slot, span, &plans, &self.options), &reports, intervals))
    }
}

fn flow_track(options: &GeneratorOptions, run: u64, id: u32) -> FlowTrack {
    match &options.workload {
        LoadWorkload::Echo { .. } => FlowTrack::for_echo(id),
        LoadWorkload::Exchange(exchange) => {
            FlowTrack::for_exchange(exchange, run, id, options.flows.div_ceil(options.threads))
        }
    }
}

// The requests of a thread, and an initial payload with the length of the longest request.
fn requests(
    options: &GeneratorOptions,
    run: u64,
    thread: usize,
) -> Result<(RequestSource, Vec<u8>), GeneratorError> {
    match &options.workload {
        LoadWorkload::Echo { payload_bytes } => {
            let codec = RequestCodec::for_payload(*payload_bytes)?;
            let blank = codec.blank();
            Ok((RequestSource::Echo(EchoRequests::new(codec, run)), blank))
        }
        LoadWorkload::Exchange(exchange) => {
            let script = ScriptedRequests::new(Arc::clone(exchange), thread, options.threads);
            Ok((RequestSource::Exchange(script), vec![0; options.workload.longest_bytes().max(1)]))
        }
    }
}
