//! The result of a soak.

use std::fmt;

use linerate_load::stats;

use super::SoakObservation;
use super::event::SoakEvent;

/// The largest growth of memory from the first quarter to the last: allocators keep some memory per
/// thread.
const ALLOWED_GROWTH: f64 = 1.05;

/// Growth that is always allowed, bytes.
const ALLOWED_BYTES: f64 = 512e3;

impl SoakObservation {
    pub(super) fn passes(&self) -> bool {
        self.panics_match() && self.accounting.is_balanced() && is_stable(&self.memory)
    }

    fn panics_match(&self) -> bool {
        self.total.restarts == self.poison && self.total.panicked >= self.poison
    }
}

/// Resident memory after each event happened once, as medians of the first and the last quarter,
/// bytes: the first panic and the first port allocate memory that is kept. `None` with too few
/// rounds.
fn memory_quarters(resident: &[f64]) -> Option<(f64, f64)> {
    let settled = resident.get(SoakEvent::ALL.len()..)?;
    let quarter_length = (settled.len() / 4).max(1).min(settled.len());
    let first = stats::median(&settled[..quarter_length])?;
    Some((first, stats::median(&settled[settled.len() - quarter_length..])?))
}

fn is_stable(resident: &[f64]) -> bool {
    memory_quarters(resident)
        .is_some_and(|(first, last)| last <= (first * ALLOWED_GROWTH).max(first + ALLOWED_BYTES))
}

impl fmt::Display for SoakObservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { memory, events, accounting, poison, total, .. } = self;
        for (event, times) in SoakEvent::ALL.into_iter().zip(events) {
            writeln!(f, "{times:4} times: {event}")?;
        }
        write!(f, "{accounting}")?;
        writeln!(
            f,
            "{}: {poison} panics, {} restarts, {} requests lost with them",
            verdict_word(self.panics_match()),
            total.restarts,
            total.panicked
        )?;
        writeln!(f, "{}: every request has a fate", verdict_word(accounting.is_balanced()))?;
        let memory_text = memory_text(memory);
        writeln!(f, "{}: resident memory {memory_text}", verdict_word(is_stable(memory)))?;
        writeln!(f, "ok: all flows were answered after each event")
    }
}

fn memory_text(resident: &[f64]) -> String {
    match memory_quarters(resident) {
        Some((first, last)) => format!(
            "{:.2} MB in the first quarter, {:.2} MB in the last, of {} rounds",
            first / 1e6,
            last / 1e6,
            resident.len().saturating_sub(SoakEvent::ALL.len())
        ),
        None => "not known: too short a time to see, give more --minutes".to_owned(),
    }
}

fn verdict_word(is_kept: bool) -> &'static str {
    if is_kept { "ok" } else { "FAILED" }
}

#[cfg(test)]
mod tests {
    use linerate_engine::Counts;

    use super::super::accounting::SoakAccounting;
    use super::*;

    #[test]
    fn soak_without_requests_fails() {
        let mut total = Counts::default();
        (total.restarts, total.panicked) = (1, 3);
        let observation = SoakObservation {
            capacity: 100e3,
            memory: vec![9e6; 6],
            events: [2, 1, 1, 1, 1],
            accounting: SoakAccounting::new(2),
            poison: 1,
            total,
        };
        assert!(observation.panics_match() && is_stable(&observation.memory));
        assert!(!observation.passes(), "nothing was sent");
        assert!(observation.to_string().contains("FAILED: every request has a fate"), "{observation}");
    }

    #[test]
    fn growing_memory_and_short_runs_fail_the_memory_check() {
        let rounds =
            |growth: f64| -> Vec<f64> { (0..45).map(|round| 9e6 + f64::from(round) * growth).collect() };
        assert!(is_stable(&rounds(0.0)) && is_stable(&rounds(1e3)));
        assert!(!is_stable(&rounds(50e3)));
        let short = &rounds(0.0)[..5];
        assert!(!is_stable(short));
        assert!(memory_text(short).contains("too short a time"));
    }
}
