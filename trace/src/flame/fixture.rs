//! Fixture profiles for tests.

use super::profile::{
    CpuContext, CpuProfile, FrameKind, SampleEvent, SampledStack, StackFrame, StackProfile,
};

/// A profile of one second at 100 Hz on CPU 0, from lines of samples, thread, context and
/// functions: `3 openssl softirq main;handle_softirqs;net_rx_action`.
pub(super) fn profile(text: &str) -> StackProfile {
    let mut frames: Vec<StackFrame> = Vec::new();
    let stacks: Vec<SampledStack> = text.lines().map(|line| stack(line, &mut frames)).collect();
    let sum = |idle: bool| {
        stacks
            .iter()
            .filter(|stack| !idle || stack.context == CpuContext::Idle)
            .map(|stack| stack.samples)
            .sum()
    };
    let cpu = CpuProfile { cpu: 0, samples: sum(false), idle: sum(true), lost: 0 };
    StackProfile {
        seconds: 1.0,
        event: SampleEvent::CpuCycles,
        frequency_hz: 100,
        cpus: vec![cpu],
        frames,
        stacks,
        own: Default::default(),
        notes: Vec::new(),
    }
}

fn stack(line: &str, frames: &mut Vec<StackFrame>) -> SampledStack {
    let words: Vec<&str> = line.splitn(4, ' ').collect();
    let [samples, comm, context, names] = words[..] else { panic!("{line}") };
    let context: CpuContext = serde_json::from_value(context.into()).unwrap();
    let names: Vec<&str> = names.split(';').collect();
    let entry = names.iter().position(|name| name.starts_with("handle_softirqs")).unwrap_or(0) as u32;
    let mut index = |name: &str| {
        frames.iter().position(|frame| frame.name == name).unwrap_or_else(|| {
            frames.push(StackFrame { name: name.to_owned(), module: None, kind: FrameKind::Kernel });
            frames.len() - 1
        }) as u32
    };
    let frames = names.iter().map(|name| index(name)).collect();
    let samples = samples.parse().unwrap();
    SampledStack { frames, context, entry, cpu: 0, pid: 7, comm: comm.to_owned(), samples }
}
