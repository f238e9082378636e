//! `linerate lab` and `linerate ladder`.

mod cpus;
mod published;
mod words;

use linerate_lab::ladder::report::{
    ComparisonVerdict, LadderReport, StepReport, TestbedKind, VersusPrevious,
};

use crate::document::{
    Audience, Badge, Block, Cell, ChartScale, Document, Fact, Mark, MarkShape, Note, RangeChart, RangeLayout,
    RangeMark, RangeRow, Section, Table, Tile, Tone,
};
use crate::envelope::{CommandResult, Envelope};
use crate::origin::HostSummary;
use crate::render::format::{
    self, UNKNOWN, cpu_list, grouped, known_text, megabits, microseconds, percent, plus_minus, rate,
    rate_range, ratio,
};
pub(crate) use words::verdict_name;
use words::{
    best_step_sentence, caveats, fastest, gain, is_lower_bound, lab_caveat, machine, method,
    published_sources, ratio_interval, was_interrupted, was_reverted,
};

impl CommandResult for LadderReport {
    const SCHEMA: &'static str = "linerate.ladder/2";

    fn document(envelope: &Envelope<Self>) -> Document {
        let report = &envelope.result;
        let mut document = Document::new("The ladder", best_step_sentence(report), envelope.origin(), &[]);
        document.about =
            format!("{}, took {}", testbed_name(report), format::elapsed(report.elapsed_seconds));
        if was_interrupted(envelope) {
            document.mark = Some(Mark::new(Tone::Warn, "interrupted"));
            let text = "The run was stopped before its end. It has results up to there.";
            document.notes.push(Note::alarm("Interrupted.", text));
        }
        document.notes.extend(lab_caveat(report).map(Note::new));
        if report.config.server.as_ref().is_some_and(|server| server.no_reply) {
            let text = "The server sends no replies: a request counts when the server has read it, and latency is unknown.";
            document.notes.push(Note::new(text));
        }
        document.tiles = tiles(report);
        document.sections = sections(envelope);
        document
    }
}

fn sections(envelope: &Envelope<LadderReport>) -> Vec<Section> {
    let report = &envelope.result;
    let skipped = report.steps.iter().filter(|step| !step.applied);
    let skipped = skipped.map(|step| Fact::new(step.id.clone(), reason(step))).collect::<Vec<_>>();
    let warnings = caveats(envelope);
    let warnings = warnings.iter().map(|caveat| {
        let detail = caveat.detail.trim_end_matches('.');
        Fact::new(caveat.kind.clone(), format!("{detail} ({})", caveat.scope()))
    });
    let mut sections = vec![
        Section::default()
            .only_for(Audience::Text)
            .with(Block::faint(machine(envelope)))
            .with(Block::faint(method(report))),
        Section::new("Capacity of each step")
            .with_for(Audience::Page, capacity_chart(report))
            .with(rates(report)),
        Section::new("Skipped steps").only_for(Audience::Text).with(skipped),
        Section::new("Latency").with_for(Audience::Page, latency_chart(report)).with(latency_table(report)),
        Section::new("Overload: share of the capacity still answered")
            .only_for(Audience::Page)
            .with(goodput_chart(report)),
        Section::new("Cost per transaction, whole machine").with(costs(report)),
    ];
    sections.extend(cpus::sections(report));
    sections.push(Section::new("Warnings").with(warnings.collect::<Vec<_>>()));
    let changes = Section::new("Steps and their changes").only_for(Audience::Page);
    sections.push(report.steps.iter().map(step_details).fold(changes, Section::with));
    sections.push(published::section(report));
    sections.extend(facts(&envelope.host, report));
    sections
}

fn reason(step: &StepReport) -> &str {
    step.skipped_because.as_deref().unwrap_or("no reason recorded")
}

fn applied(report: &LadderReport) -> impl Iterator<Item = &StepReport> {
    report.steps.iter().filter(|step| step.applied)
}

/// The median; a lower bound is marked.
fn rate_words(step: &StepReport) -> String {
    let bound_sign = if is_lower_bound(step) { "≥" } else { "" };
    known_text(step.transactions_per_second, |estimate| format!("{bound_sign}{}", rate(estimate.median)))
}

fn uncertainty(step: &StepReport) -> String {
    known_text(step.transactions_per_second, |estimate| match estimate.samples {
        0 | 1 => "n=1".to_owned(),
        _ => plus_minus(estimate.median, estimate.low, estimate.high),
    })
}

