//! The root qdisc of an interface, and with `mq` the qdiscs of its transmit queues.
//!
//! Qdiscs with classes or filters are left alone, because they could not be restored.

use std::collections::BTreeMap;
use std::fmt;
use std::io;

use super::knob::{Knob, WriteRefusal};
use super::value::SettingValue;
use crate::netlink::qdisc::QdiscState;
use crate::netlink::qdisc::{self, QdiscPosition, parameters};
use crate::root::ExplainedErrno;
use crate::{CpuSet, Host, HostError};

const EXPECTED: &str = "a discipline such as fq_codel limit 1000, mq, or mq of fq";
const BY_DEFAULT: &str = " by default";

pub(super) struct RootQdisc<'a> {
    pub(super) interface: &'a str,
}

/// A qdisc without child qdiscs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct LeafQdisc {
    kind: String,
    parameters: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum QdiscShape {
    Single(LeafQdisc),
    // `mq`: qdisc by queue; empty if the kernel chooses them.
    Multiple(BTreeMap<u32, LeafQdisc>),
    /// `mq` with the same qdisc for every queue.
    Uniform(LeafQdisc),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct QdiscTree {
    shape: QdiscShape,
    // Whether the kernel created it.
    by_default: bool,
}

impl LeafQdisc {
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (kind, parameters) = text.split_once(' ').unwrap_or((text, ""));
        parameters::options(kind, parameters).filter(|_| kind != "mq")?;
        Some(Self {
            kind: kind.to_owned(),
            parameters: parameters.split_whitespace().collect::<Vec<_>>().join(" "),
        })
    }

    fn of(discipline: &QdiscState) -> Option<Self> {
        let parameters = discipline.parameters.clone()?;
        Some(Self { kind: discipline.kind.clone(), parameters })
    }

    /// Whether this qdisc has all parameters of the other.
    fn covers(&self, other: &Self) -> bool {
        let pairs = |text: &str| -> BTreeMap<String, String> {
            let words: Vec<&str> = text.split_whitespace().collect();
            words
                .chunks_exact(2)
                .filter_map(|pair| match pair {
                    [name, value] => Some(((*name).to_owned(), (*value).to_owned())),
                    _ => None,
                })
                .collect()
        };
        let own_values = pairs(&self.parameters);
        self.kind == other.kind
            && pairs(&other.parameters).iter().all(|(name, value)| own_values.get(name) == Some(value))
    }

    fn create(&self, index: u32, position: QdiscPosition) -> io::Result<()> {
        let options = parameters::options(&self.kind, &self.parameters).ok_or(io::ErrorKind::InvalidInput)?;
        qdisc::create(index, position, &self.kind, &options)
    }
}

impl fmt::Display for LeafQdisc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, parameters } = self;
        if parameters.is_empty() { f.write_str(kind) } else { write!(f, "{kind} {parameters}") }
    }
}

impl QdiscTree {
    fn parse(text: &str) -> Option<Self> {
        let (text, by_default) = match text.strip_suffix(BY_DEFAULT) {
            Some(text) => (text, true),
            None => (text, false),
        };
        let shape = match text.strip_prefix("mq of ") {
            None if text == "mq" => QdiscShape::Multiple(BTreeMap::new()),
            None => QdiscShape::Single(LeafQdisc::parse(text)?),
            Some(queues_text) if !queues_text.contains(" at ") => {
                QdiscShape::Uniform(LeafQdisc::parse(queues_text)?)
            }
            Some(queues_text) => QdiscShape::Multiple(queues(queues_text)?),
        };
        Some(Self { shape, by_default })
    }

    // Reads the kernel's list; `None` if the qdiscs could not be restored.
    fn of(disciplines: &[QdiscState]) -> Option<Self> {
        let root = disciplines.iter().find(|discipline| discipline.parent == "root")?;
        let by_default = root.handle == "0:";
        if root.kind != "mq" {
            return Some(Self { shape: QdiscShape::Single(LeafQdisc::of(root)?), by_default });
        }
        let major = root.handle.strip_suffix(':').filter(|major| *major != "0").unwrap_or_default();
        let mut queues = BTreeMap::new();
        for discipline in disciplines {
            let Some((parent, minor)) = discipline.parent.split_once(':') else { continue };
            if parent == major {
                let queue = u32::from_str_radix(minor, 16).ok()?.checked_sub(1)?;
                queues.insert(queue, LeafQdisc::of(discipline)?);
            }
        }
        let shape = match queues.values().next().cloned() {
            Some(first) if queues.values().all(|queue| *queue == first) => QdiscShape::Uniform(first),
            _ => QdiscShape::Multiple(queues),
        };
        Some(Self { shape, by_default })
    }

