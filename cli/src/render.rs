//! Results as people read them: text for a terminal, HTML for a browser.

pub(crate) mod calc_text;
pub(crate) mod doctor_explain;
pub(crate) mod doctor_html;
pub(crate) mod doctor_picture;
pub(crate) mod doctor_text;
mod doctor_value;
pub(crate) mod format;
pub(crate) mod ladder_html;
pub(crate) mod ladder_text;
pub(crate) mod load_html;
pub(crate) mod load_live;
pub(crate) mod load_search;
pub(crate) mod load_text;
pub(crate) mod style;

mod axis;
mod chart;
mod curve;
pub(crate) mod summary;

#[cfg(test)]
mod made_up;
#[cfg(test)]
mod made_up_load;