fn verdict_tone(verdict: ComparisonVerdict) -> (Tone, &'static str) {
    match verdict {
        ComparisonVerdict::Better => (Tone::Good, "▲"),
        ComparisonVerdict::Worse => (Tone::Bad, "▼"),
        ComparisonVerdict::NoDifferenceShown => (Tone::Faint, "≈"),
    }
}

fn verdict_words(report: &LadderReport, step: &StepReport, versus: &VersusPrevious) -> String {
    let undo_note = if was_reverted(report, step) { ", undone" } else { "" };
    format!("{}{undo_note}", verdict_name(versus.verdict))
}

fn rates(report: &LadderReport) -> Table {
    let rows = applied(report).map(|step| {
        let versus = step.versus_previous.as_ref();
        let interval =
            known_text(step.transactions_per_second, |estimate| rate_range(estimate.low, estimate.high));
        let verdict = versus
            .map(|versus| Cell::toned(verdict_words(report, step, versus), verdict_tone(versus.verdict).0));
        [
            Cell::from(step.id.clone()),
            Cell::toned(rate_words(step), Tone::Strong),
            uncertainty(step).into(),
            interval.into(),
            known_text(step.wire_bits_per_second, megabits).into(),
            known_text(step.line_rate_ratio, percent).into(),
            versus.map_or_else(String::new, |versus| ratio(versus.ratio.median)).into(),
            versus.and_then(|versus| ratio_interval(&versus.ratio)).unwrap_or_default().into(),
            verdict.unwrap_or_default(),
        ]
    });
    Table::new("step | >tps | >± | >95 % of tps | >Mbit/s | >of link | >ratio | >95 % | verdict")
        .with_rows(rows)
        .only_for(Audience::Page, &["95 % of tps"])
        .with_caption("ratio: rate against the configuration before the step, by alternation")
}

fn latency_table(report: &LadderReport) -> Table {
    let rows = applied(report).map(|step| {
        let latency = step.latency_ns;
        let goodput = |factor| known_text(step.goodput_at_overload.get(factor).copied().flatten(), percent);
        [
            step.id.clone(),
            known_text(step.loss_ratio, percent),
            known_text(latency, |latency| microseconds(latency.p50)),
            known_text(latency, |latency| microseconds(latency.p99)),
            known_text(latency, |latency| microseconds(latency.p999)),
            goodput("2"),
            goodput("5"),
        ]
    });
    Table::new("step | >loss | >p50 us | >p99 us | >p99.9 us | >at 2x | >at 5x")
        .with_rows(rows)
        .with_caption("at 2x, 5x: share of the capacity still answered when that much is offered")
}

fn costs(report: &LadderReport) -> Table {
    let rows = applied(report).map(|step| {
        [
            step.id.clone(),
            known_text(step.cycles_per_transaction, rate),
            known_text(step.instructions_per_transaction, rate),
            step.published_ratio.map_or_else(String::new, ratio),
        ]
    });
    let sources = published_sources(report);
    let caption = if sources.is_empty() {
        String::new()
    } else {
        let sources = sources.join(", ");
        format!("published ratio: the same step in {sources}, other hardware, not measured here")
    };
    Table::new("step | >cycles | >instructions | >published ratio").with_rows(rows).with_caption(caption)
}

fn step_details(step: &StepReport) -> Block {
    let mut changes = Table::new("setting | before | after").into_listing();
    for change in &step.changes {
        changes.row([change.setting.clone(), change.from.clone(), change.to.clone()]);
    }
    let skipped = if step.applied { String::new() } else { format!("skipped: {}", reason(step)) };
    let warnings = step.warnings.iter().map(|warning| format!("{}: {}", warning.kind.name(), warning.detail));
    Block::Details {
        summary: format!("{}: {}", step.id, step.title),
        anchor: None,
        blocks: vec![
            step.what.as_str().into(),
            skipped.into(),
            changes.into(),
            Block::List(warnings.collect()),
        ],
    }
}

