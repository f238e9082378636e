//! What `linerate boost` saw of a server, and what came of steering it.

use anyhow::Result;
use linerate_host::Known;
use serde::Deserialize;

use super::sheet::{OriginInput, SheetBody, SummarySheet, count};
use super::tuned::{TuneStepInput, steps};
use crate::render::format::{self, cpu_list, grouped};
use crate::render::page::{FigureTile, HtmlTable, PageHead, PageNote, PageResult, ResultPosition};
use crate::render::style::TextTone;

/// `linerate.boost/1`, as far as it is shown.
#[derive(Debug, Deserialize)]
pub(crate) struct BoostPlanInput {
    #[serde(flatten)]
    origin: OriginInput,
    server: BoostServerInput,
    agreement: Known<AgreementInput>,
    plan: linerate_tune::TunePlan,
    #[serde(flatten)]
    drawn: BoostPlanSummary,
}

#[derive(Debug, Deserialize)]
struct BoostServerInput {
    name: String,
}

/// `linerate.boost-apply/1`, as far as it is shown.
#[derive(Debug, Deserialize)]
pub(crate) struct BoostApplyInput {
    #[serde(flatten)]
    origin: OriginInput,
    tune: Option<u64>,
    changes: Vec<TuneStepInput>,
    broke_off: Option<String>,
    before: DeliveryInput,
    now: Option<DeliveryInput>,
    verification: VerificationInput,
    #[serde(flatten)]
    drawn: BoostPlanSummary,
}

/// What both have of a plan.
#[derive(Debug, Deserialize)]
struct BoostPlanSummary {
    places: Vec<CpuInput>,
    advice: Vec<AdviceInput>,
    refusals: Vec<RefusalInput>,
}

#[derive(Debug, Deserialize)]
struct CpuInput {
    cpu: u32,
    receives: bool,
    sockets: Vec<u64>,
    threads: Vec<u32>,
}

#[derive(Debug, Deserialize)]
struct AdviceInput {
    what: String,
    option: Option<String>,
}

#[derive(Debug, Deserialize)]
struct RefusalInput {
    what: String,
    why: String,
}

#[derive(Debug, Deserialize)]
struct DeliveryInput {
    seconds: Option<f64>,
    agreement: Known<AgreementInput>,
}

#[derive(Debug, Deserialize)]
struct AgreementInput {
    packets: u64,
    on_arrival_cpu: u64,
    refused: u64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", tag = "verdict")]
enum VerificationInput {
    AsPlanned { conformity: ConformityInput },
    Harmful { why: String },
    Elsewhere { conformity: ConformityInput },
    Idle { conformity: ConformityInput },
    NotJudged { why: String },
}

#[derive(Debug, Deserialize)]
struct ConformityInput {
    packets: u64,
    as_planned: u64,
}

impl SummarySheet for BoostPlanInput {
    fn rank(&self) -> u8 {
        super::LOOKED
    }

    fn unix_seconds(&self) -> Option<u64> {
        self.origin.started_unix_seconds
    }

    fn part(&self, place: &ResultPosition) -> Result<PageResult> {
        let name = &self.server.name;
        let planned = count(self.plan.changes.len(), "change", "changes");
        let verdict = match &self.agreement {
            Known::Value(seen) => format!(
                "{name}: {} of {} datagrams were read on the CPU they arrived on; {planned} planned",
                share(seen.on_arrival_cpu, seen.packets),
                grouped(seen.packets)
            ),
            Known::Unknown { why } => {
                format!("{name}: where its packets land is not known ({why}); {planned} planned")
            }
        };
        let changes = self.plan.changes.iter().map(|change| {
            vec![
                change.setting.to_string(),
                change.from.to_string(),
                change.to.to_string(),
                change.why.clone(),
            ]
        });
        let mut tables = self.drawn.tables();
        tables.push(HtmlTable {
            heading: "What would be changed",
            columns: vec!["setting", "from", "to", "why"],
            rows: changes.collect(),
            words_last: true,
            ..HtmlTable::default()
        });
        let body = SheetBody { notes: self.drawn.notes(), tables, ..SheetBody::default() };
        body.part(self.origin.head("A server that runs, and where its packets land", &verdict), place)
    }
}

impl SummarySheet for BoostApplyInput {
    fn rank(&self) -> u8 {
        super::BOOSTED
    }

    fn unix_seconds(&self) -> Option<u64> {
        self.origin.started_unix_seconds
    }

