//! Single tables of nftables, and the whole ruleset, through the `nft` program.
//!
//! `nft -f` applies a script in one transaction (nft(8)).

mod ruleset;

use std::io;

use super::knob::{Knob, WriteRefusal};
use super::value::SettingValue;
use crate::netlink::nfnetlink::table::NftTable;
use crate::root::run;
use crate::{Host, HostError};

pub use ruleset::NftFamily;
pub(crate) use ruleset::any_ruleset;

const EXPECTED: &str = "that table as nft prints it, or nothing";

pub(super) struct NftTableDump<'a> {
    pub(super) family: NftFamily,
    pub(super) table: &'a str,
}

impl NftTableDump<'_> {
    fn key(&self) -> String {
        format!("nft/{}/{}", self.family, self.table)
    }

    fn is_listed(&self, tables: &[NftTable]) -> bool {
        tables.iter().any(|seen| seen.family == self.family.name() && seen.name == self.table)
    }

    fn list(&self) -> io::Result<String> {
        let family = self.family.name();
        let line = format!("table {family} {}", self.table);
        let tables = run("nft", &["list", "tables", family], "").map_err(io::Error::other)?;
        if tables.lines().any(|printed| printed.trim() == line) {
            run("nft", &["list", "table", family, self.table], "").map_err(io::Error::other)
        } else {
            Ok(String::new())
        }
    }

    /// Replaces the table by `text` in one transaction. Adding before deleting makes the deletion
    /// valid whether or not the table exists.
    fn script(&self, text: &str) -> String {
        let name = format!("{} {}", self.family, self.table);
        format!("table {name} {{}}\ndelete table {name}\n{text}\n")
    }

    /// The table as doctor reads it on a fake host.
    fn seen(&self, text: &str) -> NftTable {
        let count = |word: &str| u32::try_from(text.matches(word).count()).unwrap_or(u32::MAX);
        let statements =
            text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.ends_with(['{', '}', ';']));
        NftTable {
            family: self.family.name().to_owned(),
            name: self.table.to_owned(),
            rules: u32::try_from(statements.count()).unwrap_or(u32::MAX),
            hooks: count(" hook "),
            drops: text.contains("policy drop"),
            before_tracking: text.contains("priority raw"),
            dormant: text.contains("flags dormant"),
            base_chains: Vec::new(),
        }
    }
}

impl Knob for NftTableDump<'_> {
    fn name(&self) -> String {
        format!("nftables table {} {}", self.family, self.table)
    }

    fn wrong_name(&self) -> Option<String> {
        let mut letters = self.table.chars();
        let first = letters.next().is_some_and(|letter| letter.is_ascii_alphabetic() || letter == '_');
        let rest = letters.all(|letter| letter.is_ascii_alphanumeric() || "_-./".contains(letter));
        (!first || !rest).then(|| format!("'{}' is no name of a table", self.table))
    }

    /// The table as `nft` prints it; empty if there is no such table.
    fn read(&self, host: &Host) -> Result<SettingValue, HostError> {
        let what = format!("listing the nftables table {} {}", self.family, self.table);
        match host.call::<String>(&self.key(), &what, || self.list()) {
            Ok(text) => Ok(SettingValue::new(text)),
            // A recording of doctor has the tables without their content.
            Err(HostError::NotLive { what }) => {
                let none = || Err(io::ErrorKind::Unsupported.into());
                match host.call::<Vec<NftTable>>("nfnetlink/tables", &what, none) {
                    Ok(tables) if !self.is_listed(&tables) => Ok(SettingValue::new("")),
                    _ => Err(HostError::NotLive { what }),
                }
            }
            Err(error) => Err(error),
        }
    }

    fn check(&self, value: &SettingValue) -> Result<(), &'static str> {
        let text = value.as_str();
        if text.is_empty() || ruleset::is_only(text, self.family, self.table) {
            Ok(())
        } else {
            Err(EXPECTED)
        }
    }

    fn write(&self, host: &Host, value: &SettingValue) -> Result<(), WriteRefusal> {
        let before = self.read(host)?;
        if host.is_live() && !before.as_str().is_empty() {
            restorable(&self.name(), &self.script(before.as_str()))?;
        }
        let what = format!("replacing the nftables table {} {}", self.family, self.table);
        let act =
            || run("nft", &["-f", "-"], &self.script(value.as_str())).map(|_| ()).map_err(io::Error::other);
        host.act_to(&self.key(), &what, act, &value.to_string())?;
        host.rehearse_call("nfnetlink/tables", |tables: &mut Vec<NftTable>| {
            tables.retain(|seen| !self.is_listed(std::slice::from_ref(seen)));
            if !value.as_str().is_empty() {
                tables.push(self.seen(value.as_str()));
            }
        });
        Ok(())
    }

    fn same(&self, one: &SettingValue, other: &SettingValue) -> bool {
        ruleset::same(one.as_str(), other.as_str())
    }

    /// A transaction omits nothing, and nft prints the text in its own form.
    fn took(&self, wanted: &SettingValue, found: &SettingValue) -> bool {
        wanted.as_str().is_empty() == found.as_str().is_empty()
    }

    fn command(&self, value: &SettingValue) -> Option<String> {
        value.as_str().is_empty().then(|| format!("nft delete table {} {}", self.family, self.table))
    }
}

