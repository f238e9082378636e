//! Rules about the threads of a service.

mod audit;
mod held_back;
mod placement;
mod unpinned;

use crate::finding::Rule;

pub(super) const RULES: &[Rule] = &[
    unpinned::UNPINNED,
    placement::FAR_NODE,
    placement::NOT_WITH_QUEUE,
    placement::ON_SIBLING,
    held_back::RULE,
    audit::AUDIT,
];