    fn part(&self, place: &ResultPosition) -> Result<PageResult> {
        let mut notes: Vec<PageNote> =
            self.broke_off.iter().map(|why| PageNote::alarm("Broke off:", why.clone())).collect();
        notes.extend(self.drawn.notes());
        let made = match self.tune {
            Some(tune) => format!("Tune {tune}: {}", count(self.changes.len(), "change", "changes")),
            None => "Nothing was changed".to_owned(),
        };
        let (landed, mark) = self.verification.told();
        let mut tables = vec![self.before_and_now()];
        tables.extend(self.drawn.tables());
        tables.push(steps(&self.changes));
        let body = SheetBody { tiles: self.tiles(), notes, tables };
        let mark = if self.broke_off.is_some() { PageHead::mark(TextTone::Bad, "broke off") } else { mark };
        let verdict = format!("{made}; {landed}");
        body.part(PageHead { mark, ..self.origin.head("A server that was boosted", &verdict) }, place)
    }
}

impl BoostApplyInput {
    fn tiles(&self) -> Vec<FigureTile> {
        let of = |landed: Option<&DeliveryInput>| match landed.map(|landed| &landed.agreement) {
            Some(Known::Value(seen)) => share(seen.on_arrival_cpu, seen.packets),
            _ => "?".to_owned(),
        };
        vec![
            FigureTile::new(of(Some(&self.before)), "", "read on the CPU they arrived on, before"),
            FigureTile::new(of(self.now.as_ref()), "", "the same now"),
        ]
    }

    fn before_and_now(&self) -> HtmlTable {
        let both = |figure: &dyn Fn(&DeliveryInput, &AgreementInput) -> String| {
            [Some(&self.before), self.now.as_ref()].map(|landed| match landed {
                Some(landed) => match &landed.agreement {
                    Known::Value(seen) => figure(landed, seen),
                    Known::Unknown { why } => format!("unknown: {why}"),
                },
                None => "unknown".to_owned(),
            })
        };
        let row = |name: &str, [before, now]: [String; 2]| vec![name.to_owned(), before, now];
        HtmlTable {
            heading: "How packets landed",
            columns: vec!["", "before", "now"],
            rows: vec![
                row(
                    "datagrams read a second",
                    both(&|landed, seen| match landed.seconds {
                        Some(seconds) if seconds > 0.0 => format::rate(seen.packets as f64 / seconds),
                        _ => "unknown".to_owned(),
                    }),
                ),
                row(
                    "read on the CPU they arrived on",
                    both(&|_, seen| share(seen.on_arrival_cpu, seen.packets)),
                ),
                row("lost to full buffers", both(&|_, seen| grouped(seen.refused))),
            ],
            ..HtmlTable::default()
        }
    }
}

impl BoostPlanSummary {
    /// What only the server's own configuration would fix, and what is left.
    fn notes(&self) -> Vec<PageNote> {
        let advice = self.advice.iter().map(|advice| match &advice.option {
            Some(option) => PageNote::alarm("The server's own:", format!("{}: {option}", advice.what)),
            None => PageNote::alarm("The server's own:", advice.what.clone()),
        });
        let refusals =
            self.refusals.iter().map(|refusal| PageNote::new(format!("{}: {}", refusal.what, refusal.why)));
        advice.chain(refusals).collect()
    }

    fn tables(&self) -> Vec<HtmlTable> {
        let row = |place: &CpuInput| {
            let threads: Vec<String> = place.threads.iter().map(u32::to_string).collect();
            vec![
                format!("CPU {}", cpu_list(&[place.cpu])),
                if place.receives { "yes" } else { "no" }.to_owned(),
                place.sockets.len().to_string(),
                threads.join(", "),
            ]
        };
        vec![HtmlTable {
            heading: "ResultPosition each CPU's packets are to go",
            columns: vec!["CPU", "gets packets", "sockets", "threads"],
            rows: self.places.iter().map(row).collect(),
            ..HtmlTable::default()
        }]
    }
}

impl VerificationInput {
    /// In words, and as a mark.
    fn told(&self) -> (String, Option<(&'static str, String)>) {
        let landed = |seen: &ConformityInput| {
            format!(
                "{} of {} datagrams landed as planned",
                share(seen.as_planned, seen.packets),
                grouped(seen.packets)
            )
        };
        match self {
            Self::AsPlanned { conformity } => {
                (landed(conformity), PageHead::mark(TextTone::Good, "as planned"))
            }
            Self::Elsewhere { conformity } => {
                (landed(conformity), PageHead::mark(TextTone::Bad, "packets land elsewhere"))
            }
            Self::Idle { conformity } => (
                format!("{} datagrams came, too few to tell", grouped(conformity.packets)),
                PageHead::mark(TextTone::Plain, "idle"),
            ),
            Self::Harmful { why } => (format!("undone: {why}"), PageHead::mark(TextTone::Bad, "undone")),
            Self::NotJudged { why } => (format!("not judged: {why}"), None),
        }
    }
}

/// A share in per cent; a mark where there is nothing to have a share of.
fn share(of: u64, all: u64) -> String {
    if all == 0 { "none".to_owned() } else { format::percent(of as f64 / all as f64) }
}
