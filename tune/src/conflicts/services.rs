//! Services that set the same value whenever they start: frequency governors, queue affinities, firewall rules, auditing.

use linerate_host::ini;

use super::knob::OwnedKnob;
use super::owner::{ConfiguredSetting, FoundOwners, SettingOwner, by_hand};
use super::reader::ConfigurationReader;
use crate::claim::EnforcementMode;

// Process names, of which the kernel keeps 15 bytes; owner, effect, mode and command.
const GOVERNOR_DAEMONS: [(&str, &str, &str, EnforcementMode, &str); 3] = [
    (
        "power-profiles-",
        "power-profiles-daemon",
        "sets the governor when the power profile changes, and when it starts",
        EnforcementMode::OnRestart,
        "powerprofilesctl set performance",
    ),
    (
        "tuned-ppd",
        "tuned-ppd",
        "changes TuneD's profile when a power profile is asked for",
        EnforcementMode::OnRestart,
        "powerprofilesctl set performance",
    ),
    (
        "auto-cpufreq",
        "auto-cpufreq",
        "sets the governor by load, again and again",
        EnforcementMode::Always,
        "auto-cpufreq --force=performance",
    ),
];

/// Configuration files of services that set a governor at boot: path, key, owner.
const GOVERNOR_SERVICES: [(&str, &str, &str); 4] = [
    ("/etc/default/cpufrequtils", "GOVERNOR", "cpufrequtils"),
    ("/etc/default/cpupower", "governor", "cpupower"),
    ("/etc/sysconfig/cpupower", "CPUPOWER_START_OPTS", "cpupower"),
    ("/etc/tlp.conf", "CPU_SCALING_GOVERNOR_ON_AC", "tlp"),
];

// Process names of Google's guest agent, of which the kernel keeps 15 bytes.
const GOOGLE_AGENT: [&str; 2] = ["google_guest_ag", "google_guest_co"];

/// Files of Google's guest agent (its README, "Instance Setup"). The distribution's file is the second and yields.
const GOOGLE_FILES: [&str; 2] =
    ["/etc/default/instance_configs.cfg", "/etc/default/instance_configs.cfg.distro"];

const FIREWALLD: &str = "/etc/firewalld/firewalld.conf";

/// Rulesets that nftables.service loads, of Debian and of Red Hat.
const RULESETS: [&str; 2] = ["/etc/nftables.conf", "/etc/sysconfig/nftables.conf"];

/// Links that start nftables.service at boot.
const NFTABLES_ENABLED: [&str; 2] = [
    "/etc/systemd/system/sysinit.target.wants/nftables.service",
    "/etc/systemd/system/multi-user.target.wants/nftables.service",
];

const AUDIT_RULES: [&str; 1] = ["/etc/audit/rules.d"];

const JOURNALD: [&str; 4] = [
    "/etc/systemd/journald.conf.d",
    "/run/systemd/journald.conf.d",
    "/usr/local/lib/systemd/journald.conf.d",
    "/usr/lib/systemd/journald.conf.d",
];

pub(super) fn observe(reader: &ConfigurationReader<'_>) -> FoundOwners {
    let governors = governor_daemons(reader).chain(governor_services(reader));
    let filters = [nftables(reader), firewalld(reader), kube_proxy(reader)];
    let auditing = [audit_rules(reader), auditd(reader), journald(reader)];
    google_agent(reader)
        .into_iter()
        .chain(governors)
        .chain(filters.into_iter().flatten())
        .chain(auditing.into_iter().flatten())
        .map(|setting| Box::new(setting) as Box<dyn SettingOwner>)
        .collect()
}

fn governor_daemons(reader: &ConfigurationReader<'_>) -> impl Iterator<Item = ConfiguredSetting> {
    GOVERNOR_DAEMONS.into_iter().filter_map(|(comm, owner, action, enforcement, command)| {
        Some(ConfiguredSetting {
            owner,
            what: action.to_owned(),
            read_from: format!("/proc/{}/comm", reader.process(comm)?.pid),
            enforcement,
            sets: vec![OwnedKnob::Governor.set_to(None)],
            commands: by_hand(command),
        })
    })
}