    /// Whether this tree satisfies the other.
    fn covers(&self, other: &Self) -> bool {
        match (&self.shape, &other.shape) {
            (QdiscShape::Single(own), QdiscShape::Single(other))
            | (QdiscShape::Uniform(own), QdiscShape::Uniform(other)) => own.covers(other),
            (QdiscShape::Multiple(_) | QdiscShape::Uniform(_), QdiscShape::Multiple(other))
                if other.is_empty() =>
            {
                true
            }
            (QdiscShape::Multiple(own), QdiscShape::Multiple(other)) => {
                other.iter().all(|(queue, other)| own.get(queue).is_some_and(|own| own.covers(other)))
            }
            (QdiscShape::Multiple(own), QdiscShape::Uniform(other)) => {
                !own.is_empty() && own.values().all(|own| own.covers(other))
            }
            (QdiscShape::Uniform(own), QdiscShape::Multiple(other)) => {
                other.values().all(|other| own.covers(other))
            }
            (QdiscShape::Single(_), _) | (_, QdiscShape::Single(_)) => false,
        }
    }

    fn create(&self, interface: &str) -> io::Result<()> {
        let index = qdisc::index_of(interface)?;
        qdisc::remove_root(index)?;
        if self.by_default && Self::of(&qdisc::list(index)?).is_some_and(|current| current.covers(self)) {
            return Ok(());
        }
        match &self.shape {
            QdiscShape::Single(single) => single.create(index, QdiscPosition::Root),
            QdiscShape::Multiple(queues) => create_queues(index, |queue| queues.get(&queue)),
            QdiscShape::Uniform(single) => create_queues(index, |_| Some(single)),
        }
    }
}

fn create_queues<'a>(index: u32, leaf_of_queue: impl Fn(u32) -> Option<&'a LeafQdisc>) -> io::Result<()> {
    qdisc::create(index, QdiscPosition::Root, "mq", &[])?;
    let current = qdisc::list(index)?;
    let handle =
        current.iter().find(|state| state.parent == "root").map(|root| root.handle.trim_end_matches(':'));
    let handle = handle.ok_or(io::ErrorKind::NotFound)?;
    let root = u16::from_str_radix(handle, 16).map_err(io::Error::other)?;
    for discipline in &current {
        let minor_text = discipline.parent.strip_prefix(handle).and_then(|rest| rest.strip_prefix(':'));
        let Some(minor) = minor_text.and_then(|minor| u16::from_str_radix(minor, 16).ok()) else { continue };
        let Some(queue) = minor.checked_sub(1) else { continue };
        let leaf = leaf_of_queue(u32::from(queue));
        if let Some(leaf) =
            leaf.filter(|leaf| !LeafQdisc::of(discipline).is_some_and(|actual| actual.covers(leaf)))
        {
            leaf.create(index, QdiscPosition::Queue { root, queue })?;
        }
    }
    Ok(())
}

/// Parses `fq at 0-3; pfifo_fast at 4-7`.
fn queues(text: &str) -> Option<BTreeMap<u32, LeafQdisc>> {
    /// More than any NIC has.
    const MOST: u32 = 4096;
    let mut queues = BTreeMap::new();
    for part in text.split(';') {
        let (single, list) = part.rsplit_once(" at ")?;
        let single = LeafQdisc::parse(single)?;
        for queue in CpuSet::from_list(list).ok()?.iter() {
            if queue >= MOST || queues.insert(queue, single.clone()).is_some() {
                return None;
            }
        }
    }
    Some(queues)
}

impl fmt::Display for QdiscTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.shape {
            QdiscShape::Single(single) => write!(f, "{single}")?,
            QdiscShape::Uniform(single) => write!(f, "mq of {single}")?,
            QdiscShape::Multiple(queues) if queues.is_empty() => f.write_str("mq")?,
            QdiscShape::Multiple(queues) => {
                let mut by_kind: BTreeMap<&LeafQdisc, Vec<u32>> = BTreeMap::new();
                for (queue, single) in queues {
                    by_kind.entry(single).or_default().push(*queue);
                }
                let parts = by_kind
                    .into_iter()
                    .map(|(single, queues)| format!("{single} at {}", CpuSet::from_iter(queues)));
                write!(f, "mq of {}", parts.collect::<Vec<_>>().join("; "))?;
            }
        }
        f.write_str(if self.by_default { BY_DEFAULT } else { "" })
    }
}

