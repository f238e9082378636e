//! Results as documents: a file per command. Each document serves both text and HTML.

pub(crate) mod boost;
mod calc;
pub(crate) mod comparison;
pub(crate) mod cost;
pub(crate) mod delay;
pub(crate) mod doctor;
pub(crate) mod drops;
pub(crate) mod flame;
mod fleet;
pub(crate) mod headroom;
pub(crate) mod ladder;
pub(crate) mod load;
pub(crate) mod measurement;
mod paths;
pub(crate) mod persist;
mod placement;
mod prediction;
pub(crate) mod tune;
pub(crate) mod tune_plan;

/// Items by their reason, in the order of the first item of each group.
fn group_by_reason<'a>(items: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<(&'a str, Vec<&'a str>)> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for (why, item) in items {
        match groups.iter_mut().find(|(known, _)| *known == why) {
            Some((_, items)) => items.push(item),
            None => groups.push((why, vec![item])),
        }
    }
    groups
}