pub(super) struct NftRuleset;

impl NftRuleset {
    const KEY: &str = "nft/ruleset";

    fn script(text: &str) -> String {
        format!("flush ruleset\n{text}\n")
    }
}

impl Knob for NftRuleset {
    fn name(&self) -> String {
        "nftables ruleset".to_owned()
    }

    fn read(&self, host: &Host) -> Result<SettingValue, HostError> {
        let list = || run("nft", &["list", "ruleset"], "").map_err(io::Error::other);
        host.call::<String>(Self::KEY, "listing the nftables ruleset", list).map(SettingValue::new)
    }

    fn check(&self, value: &SettingValue) -> Result<(), &'static str> {
        let text = value.as_str();
        if text.is_empty() || ruleset::is_tables(text) {
            Ok(())
        } else {
            Err("tables as nft prints them, or nothing")
        }
    }

    fn write(&self, host: &Host, value: &SettingValue) -> Result<(), WriteRefusal> {
        let before = self.read(host)?;
        if host.is_live() {
            restorable(&self.name(), &Self::script(before.as_str()))?;
        }
        let act =
            || run("nft", &["-f", "-"], &Self::script(value.as_str())).map(|_| ()).map_err(io::Error::other);
        Ok(host.act_to(Self::KEY, "replacing the nftables ruleset", act, &value.to_string())?)
    }

    fn same(&self, one: &SettingValue, other: &SettingValue) -> bool {
        ruleset::same(one.as_str(), other.as_str())
    }

    fn took(&self, wanted: &SettingValue, found: &SettingValue) -> bool {
        wanted.as_str().is_empty() == found.as_str().is_empty()
    }

    fn command(&self, value: &SettingValue) -> Option<String> {
        value.as_str().is_empty().then(|| "nft flush ruleset".to_owned())
    }
}

