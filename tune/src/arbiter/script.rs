//! Files with commands that run when an interface appears or is taken up, or at boot: udev's rules, ifupdown, and scripts.

use super::command;
use super::knob::{ConfigurationLine, EthtoolKind, OwnedKnob, OwnedSetting, WantedKnob, feature};
use super::scene::ArbiterHost;
use super::{Found, SettingOwner};
use crate::claim::{ClaimAgreement, EnforcementMode, SettingClaim};

const RULES: [&str; 5] = [
    "/etc/udev/rules.d",
    "/run/udev/rules.d",
    "/usr/local/lib/udev/rules.d",
    "/usr/lib/udev/rules.d",
    "/lib/udev/rules.d",
];

const SCRIPTS: [(&str, &[&str]); 3] = [
    ("ifupdown", &["/etc/network/if-pre-up.d", "/etc/network/if-up.d", "/usr/local/sbin/ifup-local"]),
    ("NetworkManager", &["/etc/NetworkManager/dispatcher.d", "/etc/NetworkManager/dispatcher.d/pre-up.d"]),
    (
        "networkd-dispatcher",
        &["/etc/networkd-dispatcher/routable.d", "/etc/networkd-dispatcher/configured.d"],
    ),
];

/// That of Debian's ethtool sets what `/etc/network/interfaces` says, which is read itself.
const OF_ETHTOOL: &str = "ethtool";

/// Options of `/etc/network/interfaces` (interfaces(5), ethtool's if-up.d script of Debian 12).
const OPTIONS: [(&str, EthtoolKind); 3] = [
    ("offload-", EthtoolKind::Feature),
    ("hardware-dma-ring-", EthtoolKind::Ring),
    ("hardware-irq-coalesce-", EthtoolKind::Coalesce),
];

#[derive(Debug)]
struct ScriptLines {
    owner: &'static str,
    acts: EnforcementMode,
    when: &'static str,
    lines: Vec<ConfigurationLine>,
}

pub(super) fn observe(scene: &ArbiterHost<'_>) -> Found {
    let mut owners = Vec::new();
    let mut add = |owner, acts, when, lines: Vec<ConfigurationLine>| {
        if !lines.is_empty() {
            owners.push(Box::new(ScriptLines { owner, acts, when, lines }) as Box<dyn SettingOwner>);
        }
    };
    let of = |path: &String| scene.read(path).map(|text| script(&text, path)).unwrap_or_default();
    let rules = scene.layered(&RULES, ".rules").iter().flat_map(of).collect();
    add("udev rule", EnforcementMode::OnLink, "when the device appears", rules);
    for (owner, directories) in SCRIPTS {
        let paths = directories.iter().flat_map(|directory| scene.layered(&[*directory], ""));
        let paths: Vec<String> = paths.filter(|path| !path.ends_with(&format!("/{OF_ETHTOOL}"))).collect();
        add(
            owner,
            EnforcementMode::OnLink,
            "when the interface is taken up",
            paths.iter().flat_map(of).collect(),
        );
    }
    let mut paths = vec!["/etc/network/interfaces".to_owned()];
    paths.extend(scene.layered(&["/etc/network/interfaces.d"], ""));
    let of = |path: &String| scene.read(path).map(|text| interfaces(&text, path)).unwrap_or_default();
    add(
        "ifupdown",
        EnforcementMode::OnLink,
        "when the interface is taken up",
        paths.iter().flat_map(of).collect(),
    );
    for path in ["/etc/rc.local", "/etc/rc.d/rc.local"] {
        let lines = scene.read(path).map(|text| script(&text, path)).unwrap_or_default();
        add("rc.local", EnforcementMode::AtBoot, "at boot", lines);
    }
    owners
}

/// Lines with what follows a backslash, and the number of the first of each.
fn joined(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (number, line) in (1..).zip(text.lines()) {
        let (part, more) = line.strip_suffix('\\').map_or((line, false), |part| (part, true));
        match found.last_mut() {
            Some((_, begun)) if goes_on => {
                begun.push(' ');
                begun.push_str(part.trim());
            }
            _ => found.push((number, part.trim().to_owned())),
        }
        goes_on = more;
    }
    found.retain(|(_, line)| !line.starts_with('#') && !line.is_empty());
    found
}

/// What the lines of a script, or of a file of udev's rules, set.
pub(super) fn script(text: &str, path: &str) -> Vec<ConfigurationLine> {
    let of = |(number, line): (usize, String)| {
        let of_rule = of_rule(&line).map(str::to_owned);
        let sets = command::sets(&line);
        sets.into_iter().map(move |mut set| {
            set.interface = set.interface.or_else(|| of_rule.clone());
            ConfigurationLine { at: format!("{path}:{number}"), text: line.clone(), set }
        })
    };
    joined(text).into_iter().flat_map(of).collect()
}

/// The interface that a rule is about: `KERNEL=="eth*"`, `NAME=="eth0"`, `ENV{INTERFACE}=="eth0"`.
fn of_rule(line: &str) -> Option<&str> {
    ["KERNEL==\"", "NAME==\"", "ENV{INTERFACE}==\""].iter().find_map(|key| {
        let (_, rest) = line.split_once(key)?;
        // Several patterns, and queues and CPUs, are not told apart.
        let (pattern, _) = rest.split_once('"')?;
        (!pattern.contains('|') && !pattern.starts_with("rx-") && !pattern.starts_with("tx-"))
            .then_some(pattern)
    })
}

