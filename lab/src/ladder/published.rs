//! Ladders that others published, kept as data.

use crate::ladder::report::PublishedLadder;

const DATA: &str = include_str!("../../data/published.json");

/// The published ladders, the one whose step identifiers are used here first.
///
/// # Panics
/// Never: the data is part of the program and a test parses it.
#[must_use]
pub fn ladders() -> Vec<PublishedLadder> {
    serde_json::from_str(DATA).expect("the data file in the program is valid")
}

/// What the first published ladder says of a step: its rate over that of the step before.
#[must_use]
pub fn step_ratio(ladders: &[PublishedLadder], id: &str) -> Option<f64> {
    let ladder = ladders.first()?;
    let aside = ladder.asides.iter().find(|aside| aside.id == id);
    if let Some(aside) = aside {
        return Some(aside.to_per_second / aside.from_per_second);
    }
    let position = ladder.steps.iter().position(|step| step.id == id)?;
    let before = ladder.steps.get(position.checked_sub(1)?)?;
    Some(ladder.steps[position].low_per_second / before.low_per_second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_holds_the_published_climb() {
        let ladders = ladders();
        assert_eq!(ladders[0].steps.len(), 11);
        assert_eq!(step_ratio(&ladders, "baseline"), None);
        let steered = step_ratio(&ladders, "steer-by-cpu").expect("a published step");
        assert!((steered - 4_250_000.0 / 2_540_000.0).abs() < 1e-9);
        let xps = step_ratio(&ladders, "xps").expect("a published aside");
        assert!((xps - 5_050_000.0 / 1_086_000.0).abs() < 1e-9);
        assert_eq!(step_ratio(&ladders, "batch-syscalls"), None);
    }
}
