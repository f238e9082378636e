//! Single tables of nftables, through the `nft` program.
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
        tables.iter().any(|listed| listed.family == self.family.name() && listed.name == self.table)
    }

    fn list(&self) -> io::Result<String> {
        let family = self.family.name();
        let line = format!("table {family} {}", self.table);
        let tables = run("nft", &["list", "tables", family], "").map_err(io::Error::other)?;
        if tables.lines().any(|output_line| output_line.trim() == line) {
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
    fn table_summary(&self, text: &str) -> NftTable {
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
            ..NftTable::default()
        }
    }
}

impl Knob for NftTableDump<'_> {
    fn name(&self) -> String {
        format!("nftables table {} {}", self.family, self.table)
    }

    fn name_error(&self) -> Option<String> {
        let mut letters = self.table.chars();
        let is_first_valid =
            letters.next().is_some_and(|letter| letter.is_ascii_alphabetic() || letter == '_');
        let are_others_valid =
            letters.all(|letter| letter.is_ascii_alphanumeric() || "_-./".contains(letter));
        (!is_first_valid || !are_others_valid).then(|| format!("'{}' is no name of a table", self.table))
    }

    /// The table as `nft` prints it; empty if there is no such table.
    fn read(&self, host: &Host) -> Result<SettingValue, HostError> {
        let operation = format!("listing the nftables table {} {}", self.family, self.table);
        match host.call::<String>(&self.key(), &operation, || self.list()) {
            Ok(text) => Ok(SettingValue::new(text)),
            // A recording of doctor has the tables without their content.
            Err(HostError::NotLive { what: operation }) => {
                let unsupported = || Err(io::ErrorKind::Unsupported.into());
                match host.call::<Vec<NftTable>>("nfnetlink/tables", &operation, unsupported) {
                    Ok(tables) if !self.is_listed(&tables) => Ok(SettingValue::new("")),
                    _ => Err(HostError::NotLive { what: operation }),
                }
            }
            Err(error) => Err(error),
        }
    }

    fn canonical(&self, value: &SettingValue) -> Result<String, &'static str> {
        let text = value.as_str();
        let is_valid = text.is_empty() || ruleset::is_single_table(text, self.family, self.table);
        if is_valid { Ok(text.to_owned()) } else { Err(EXPECTED) }
    }

    fn write(&self, host: &Host, value: &SettingValue) -> Result<(), WriteRefusal> {
        let before = self.read(host)?;
        if host.is_live() && !before.as_str().is_empty() {
            check_restorable(&self.name(), &self.script(before.as_str()))?;
        }
        let operation = format!("replacing the nftables table {} {}", self.family, self.table);
        let change =
            || run("nft", &["-f", "-"], &self.script(value.as_str())).map(|_| ()).map_err(io::Error::other);
        host.apply_change_to(&self.key(), &operation, change, &value.to_string())?;
        host.rehearse_call("nfnetlink/tables", |tables: &mut Vec<NftTable>| {
            tables.retain(|listed| !self.is_listed(std::slice::from_ref(listed)));
            if !value.as_str().is_empty() {
                tables.push(self.table_summary(value.as_str()));
            }
        });
        Ok(())
    }

    fn same(&self, left: &SettingValue, right: &SettingValue) -> bool {
        ruleset::is_equivalent(left.as_str(), right.as_str())
    }

    /// A transaction omits nothing, and nft prints the text in its own form.
    fn is_applied(&self, requested: &SettingValue, actual: &SettingValue) -> bool {
        requested.as_str().is_empty() == actual.as_str().is_empty()
    }

    fn command(&self, value: &SettingValue) -> Option<String> {
        value.as_str().is_empty().then(|| format!("nft delete table {} {}", self.family, self.table))
    }
}

// Whether nft accepts its own output: it prints some rules of iptables-nft as comments.
fn check_restorable(name: &str, script: &str) -> Result<(), WriteRefusal> {
    let has_comments =
        script.contains("# Warning:") || script.contains("xt match") || script.contains("xt target");
    let why = match run("nft", &["-c", "-f", "-"], script) {
        Ok(_) if !has_comments => return Ok(()),
        Ok(_) => "iptables has rules in it".to_owned(),
        Err(message) => message,
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
    fn nft_table_on_a_scripted_host_updates_the_table_list() {
        let host =
            Host::scripted([("/calls/nfnetlink/tables.json", r#"[{"family": "ip", "name": "ours"}]"#)]);
        assert_eq!(setting("ours").read(&host).expect("read").as_str(), "");
        setting("ours").write(&host, &SettingValue::new(OURS)).expect("written");
        assert_eq!(setting("ours").read(&host).expect("read").as_str(), OURS);
        let tables =
            || host.call::<Vec<NftTable>>("nfnetlink/tables", "", || unreachable!()).expect("tables");
        let table = &tables()[1];
        assert_eq!((table.rules, table.hooks, table.before_tracking, table.drops), (1, 1, true, false));
        setting("ours").write(&host, &SettingValue::new("")).expect("removed");
        assert_eq!((tables().len(), setting("ours").read(&host).expect("read").as_str()), (1, ""));
    }

    #[test]
    fn nft_table_with_unknown_content_is_an_error() {
        let host =
            Host::scripted([("/calls/nfnetlink/tables.json", r#"[{"family": "inet", "name": "fw"}]"#)]);
        assert!(
            setting("fw").read(&host).is_err() && setting("fw").write(&host, &SettingValue::new("")).is_err()
        );
    }

    #[test]
    fn nft_values_beyond_their_table_and_bad_names_are_refused() {
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
    fn nft_family_defaults_to_inet() {
        let read: Setting = serde_json::from_str(r#"{"nft_table": {"table": "ours"}}"#).expect("read");
        assert_eq!(read, setting("ours"));
        assert_eq!(serde_json::to_string(&read).expect("written"), r#"{"nft_table":{"table":"ours"}}"#);
        let ip = Setting::NftTable { family: NftFamily::Ip, table: "fw".into() };
        assert_eq!(ip.command(&SettingValue::new("")).as_deref(), Some("nft delete table ip fw"));
        assert!(serde_json::to_string(&ip).expect("written").contains(r#""family":"ip""#));
    }
}
