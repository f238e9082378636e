//! A limit on answered requests per second.

/// A token bucket: full at first, refilled at a constant rate. Each request takes one token.
#[derive(Debug, Clone)]
pub(crate) struct ReflectorBucket {
    per_ns: f64,
    depth: f64,
    tokens: f64,
    last_ns: Option<u64>,
}

impl ReflectorBucket {
    pub(crate) fn new(per_second: f64, depth: f64) -> Self {
        ReflectorBucket { per_ns: per_second / 1e9, depth, tokens: depth, last_ns: None }
    }

    // Whether a request that arrived at `at_ns` gets a token. Uses the arrival time, so that the
    // capacity stays the same while the service is delayed.
    pub(crate) fn take(&mut self, at_ns: u64) -> bool {
        let last_ns = self.last_ns.unwrap_or(at_ns);
        let elapsed_ns = at_ns.saturating_sub(last_ns) as f64;
        self.last_ns = Some(last_ns.max(at_ns));
        self.tokens = (self.tokens + elapsed_ns * self.per_ns).min(self.depth);
        if self.tokens < 1.0 {
            return false;
        }
        self.tokens -= 1.0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn token_bucket_never_exceeds_depth_plus_rate(
            gaps in prop::collection::vec(0..50_000u64, 1..2_000), depth in 1..200u32,
        ) {
            let (rate, depth) = (50_000.0, f64::from(depth));
            let mut bucket = ReflectorBucket::new(rate, depth);
            let (mut at, mut tokens) = (0, 0);
            for gap in &gaps {
                at += gap;
                tokens += u32::from(bucket.take(1_000_000_000 + at));
            }
            let elapsed = (at - gaps[0]) as f64 / 1e9;
            prop_assert!(f64::from(tokens) <= depth + rate * elapsed + 1e-6);
        }
    }
}
