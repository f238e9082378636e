//! `linerate lab predict`.

use linerate_lab::ladder::predict::{LadderPrediction, PredictedLimit, PredictedStep, TransactionCost};

use crate::document::{Block, Document, Note, Section, Table};
use crate::envelope::{CommandResult, Envelope};
use crate::render::format::{percent, rate, ratio, significant};

impl CommandResult for LadderPrediction {
    const SCHEMA: &'static str = "linerate.prediction/1";

    fn document(envelope: &Envelope<Self>) -> Document {
        let prediction = &envelope.result;
        let mut document = Document::new(
            "The ladder, predicted",
            verdict(prediction),
            envelope.origin(),
            &envelope.warnings,
        );
        document.about = format!(
            "from costs of {} CPUs at {} transactions/s",
            prediction.cost.cpus,
            rate(prediction.cost.per_second)
        );
        document.notes.push(Note::new(
            "A model and not a measurement: it has no caches, no NUMA nodes, no NIC and no link. Measure on the machine \
             with linerate ladder.",
        ));
        document.sections = vec![
            Section::new("Steps").with(steps(&prediction.steps)),
            Section::new("CPU time per transaction at the baseline").with(costs(&prediction.cost)),
        ];
        document
    }
}

fn verdict(prediction: &LadderPrediction) -> String {
    let machine = prediction.machine;
    let (Some(first), Some(last)) = (prediction.steps.first(), prediction.steps.last()) else {
        return "No step was predicted.".to_owned();
    };
    let order = prediction.rank_correlation.map_or_else(String::new, |correlation| {
        format!(
            " On the machine that was measured, the predicted and the measured gains have a rank correlation of {correlation:.2}."
        )
    });
    format!(
        "With {} CPUs and {} queues the model goes from {} to {} transactions/s, {}.{order}",
        machine.cpus,
        machine.queues,
        rate(first.per_second),
        rate(last.per_second),
        ratio(last.per_second / first.per_second)
    )
}

fn steps(steps: &[PredictedStep]) -> Table {
    let optional = |value: Option<f64>, show: fn(f64) -> String| value.map_or_else(String::new, show);
    let rows = steps.iter().map(|step| {
        [
            step.id.clone(),
            rate(step.per_second),
            optional(step.gain_ratio, ratio),
            limit(step.limit).to_owned(),
            optional(step.local_ratio, ratio),
            optional(step.measured_ratio, ratio),
            optional(step.published_per_second, rate),
        ]
    });
    Table::new(&[
        "step",
        ">predicted/s",
        ">gain",
        "limited by",
        ">predicted here",
        ">measured here",
        ">published/s",
    ])
    .with_rows(rows)
}

fn limit(limit: PredictedLimit) -> &'static str {
    match limit {
        PredictedLimit::AllCpus => "all CPUs",
        PredictedLimit::ReceivingCpus => "CPUs that receive",
        PredictedLimit::SocketLock => "lock of a socket",
        PredictedLimit::TransmitLock => "lock of a transmit queue",
    }
}

fn costs(cost: &TransactionCost) -> Block {
    let all = cost.softirq_ns + cost.server_ns;
    let mut spots: Vec<(&String, &f64)> = cost.spots_ns.iter().collect();
    spots.sort_by(|one, other| other.1.total_cmp(one.1));
    let parts = [("softirqs", cost.softirq_ns), ("server", cost.server_ns)];
    let parts = parts.into_iter().map(|(what, ns)| (what.to_owned(), ns));
    let spots = spots.into_iter().take(10).map(|(id, ns)| (format!("of both: {id}"), *ns));
    let rows = parts.chain(spots).map(|(what, ns)| [what, significant(ns), percent(ns / all)]);
    Block::Table(Table::new(&["part", ">ns", ">share"]).with_rows(rows))
}
