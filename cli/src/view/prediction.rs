//! `linerate lab predict`.

use linerate_lab::ladder::predict::{LadderPrediction, PredictedLimit, PredictedStep, TransactionCost};

use crate::document::{Block, Document, Note, Section, Table};
use crate::envelope::{CommandResult, Envelope};
use crate::render::format::{percent, rate, ratio, significant};

impl CommandResult for LadderPrediction {
    const SCHEMA: &'static str = "linerate.prediction/1";

    fn document(envelope: &Envelope<Self>) -> Document {
        let prediction = &envelope.result;
        let mut document = envelope.new_document("The ladder, predicted", verdict(prediction));
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
    let (Some(first_step), Some(last_step)) = (prediction.steps.first(), prediction.steps.last()) else {
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
        rate(first_step.per_second),
        rate(last_step.per_second),
        ratio(last_step.per_second / first_step.per_second)
    )
}

fn steps(steps: &[PredictedStep]) -> Table {
    let optional_text =
        |value: Option<f64>, to_text: fn(f64) -> String| value.map_or_else(String::new, to_text);
    let rows = steps.iter().map(|step| {
        [
            step.id.clone(),
            rate(step.per_second),
            optional_text(step.gain_ratio, ratio),
            limit(step.limit).to_owned(),
            optional_text(step.local_ratio, ratio),
            optional_text(step.measured_ratio, ratio),
            optional_text(step.published_per_second, rate),
        ]
    });
    Table::new("step | >predicted/s | >gain | limited by | >predicted here | >measured here | >published/s")
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
    let total_ns = cost.softirq_ns + cost.server_ns;
    let mut lock_spots: Vec<(&String, &f64)> = cost.spots_ns.iter().collect();
    lock_spots.sort_by(|left, right| right.1.total_cmp(left.1));
    let parts = [("softirqs", cost.softirq_ns), ("server", cost.server_ns)];
    let parts = parts.into_iter().map(|(part_name, ns)| (part_name.to_owned(), ns));
    let lock_spots = lock_spots.into_iter().take(10).map(|(id, ns)| (format!("of both: {id}"), *ns));
    let rows =
        parts.chain(lock_spots).map(|(part_name, ns)| [part_name, significant(ns), percent(ns / total_ns)]);
    Block::Table(Table::new("part | >ns | >share").with_rows(rows))
}
