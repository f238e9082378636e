//! Finds heavy sources: a count-min sketch of the requests admitted lately per source. The same
//! algorithm as in bpf/guard.bpf.c.

/// Cells per row.
const ROW: usize = 4096;
const ROW_BITS: u32 = ROW.trailing_zeros();

// Minimum length of a window, in nanoseconds. With each window that passes, earlier requests count
// half.
const WINDOW_NS: u64 = 10_000_000;

// Length of a window with fewer requests than [`ENOUGH`], so that heavy sources are not forgotten
// while the worker does not run.
const LONGEST_WINDOW_NS: u64 = 1_000_000_000;

// Number of requests that show which sources are heavy. The guard needs more, because more may wait
// there.
const ENOUGH: u64 = 256;

#[derive(Debug, Clone, Copy, Default)]
struct SourceCell {
    window: u32,
    count: u32,
}

impl SourceCell {
    fn count_at(self, window: u32) -> u32 {
        self.count.checked_shr(window.wrapping_sub(self.window)).unwrap_or(0)
    }

    fn add(&mut self, window: u32) {
        *self = Self { window, count: self.count_at(window).saturating_add(1) };
    }
}

#[derive(Debug)]
pub(super) struct SourceShares {
    cells: [[SourceCell; ROW]; 2],
    // Odd, and unknown to senders, because a sender who knew it could charge its requests to
    // another source.
    seed: u64,
    began_ns: u64,
    window: u32,
    sources: u64,
    packets: u64,
    last_sources: u64,
    last_packets: u64,
    /// Whether more requests wait than were taken.
    pressed: bool,
}

impl SourceShares {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            cells: [[SourceCell::default(); ROW]; 2],
            seed: seed | 1,
            began_ns: 0,
            window: 64,
            sources: 0,
            packets: 0,
            last_sources: 0,
            last_packets: 0,
            pressed: false,
        }
    }

    // `has_waiting`: requests wait.
    pub(super) fn advance_window(&mut self, now_ns: u64, has_waiting: bool) {
        self.pressed = has_waiting;
        let elapsed_ns = now_ns.wrapping_sub(self.began_ns);
        if elapsed_ns < WINDOW_NS || (self.packets < ENOUGH && elapsed_ns < LONGEST_WINDOW_NS) {
            return;
        }
        self.began_ns = now_ns;
        self.last_sources = self.sources;
        self.last_packets = self.last_packets / 2 + self.packets;
        self.sources = 0;
        self.packets = 0;
        self.window = self.window.wrapping_add(1);
    }

    /// Whether a request of `source` is to be answered; counts it if so.
    pub(super) fn admits(&mut self, source: u64) -> bool {
        let mut hash = source.wrapping_mul(self.seed);
        hash ^= hash >> 32;
        hash = hash.wrapping_mul(self.seed);
        let [first, second] = &mut self.cells;
        let first = &mut first[(hash >> (64 - ROW_BITS)) as usize % ROW];
        let second = &mut second[(hash >> (64 - 2 * ROW_BITS)) as usize % ROW];
        if self.pressed {
            let count = u64::from(first.count_at(self.window).min(second.count_at(self.window)));
            let recent_packets = self.last_packets / 2 + self.packets;
            let mean = recent_packets / self.last_sources.max(self.sources).max(1);
            if count > mean + mean / 4 && count > recent_packets / 32 {
                return false;
            }
        }
        self.sources += u64::from(first.window != self.window);
        first.add(self.window);
        second.add(self.window);
        self.packets += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Admitted requests per source, if these numbers arrive evenly mixed in each window.
    fn admissions(rates: &[u32], windows: u64) -> Vec<u64> {
        let mut shares = SourceShares::new(0x9e37_79b9_7f4a_7c15);
        let mut counts = vec![0; rates.len()];
        let most = rates.iter().copied().max().unwrap_or(0);
        for window in 1..=windows {
            shares.advance_window(window * WINDOW_NS, true);
            for turn in 0..most {
                for (source, rate) in rates.iter().enumerate() {
                    let due = |turn: u32| u64::from(turn) * u64::from(*rate) / u64::from(most);
                    if due(turn + 1) > due(turn) && shares.admits(source as u64 * 77) {
                        counts[source] += 1;
                    }
                }
            }
        }
        counts
    }

    #[test]
    fn heavy_source_is_limited_and_polite_sources_are_not() {
        let mut rates = [100; 11];
        rates[0] = 10_000;
        let counts = admissions(&rates, 40);
        assert!(counts[0] < 40 * 10_000 / 4, "{counts:?}");
        assert!(counts[1..].iter().all(|polite| *polite >= 40 * 95), "{counts:?}");
    }

    #[test]
    fn heavy_source_stays_limited_while_polite_sources_are_idle() {
        let mut shares = SourceShares::new(0x9e37_79b9_7f4a_7c15);
        for window in 1..40 {
            shares.advance_window(window * WINDOW_NS, true);
            for _ in 0..100 {
                (0..10).for_each(|_| {
                    shares.admits(1);
                });
                (2..6).for_each(|polite| assert!(shares.admits(polite)));
            }
        }
        // For half a second, only the heavy source sends requests.
        let count: usize = (40..90)
            .map(|window| {
                shares.advance_window(window * WINDOW_NS, true);
                (0..20).filter(|_| shares.admits(1)).count()
            })
            .sum();
        assert!(count < 200, "{count} of 1000");
    }

    #[test]
    fn single_source_is_never_limited() {
        assert_eq!(admissions(&[500], 20), [20 * 500]);
    }

    #[test]
    fn all_sources_are_admitted_without_pressure() {
        let mut shares = SourceShares::new(3);
        for window in 0..20u64 {
            shares.advance_window(window * WINDOW_NS, false);
            assert!((0..1000).all(|_| shares.admits(1)) && shares.admits(2));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

        #[test]
        fn sources_up_to_a_quarter_above_the_least_active_are_never_limited(
            rates in prop::collection::vec(1..300u32, 2..8),
            heavy in 3_000..9_000u32,
        ) {
            let mut all = rates.clone();
            all.push(heavy);
            let counts = admissions(&all, 20);
            // The mean is at least the lowest rate. It may be below the rates of other sources.
            let least = rates.iter().min().copied().unwrap_or(0);
            for (source, rate) in rates.iter().enumerate().filter(|(_, rate)| **rate <= least + least / 4) {
                prop_assert_eq!(counts[source], 20 * u64::from(*rate), "source {} of {:?}", source, all);
            }
        }
    }
}