/// What `/etc/network/interfaces` sets: options of ethtool's script, and commands.
pub(super) fn interfaces(text: &str, path: &str) -> Vec<ConfigurationLine> {
    let mut interface: Option<String> = None;
    let mut found = Vec::new();
    for (number, line) in joined(text) {
        let (key, value) = line.split_once(char::is_whitespace).unwrap_or((&line, ""));
        let sets = match key {
            "iface" | "auto" | "allow-hotplug" | "mapping" | "source" => {
                if key == "iface" {
                    interface = value.split_whitespace().next().map(str::to_owned);
                }
                Vec::new()
            }
            "up" | "pre-up" | "post-up" => command::sets(value),
            key => OPTIONS
                .iter()
                .filter_map(|(start, kind)| {
                    let name = key.strip_prefix(start)?;
                    let name = if *kind == EthtoolKind::Feature { feature(name) } else { name };
                    let knob = OwnedKnob::Link(*kind, name.to_owned());
                    Some(OwnedSetting { knob, interface: None, to: Some(value.trim().to_owned()) })
                })
                .collect(),
        };
        for mut set in sets {
            set.interface = set.interface.or_else(|| interface.clone());
            found.push(ConfigurationLine { at: format!("{path}:{number}"), text: line.clone(), set });
        }
    }
    found
}

impl SettingOwner for ScriptLines {
    fn claims(&self, wanted: &WantedKnob<'_>) -> Vec<SettingClaim> {
        let mut told: Vec<&str> = Vec::new();
        let mut found = Vec::new();
        for line in &self.lines {
            if told.contains(&line.at.as_str()) || wanted.contradicted_by(&line.set).is_none() {
                continue;
            }
            told.push(&line.at);
            found.push(SettingClaim {
                owner: self.owner.to_owned(),
                what: format!("runs '{}' {}", line.text, self.when),
                read_from: line.at.clone(),
                acts: self.acts,
                agreement: match self.acts {
                    EnforcementMode::AtBoot => ClaimAgreement::NotNeeded,
                    _ => ClaimAgreement::ByHand {
                        commands: vec![format!(
                            "# {}: take the line out, or have it set '{}' to '{}'",
                            line.at, wanted.setting, wanted.to
                        )],
                    },
                },
            });
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::super::SettingOwners;
    use super::*;
    use linerate_host::setting::{Offload, QueueDirection};
    use linerate_host::{Host, Setting, SettingValue};
    use proptest::prelude::*;

    const RULE: &str = "# steer\nACTION==\"add\", SUBSYSTEM==\"net\", KERNEL==\"eth0\", \\\n  \
        RUN+=\"/bin/sh -c 'for f in /sys/class/net/$name/queues/rx-*/rps_cpus; do echo f > $f; done'\"\n\
        SUBSYSTEM==\"net\", NAME==\"eth1\", RUN+=\"/usr/sbin/ethtool -G $name rx 1024\"\n";
    const INTERFACES: &str = "auto eth0\niface eth0 inet static\n  address 192.0.2.1/24\n  offload-gro on\n  \
        hardware-dma-ring-rx 512\n  post-up /sbin/ethtool -L $IFACE combined 2\n\niface eth1 inet dhcp\n  offload-gro off\n";

    fn claims(setting: &Setting, to: &str) -> Vec<SettingClaim> {
        let host = Host::scripted([
            ("/etc/udev/rules.d/90-rps.rules", RULE),
            ("/etc/network/interfaces", INTERFACES),
            ("/etc/network/if-up.d/ethtool", "$ETHTOOL --set-ring \"$IFACE\" rx 1\nethtool -G eth0 rx 1\n"),
            ("/etc/rc.local", "#!/bin/sh\nethtool -K eth2 gro on\n"),
        ]);
        SettingOwners::observe(&host).claims(setting, &SettingValue::new(to))
    }

    fn gro(interface: &str) -> Setting {
        Setting::Offload { interface: interface.into(), offload: Offload::GenericReceive }
    }

    #[test]
    fn a_rule_is_told_by_its_line() {
        let rps = |interface: &str| Setting::QueueCpus {
            interface: interface.into(),
            direction: QueueDirection::Receive,
            queue: 0,
        };
        let found = claims(&rps("eth0"), "3");
        assert_eq!((found.len(), found[0].read_from.as_str()), (1, "/etc/udev/rules.d/90-rps.rules:2"));
        assert_eq!(claims(&rps("eth1"), "3"), []);
        let rings = Setting::Rings { interface: "eth1".into() };
        let found = claims(&rings, "rx 4096");
        assert_eq!((found.len(), found[0].acts), (1, EnforcementMode::OnLink));
        assert_eq!(claims(&rings, "rx 1024"), []);
    }

    #[test]
    fn ifupdown_sets_by_options_and_commands() {
        let found = claims(&gro("eth0"), "off");
        assert_eq!((found.len(), found[0].read_from.as_str()), (1, "/etc/network/interfaces:4"));
        assert_eq!(claims(&gro("eth1"), "off"), []);
        let channels = Setting::Channels { interface: "eth0".into() };
        assert_eq!(claims(&channels, "combined 8")[0].read_from, "/etc/network/interfaces:6");
        let rings = Setting::Rings { interface: "eth0".into() };
        assert_eq!(claims(&rings, "rx 4096").len(), 1, "not that of ethtool's own script");
    }

    #[test]
    fn what_runs_at_boot_needs_no_agreement() {
        let found = claims(&gro("eth2"), "off");
        assert_eq!((found.len(), &found[0].agreement), (1, &ClaimAgreement::NotNeeded));
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in "(KERNEL==\"|iface |offload-|ethtool |-G |[a-z0-9 \"\\\\]{0,6}|\n){0,20}") {
            let _ = script(&text, "/x");
            let _ = interfaces(&text, "/x");
        }
    }
}
