//! One rule at the end of a chain: `present`, `absent`, or `no table` if the table is also missing.
//! The rule is found by its text, not by its position.

use std::io;

use super::{can_list, names_path, program, word_error};
use crate::root::run;
use crate::setting::knob::{Knob, WriteRefusal};
use crate::setting::value::SettingValue;
use crate::sys::iptables::{IpFamily, IptablesTable};
use crate::{Host, HostError};

// Options that would turn the rule into another command (iptables(8)).
const COMMANDS: [&str; 18] = [
    "--append",
    "--delete",
    "--check",
    "--insert",
    "--replace",
    "--list",
    "--list-rules",
    "--flush",
    "--zero",
    "--new-chain",
    "--delete-chain",
    "--policy",
    "--rename-chain",
    "--table",
    "--modprobe",
    "--wait",
    "--new",
    "--help",
];
const NO_TABLE: &str = "no table";

const SHORT_COMMANDS: &str = "ADCIRLSFZNXPEthMwV";

pub(in crate::setting) struct IptablesRule<'a> {
    pub(in crate::setting) family: IpFamily,
    pub(in crate::setting) table: &'a str,
    pub(in crate::setting) chain: &'a str,
    pub(in crate::setting) rule: &'a str,
}

impl IptablesRule<'_> {
    fn run(&self, action: &str) -> Result<String, String> {
        // Waits for the lock of another program.
        let head = ["-w", "5", "-t", self.table, action, self.chain];
        let arguments: Vec<&str> = head.into_iter().chain(self.rule.split_whitespace()).collect();
        run(program(self.family), &arguments, "")
    }

    fn key(&self) -> String {
        format!("{}/{}/{}/{}", program(self.family), self.table, self.chain, self.rule)
    }

    fn read_state(&self) -> io::Result<String> {
        match self.run("-C") {
            Ok(_) => Ok("present".to_owned()),
            // Messages of iptables 1.8.9; the second is for targets with another name, such as
            // NOTRACK, and for chains.
            Err(message)
                if message.contains("does a matching rule exist")
                    || message.contains("No chain/target/match by that name") =>
            {
                Ok("absent".to_owned())
            }
            Err(message) => Err(io::Error::other(message)),
        }
    }

    // Removes an empty table of iptables-nft; iptables-legacy cannot remove tables.
    fn remove_table(&self, host: &Host) {
        let save = || run(&format!("{}-save", program(self.family)), &["-t", self.table], "");
        if host.is_live() && save().is_ok_and(|saved| has_no_effect(&saved)) {
            // A table without effect may remain.
            let _ = run("nft", &["delete", "table", &self.family.to_string(), self.table], "");
        }
    }

    /// Updates the state that doctor reads on a fake host.
    fn rehearse(&self, host: &Host, is_present: bool) {
        let (family, table) = (self.family, self.table);
        let names = host.read(&names_path(family)).unwrap_or_default();
        if !names.lines().any(|name| name == table) {
            host.rehearse(&names_path(family), &format!("{names}{table}\n"));
        }
        host.rehearse_call(&format!("iptables/{family}/{table}"), |content: &mut IptablesTable| {
            content.rules =
                if is_present { content.rules.saturating_add(1) } else { content.rules.saturating_sub(1) };
        });
    }
}

/// Whether `iptables-save` printed a table without rules and user chains, whose policies are all
/// accept. iptables-nft prints a comment for tables that other programs created in nftables.
fn has_no_effect(saved: &str) -> bool {
    saved.lines().all(|line| match line.as_bytes().first() {
        Some(b':') => line.contains(" ACCEPT "),
        Some(b'#') => !line.contains("incompatible"),
        _ => line.starts_with('*') || line == "COMMIT",
    })
}