fn capacity_chart(report: &LadderReport) -> RangeChart {
    let rows = report.steps.iter().map(|step| {
        let badge = step
            .versus_previous
            .as_ref()
            .map(|versus| comparison_badge(versus, verdict_words(report, step, versus)));
        let row = RangeRow { label: step.id.clone(), value: UNKNOWN.to_owned(), ..RangeRow::default() };
        if !step.applied {
            let description = format!("{}: skipped, {}", step.id, reason(step));
            return RangeRow { description, skipped: Some(reason(step).to_owned()), badge, ..row };
        }
        let Some(estimate) = step.transactions_per_second else {
            return RangeRow { description: format!("{}: capacity unknown", step.id), badge, ..row };
        };
        let comparison_text = badge.as_ref().map_or_else(String::new, |badge| {
            format!("; {} the rate of {}, {}", badge.ratio, badge.against, badge.words)
        });
        let value = rate_words(step);
        RangeRow {
            description: format!(
                "{}: {value} transactions per second, interval {}{comparison_text}",
                step.id,
                rate_range(estimate.low, estimate.high)
            ),
            span: Some((estimate.low, estimate.high)),
            marks: vec![RangeMark { at: estimate.median, shape: MarkShape::Dot }],
            linked: Some(estimate.median),
            value,
            detail: uncertainty(step),
            badge,
            ..row
        }
    });
    rates_chart(rows.collect())
}

/// A comparison as the cells ratio, interval and verdict of a table; empty without one.
pub(crate) fn comparison_cells(versus: Option<&VersusPrevious>) -> [Cell; 3] {
    versus.map_or_else(Default::default, |versus| {
        let verdict = Cell::toned(verdict_name(versus.verdict), verdict_tone(versus.verdict).0);
        [ratio(versus.ratio.median).into(), ratio_interval(&versus.ratio).unwrap_or_default().into(), verdict]
    })
}

pub(crate) fn comparison_badge(versus: &VersusPrevious, words: String) -> Badge {
    let (tone, sign) = verdict_tone(versus.verdict);
    Badge {
        tone,
        sign,
        words,
        ratio: ratio(versus.ratio.median),
        interval: ratio_interval(&versus.ratio).unwrap_or_default(),
        against: versus.id.clone(),
    }
}

/// Intervals of transactions per second, a row per configuration.
pub(crate) fn rates_chart(rows: Vec<RangeRow>) -> RangeChart {
    RangeChart {
        axis: "transactions per second",
        scale: ChartScale::Automatic,
        include: Vec::new(),
        ticks: 7,
        format: rate,
        layout: RangeLayout::Comparison,
        legend: Vec::new(),
        rows,
    }
}

fn latency_chart(report: &LadderReport) -> RangeChart {
    let rows = report.steps.iter().filter_map(|step| {
        let latency = step.latency_ns?;
        let points = [latency.p50, latency.p99, latency.p999];
        let [p50, p99, p999] = points.map(|nanoseconds| nanoseconds as f64);
        let [p50_text, p99_text, p999_text] = points.map(microseconds);
        Some(RangeRow {
            label: step.id.clone(),
            description: format!(
                "{}: half within {p50_text} us, 99 % within {p99_text} us, 99.9 % within {p999_text} us",
                step.id
            ),
            span: Some((p50, p999)),
            marks: vec![
                RangeMark { at: p50, shape: MarkShape::Dot },
                RangeMark { at: p99, shape: MarkShape::Ring },
                RangeMark { at: p999, shape: MarkShape::Bar },
            ],
            value: format!("{p50_text} · {p99_text} · {p999_text}"),
            ..RangeRow::default()
        })
    });
    RangeChart {
        axis: "microseconds from the intended send time",
        scale: ChartScale::Logarithmic,
        include: Vec::new(),
        ticks: 5,
        format: |nanoseconds| microseconds(nanoseconds as u64),
        layout: RangeLayout::Figures,
        legend: vec![(MarkShape::Dot, "p50"), (MarkShape::Ring, "p99"), (MarkShape::Bar, "p99.9")],
        rows: rows.collect(),
    }
}

fn goodput_chart(report: &LadderReport) -> RangeChart {
    let rows = report.steps.iter().filter_map(|step| {
        let share = |factor| step.goodput_at_overload.get(factor).copied().flatten();
        let (at_twice, at_five_times) = (share("2"), share("5"));
        at_twice.or(at_five_times)?;
        let [twice_text, five_times_text] = [at_twice, at_five_times].map(|share| known_text(share, percent));
        let mark = |share: Option<f64>, shape| share.map(|value| RangeMark { at: value, shape });
        Some(RangeRow {
            label: step.id.clone(),
            description: format!(
                "{}: {twice_text} of the capacity answered when twice the capacity is offered, {five_times_text} at five times",
                step.id
            ),
            span: at_five_times.zip(at_twice),
            marks: [mark(at_twice, MarkShape::Dot), mark(at_five_times, MarkShape::Ring)].into_iter().flatten().collect(),
            value: format!("{twice_text} · {five_times_text}"),
            ..RangeRow::default()
        })
    });
    RangeChart {
        axis: "share of the capacity",
        scale: ChartScale::Linear,
        include: vec![1.0],
        ticks: 7,
        format: percent,
        layout: RangeLayout::Figures,
        legend: vec![(MarkShape::Dot, "at twice the capacity"), (MarkShape::Ring, "at five times")],
        rows: rows.collect(),
    }
}

