//! Growth of counters per second.

// `None` if a 64-bit counter shrank, which means that its source was recreated.
pub(crate) fn rate(before: Option<u64>, now: Option<u64>, seconds: Option<f64>) -> Option<f64> {
    let growth = now?.checked_sub(before?)?;
    Some(growth as f64 / seconds?)
}

pub(crate) fn rate_32(before: Option<u64>, now: Option<u64>, seconds: Option<f64>) -> Option<f64> {
    rate(Some(0), growth_32(before?, now?), seconds)
}

/// A 32-bit counter wraps at 2^32. A growth of 2^31 or more means that the source was recreated.
pub(crate) fn growth_32(before: u64, now: u64) -> Option<u64> {
    const ROUND: u64 = 1 << 32;
    let growth = (now.checked_add(ROUND)?.checked_sub(before)?) % ROUND;
    (growth < ROUND / 2).then_some(growth)
}

// The sum of the known values, `None` without any.
pub(crate) fn sum(parts: impl IntoIterator<Item = Option<f64>>) -> Option<f64> {
    parts.into_iter().flatten().reduce(|sum, part| sum + part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decreasing_or_missing_counter_has_no_rate() {
        assert_eq!(rate(Some(10), Some(30), Some(2.0)), Some(10.0));
        assert_eq!(rate(Some(30), Some(10), Some(2.0)), None);
        assert_eq!(rate(None, Some(10), Some(2.0)), None);
        assert_eq!(rate(Some(1), Some(10), None), None);
    }

    #[test]
    fn a_32_bit_counter_that_wraps_keeps_its_rate() {
        assert_eq!(rate_32(Some(u64::from(u32::MAX)), Some(9), Some(1.0)), Some(10.0));
        assert_eq!(rate_32(Some(1000), Some(0), Some(1.0)), None);
        assert_eq!(rate_32(Some(u64::MAX), Some(u64::MAX), Some(1.0)), None, "no counter of 32 bits");
    }

    #[test]
    fn sum_is_unknown_only_if_all_values_are_unknown() {
        assert_eq!(sum([None, None]), None);
        assert_eq!(sum([None, Some(1.0), Some(2.0)]), Some(3.0));
    }
}
