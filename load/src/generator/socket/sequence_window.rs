//! Matches replies to the requests of a flow.

const LEAST_IN_VIEW: u64 = 1 << 12;

// The most, which require 4 MiB per flow.
const MOST_IN_VIEW: u64 = 1 << 24;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplyKind {
    /// The first reply to its request.
    First {
        /// A later request of the flow had been answered before.
        reordered: bool,
    },
    /// The request had been answered already.
    Duplicate,
    /// The request is out of view.
    Late,
    /// No such request was sent.
    NeverSent,
}

/// Requests of one flow and slot: sequences sent, sequences answered, and sequences that hold a
/// place in the window.
#[derive(Debug)]
pub(super) struct SequenceWindow {
    answered: Box<[u64]>,
    released: Box<[u64]>,
    in_view: u64,
    most_in_view: u64,
    next: u64,
    highest: Option<u64>,
    oldest_held: u64,
    outstanding: u64,
}

impl SequenceWindow {
    pub(super) fn new() -> Self {
        Self::with_max_view(MOST_IN_VIEW)
    }

    // Keeps at most `max_in_view` in view, a power of two, because tags distinguish no more.
    pub(super) fn with_max_view(max_in_view: u64) -> Self {
        let in_view = LEAST_IN_VIEW.min(max_in_view);
        let words = in_view.div_ceil(64) as usize;
        SequenceWindow {
            answered: vec![0; words].into_boxed_slice(),
            released: vec![0; words].into_boxed_slice(),
            in_view,
            most_in_view: max_in_view.min(MOST_IN_VIEW),
            next: 0,
            highest: None,
            oldest_held: 0,
            outstanding: 0,
        }
    }

    // Starts a slot with at least the last `view` requests in view. A reply to an older request is
    // late.
    pub(super) fn begin(&mut self, view: u64) {
        let required_view = view.max(LEAST_IN_VIEW).min(self.most_in_view).next_power_of_two();
        if required_view > self.in_view {
            self.in_view = required_view;
            self.answered = vec![0; (required_view / 64) as usize].into_boxed_slice();
            // Not a copy: new zeroed memory costs nothing until it is used.
            self.released = vec![0; (required_view / 64) as usize].into_boxed_slice();
        } else {
            // A short slot used only the beginning of a large window.
            let used_words = (self.next.min(self.in_view).div_ceil(64)) as usize;
            self.answered[..used_words].fill(0);
            self.released[..used_words].fill(0);
        }
        self.next = 0;
        self.highest = None;
        self.oldest_held = 0;
        self.outstanding = 0;
    }

    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// The number of requests in view: a power of two.
    pub(super) fn in_view(&self) -> u64 {
        self.in_view
    }

    /// Whether a request is in view and unanswered.
    pub(super) fn is_open(&self, sequence: u64) -> bool {
        let (word, bit) = self.bit_position(sequence);
        sequence < self.next && self.next - sequence <= self.in_view && self.answered[word] & bit == 0
    }

    // The first request from `from` on that is in view and neither answered nor released; otherwise
    // the next request to send.
    pub(super) fn first_outstanding(&self, from: u64) -> u64 {
        let first = from.max(self.next.saturating_sub(self.in_view));
        let is_outstanding = |sequence: &u64| {
            let (word, bit) = self.bit_position(*sequence);
            (self.answered[word] | self.released[word]) & bit == 0
        };
        (first..self.next).find(is_outstanding).unwrap_or(self.next)
    }

    /// Requests sent and neither answered nor released.
    pub(super) fn outstanding(&self) -> u64 {
        self.outstanding
    }

    pub(super) fn record_sent(&mut self, count: u64) {
        self.outstanding += count;
        for sequence in self.next..self.next + count {
            let (word, bit) = self.bit_position(sequence);
            // The request that had this bit goes out of view and is no longer outstanding.
            if sequence >= self.in_view && (self.answered[word] | self.released[word]) & bit == 0 {
                self.outstanding -= 1;
            }
            self.answered[word] &= !bit;
            self.released[word] &= !bit;
        }
        self.next += count;
    }

    /// Records a reply to `sequence`.
    pub(super) fn classify_reply(&mut self, sequence: u64) -> ReplyKind {
        if sequence >= self.next {
            return ReplyKind::NeverSent;
        }
        if self.next - sequence > self.in_view {
            return ReplyKind::Late;
        }
        let (word, bit) = self.bit_position(sequence);
        if self.answered[word] & bit != 0 {
            return ReplyKind::Duplicate;
        }
        self.answered[word] |= bit;
        if self.released[word] & bit == 0 {
            self.outstanding -= 1;
        }
        let reordered = self.highest.is_some_and(|highest| sequence < highest);
        if !reordered {
            self.highest = Some(sequence);
        }
        ReplyKind::First { reordered }
    }

    /// Releases the places of unanswered requests before sequence `end`; returns their number. A
    /// later answer to them still counts.
    pub(super) fn release(&mut self, end: u64) -> u64 {
        let first = self.oldest_held.max(self.next.saturating_sub(self.in_view));
        let end = end.min(self.next);
        let mut count = 0;
        for sequence in first..end {
            let (word, bit) = self.bit_position(sequence);
            if (self.answered[word] | self.released[word]) & bit == 0 {
                self.released[word] |= bit;
                count += 1;
            }
        }
        self.oldest_held = self.oldest_held.max(end);
        self.outstanding -= count;
        count
    }

    #[inline]
    fn bit_position(&self, sequence: u64) -> (usize, u64) {
        let index = sequence & (self.in_view - 1);
        ((index / 64) as usize, 1 << (index % 64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_grows_to_a_slots_requests_and_begin_clears_it() {
        let mut window = SequenceWindow::new();
        window.begin(3 * LEAST_IN_VIEW);
        window.record_sent(3 * LEAST_IN_VIEW);
        assert_eq!(window.classify_reply(0), ReplyKind::First { reordered: false });
        window.begin(1);
        assert_eq!(window.classify_reply(0), ReplyKind::NeverSent);
        window.record_sent(1);
        assert_eq!(
            window.classify_reply(0),
            ReplyKind::First { reordered: false },
            "begin clears the previous slot"
        );
    }

    #[test]
    fn release_frees_each_outstanding_sequence_once() {
        let mut window = SequenceWindow::new();
        window.begin(0);
        window.record_sent(4);
        assert_eq!(window.release(2), 2);
        assert_eq!(window.release(2), 0);
        assert_eq!(window.outstanding(), 2);
        assert_eq!(window.classify_reply(0), ReplyKind::First { reordered: false });
        assert_eq!(window.outstanding(), 2);
        window.classify_reply(3);
        assert_eq!(window.outstanding(), 1);
        assert_eq!(window.release(u64::MAX), 1);
        assert_eq!(window.outstanding(), 0);
    }
}
