//! By how much counters grew, per second.

/// The growth of a counter of 64 bits; none where it shrank, which means that its source began anew.
#[expect(clippy::cast_precision_loss, reason = "a rate is shown with three digits")]
pub(crate) fn rate(before: Option<u64>, now: Option<u64>, seconds: Option<f64>) -> Option<f64> {
    let grown = now?.checked_sub(before?)?;
    Some(grown as f64 / seconds?)
}

/// The growth of a counter of 32 bits, which begins anew at 2^32. One that would have grown by half of that and more began
/// anew for another reason.
pub(crate) fn rate_32(before: Option<u64>, now: Option<u64>, seconds: Option<f64>) -> Option<f64> {
    const ROUND: u64 = 1 << 32;
    let (before, now) = (before?, now?);
    let grown = (now.checked_add(ROUND)?.checked_sub(before)?) % ROUND;
    (grown < ROUND / 2).then(|| rate(Some(0), Some(grown), seconds)).flatten()
}

/// The sum of what is known; none where nothing is.
pub(crate) fn sum(parts: impl IntoIterator<Item = Option<f64>>) -> Option<f64> {
    parts.into_iter().flatten().reduce(|one, other| one + other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_shrank_has_no_rate() {
        assert_eq!(rate(Some(10), Some(30), Some(2.0)), Some(10.0));
        assert_eq!(rate(Some(30), Some(10), Some(2.0)), None);
        assert_eq!(rate(None, Some(10), Some(2.0)), None);
        assert_eq!(rate(Some(1), Some(10), None), None);
    }

    #[test]
    fn one_of_32_bits_goes_round_and_does_not_run_back() {
        assert_eq!(rate_32(Some(u64::from(u32::MAX)), Some(9), Some(1.0)), Some(10.0));
        assert_eq!(rate_32(Some(1000), Some(0), Some(1.0)), None);
        assert_eq!(rate_32(Some(u64::MAX), Some(u64::MAX), Some(1.0)), None, "no counter of 32 bits");
    }

    #[test]
    fn what_is_unknown_is_no_zero() {
        assert_eq!(sum([None, None]), None);
        assert_eq!(sum([None, Some(1.0), Some(2.0)]), Some(3.0));
    }
}
