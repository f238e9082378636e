//! Rules about sockets.

mod buffer;
mod group;
mod memory;
mod sharing;
mod steered;

use crate::finding::Rule;

pub(super) const RULES: &[Rule] = &[
    sharing::SHARED_BY_THREADS,
    steered::NOT_STEERED,
    steered::MISMATCH,
    group::IMBALANCE,
    group::BELOW_QUEUES,
    buffer::RECEIVE_DROPS,
    memory::RULE,
    buffer::SMALL,
    buffer::GRO_SMALL,
];