fn tiles(report: &LadderReport) -> Vec<Tile> {
    let Some((best_step, estimate)) = fastest(report) else { return Vec::new() };
    let bound_sign = if is_lower_bound(best_step) { "≥" } else { "" };
    let label = format!("highest rate held: {}", best_step.id);
    let mut tiles = vec![Tile::new(format!("{bound_sign}{}", rate(estimate.median)), "tps", label)];
    if let Some((first_step, gain)) = gain(report) {
        tiles.push(Tile::new(ratio(gain), "", format!("the rate of {}", first_step.id)));
    }
    if let Some((wire, share)) = best_step.wire_bits_per_second.zip(best_step.line_rate_ratio) {
        let link = format::link(report.testbed.link_bits_per_second);
        tiles.push(Tile::new(megabits(wire), "Mbit/s", format!("on the wire, {} of {link}", percent(share))));
    }
    if let Some(latency) = best_step.latency_ns {
        let label = format!("99 % answered within, half within {}", microseconds(latency.p50));
        tiles.push(Tile::new(microseconds(latency.p99), "us", label));
    }
    tiles
}

fn facts(host: &HostSummary, report: &LadderReport) -> Vec<Section> {
    let LadderReport { config, testbed, .. } = report;
    let generator = testbed.generator.as_ref();
    let yes_no = |flag: bool| if flag { "yes" } else { "no" }.to_owned();
    let unknown_text = || "unknown".to_owned();
    let machine_facts = vec![
        Fact::new("kernel", host.kernel.clone().unwrap_or_else(unknown_text)),
        Fact::new("architecture", testbed.architecture.clone()),
        Fact::new("CPU", host.cpu_model.clone().unwrap_or_else(unknown_text)),
        Fact::new("CPUs", cpu_list(&config.cpus)),
        Fact::new("NUMA nodes", testbed.numa_nodes.map_or_else(unknown_text, |nodes| nodes.to_string())),
        Fact::new("virtual", host.hypervisor.map_or_else(unknown_text, yes_no)),
        Fact::new("privilege", testbed.privilege.clone()),
    ];
    let generator_facts = vec![
        Fact::new("backend", known_text(generator, |generator| generator.backend.clone())),
        Fact::new("threads", known_text(generator, |generator| generator.threads.to_string())),
        Fact::new("CPUs", known_text(generator, |generator| cpu_list(&generator.cpus))),
        Fact::new("shared with the server", yes_no(testbed.shares_cpus)),
        Fact::new("flows", known_text(generator, |generator| grouped(generator.flows as u64))),
        Fact::new("payload", format!("{} B", grouped(config.payload_bytes.into()))),
    ];
    let method_facts = vec![
        Fact::new("testbed", testbed_name(report)),
        Fact::new("server", testbed.server_address.clone()),
        Fact::new("server CPUs", cpu_list(&testbed.server_cpus)),
        workers_and_queues(report),
        Fact::new("rate holds with loss up to", percent(config.max_loss_ratio)),
        Fact::new("one probe", format!("{} s", config.timing.slot.as_secs_f64())),
        Fact::new("samples per comparison", config.timing.samples.to_string()),
        Fact::new(
            "one transaction on the wire",
            format!("{} bits", grouped(testbed.wire_bits_per_transaction)),
        ),
        Fact::new("policy", config.policy.name()),
    ];
    [("Machine", machine_facts), ("Generator", generator_facts), ("Method", method_facts)]
        .into_iter()
        .map(|(heading, facts)| Section {
            half_width: true,
            ..Section::new(heading).only_for(Audience::Page).with(facts)
        })
        .collect()
}

/// The number of workers of another server is among its settings.
fn workers_and_queues(report: &LadderReport) -> Fact {
    let LadderReport { config, testbed, .. } = report;
    match config.server {
        Some(_) => Fact::new("queues", testbed.queues.to_string()),
        None => Fact::new("workers, queues", format!("{}, {}", testbed.server_cpus.len(), testbed.queues)),
    }
}