fn governor_services(reader: &ConfigurationReader<'_>) -> impl Iterator<Item = ConfiguredSetting> {
    GOVERNOR_SERVICES.into_iter().filter_map(|(path, key, owner)| {
        let (line, to) = governor(&reader.read(path)?, key)?;
        Some(ConfiguredSetting {
            owner,
            what: format!("sets the governor to {to} when its service starts"),
            read_from: format!("{path}:{line}"),
            enforcement: EnforcementMode::AtBoot,
            sets: vec![OwnedKnob::Governor.set_to(Some(to))],
            commands: Box::new(|_, _| Vec::new()),
        })
    })
}

/// The governor in a file of shell variables, and its line: `governor='ondemand'`, `OPTS="frequency-set -g performance"`.
pub(super) fn governor(text: &str, key: &str) -> Option<(usize, String)> {
    let entry = ini::entries(text).filter(|entry| entry.key == key).last()?;
    let value = entry.value.trim_matches(['"', '\'']);
    let word = value.split_once("-g ").map_or(value, |(_, options)| options).split_whitespace().next()?;
    Some((entry.line, word.to_owned()))
}

/// Google's guest agent spreads the queues of virtual NICs when it starts.
fn google_agent(reader: &ConfigurationReader<'_>) -> Option<ConfiguredSetting> {
    let process = GOOGLE_AGENT.iter().find_map(|name| reader.process(name))?;
    if GOOGLE_FILES.iter().find_map(|path| spreads_queues(&reader.read(path)?)) == Some(false) {
        return None;
    }
    let knobs = [OwnedKnob::Interrupt, OwnedKnob::of_queues("xps_cpus")];
    Some(ConfiguredSetting {
        owner: "google-guest-agent",
        what: "sets the affinity of interrupts, and XPS, of virtual NICs when it starts".to_owned(),
        read_from: format!("/proc/{}/comm", process.pid),
        enforcement: EnforcementMode::OnRestart,
        sets: knobs.into_iter().map(|knob| knob.set_to(None)).collect(),
        commands: by_hand(format!(
            "printf '[InstanceSetup]\\nset_multiqueue = false\\n' >> {}  # it leaves queues alone from its next start on",
            GOOGLE_FILES[0]
        )),
    })
}

/// Whether a file of Google's guest agent makes the agent spread queues.
pub(super) fn spreads_queues(text: &str) -> Option<bool> {
    let entry = ini::entries(text)
        .filter(|entry| (entry.section, entry.key) == ("InstanceSetup", "set_multiqueue"))
        .last()?;
    Some(ini::switch(entry.value)? == "on")
}

fn nftables(reader: &ConfigurationReader<'_>) -> Option<ConfiguredSetting> {
    NFTABLES_ENABLED.iter().find(|path| reader.host.read_link(path).is_ok())?;
    let (path, line) = RULESETS.iter().find_map(|path| Some((path, flush_line(&reader.read(path)?)?)))?;
    Some(ConfiguredSetting {
        owner: "nftables.service",
        what: "flushes the whole ruleset when it is started or reloaded, tables of others with it".to_owned(),
        read_from: format!("{path}:{line}"),
        enforcement: EnforcementMode::OnRestart,
        sets: vec![OwnedKnob::Filter.set_to(None)],
        commands: by_hand(format!("# {path}: add the table to it, so that it is loaded with the others")),
    })
}

/// The line of a ruleset that removes all rules.
pub(super) fn flush_line(text: &str) -> Option<usize> {
    let is_flush = |line: &str| line.split_whitespace().take(2).eq(["flush", "ruleset"]);
    (1..).zip(text.lines()).find(|(_, line)| is_flush(line.trim_end_matches(';'))).map(|(number, _)| number)
}

fn firewalld(reader: &ConfigurationReader<'_>) -> Option<ConfiguredSetting> {
    let process = reader.process("firewalld")?;
    // With nftables, its default, it replaces only its own table.
    reader.read(FIREWALLD).as_deref().and_then(firewall_backend).filter(|backend| backend == "iptables")?;
    Some(ConfiguredSetting {
        owner: "firewalld",
        what: "flushes the tables of iptables when it is started or reloaded".to_owned(),
        read_from: format!("{FIREWALLD} (process {})", process.pid),
        enforcement: EnforcementMode::OnRestart,
        sets: vec![OwnedKnob::Filter.set_to(None)],
        commands: by_hand(
            "firewall-cmd --permanent --direct --add-rule ...  # the rule in its own configuration",
        ),
    })
}

