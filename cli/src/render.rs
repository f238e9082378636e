//! Results as people read them: text for a terminal, HTML for a browser.

pub(crate) mod format;
pub(crate) mod html;
pub(crate) mod ladder_changes;
pub(crate) mod page;
pub(crate) mod report;
pub(crate) mod style;
pub(crate) mod text;

mod axis;
mod chart;
pub(crate) mod column;
mod curve;

#[cfg(test)]
pub(crate) mod cost_fixtures;
#[cfg(test)]
pub(crate) mod load_fixtures;
#[cfg(test)]
mod pages;
#[cfg(test)]
pub(crate) mod result_fixtures;
