//! Results as documents: a file per command. Each is written once, for text and HTML.

mod calc;
pub(crate) mod cost;
pub(crate) mod drops;
pub(crate) mod ladder;
pub(crate) mod load;