// Whether nft accepts its own output: it prints some rules of iptables-nft as comments.
fn restorable(name: &str, script: &str) -> Result<(), WriteRefusal> {
    let comment =
        script.contains("# Warning:") || script.contains("xt match") || script.contains("xt target");
    let why = match run("nft", &["-c", "-f", "-"], script) {
        Ok(_) if !comment => return Ok(()),
        Ok(_) => "iptables has rules in it".to_owned(),
        Err(words) => words,
    };
    Err(WriteRefusal::Reason(format!("{name} could not be restored as it is: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Setting, SettingError};

    const OURS: &str = "table inet ours {\n\tchain c {\n\t\ttype filter hook prerouting priority raw; policy accept;\n\t\t\
                        udp dport { 53 } notrack\n\t}\n}";

    fn setting(table: &str) -> Setting {
        Setting::NftTable { family: NftFamily::Inet, table: table.into() }
    }

    #[test]
    fn a_table_is_rehearsed_where_doctor_sees_it() {
        let host =
            Host::scripted([("/calls/nfnetlink/tables.json", r#"[{"family": "ip", "name": "ours"}]"#)]);
        assert_eq!(setting("ours").read(&host).expect("read").as_str(), "");
        setting("ours").write(&host, &SettingValue::new(OURS)).expect("written");
        assert_eq!(setting("ours").read(&host).expect("read").as_str(), OURS);
        let seen = || host.call::<Vec<NftTable>>("nfnetlink/tables", "", || unreachable!()).expect("tables");
        let table = &seen()[1];
        assert_eq!((table.rules, table.hooks, table.before_tracking, table.drops), (1, 1, true, false));
        setting("ours").write(&host, &SettingValue::new("")).expect("removed");
        assert_eq!((seen().len(), setting("ours").read(&host).expect("read").as_str()), (1, ""));
    }

    #[test]
    fn what_is_in_a_table_that_was_only_listed_is_not_known() {
        let host =
            Host::scripted([("/calls/nfnetlink/tables.json", r#"[{"family": "inet", "name": "fw"}]"#)]);
        assert!(
            setting("fw").read(&host).is_err() && setting("fw").write(&host, &SettingValue::new("")).is_err()
        );
    }

    #[test]
    fn no_value_reaches_beyond_its_table() {
        for bad in [
            "flush ruleset",
            "table inet other { }",
            "table ip ours { }",
            "table inet ours { } flush ruleset",
            "table inet ours { }\ndelete table inet fw",
            "table inet ours { include \"/etc/shadow\" }",
            "add rule inet ours c accept",
            "table inet ours {",
            "{ } table inet ours { }",
        ] {
            let error = setting("ours").check(&SettingValue::new(bad)).expect_err(bad);
            assert!(matches!(error, SettingError::BadValue { .. }), "{bad}: {error}");
        }
        assert!(setting("ours").check(&SettingValue::new(OURS)).is_ok());
        for bad in ["", "a b", "a;b", "a\n", "1a", "-f"] {
            assert!(matches!(setting(bad).read(&Host::live()), Err(SettingError::BadName { .. })), "{bad}");
        }
    }

    #[test]
    fn the_family_is_inet_where_none_is_named() {
        let read: Setting = serde_json::from_str(r#"{"nft_table": {"table": "ours"}}"#).expect("read");
        assert_eq!(read, setting("ours"));
        assert_eq!(serde_json::to_string(&read).expect("written"), r#"{"nft_table":{"table":"ours"}}"#);
        let ip = Setting::NftTable { family: NftFamily::Ip, table: "fw".into() };
        assert_eq!(ip.command(&SettingValue::new("")).as_deref(), Some("nft delete table ip fw"));
        assert!(serde_json::to_string(&ip).expect("written").contains(r#""family":"ip""#));
    }

    #[test]
    fn a_ruleset_is_rehearsed() {
        let host = Host::scripted([("/calls/nft/ruleset.json", serde_json::to_string(OURS).expect("json"))]);
        let before = Setting::NftRuleset.read(&host).expect("read");
        Setting::NftRuleset.write(&host, &SettingValue::new("")).expect("flushed");
        assert_eq!(Setting::NftRuleset.read(&host).expect("read").as_str(), "");
        Setting::NftRuleset.write(&host, &before).expect("restored");
        assert_eq!(Setting::NftRuleset.read(&host).expect("read"), before);
        assert!(Setting::NftRuleset.check(&SettingValue::new("reset counters")).is_err());
    }
}
