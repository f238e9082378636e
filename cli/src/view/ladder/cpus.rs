//! The users of the CPUs in the first and in the last step.

use linerate_lab::ladder::cpu_use::{CpuShares, CpuUse};
use linerate_lab::ladder::report::LadderReport;

use crate::document::{Audience, BarChart, Block, Section, SegmentFill, StackedBar, Table};
use crate::render::format::{percent, rate};

/// A part of a CPU's time: its colour, its name, and the share.
type CpuPart = (SegmentFill, &'static str, fn(&CpuShares) -> f64);

const PARTS: [CpuPart; 7] = [
    (SegmentFill::Interrupt, "hard irq", |cpu| cpu.interrupt_ratio),
    (SegmentFill::Receive, "softirq", |cpu| cpu.softirq_ratio),
    (SegmentFill::Waiting, "server user", |cpu| cpu.server_user_ratio),
    (SegmentFill::Tasks, "server kernel", |cpu| cpu.server_kernel_ratio),
    (SegmentFill::Transmit, "generator", |cpu| cpu.generator_ratio),
    (SegmentFill::Other, "other", |cpu| cpu.other_ratio),
    (SegmentFill::Idle, "idle", |cpu| cpu.idle_ratio),
];

pub(super) fn sections(report: &LadderReport) -> Vec<Section> {
    if report.cpu_use.is_empty() {
        return Vec::new();
    }
    let mut section = Section::new("Who had the CPUs").with_for(Audience::Text, table(&report.cpu_use));
    for (index, step) in report.cpu_use.iter().enumerate() {
        section = section
            .with_for(Audience::Page, Block::Heading(heading(step)))
            .with_for(Audience::Page, bars(step, index == 0));
    }
    let mut notes: Vec<&str> =
        report.cpu_use.iter().flat_map(|step| &step.notes).map(String::as_str).collect();
    notes.sort_unstable();
    notes.dedup();
    for note in notes {
        section = section.with_for(Audience::Page, Block::faint(note));
    }
    vec![section, Section::new("Hottest functions").with(functions(&report.cpu_use))]
}

fn heading(step: &CpuUse) -> String {
    format!("{}, at {} requests per second", step.step, rate(step.offered_per_second))
}

fn table(steps: &[CpuUse]) -> Table {
    let rows = steps.iter().flat_map(|step| {
        step.cpus.iter().map(|cpu| {
            let shares = PARTS.iter().map(|(_, _, share)| percent(share(cpu)));
            [step.step.clone(), cpu.cpu.to_string()].into_iter().chain(shares).collect::<Vec<_>>()
        })
    });
    Table::new(
        "step | >CPU | >hard irq | >softirq | >server user | >server kernel | >generator | >other | >idle",
    )
    .with_rows(rows)
}

fn bars(step: &CpuUse, has_legend: bool) -> BarChart {
    let bars = step.cpus.iter().map(|cpu| {
        let shares = PARTS.map(|(fill, name, share)| (fill, name, share(cpu)));
        let words = shares.map(|(_, name, share)| format!("{name} {}", percent(share)));
        StackedBar {
            name: format!("CPU {}", cpu.cpu),
            value: format!("{} busy", percent(1.0 - cpu.idle_ratio)),
            description: format!("CPU {}: {}", cpu.cpu, words.join(", ")),
            segments: BarChart::segments(shares.map(|(fill, _, share)| (fill, share))),
            ..StackedBar::default()
        }
    });
    let legend =
        if has_legend { PARTS.iter().map(|(fill, name, _)| (*fill, *name)).collect() } else { Vec::new() };
    BarChart { legend, bars: bars.collect(), ..BarChart::default() }
}

fn functions(steps: &[CpuUse]) -> Table {
    let row_count = steps.iter().map(|step| step.functions.len()).max().unwrap_or(0);
    let cells = |row: usize| {
        let step_cells = |step: &CpuUse| {
            let function = step.functions.get(row);
            let short_name = |name: &str| name.chars().take(34).collect::<String>();
            function.map_or([String::new(), String::new()], |function| {
                [short_name(&function.name), percent(function.busy_ratio)]
            })
        };
        steps.iter().flat_map(step_cells).collect::<Vec<_>>()
    };
    let names = steps.iter().map(|step| step.step.as_str()).collect::<Vec<_>>().join(", and of ");
    let headings =
        if steps.len() == 1 { "function | >busy" } else { "first step | >busy | last step | >busy" };
    Table::new(headings)
        .with_rows((0..row_count).map(cells))
        .with_caption(format!("shares of the samples without idle time and other processes, of {names}"))
}