impl Knob for IptablesRule<'_> {
    fn name(&self) -> String {
        format!("{} rule -t {} {} {}", program(self.family), self.table, self.chain, self.rule)
    }

    fn name_error(&self) -> Option<String> {
        let is_command = |word: &str| {
            let short_option = word.strip_prefix('-').and_then(|option| option.chars().next());
            short_option.is_some_and(|letter| SHORT_COMMANDS.contains(letter))
                || word.split('=').next().is_some_and(|name| COMMANDS.contains(&name))
        };
        let is_plain =
            |letter: char| letter == ' ' || (letter.is_ascii_graphic() && !"'\"\\`$;&|<>".contains(letter));
        let is_invalid = self.rule.is_empty()
            || !self.rule.chars().all(is_plain)
            || self.rule.split_whitespace().any(is_command);
        let reason = || format!("'{}' is no rule such as -p udp --dport 53 -j NOTRACK", self.rule);
        word_error(self.table, "table")
            .or_else(|| word_error(self.chain, "chain"))
            .or_else(|| is_invalid.then(reason))
    }

    fn read(&self, host: &Host) -> Result<SettingValue, HostError> {
        if !can_list(host, self.family, self.table)? {
            return Ok(SettingValue::new(NO_TABLE));
        }
        let operation = format!("looking for the {}", self.name());
        host.call::<String>(&self.key(), &operation, || self.read_state()).map(SettingValue::new)
    }

    fn canonical(&self, value: &SettingValue) -> Result<String, &'static str> {
        let is_known = ["present", "absent", NO_TABLE].contains(&value.as_str());
        if is_known { Ok(value.to_string()) } else { Err("present, absent or no table") }
    }

    fn write(&self, host: &Host, value: &SettingValue) -> Result<(), WriteRefusal> {
        if self.same(&self.read(host)?, value) {
            return Ok(());
        }
        let is_present = value.as_str() == "present";
        let (verb, action) = if is_present { ("adding", "-A") } else { ("removing", "-D") };
        let change = || self.run(action).map(|_| ()).map_err(io::Error::other);
        let operation = format!("{verb} the {}", self.name());
        host.apply_change_to(&self.key(), &operation, change, &value.to_string())?;
        self.rehearse(host, is_present);
        if value.as_str() == NO_TABLE {
            self.remove_table(host);
        }
        Ok(())
    }

    fn same(&self, left: &SettingValue, right: &SettingValue) -> bool {
        (left.as_str() == "present") == (right.as_str() == "present")
    }

    fn command(&self, value: &SettingValue) -> Option<String> {
        let action = if value.as_str() == "present" { "-A" } else { "-D" };
        Some(format!("{} -t {} {action} {} {}", program(self.family), self.table, self.chain, self.rule))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Setting, SettingError};

    fn setting(table: &str, rule: &str) -> Setting {
        let (table, chain, rule) = (table.to_owned(), "PREROUTING".to_owned(), rule.to_owned());
        Setting::IptablesRule { family: IpFamily::Ip, table, chain, rule }
    }

    const RULE: &str = "-p udp --dport 53 -j NOTRACK";

    #[test]
    fn iptables_rule_on_a_scripted_host_updates_its_table() {
        let host = Host::scripted([
            ("/proc/net/ip_tables_names", "filter\n"),
            ("/calls/iptables/ip/raw.json", r#"{"rules": 0, "hooks": 2}"#),
        ]);
        let rule = setting("raw", RULE);
        assert_eq!(rule.read(&host).expect("read").as_str(), "no table");
        rule.write(&host, &SettingValue::new("present")).expect("added");
        assert_eq!(rule.read(&host).expect("read").as_str(), "present");
        assert_eq!(host.read("/proc/net/ip_tables_names").expect("read"), "filter\nraw\n");
        let content =
            || host.call::<IptablesTable>("iptables/ip/raw", "", || unreachable!()).expect("content");
        assert_eq!(content().rules, 1);
        rule.write(&host, &SettingValue::new("absent")).expect("removed");
        assert_eq!((content().rules, rule.read(&host).expect("read").as_str()), (0, "absent"));
    }

    #[test]
    fn only_tables_without_rules_chains_and_policies_have_no_effect() {
        // Output of iptables-save 1.8.9.
        let saved = "# Generated by iptables-save v1.8.9 on Sun Nov 22 06:00:00 2026\n*raw\n\
                     :PREROUTING ACCEPT [12:345]\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n# Completed on Sun\n";
        assert!(has_no_effect("") && has_no_effect(saved));
        for line in
            [":mine - [0:0]", ":INPUT DROP [0:0]", "-A OUTPUT -j ACCEPT", "# Table `raw' is incompatible"]
        {
            assert!(!has_no_effect(&saved.replace("COMMIT", &format!("{line}\nCOMMIT"))), "{line}");
        }
    }

    #[test]
    fn iptables_rule_has_append_and_delete_commands() {
        let command = |value| setting("raw", RULE).command(&SettingValue::new(value)).expect("a command");
        assert_eq!(command("present"), "iptables -t raw -A PREROUTING -p udp --dport 53 -j NOTRACK");
        assert_eq!(command("absent"), "iptables -t raw -D PREROUTING -p udp --dport 53 -j NOTRACK");
    }

    #[test]
    fn invalid_iptables_rules_tables_and_values_are_refused() {
        for rule in [
            "",
            "-F",
            "-j ACCEPT -t nat",
            "--flush",
            "-j ACCEPT; reboot",
            "-Dx",
            "--table=nat -j DROP",
            "a\nb",
        ] {
            let error = setting("raw", rule).read(&Host::live()).expect_err(rule);
            assert!(matches!(error, SettingError::BadName { .. }), "{rule}: {error}");
        }
        assert!(matches!(setting("-F", RULE).read(&Host::live()), Err(SettingError::BadName { .. })));
        assert!(setting("raw", RULE).check(&SettingValue::new("1")).is_err());
    }
}
