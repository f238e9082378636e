//! What can be wrong with the threads of a service.

use crate::finding::Rule;

pub(super) const RULES: &[Rule] = &[];