fn testbed_name(report: &LadderReport) -> &'static str {
    match report.testbed.kind {
        TestbedKind::Lab => "lab",
        TestbedKind::Host => "host",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::result_fixtures;
    use crate::render::style::TextStyle;
    use crate::render::{html, text};

    const PLAIN: TextStyle = TextStyle { width: 100, colour: false };

    fn plain(envelope: &Envelope<LadderReport>) -> String {
        text::text(&envelope.document(), PLAIN)
    }

    #[test]
    fn run_text_has_every_section_and_fits_100_columns() {
        let text = plain(&result_fixtures::ladder_run());
        assert!(text.starts_with("Best: "), "{text}");
        let row = text.lines().find(|line| line.trim_start().starts_with("pin-threads")).expect("a row");
        assert!(row.contains("279 k"), "{row}");
        for words in ["Capacity of each step", "Skipped steps", "Latency", "Warnings", "cpu-steal"] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }

    #[test]
    fn text_and_page_show_the_cpu_time_by_context() {
        let text = plain(&result_fixtures::ladder_run());
        let row =
            |words: &str| text.lines().find(|line| line.contains(words)).unwrap_or_else(|| panic!("{text}"));
        assert!(row("server kernel").contains("softirq") && row("server kernel").contains("idle"));
        let functions: Vec<&str> = row("native_queued").split_whitespace().collect();
        let [first, last] = ["native_queued_spin_lock_slowpath", "fib_table_lookup"];
        assert_eq!(functions, [first, "21", "%", last, "6.0", "%"], "first and last step");
        let has_row = |step, share| text.lines().any(|line| line.contains(step) && line.contains(share));
        assert!(has_row("baseline", "58 %") && has_row("busy-poll", "41 %"), "{text}");
        let page = html::page(&result_fixtures::ladder_run().document()).expect("a page");
        let in_order = [
            "baseline, at 170 k requests per second",
            "CPU 1: hard irq 1.0 %, softirq 2.0 %, server user 6.0 %",
            "busy-poll, at 560 k requests per second",
            "CPU 1: hard irq 3.0 %, softirq 41 %, server user 10 %",
        ];
        let places = in_order.map(|words| page.find(words));
        assert!(places[0].is_some() && places.is_sorted(), "{places:?}: {page}");
    }

    #[test]
    fn a_run_without_measured_steps_shows_the_skip_reasons() {
        let text = plain(&result_fixtures::all_skipped());
        assert!(text.starts_with("No step was measured."), "{text}");
        assert!(text.contains("needs root: made-up reason") && !text.contains("Latency"), "{text}");
    }

    #[test]
    fn an_interrupted_run_is_marked_as_interrupted() {
        let text = plain(&result_fixtures::interrupted_run());
        let note = text.find("\nInterrupted. ").expect("a note");
        let first_section = text.find("Capacity of each step").expect("a section");
        assert!(text.starts_with("Best: ") && note < first_section, "{text}");
        let page = html::page(&result_fixtures::interrupted_run().document()).expect("a page");
        assert!(page.contains("<b>Interrupted.</b>"), "{page}");
    }

    #[test]
    fn unknown_values_are_question_marks_or_left_out() {
        let text = plain(&result_fixtures::little_known());
        assert!(text.contains("this machine has no hardware counters") && text.contains('?'), "{text}");
        let page = html::page(&result_fixtures::little_known().document()).expect("a page");
        assert!(!page.contains("Published ladders") && !page.contains("microseconds from"), "{page}");
    }

    #[test]
    fn reverted_steps_are_marked() {
        let mut envelope = result_fixtures::ladder_run();
        envelope.result.config.policy = linerate_lab::ladder::config::KeepPolicy::KeepBetter;
        envelope.result.steps[1].kept = false;
        assert!(plain(&envelope).contains("worse, undone"));
    }

    #[test]
    fn a_page_describes_every_row_and_escapes_texts() {
        let page = html::page(&result_fixtures::ladder_run().document()).expect("a page");
        let row = "reuseport: 231 k transactions per second, interval 225–236 k; ×1.24 the rate of irq-affinity-rps, better";
        assert!(page.contains(row), "{page}");
        assert!(page.contains("changes the whole host: ask for it with --host-wide"));
        let naive =
            "naive: 197–350 k packets per second, ×1.00 its own first step; published, not measured here";
        assert!(page.contains(naive));
        let page = html::page(&result_fixtures::hostile().document()).expect("a page");
        assert!(!page.contains("<script"), "{page}");
    }
}
