//! Stacks as folded text, `root;function;function 12`, which many tools read.

use std::collections::BTreeMap;

use super::profile::{FrameKind, StackFrame, StackProfile};
use super::result::FlameSelection;

/// Replaces functions that are not shown.
pub(super) const LEFT_OUT: &str = "...";

/// The function's name, or its module in brackets if it has none.
pub fn label(frame: &StackFrame) -> String {
    if frame.name != StackFrame::UNKNOWN {
        return clean(&frame.name);
    }
    match (&frame.module, frame.kind) {
        (Some(module), _) => clean(&format!("[{module}]")),
        (None, FrameKind::Kernel) => "[kernel]".to_owned(),
        (None, FrameKind::User) => StackFrame::UNKNOWN.to_owned(),
    }
}

/// Sorted unique lines of a part of a profile. Without other contexts, stacks begin with the interrupt,
/// below the name of its [`CpuContext`](super::CpuContext).
pub fn folded(profile: &StackProfile, shown: FlameSelection) -> String {
    let mut text = String::new();
    for (stack, samples) in lines(profile, shown, usize::MAX) {
        text.push_str(&format!("{stack} {samples}\n"));
    }
    text
}

// Lines with their samples; at most `user` user-space functions per stack, half of them the
// outermost, half the innermost.
pub(super) fn lines(profile: &StackProfile, shown: FlameSelection, user: usize) -> BTreeMap<String, u64> {
    let labels: Vec<String> = profile.frames.iter().map(label).collect();
    // Of equal width, so that they sort by number.
    let digits = profile.cpus.iter().map(|cpu| cpu.cpu).max().unwrap_or(0).to_string().len();
    let mut lines = BTreeMap::new();
    for stack in shown.stacks(profile) {
        let mut parts: Vec<String> = Vec::new();
        if shown.per_cpu {
            parts.push(format!("CPU {:0digits$}", stack.cpu));
        }
        let begin = if shown.irq_only {
            parts.push(stack.context.describe().to_owned());
            stack.entry as usize
        } else {
            parts.push(clean(&stack.comm));
            0
        };
        let frames = &stack.frames[begin..];
        let user_count = frames
            .iter()
            .take_while(|index| profile.frames[**index as usize].kind == FrameKind::User)
            .count();
        let omitted = if user_count > user { user / 2..user_count - user / 2 } else { 0..0 };
        for (position, index) in frames.iter().enumerate() {
            if position == omitted.start && !omitted.is_empty() {
                parts.push(LEFT_OUT.to_owned());
            }
            if !omitted.contains(&position) {
                parts.push(labels[*index as usize].clone());
            }
        }
        *lines.entry(parts.join(";")).or_default() += stack.samples;
    }
    lines
}

/// Without characters that have a meaning in a line.
fn clean(name: &str) -> String {
    name.chars()
        .map(|character| match character {
            ';' => ':',
            character if character.is_control() => '?',
            character => character,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flame::fixture::profile;

    #[test]
    fn selections_have_interrupts_or_all_busy_stacks() {
        let profile = profile(
            "2 openssl task main;aes\n\
             3 openssl softirq main;asm_common_interrupt;handle_softirqs;net_rx_action\n\
             5 swapper idle do_idle\n",
        );
        let irq = FlameSelection { irq_only: true, per_cpu: false };
        assert_eq!(folded(&profile, irq), "softirq after an interrupt;handle_softirqs;net_rx_action 3\n");
        assert_eq!(
            folded(&profile, FlameSelection::default()),
            "openssl;main;aes 2\nopenssl;main;asm_common_interrupt;handle_softirqs;net_rx_action 3\n"
        );
        let per_cpu = FlameSelection { irq_only: false, per_cpu: true };
        assert!(folded(&profile, per_cpu).starts_with("CPU 0;openssl;main;aes 2\n"));
    }

    #[test]
    fn deep_user_stacks_are_shortened_in_the_middle() {
        let mut profile = profile("1 x task a;b;c;d;e;f;k\n");
        for frame in &mut profile.frames[..6] {
            frame.kind = FrameKind::User;
        }
        let line = |user| lines(&profile, FlameSelection::default(), user).into_keys().next().unwrap();
        assert_eq!(line(4), "x;a;b;...;e;f;k");
        assert_eq!(line(6), "x;a;b;c;d;e;f;k");
    }

    #[test]
    fn names_contain_no_separators() {
        assert_eq!(clean("a;b\nc d"), "a:b?c d");
    }
}