pub(super) fn firewall_backend(text: &str) -> Option<String> {
    let entry = ini::entries(text).filter(|entry| entry.key == "FirewallBackend").last()?;
    Some(entry.value.to_ascii_lowercase())
}

fn kube_proxy(reader: &ConfigurationReader<'_>) -> Option<ConfiguredSetting> {
    let process = reader.process("kube-proxy")?;
    Some(ConfiguredSetting {
        owner: "kube-proxy",
        what: "makes its own rules again every 30 s where they are gone; it leaves those of others"
            .to_owned(),
        read_from: format!("/proc/{}/comm", process.pid),
        enforcement: EnforcementMode::Always,
        sets: vec![OwnedKnob::Filter.set_to(None)],
        commands: Box::new(|_, _| Vec::new()),
    })
}

/// augenrules loads all rules files in order; the last `-e` counts.
fn audit_rules(reader: &ConfigurationReader<'_>) -> Option<ConfiguredSetting> {
    let mut paths = reader.layered(&AUDIT_RULES, ".rules");
    paths.push("/etc/audit/audit.rules".to_owned());
    let (location, to) = paths.iter().rev().find_map(|path| {
        let (line, to) = audit_enabled(&reader.read(path)?)?;
        Some((format!("{path}:{line}"), to))
    })?;
    let lock = if to == 2 { ", and locks that until the next boot" } else { "" };
    Some(ConfiguredSetting {
        owner: "audit rules",
        what: format!("set auditing to {to} when they are loaded{lock}"),
        commands: by_hand(format!("# {location}: make it '-e 0'")),
        read_from: location,
        enforcement: EnforcementMode::OnRestart,
        sets: vec![OwnedKnob::Audit.set_to(Some(to.to_string()))],
    })
}

/// The last `-e N` of a rules file, and its line.
pub(super) fn audit_enabled(text: &str) -> Option<(usize, u32)> {
    let value = |line: &str| {
        let argument = line.trim().strip_prefix("-e")?;
        argument.trim().parse::<u32>().ok().filter(|enabled| *enabled <= 2)
    };
    (1..).zip(text.lines()).filter_map(|(number, line)| Some((number, value(line)?))).last()
}

fn auditd(reader: &ConfigurationReader<'_>) -> Option<ConfiguredSetting> {
    // The kernel's own thread is called kauditd.
    let file = format!("/proc/{}/cmdline", reader.process("auditd")?.pid);
    let command_line = reader.read(&file).unwrap_or_default();
    let words: Vec<&str> = command_line.split('\0').collect();
    let option = words.iter().position(|word| *word == "-s").and_then(|at| words.get(at + 1));
    // auditd(8): the default of `-s` is enable.
    if matches!(option, Some(&("disable" | "nochange"))) {
        return None;
    }
    let command = "systemctl edit auditd  # [Service] ExecStart= and ExecStart=/sbin/auditd -s nochange";
    Some(audit_service("auditd", file, command))
}

fn journald(reader: &ConfigurationReader<'_>) -> Option<ConfiguredSetting> {
    let mut paths = vec!["/etc/systemd/journald.conf".to_owned()];
    paths.extend(reader.layered(&JOURNALD, ".conf"));
    // Drop-ins are read after the main file, and the last value wins.
    let (location, is_on) = paths.iter().rev().find_map(|path| {
        let (line, is_on) = journal_audits(&reader.read(path)?)?;
        Some((format!("{path}:{line}"), is_on))
    })?;
    let command = "mkdir -p /etc/systemd/journald.conf.d && printf '[Journal]\\nAudit=keep\\n' > \
                   /etc/systemd/journald.conf.d/90-linerate.conf  # an older systemd knows 'no' only";
    is_on.then(|| audit_service("systemd-journald", location, command))
}