impl RootQdisc<'_> {
    fn unrestorable_error(&self, disciplines: &[QdiscState]) -> HostError {
        let unrestorable = disciplines
            .iter()
            .find(|discipline| discipline.parameters.is_none() && discipline.parent != "ingress");
        let message = unrestorable.map_or_else(
            || "it has none".to_owned(),
            |unrestorable| {
                format!("{}, whose parameters could not be restored, is left alone", unrestorable.kind)
            },
        );
        let operation = format!("reading the queueing disciplines of {}", self.interface);
        HostError::Call {
            what: operation,
            source: ExplainedErrno { errno: libc::EOPNOTSUPP, words: message }.into(),
        }
    }

    // Whether linerate can read the new state and so compare it: a newer kernel may have more
    // parameters.
    fn check_readable(&self) -> io::Result<()> {
        let current = qdisc::list(qdisc::index_of(self.interface)?)?;
        let message = "it became one with a parameter that is not known here; what was there is back";
        QdiscTree::of(&current).map(|_| ()).ok_or_else(|| io::Error::other(message))
    }

    fn read_tree(&self, host: &Host) -> Result<QdiscTree, HostError> {
        let disciplines = qdisc::of_interface(host, self.interface)?;
        QdiscTree::of(&disciplines).ok_or_else(|| self.unrestorable_error(&disciplines))
    }
}

impl Knob for RootQdisc<'_> {
    fn name(&self) -> String {
        format!("queueing discipline of {}", self.interface)
    }

    fn read(&self, host: &Host) -> Result<SettingValue, HostError> {
        self.read_tree(host).map(|tree| SettingValue::new(tree.to_string()))
    }

    fn check(&self, value: &SettingValue) -> Result<(), &'static str> {
        QdiscTree::parse(value.as_str()).map(|_| ()).ok_or(EXPECTED)
    }

    fn write(&self, host: &Host, value: &SettingValue) -> Result<(), WriteRefusal> {
        let requested = QdiscTree::parse(value.as_str()).ok_or(WriteRefusal::BadValue(EXPECTED))?;
        let before = self.read_tree(host)?;
        let change = || {
            requested.create(self.interface).and_then(|()| self.check_readable()).inspect_err(|_| {
                // Restores as much as possible; the error is reported in any case.
                let _ = before.create(self.interface);
            })
        };
        let operation = format!("replacing the queueing discipline of {}", self.interface);
        Ok(host.apply_change(
            &format!("qdisc/{}", self.interface),
            &operation,
            change,
            |answer: &mut Vec<QdiscState>| {
                *answer = rehearsed_state(&requested, answer);
            },
        )?)
    }

    /// Ignores who created the qdisc, and parameters that only one value has.
    fn same(&self, left: &SettingValue, right: &SettingValue) -> bool {
        let (Some(left), Some(right)) = (QdiscTree::parse(left.as_str()), QdiscTree::parse(right.as_str()))
        else {
            return false;
        };
        left.covers(&right) || right.covers(&left)
    }

    // An interrupted write may leave the kernel's default, or `mq` with only some queues set.
    fn can_leave(&self, requested: &SettingValue, actual: &SettingValue) -> bool {
        let (requested, actual) = (QdiscTree::parse(requested.as_str()), QdiscTree::parse(actual.as_str()));
        let (Some(requested), Some(actual)) = (requested, actual) else { return false };
        actual.by_default
            || !matches!(requested.shape, QdiscShape::Single(_))
                && !matches!(actual.shape, QdiscShape::Single(_))
    }

    fn command(&self, value: &SettingValue) -> Option<String> {
        let tree = QdiscTree::parse(value.as_str())?;
        let interface = self.interface;
        match &tree.shape {
            _ if tree.by_default => Some(format!("tc qdisc del dev {interface} root")),
            QdiscShape::Single(LeafQdisc { kind, parameters }) if parameters.is_empty() => {
                Some(format!("tc qdisc replace dev {interface} root {kind}"))
            }
            QdiscShape::Multiple(queues) if queues.is_empty() => {
                Some(format!("tc qdisc replace dev {interface} root mq"))
            }
            _ => None,
        }
    }
}

