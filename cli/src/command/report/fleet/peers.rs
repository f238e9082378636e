//! Values in which one host differs from nearly all other hosts.

use std::collections::{BTreeMap, HashMap};

use linerate_host::stats::median;
use serde_json::Value;

use crate::command::report::fleet_report::{FleetHost, FleetOutlier};
use crate::render::column::cut;
use crate::render::format::{comma_list, significant};

/// With fewer hosts there is no majority.
const FEWEST_HOSTS: usize = 4;
/// Listed outliers per host: a host of another make differs in hundreds of values.
const MOST_LISTED: usize = 20;
/// Characters of a value. Longer ones are compared as a whole and shown in part.
const LONGEST_VALUE: usize = 61;
/// Losses per second below which hosts do not differ.
const FEWEST_LOSSES: f64 = 1.0;

/// The values of all hosts. Every text is kept once.
#[derive(Debug, Default)]
pub(crate) struct PeerValues {
    texts: HashMap<String, u32>,
    names: Vec<String>,
    /// Place and value.
    hosts: BTreeMap<String, Vec<(u32, u32)>>,
    figures: BTreeMap<&'static str, Vec<(String, f64)>>,
}

impl PeerValues {
    /// Adds the state of the stages of a host.
    pub(crate) fn add_state(&mut self, host: &str, state: &Value) {
        let mut leaves = BTreeMap::new();
        flatten(state, &mut String::new(), &mut leaves);
        let values: Vec<(u32, u32)> = leaves
            .into_iter()
            .map(|(key, values)| (self.number(key), self.number(join_runs(&values))))
            .collect();
        self.hosts.insert(host.to_owned(), values);
    }

    /// Adds figures and versions of a host.
    pub(crate) fn add_host(&mut self, host: &FleetHost) {
        let facts = [("linerate", &host.version), ("kernel", &host.kernel)];
        for (name, value) in facts {
            if let Some(value) = value {
                let pair = (self.number(name.to_owned()), self.number(value.clone()));
                self.hosts.entry(host.name.clone()).or_default().push(pair);
            }
        }
        for (name, value) in host.figures.named_figures() {
            if let Some(value) = value {
                self.figures.entry(name).or_default().push((host.name.clone(), value));
            }
        }
    }

    fn number(&mut self, text: String) -> u32 {
        if let Some(number) = self.texts.get(&text) {
            return *number;
        }
        let number = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.names.push(text.clone());
        self.texts.insert(text, number);
        number
    }

    /// The number of outliers per host, and the listed outliers.
    pub(crate) fn outliers(&self) -> (BTreeMap<String, usize>, Vec<FleetOutlier>) {
        let mut by_host: BTreeMap<String, Vec<FleetOutlier>> = BTreeMap::new();
        for outlier in self.figure_outliers().into_iter().chain(self.value_outliers()) {
            by_host.entry(outlier.host.clone()).or_default().push(outlier);
        }
        let counts = by_host.iter().map(|(host, outliers)| (host.clone(), outliers.len())).collect();
        (counts, by_host.into_values().flat_map(|outliers| outliers.into_iter().take(MOST_LISTED)).collect())
    }

    fn value_outliers(&self) -> Vec<FleetOutlier> {
        let mut counts: HashMap<u32, HashMap<u32, usize>> = HashMap::new();
        for (key, value) in self.hosts.values().flatten() {
            *counts.entry(*key).or_default().entry(*value).or_default() += 1;
        }
        let common_values = counts.into_iter().filter_map(|(key, values)| {
            let host_count: usize = values.values().sum();
            let (value, agreeing) = values.into_iter().max_by_key(|(_, count)| *count)?;
            let deviating = host_count - agreeing;
            (host_count >= FEWEST_HOSTS && deviating > 0 && deviating <= (host_count / 10).max(1))
                .then_some((key, (value, agreeing)))
        });
        let common_values: HashMap<u32, (u32, usize)> = common_values.collect();
        let name_of = |number: u32| self.names.get(number as usize).cloned().unwrap_or_default();
        let outlier = |host: &String, (key, value): &(u32, u32)| {
            let (peers, agreeing) = common_values.get(key).filter(|(peers, _)| peers != value)?;
            Some(FleetOutlier {
                host: host.clone(),
                what: name_of(*key),
                value: cut(&name_of(*value), LONGEST_VALUE),
                peers: cut(&name_of(*peers), LONGEST_VALUE),
                agreeing: *agreeing,
            })
        };
        self.hosts
            .iter()
            .flat_map(|(host, values)| values.iter().filter_map(|pair| outlier(host, pair)))
            .collect()
    }

