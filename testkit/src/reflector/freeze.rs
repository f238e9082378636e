//! Periods without answers.

/// The reflector answers nothing in the last `lasting_ns` of every `every_ns`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FreezeSchedule {
    pub(crate) every_ns: u64,
    pub(crate) lasting_ns: u64,
}

impl FreezeSchedule {
    /// The end of the freeze that contains `now_ns`. The first period began at `epoch_ns`.
    pub(crate) fn thaw_ns(&self, epoch_ns: u64, now_ns: u64) -> Option<u64> {
        let offset_ns = now_ns.checked_sub(epoch_ns)? % self.every_ns;
        (offset_ns >= self.every_ns - self.lasting_ns).then(|| now_ns + self.every_ns - offset_ns)
    }

    /// Start of the next freeze that does not contain `now_ns`.
    pub(crate) fn next_ns(&self, epoch_ns: u64, now_ns: u64) -> u64 {
        let period = now_ns.saturating_sub(epoch_ns) / self.every_ns;
        let start_ns = |period| epoch_ns + (period + 1) * self.every_ns - self.lasting_ns;
        if start_ns(period) > now_ns { start_ns(period) } else { start_ns(period + 1) }
    }
}
