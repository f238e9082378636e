//! The indirection table: the receive queue of each hash value.
//!
//! A value is `equal N` (entries name queues 0 to N - 1 in turn), `start S equal N` (queues S to S
//! + N - 1), both as in ethtool(8), or the queue of every entry: `0,1,2,0,...`.

use super::knob::{Knob, WriteRefusal};
use super::value::SettingValue;
use crate::ethtool::IndirectionInfo;
use crate::root::ExplainedErrno;
use crate::sys::ethtool::receive;
use crate::{Host, HostError};

pub(crate) fn indirection(host: &Host, interface: &str) -> Result<IndirectionInfo, HostError> {
    let operation = format!("reading the indirection table of {interface}");
    host.call(&format!("ethtool/{interface}/rss"), &operation, || receive::indirection(interface))
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RssTableValue {
    /// This many queues in turn, from `start`.
    Equal { start: u32, queues: u32 },
    /// The queue of every entry.
    Entries(Vec<u32>),
}

impl RssTableValue {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (start, queues) = match words.as_slice() {
            ["equal", queues] => ("0", *queues),
            ["start", start, "equal", queues] => (*start, *queues),
            [entries] => {
                return entries
                    .split(',')
                    .map(|entry| entry.parse().ok())
                    .collect::<Option<_>>()
                    .map(RssTableValue::Entries);
            }
            _ => return None,
        };
        let (start, queues) = (start.parse::<u32>().ok()?, queues.parse::<u32>().ok()?);
        (queues > 0 && start.checked_add(queues).is_some()).then_some(RssTableValue::Equal { start, queues })
    }

    // The shortest value that describes these entries.
    pub(super) fn of(entries: &[u32]) -> Self {
        let (start, last) = (entries.iter().min().copied(), entries.iter().max().copied());
        let equal = start
            .zip(last)
            .map(|(start, last)| RssTableValue::Equal { start, queues: (last - start).saturating_add(1) });
        match equal {
            Some(equal) if equal.entries(entries.len()) == entries => equal,
            _ => RssTableValue::Entries(entries.to_vec()),
        }
    }

    pub(super) fn entries(&self, size: usize) -> Vec<u32> {
        match self {
            RssTableValue::Equal { start, queues } => {
                (0..*queues).map(|queue| start + queue).cycle().take(size).collect()
            }
            RssTableValue::Entries(entries) => entries.clone(),
        }
    }

    pub(super) fn value(&self) -> SettingValue {
        match self {
            RssTableValue::Equal { start: 0, queues } => SettingValue::new(format!("equal {queues}")),
            RssTableValue::Equal { start, queues } => {
                SettingValue::new(format!("start {start} equal {queues}"))
            }
            RssTableValue::Entries(entries) => {
                SettingValue::new(entries.iter().map(u32::to_string).collect::<Vec<_>>().join(","))
            }
        }
    }
}

/// The queue of each entry in a table of this size; `None` for an invalid value.
pub fn table_entries(value: &SettingValue, size: usize) -> Option<Vec<u32>> {
    RssTableValue::parse(value.as_str()).map(|table| table.entries(size))
}

pub(crate) fn table_value(entries: &[u32]) -> SettingValue {
    RssTableValue::of(entries).value()
}

/// Fuzzer entry.
pub(crate) fn any_table(text: &str) {
    let _ = RssTableValue::parse(text).map(|table| (table.entries(128), table.value()));
}

pub(super) struct RssTable<'a> {
    pub(super) interface: &'a str,
}

const EXPECTED: &str = "'equal N', 'start S equal N' or a queue for each entry";

impl RssTable<'_> {
    /// The queue of each entry. A driver may report a table that does not exist, as virtio_net does
    /// if its device has no RSS.
    fn entries(&self, host: &Host) -> Result<Vec<u32>, HostError> {
        let table = indirection(host, self.interface)?.table;
        if table.is_empty() {
            return Err(HostError::Call {
                what: format!("reading the indirection table of {}", self.interface),
                source: ExplainedErrno::error(libc::EOPNOTSUPP, "the device has none"),
            });
        }
        Ok(table)
    }
}

