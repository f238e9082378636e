//! Counts of requests without a reply, or with a truncated one, by reason.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::{Serialize, Serializer};
use strum::{IntoStaticStr, VariantArray};

/// Why a request got no reply, or a truncated one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum RefusalReason {
    /// Source in none of the networks that get replies.
    #[strum(serialize = "source_network")]
    Network,
    /// Source port below 1024, or the server's own.
    #[strum(serialize = "source_port")]
    Port,
    /// Echo: a payload without the header of a request.
    NotRequest,
    /// NTP: not a client request of versions 1 to 4.
    NotClientRequest,
    /// NTP: a request with a MAC, which a server without keys cannot answer.
    Authenticated,
    /// Above the rate limit: no reply.
    RateLimited,
    /// Above the rate limit: truncated (TC).
    RateTruncated,
    /// Above the limit of surplus bytes to a network: truncated (TC).
    SurplusTruncated,
    /// Longer than the client accepts over UDP: truncated (TC).
    SizeTruncated,
}

impl RefusalReason {
    /// A phrase for a message, after the count, with the option that decides.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            RefusalReason::Network => "not answered: the source is in no network that is served (--allow)",
            RefusalReason::Port => "not answered: the source port is below 1024 or the server's own",
            RefusalReason::NotRequest => "not answered: no request of `linerate load` (--any)",
            RefusalReason::NotClientRequest => "not answered: no client request of NTP version 1 to 4",
            RefusalReason::Authenticated => "not answered: with a MAC, and the server has no keys",
            RefusalReason::RateLimited => "not answered: above --rate-limit",
            RefusalReason::RateTruncated => "truncated: above --rate-limit (--slip)",
            RefusalReason::SurplusTruncated => "truncated: above --surplus",
            RefusalReason::SizeTruncated => {
                "truncated: longer than the client accepts over UDP (EDNS, --udp-size)"
            }
        }
    }
}

/// Counters that all workers of a server share.
#[derive(Debug, Default)]
pub struct RefusalCounters([AtomicU64; RefusalReason::VARIANTS.len()]);

/// A snapshot of the counters. In JSON, a map with a key per reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RefusalCounts([u64; RefusalReason::VARIANTS.len()]);

impl RefusalCounters {
    pub(crate) fn add(&self, refusal: RefusalReason) {
        self.0[refusal as usize].fetch_add(1, Relaxed);
    }

    #[must_use]
    pub fn counts(&self) -> RefusalCounts {
        RefusalCounts(std::array::from_fn(|index| self.0[index].load(Relaxed)))
    }
}

impl RefusalCounts {
    #[must_use]
    pub fn since(&self, earlier: &RefusalCounts) -> RefusalCounts {
        RefusalCounts(std::array::from_fn(|index| self.0[index].saturating_sub(earlier.0[index])))
    }

    /// The reasons that occurred, with counts.
    pub fn iter(&self) -> impl Iterator<Item = (RefusalReason, u64)> {
        RefusalReason::VARIANTS.iter().copied().zip(self.0).filter(|(_, count)| *count > 0)
    }
}

impl Serialize for RefusalCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(RefusalReason::VARIANTS.iter().map(<&'static str>::from).zip(self.0))
    }
}
