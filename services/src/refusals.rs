//! How many requests got no answer, or less than there is, by reason.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::{Serialize, Serializer};

/// Why a request got no answer, or a shorter one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalReason {
    /// Its source is in none of the networks that are answered.
    Network,
    /// It comes from the server's own port, or one below 1024.
    Port,
    /// An echo was sent something without the header of a request.
    NotRequest,
    /// The rate limit was exceeded: no answer.
    RateLimited,
    /// The rate limit was exceeded: truncated (TC).
    RateTruncated,
    /// The answers to a network had too many bytes more than its queries: truncated (TC).
    SurplusTruncated,
    /// The answer is longer than the client takes over UDP: truncated (TC).
    SizeTruncated,
}

impl RefusalReason {
    const ALL: [RefusalReason; 7] = [
        RefusalReason::Network,
        RefusalReason::Port,
        RefusalReason::NotRequest,
        RefusalReason::RateLimited,
        RefusalReason::RateTruncated,
        RefusalReason::SurplusTruncated,
        RefusalReason::SizeTruncated,
    ];

    /// Its key in JSON.
    fn key(self) -> &'static str {
        match self {
            RefusalReason::Network => "source_network",
            RefusalReason::Port => "source_port",
            RefusalReason::NotRequest => "not_request",
            RefusalReason::RateLimited => "rate_limited",
            RefusalReason::RateTruncated => "rate_truncated",
            RefusalReason::SurplusTruncated => "surplus_truncated",
            RefusalReason::SizeTruncated => "size_truncated",
        }
    }

    /// What happened and which option decides about it, to follow a number.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            RefusalReason::Network => "not answered: the source is in no network that is served (--allow)",
            RefusalReason::Port => "not answered: the source port is below 1024 or the server's own",
            RefusalReason::NotRequest => "not answered: no request of `linerate load` (--any)",
            RefusalReason::RateLimited => "not answered: above --rate-limit",
            RefusalReason::RateTruncated => "truncated: above --rate-limit (--slip)",
            RefusalReason::SurplusTruncated => "truncated: above --surplus",
            RefusalReason::SizeTruncated => {
                "truncated: longer than the client takes over UDP (EDNS, --udp-size)"
            }
        }
    }
}

/// Counters that all workers of a server share.
#[derive(Debug, Default)]
pub struct RefusalCounters([AtomicU64; RefusalReason::ALL.len()]);

/// The counts at one time. In JSON it is a map with a key per reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RefusalCounts([u64; RefusalReason::ALL.len()]);

impl RefusalCounters {
    pub(crate) fn add(&self, refusal: RefusalReason) {
        self.0[refusal as usize].fetch_add(1, Relaxed);
    }

    #[must_use]
    pub fn counts(&self) -> RefusalCounts {
        RefusalCounts(std::array::from_fn(|at| self.0[at].load(Relaxed)))
    }
}

impl RefusalCounts {
    /// How many there were for one reason.
    #[must_use]
    pub fn count_of(&self, refusal: RefusalReason) -> u64 {
        self.0[refusal as usize]
    }

    /// Those since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &RefusalCounts) -> RefusalCounts {
        RefusalCounts(std::array::from_fn(|at| self.0[at].saturating_sub(earlier.0[at])))
    }

    /// The reasons that occurred, and how often.
    pub fn iter(&self) -> impl Iterator<Item = (RefusalReason, u64)> {
        RefusalReason::ALL.into_iter().zip(self.0).filter(|(_, count)| *count > 0)
    }
}

impl Serialize for RefusalCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(RefusalReason::ALL.into_iter().map(RefusalReason::key).zip(self.0))
    }
}