fn audit_service(owner: &'static str, read_from: String, command: &str) -> ConfiguredSetting {
    ConfiguredSetting {
        owner,
        what: "switches auditing on when it starts".to_owned(),
        read_from,
        enforcement: EnforcementMode::OnRestart,
        sets: vec![OwnedKnob::Audit.set_to(Some("1".to_owned()))],
        commands: by_hand(command),
    }
}

// Whether a file of journald.conf(5) switches auditing on, and its line.
pub(super) fn journal_audits(text: &str) -> Option<(usize, bool)> {
    let entry =
        ini::entries(text).filter(|entry| (entry.section, entry.key) == ("Journal", "Audit")).last()?;
    Some((entry.line, ini::switch(entry.value)? == "on"))
}

#[cfg(test)]
mod tests {
    use linerate_host::{Host, HostRecording, Setting, SettingValue};

    use super::super::{SettingOwners, tests::claims};
    use super::*;
    use crate::claim::SettingClaim;

    fn owners(claims: &[SettingClaim]) -> Vec<(&str, EnforcementMode)> {
        claims.iter().map(|claim| (claim.owner.as_str(), claim.enforcement)).collect()
    }

    #[test]
    fn governor_services_are_reported_as_owners() {
        let files = [
            ("/proc/9/comm", "power-profiles-\n"),
            (
                "/etc/sysconfig/cpupower",
                "# See 'cpupower help'\nCPUPOWER_START_OPTS=\"frequency-set -g ondemand\"\n",
            ),
            ("/etc/default/cpufrequtils", "ENABLE=\"true\"\nGOVERNOR=\"performance\"\n"),
        ];
        assert_eq!(
            owners(&claims(&files, &Setting::Governor { cpu: 0 }, "performance")),
            [("power-profiles-daemon", EnforcementMode::OnRestart), ("cpupower", EnforcementMode::AtBoot)]
        );
    }

    #[test]
    fn nft_flush_lines_and_firewalld_backends_parse() {
        // Debian 12 ships this file.
        let debian = "#!/usr/sbin/nft -f\n\nflush ruleset\n\ntable inet filter {\n}\n";
        assert_eq!(flush_line(debian), Some(3));
        assert_eq!(flush_line("# flush ruleset\nflush table inet x\n"), None);
        let backend = firewall_backend("# FirewallBackend\nFirewallBackend=IPTables\n");
        assert_eq!(backend.as_deref(), Some("iptables"));
    }

    #[test]
    fn nftables_service_that_flushes_the_ruleset_claims_nft_tables() {
        let recording = HostRecording::from_files([("/etc/nftables.conf", "flush ruleset\n")])
            .with_links([(NFTABLES_ENABLED[0], "/lib/systemd/system/nftables.service")]);
        let table: Setting =
            serde_json::from_str(r#"{"nft_table": {"table": "linerate"}}"#).expect("a setting");
        let claims = SettingOwners::observe(&Host::rehearsal(recording))
            .claims(&table, &SettingValue::new("table inet linerate {}"));
        assert_eq!(owners(&claims), [("nftables.service", EnforcementMode::OnRestart)]);
    }

    #[test]
    fn services_that_enable_auditing_are_reported_as_owners() {
        let files = [
            ("/proc/9/comm", "auditd\n"),
            ("/proc/9/cmdline", "/sbin/auditd\0"),
            ("/etc/audit/rules.d/10-base.rules", "-D\n-b 8192\n-e 1\n"),
            ("/etc/audit/rules.d/99-finalize.rules", "#-e 1\n-e 2\n"),
            ("/etc/systemd/journald.conf", "[Journal]\n#Storage=auto\nAudit=yes\n"),
        ];
        let sources: Vec<_> = claims(&files, &Setting::Audit, "0")
            .into_iter()
            .map(|claim| (claim.owner, claim.read_from))
            .collect();
        let expected = [
            ("audit rules", "/etc/audit/rules.d/99-finalize.rules:2"),
            ("auditd", "/proc/9/cmdline"),
            ("systemd-journald", "/etc/systemd/journald.conf:3"),
        ];
        assert_eq!(sources, expected.map(|(owner, source)| (owner.to_owned(), source.to_owned())));
    }
}
