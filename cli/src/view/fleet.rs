//! `linerate report --fleet`.

use linerate_host::stage::{STAGES, StageInfo};
use linerate_host::{Severity, StageName};

use crate::command::report::fleet_report::{FleetFigures, FleetHost, FleetReport};
use crate::document::{Audience, Cell, Document, Mark, Section, Table, Tile, Tone};
use crate::envelope::{CommandResult, Envelope};
use crate::render::format::{UNKNOWN, comma_list, count_with_noun, known_text, significant};

/// Hosts that a row lists by name.
const MOST_NAMES: usize = 6;

impl CommandResult for FleetReport {
    const SCHEMA: &'static str = "linerate.fleet/1";

    fn document(envelope: &Envelope<Self>) -> Document {
        let fleet = &envelope.result;
        let count = |predicate: fn(&&FleetHost) -> bool| fleet.hosts.iter().filter(predicate).count();
        let without_diagnosis = count(|host| host.findings.is_none());
        let with_high_findings = count(|host| host.severities()[0] > 0);
        let with_outliers = count(|host| host.outliers > 0);
        let verdict = format!(
            "{}: {without_diagnosis} without a diagnosis, {with_high_findings} with findings of severity high, {with_outliers} with values unlike \
             those of their peers.",
            count_with_noun(fleet.hosts.len(), "host"),
        );
        let mut document = envelope.new_document("Fleet", verdict);
        document.mark = Some(match (without_diagnosis, with_high_findings) {
            (0, 0) => Mark::new(Tone::Good, "no severe finding"),
            (_, 0) => Mark::new(Tone::Warn, "incomplete"),
            _ => Mark::new(Tone::Bad, "severe findings"),
        });
        document.tiles = [
            (fleet.hosts.len(), "hosts"),
            (without_diagnosis, "without a diagnosis"),
            (with_high_findings, "with severe findings"),
        ]
        .map(|(figure, label)| Tile::new(figure.to_string(), "", label))
        .into();
        document.sections = vec![
            Section::new("Hosts, worst first").with(hosts(fleet)),
            Section::new("Without a result").with(problems(fleet)),
            Section::new("Findings").with(findings(fleet)),
            Section::new("Findings by stage").only_for(Audience::Page).with(matrix(fleet)),
            Section::new("Unlike their peers").with(outliers(fleet)),
            Section::new("Capacity, cost and losses").with(figures(fleet)),
        ];
        document
    }
}

fn tone(severity: Severity) -> Tone {
    match severity {
        Severity::High => Tone::Bad,
        Severity::Medium => Tone::Warn,
        Severity::Low => Tone::Plain,
        Severity::Note => Tone::Faint,
    }
}

fn hosts(fleet: &FleetReport) -> Table {
    let rows = fleet.hosts.iter().map(|host| {
        let text_cell = |text: &Option<String>| Cell::from(text.as_deref().unwrap_or(UNKNOWN));
        let severity_cells =
            Severity::ALL.into_iter().zip(host.severities()).map(|(level, count)| match count {
                _ if host.findings.is_none() => Cell::toned(UNKNOWN, Tone::Faint),
                0 => Cell::toned("0", Tone::Faint),
                count => Cell::toned(count.to_string(), tone(level)),
            });
        let count_cells = [host.unknown, host.outliers].map(|count| Cell::from(count.to_string()));
        let name_cell = Cell::toned(host.name.clone(), Tone::Strong);
        let version_cells = [text_cell(&host.version), text_cell(&host.kernel)];
        std::iter::once(name_cell)
            .chain(severity_cells)
            .chain(count_cells)
            .chain(version_cells)
            .collect::<Vec<_>>()
    });
    Table::new("host | >high | >medium | >low | >note | >unknown | >outliers | linerate | kernel")
        .with_rows(rows)
        .with_text_limit(40, "hosts more")
}

fn problems(fleet: &FleetReport) -> Table {
    let rows = fleet.hosts.iter().flat_map(|host| {
        host.problems
            .iter()
            .map(|reason| [Cell::from(host.name.clone()), Cell::toned(reason.clone(), Tone::Bad)])
    });
    Table::new("host | why").wrapping().with_rows(rows).with_text_limit(40, "more")
}

fn findings(fleet: &FleetReport) -> Table {
    let rows = fleet.findings.iter().map(|finding| {
        let mut names = comma_list(finding.hosts.iter().take(MOST_NAMES));
        if finding.hosts.len() > MOST_NAMES {
            names.push_str(&format!(" and {} more", finding.hosts.len() - MOST_NAMES));
        }
        [
            Cell::from(finding.id.clone()),
            Cell::toned(finding.severity.name(), tone(finding.severity)),
            Cell::from(finding.hosts.len().to_string()),
            Cell::from(names),
        ]
    });
    Table::new("finding | severity | >hosts | which").wrapping().with_rows(rows)
}

fn stages() -> impl Iterator<Item = StageName> {
    STAGES.iter().map(|stage: &StageInfo| stage.name)
}

/// A row per host, a column per stage.
fn matrix(fleet: &FleetReport) -> Table {
    let rows = fleet.hosts.iter().filter(|host| host.findings.is_some()).map(|host| {
        let stage_cell = |stage: StageName| {
            let findings = host.findings.iter().flatten().filter_map(|(id, severity)| {
                let (finding_stage, name) = id.split_once('.')?;
                (finding_stage == stage.name()).then_some((name, *severity))
            });
            let findings: Vec<(&str, Severity)> = findings.collect();
            let names = comma_list(findings.iter().map(|(name, _)| name));
            Cell::toned(names, findings.iter().map(|(_, severity)| *severity).max().map_or(Tone::Plain, tone))
        };
        std::iter::once(Cell::from(host.name.clone())).chain(stages().map(stage_cell)).collect::<Vec<_>>()
    });
    Table::with_columns(std::iter::once("host").chain(stages().map(StageName::name))).with_rows(rows)
}

fn outliers(fleet: &FleetReport) -> Table {
    let rows = fleet.outliers.iter().map(|outlier| {
        [
            Cell::from(outlier.host.clone()),
            Cell::from(outlier.what.clone()),
            Cell::toned(outlier.value.clone(), Tone::Warn),
            Cell::from(outlier.peers.clone()),
            Cell::from(outlier.agreeing.to_string()),
        ]
    });
    Table::new("host | value | here | others | >hosts")
        .with_rows(rows)
        .with_text_limit(40, "values more")
        .with_caption("Nearly all other hosts agree on these values. A figure is compared with the median.")
}

fn figures(fleet: &FleetReport) -> Table {
    let has_figures = |host: &&FleetHost| host.figures != FleetFigures::default();
    let rows = fleet.hosts.iter().filter(has_figures).map(|host| {
        let figure_text = |value: Option<f64>| known_text(value, significant);
        let figures = host.figures.named_figures().map(|(_, value)| Cell::from(figure_text(value)));
        std::iter::once(Cell::from(host.name.clone())).chain(figures).collect::<Vec<_>>()
    });
    Table::new(
        "host | >lost/s (doctor) | >lost/s (drops) | >CPU ns per packet | >capacity/s | \
        >first step/s | >last step/s",
    )
    .with_rows(rows)
    .with_text_limit(40, "hosts more")
}