impl Knob for RssTable<'_> {
    fn name(&self) -> String {
        format!("{} indirection table", self.interface)
    }

    fn read(&self, host: &Host) -> Result<SettingValue, HostError> {
        self.entries(host).map(|entries| RssTableValue::of(&entries).value())
    }

    fn canonical(&self, value: &SettingValue) -> Result<String, &'static str> {
        RssTableValue::parse(value.as_str()).map(|table| table.value().to_string()).ok_or(EXPECTED)
    }

    fn write(&self, host: &Host, value: &SettingValue) -> Result<(), WriteRefusal> {
        let table = RssTableValue::parse(value.as_str()).ok_or(EXPECTED)?;
        let Self { interface } = self;
        let size = self.entries(host)?.len();
        if let RssTableValue::Entries(entries) = &table
            && entries.len() != size
        {
            let reason = format!("the table has {size} entries, and the value {}", entries.len());
            return Err(WriteRefusal::Reason(reason));
        }
        let entries = table.entries(size);
        let operation = format!("writing the indirection table of {interface}");
        let rehearse = |answer: &mut IndirectionInfo| answer.table.clone_from(&entries);
        let change = || receive::set_table(interface, &entries);
        Ok(host.apply_change(&format!("ethtool/{interface}/rss"), &operation, change, rehearse)?)
    }

    /// Two short forms can be equal in a table of any size.
    fn same(&self, left: &SettingValue, right: &SettingValue) -> bool {
        let (Some(left), Some(right)) =
            (RssTableValue::parse(left.as_str()), RssTableValue::parse(right.as_str()))
        else {
            return false;
        };
        let size = |table: &RssTableValue| match table {
            RssTableValue::Entries(entries) => Some(entries.len()),
            RssTableValue::Equal { .. } => None,
        };
        match size(&left).or(size(&right)) {
            Some(size) => left.entries(size) == right.entries(size),
            None => left == right,
        }
    }

    // ethtool(8) has no syntax for an unequal table.
    fn command(&self, value: &SettingValue) -> Option<String> {
        match RssTableValue::parse(value.as_str())? {
            RssTableValue::Equal { .. } => Some(format!("ethtool -X {} {value}", self.interface)),
            RssTableValue::Entries(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Setting, SettingError};

    fn setting() -> Setting {
        Setting::RssTable { interface: "eth0".into() }
    }

    fn host(table: &str) -> Host {
        Host::scripted([("/calls/ethtool/eth0/rss.json", format!(r#"{{"table": {table}}}"#))])
    }

    #[test]
    fn rss_table_is_read_in_ethtool_syntax() {
        let read = |table| setting().read(&host(table)).expect("read").to_string();
        assert_eq!(read("[0,1,2,0,1,2,0,1]"), "equal 3");
        assert_eq!(read("[4,5,4,5]"), "start 4 equal 2");
        assert_eq!(read("[0,0,0,1]"), "0,0,0,1");
        assert_eq!(read("[0,0,0,0]"), "equal 1");
    }

    #[test]
    fn only_equal_rss_tables_have_an_ethtool_command() {
        assert_eq!(
            setting().command(&SettingValue::new("equal 20")).as_deref(),
            Some("ethtool -X eth0 equal 20")
        );
        assert_eq!(setting().command(&SettingValue::new("0,0,1")), None);
    }

    #[test]
    fn invalid_rss_tables_are_refused() {
        for value in ["", "equal", "equal 0", "equal -1", "start 4294967295 equal 2", "0,x", "equal 4 5"] {
            let error = setting().write(&Host::live(), &SettingValue::new(value)).expect_err("no table");
            assert!(matches!(error, SettingError::BadValue { .. }), "{value}: {error}");
        }
        let error = setting().write(&host("[0,0]"), &SettingValue::new("0,1,0")).expect_err("too long");
        let expected = "eth0 indirection table: the table has 2 entries, and the value 3";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn empty_rss_table_is_unsupported() {
        assert!(setting().read(&host("[]")).expect_err("none").is_unsupported());
        assert!(
            setting().write(&host("[]"), &SettingValue::new("equal 2")).expect_err("none").is_unsupported()
        );
    }

    #[test]
    fn a_table_is_written_and_read_back() {
        let host = host("[0,0,0,0]");
        setting().write(&host, &SettingValue::new("start 1 equal 2")).expect("written");
        assert_eq!(indirection(&host, "eth0").expect("a table").table, [1, 2, 1, 2]);
        setting().write(&host, &SettingValue::new("0,0,0,3")).expect("written");
        assert_eq!(setting().read(&host).expect("read").as_str(), "0,0,0,3");
    }

    #[test]
    fn long_and_short_rss_tables_compare_equal() {
        let same = |one, other| setting().same(&SettingValue::new(one), &SettingValue::new(other));
        assert!(same("equal 2", "0,1,0,1") && same("0,1,0,1", "equal 2") && same("equal 4", "equal  4"));
        assert!(!same("equal 2", "0,1,1,0") && !same("equal 2", "equal 3") && !same("x", "x"));
        // A table with fewer entries than queues shows only these.
        assert!(same("equal 8", "0,1,2,3"));
    }

    proptest! {
        #[test]
        fn rss_tables_round_trip_through_their_value(entries in proptest::collection::vec(0_u32..70, 1..140)) {
            let value = RssTableValue::of(&entries).value();
            let table = RssTableValue::parse(value.as_str()).expect("own value");
            prop_assert_eq!(table.entries(entries.len()), entries);
        }
    }
}
