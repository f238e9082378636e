//! What can be wrong with sockets.

use crate::finding::Rule;

pub(super) const RULES: &[Rule] = &[];