    /// Figures further from the median than five standard deviations (by the median deviation) and a fifth.
    fn figure_outliers(&self) -> Vec<FleetOutlier> {
        let mut outliers = Vec::new();
        for (name, values) in self.figures.iter().filter(|(_, values)| values.len() >= FEWEST_HOSTS) {
            let figures: Vec<f64> = values.iter().map(|(_, value)| *value).collect();
            let Some(median_value) = median(&figures) else { continue };
            let deviations: Vec<f64> = figures.iter().map(|value| (value - median_value).abs()).collect();
            let Some(deviation) = median(&deviations) else { continue };
            let min_bound = if name.contains("loss") || name.contains("lost") { FEWEST_LOSSES } else { 0.0 };
            let bound = (5.0 * 1.4826 * deviation).max(0.2 * median_value.abs()).max(min_bound);
            for (host, value) in values.iter().filter(|(_, value)| (value - median_value).abs() > bound) {
                outliers.push(FleetOutlier {
                    host: host.clone(),
                    what: (*name).to_owned(),
                    value: significant(*value),
                    peers: significant(median_value),
                    agreeing: values.len(),
                });
            }
        }
        outliers
    }
}

/// The scalars of a state by place. Items with a name or interface are places of their own; the
/// values of other items are joined, so that 64 queues are one place.
fn flatten(value: &Value, path: &mut String, leaves: &mut BTreeMap<String, Vec<String>>) {
    let length = path.len();
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(key);
                flatten(value, path, leaves);
                path.truncate(length);
            }
        }
        Value::Array(items) => {
            for item in items {
                let name = ["interface", "name"].iter().find_map(|key| item.get(key)?.as_str());
                path.push('[');
                path.push_str(name.unwrap_or("*"));
                path.push(']');
                flatten(item, path, leaves);
                path.truncate(length);
            }
        }
        Value::String(text) => leaves.entry(path.clone()).or_default().push(text.clone()),
        scalar => leaves.entry(path.clone()).or_default().push(scalar.to_string()),
    }
}

/// `0 (16 times), f`.
fn join_runs(values: &[String]) -> String {
    let runs = values.chunk_by(|value, next| value == next);
    comma_list(runs.map(|run| match run {
        [value] => value.clone(),
        [value, ..] => format!("{value} ({} times)", run.len()),
        [] => String::new(),
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fleet(states: impl IntoIterator<Item = Value>) -> Vec<FleetOutlier> {
        let mut peers = PeerValues::default();
        for (number, state) in states.into_iter().enumerate() {
            peers.add_state(&format!("host{number}"), &state);
        }
        peers.outliers().1
    }

    #[test]
    fn a_value_that_differs_on_one_host_is_an_outlier() {
        let state = |number: u32, rings: u32| {
            json!({ "link": [{ "interface": "eth0", "rings": rings, "address": number,
            "queues": [{ "mask": 0 }, { "mask": 0 }] }] })
        };
        let outliers = fleet((0..12).map(|number| state(number, if number == 7 { 256 } else { 4096 })));
        let expected = FleetOutlier {
            host: "host7".to_owned(),
            what: "link[eth0].rings".to_owned(),
            value: "256".to_owned(),
            peers: "4096".to_owned(),
            agreeing: 11,
        };
        assert_eq!(outliers, [expected]);
        assert!(fleet((0..12).map(|number| state(number, 256 * (1 + number % 2)))).is_empty());
        assert!(fleet((0..3).map(|number| state(number, if number == 1 { 256 } else { 4096 }))).is_empty());
    }

    #[test]
    fn a_figure_far_from_the_median_is_an_outlier() {
        let mut peers = PeerValues::default();
        for number in 0..9 {
            let mut host = FleetHost { name: format!("host{number}"), ..FleetHost::default() };
            host.figures.packet_cpu_ns = Some(if number == 3 { 900.0 } else { 500.0 + f64::from(number) });
            host.figures.lost_packets_per_second = Some(if number == 4 { 0.5 } else { 0.0 });
            peers.add_host(&host);
        }
        let (counts, outliers) = peers.outliers();
        assert_eq!(counts, [("host3".to_owned(), 1)].into());
        assert_eq!((outliers[0].what.as_str(), outliers[0].value.as_str()), ("CPU ns per packet", "900"));
    }
}