/// The state of a fake host after the change.
fn rehearsed_state(requested: &QdiscTree, before: &[QdiscState]) -> Vec<QdiscState> {
    let discipline = |single: &LeafQdisc, handle: &str, parent: String| QdiscState {
        kind: single.kind.clone(),
        parameters: Some(single.parameters.clone()),
        handle: handle.to_owned(),
        parent,
        packets: 0,
        drops: 0,
        requeues: 0,
        backlog: 0,
    };
    let handle = if requested.by_default { "0:" } else { "8001:" };
    let (mq, default) = (
        LeafQdisc { kind: "mq".into(), parameters: String::new() },
        LeafQdisc { kind: "pfifo_fast".into(), parameters: String::new() },
    );
    let count = before.iter().filter(|discipline| discipline.parent.contains(':')).count().max(1);
    let queue = |queue: u32| match &requested.shape {
        QdiscShape::Single(_) => None,
        QdiscShape::Uniform(single) => Some(single),
        QdiscShape::Multiple(queues) => Some(queues.get(&queue).unwrap_or(&default)),
    };
    let mut current = vec![match &requested.shape {
        QdiscShape::Single(single) => discipline(single, handle, "root".to_owned()),
        QdiscShape::Uniform(_) | QdiscShape::Multiple(_) => discipline(&mq, handle, "root".to_owned()),
    }];
    let major = if requested.by_default { "" } else { "8001" };
    let leaves =
        (0..u32::try_from(count).unwrap_or(u32::MAX)).filter_map(|number| Some((number, queue(number)?)));
    current
        .extend(leaves.map(|(number, single)| discipline(single, "0:", format!("{major}:{:x}", number + 1))));
    current
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Setting;

    fn setting() -> Setting {
        Setting::Qdisc { interface: "eth0".into() }
    }

    fn host(disciplines: &[(&str, &str, &str, Option<&str>)]) -> Host {
        let all = disciplines.iter().map(|(kind, handle, parent, parameters)| {
            serde_json::json!({"kind": kind, "handle": handle, "parent": parent, "parameters": parameters,
                               "packets": 1, "drops": 0, "requeues": 0, "backlog": 0})
        });
        Host::scripted([("/calls/qdisc/eth0.json", serde_json::Value::from_iter(all).to_string())])
    }

    #[test]
    fn qdisc_tree_is_read_written_and_restored() {
        let host = host(&[
            ("mq", "0:", "root", Some("")),
            ("fq_codel", "0:", ":1", Some("limit 10240 flows 1024")),
            ("fq_codel", "0:", ":2", Some("limit 10240 flows 1024")),
            ("clsact", "ffff:", "ingress", None),
        ]);
        let before = setting().read(&host).expect("read");
        assert_eq!(before.as_str(), "mq of fq_codel limit 10240 flows 1024 by default");
        for value in ["mq of fq at 1; pfifo_fast at 0", "pfifo limit 1000", "noqueue", "mq"] {
            setting().write(&host, &SettingValue::new(value)).expect(value);
            assert!(
                setting().same(&setting().read(&host).expect("read"), &SettingValue::new(value)),
                "{value}"
            );
        }
        setting().write(&host, &before).expect("restored");
        // A fake host keeps its number of queues.
        assert!(setting().same(&setting().read(&host).expect("read"), &before));
    }

    #[test]
    fn unrestorable_qdiscs_and_invalid_values_are_refused() {
        for disciplines in [
            &[("htb", "1:", "root", None)][..],
            &[("mq", "1:", "root", Some("")), ("cake", "0:", "1:1", None)][..],
        ] {
            let error =
                setting().write(&host(disciplines), &SettingValue::new("mq")).expect_err("left alone");
            assert!(error.is_unsupported() && error.to_string().contains("is left alone"), "{error}");
        }
        assert!(setting().read(&host(&[])).is_err());
        for bad in [
            "",
            "htb",
            "mq of mq",
            "mq of",
            "fq limit",
            "fq at 1",
            "mq of fq at 1; fq at 1",
            "mq of fq at 9999",
        ] {
            assert!(setting().check(&SettingValue::new(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn qdisc_values_compare_only_common_parameters() {
        let same = |one, other| setting().same(&SettingValue::new(one), &SettingValue::new(other));
        assert!(
            same("fq limit 5", "fq limit 5 flow_limit 100 by default")
                && same("mq", "mq of fq at 0; pfifo_fast at 1")
        );
        assert!(same("mq of fq", "mq of fq limit 9 at 0; fq limit 8 at 1"));
        assert!(
            !same("mq of fq", "mq of fq at 0; pfifo_fast at 1")
                && !same("fq limit 5", "fq limit 6")
                && !same("mq", "fq")
        );
        let passes = |to, found| setting().can_leave(&SettingValue::new(to), &SettingValue::new(found));
        assert!(
            passes("fq", "pfifo_fast by default")
                && passes("mq of fq", "mq of pfifo_fast")
                && !passes("fq", "pfifo_fast")
        );
    }

    #[test]
    fn qdisc_tree_has_a_command_if_one_tc_command_suffices() {
        let command = |value| setting().command(&SettingValue::new(value));
        assert_eq!(command("fq").as_deref(), Some("tc qdisc replace dev eth0 root fq"));
        assert_eq!(command("mq").as_deref(), Some("tc qdisc replace dev eth0 root mq"));
        assert_eq!(command("fq_codel limit 5 by default").as_deref(), Some("tc qdisc del dev eth0 root"));
        assert_eq!(command("mq of fq"), None);
    }

    proptest! {
        #[test]
        fn parsed_qdisc_trees_round_trip_through_text(text in "(mq of |mq|)(fq|pfifo|noqueue|x)?( limit [0-9]{1,4})?( at [0-9]-[0-9])?(; fq at 9)?( by default)?") {
            if let Some(tree) = QdiscTree::parse(&text) {
                prop_assert!(QdiscTree::parse(&tree.to_string()).is_some_and(|again| again.covers(&tree) && tree.covers(&again)));
            }
        }
    }
}
