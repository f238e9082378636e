//! The result of `linerate calc` for a terminal or a pipe.

use linerate_load::wire::{FRAME_OVERHEAD_BYTES, IpVersion, SHORTEST_FRAME_BYTES};

use super::format;
use super::style::{TextStyle, TextTone, wrap};
use crate::command::calc::LinkCapacity;

/// Columns of the names on the left.
const NAME_WIDTH: usize = 16;

/// One line a figure: its name, the figure, what it is made of.
pub(crate) fn arithmetic(arithmetic: &LinkCapacity, style: TextStyle) -> String {
    let figures = &arithmetic.figures;
    let delay = &arithmetic.delay;
    let family = match figures.family {
        IpVersion::V4 => "IPv4",
        IpVersion::V6 => "IPv6",
    };
    let tags = match figures.vlan_tags {
        0 => String::new(),
        1 => ", one VLAN tag".to_owned(),
        tags => format!(", {tags} VLAN tags"),
    };
    let title = format!(
        "{} B of UDP payload over {family}{tags}, on a link of {}",
        format::grouped(figures.payload_bytes.into()),
        format::link(figures.link_bits_per_second),
    );
    let mut lines: Vec<(&str, String, String)> = vec![
        (
            "frame",
            format!("{} bytes", sum_of(&figures.frame_bytes)),
            "with headers and frame check sequence".to_owned(),
        ),
        (
            "on the wire",
            format!("{} bytes", format::grouped(figures.wire_bytes)),
            format!(
                "{} bits, with {FRAME_OVERHEAD_BYTES} bytes a frame of preamble and gap",
                format::grouped(figures.wire_bits)
            ),
        ),
        (
            "line rate",
            format::grouped(figures.datagrams_per_second),
            format!(
                "transactions a second, a packet each way; {} Mbit/s of payload",
                format::megabits(figures.payload_bits_per_second)
            ),
        ),
        (
            "budget",
            format::time_span(figures.budget_ns),
            "from one packet to the next at line rate".to_owned(),
        ),
        (
            "ceiling",
            format::grouped(arithmetic.shortest_frames_per_second),
            format!("frames a second of {SHORTEST_FRAME_BYTES} bytes, the shortest there are"),
        ),
    ];
    if figures.frames > 1 {
        lines.insert(
            1,
            (
                "",
                format!("{} frames", format::grouped(figures.frames)),
                format!(
                    "the packet is fragmented: {} frames a second at line rate",
                    format::grouped(figures.frames_per_second)
                ),
            ),
        );
    }
    if let Some(at_rate) = &arithmetic.at_rate {
        lines.push((
            "your rate",
            format!("{} tps", format::rate(at_rate.transactions_per_second)),
            format!(
                "{} Mbit/s on the wire in each direction, {} of the line rate",
                format::megabits(at_rate.wire_bits_per_second),
                format::percent(at_rate.line_rate_ratio)
            ),
        ));
    }
    lines.extend(
        [
            ("delay", delay.total_ns, "one way, the sum of:"),
            ("  transmission", delay.transmission_ns, "bits over bandwidth"),
            ("  propagation", delay.propagation_ns, "distance over the speed of light in fibre"),
            ("  processing", delay.processing_ns, "as given"),
            ("  queueing", delay.queueing_ns, "transmission of what waits before it"),
        ]
        .map(|(name, nanoseconds, words)| (name, format::time_span(nanoseconds), words.to_owned())),
    );
    let figure_width = lines.iter().map(|(_, figure, _)| figure.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for line in wrap(&title, style.width) {
        text.push_str(&format!("{}\n", style.paint(TextTone::Strong, &line)));
    }
    text.push('\n');
    let indent = NAME_WIDTH + figure_width + 2;
    for (name, figure, words) in &lines {
        let lead = format!(
            "{name:NAME_WIDTH$}{}",
            style.paint(TextTone::Strong, &format!("{figure:>figure_width$}"))
        );
        for (index, words) in wrap(words, style.width.saturating_sub(indent).max(24)).iter().enumerate() {
            let lead = if index == 0 { lead.clone() } else { " ".repeat(indent - 2) };
            text.push_str(&format!("{lead}  {}\n", style.paint(TextTone::Faint, words)));
        }
    }
    for warning in &arithmetic.warnings {
        text.push('\n');
        for line in wrap(&format!("Warning: {}", warning.detail), style.width) {
            text.push_str(&format!("{}\n", style.paint(TextTone::Bad, &line)));
        }
    }
    text
}

/// All frames of one packet together.
fn sum_of(frame_bytes: &[u64]) -> String {
    format::grouped(frame_bytes.iter().sum())
}
