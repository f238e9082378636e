//! `linerate calc`.

use linerate_load::wire::{FRAME_OVERHEAD_BYTES, IpVersion, LinkCapacity, SHORTEST_FRAME_BYTES};

use crate::document::{Cell, Document, Section, Table, Tile, Tone};
use crate::envelope::{CommandResult, Envelope};
use crate::render::format::{grouped, link, megabits, percent, rate, time_span};

impl CommandResult for LinkCapacity {
    const SCHEMA: &'static str = "linerate.calc/2";

    fn document(envelope: &Envelope<Self>) -> Document {
        let capacity = &envelope.result;
        let figures = &capacity.figures;
        let family = match figures.family {
            IpVersion::V4 => "IPv4",
            IpVersion::V6 => "IPv6",
        };
        let tags = match figures.vlan_tags {
            0 => String::new(),
            1 => ", one VLAN tag".to_owned(),
            tags => format!(", {tags} VLAN tags"),
        };
        let verdict = format!(
            "{} B of UDP payload over {family}{tags}, on a link of {}",
            grouped(figures.payload_bytes.into()),
            link(figures.link_bits_per_second),
        );
        let mut document = envelope.new_document("What a link can carry", verdict);
        document.notes.iter_mut().for_each(|note| (note.lead, note.tone) = ("Warning:", Tone::Bad));
        document.tiles = vec![
            Tile::new(grouped(figures.datagrams_per_second), "/s", "transactions at line rate"),
            Tile::new(time_span(figures.budget_ns), "", "per packet at line rate"),
        ];
        document.sections = vec![
            Section::new("Line rate").with(line_rate(capacity)),
            Section::new("One-way delay").with(delay(capacity)),
        ];
        document
    }
}

/// Names, figures and words, without headings.
fn figure_table(rows: impl IntoIterator<Item = (&'static str, String, String)>) -> Table {
    let table = Table::with_columns(["", ">", ""]).wrapping();
    table.with_rows(rows.into_iter().map(|(name, figure, explanation)| {
        [Cell::from(name), Cell::toned(figure, Tone::Strong), Cell::toned(explanation, Tone::Faint)]
    }))
}

fn line_rate(capacity: &LinkCapacity) -> Table {
    let figures = &capacity.figures;
    let frame_bytes = grouped(figures.frame_bytes.iter().sum());
    let fragment_row = (figures.frames > 1).then(|| {
        let explanation =
            format!("the packet is fragmented: {} frames/s at line rate", grouped(figures.frames_per_second));
        ("", format!("{} frames", grouped(figures.frames)), explanation)
    });
    let requested_row = capacity.at_rate.map(|at_rate| {
        let explanation = format!(
            "{} Mbit/s on the wire in each direction, {} of the line rate",
            megabits(at_rate.wire_bits_per_second),
            percent(at_rate.line_rate_ratio)
        );
        ("your rate", format!("{} tps", rate(at_rate.transactions_per_second)), explanation)
    });
    let frame_row =
        ("frame", format!("{frame_bytes} bytes"), "with headers and frame check sequence".to_owned());
    let further_rows = [
        (
            "on the wire",
            format!("{} bytes", grouped(figures.wire_bytes)),
            format!(
                "{} bits, with {FRAME_OVERHEAD_BYTES} bytes of preamble and gap per frame",
                grouped(figures.wire_bits)
            ),
        ),
        (
            "line rate",
            grouped(figures.datagrams_per_second),
            format!(
                "transactions per second, one packet each way; {} Mbit/s of payload",
                megabits(figures.payload_bits_per_second)
            ),
        ),
        ("budget", time_span(figures.budget_ns), "from one packet to the next at line rate".to_owned()),
        (
            "ceiling",
            grouped(capacity.shortest_frames_per_second),
            format!("frames per second of {SHORTEST_FRAME_BYTES} bytes, the shortest possible"),
        ),
    ];
    figure_table(std::iter::once(frame_row).chain(fragment_row).chain(further_rows).chain(requested_row))
}

fn delay(capacity: &LinkCapacity) -> Table {
    let delay = &capacity.delay;
    figure_table(
        [
            ("transmission", delay.transmission_ns, "bits over bandwidth"),
            ("propagation", delay.propagation_ns, "distance over the speed of light in fibre"),
            ("processing", delay.processing_ns, "as given"),
            ("queueing", delay.queueing_ns, "transmission of the packets before it"),
            ("total", delay.total_ns, "their sum"),
        ]
        .map(|(name, nanoseconds, words)| (name, time_span(nanoseconds), words.to_owned())),
    )
}
