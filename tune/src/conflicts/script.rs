//! Commands that run when an interface appears or comes up, or at boot: udev's rules, ifupdown, and scripts.

use super::command;
use super::knob::{EthtoolKind, OwnedSetting};
use super::owner::{ConfiguredSetting, FoundOwners, WantedKnob};
use super::reader::ConfigurationReader;
use crate::claim::EnforcementMode;

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

/// Debian's ethtool script applies `/etc/network/interfaces`, which is read separately.
const ETHTOOL_SCRIPT: &str = "ethtool";

// Options of `/etc/network/interfaces` (interfaces(5), ethtool's if-up.d script of Debian 12).
const OPTIONS: [(&str, EthtoolKind); 3] = [
    ("offload-", EthtoolKind::Feature),
    ("hardware-dma-ring-", EthtoolKind::Ring),
    ("hardware-irq-coalesce-", EthtoolKind::Coalesce),
];

const LINK_UP: (EnforcementMode, &str) = (EnforcementMode::OnLink, "when the interface is taken up");

pub(super) fn observe(reader: &ConfigurationReader<'_>) -> FoundOwners {
    let mut owners = FoundOwners::new();
    let mut add =
        |owner: &'static str, (enforcement, when): (EnforcementMode, &str), lines: Vec<ScriptLine>| {
            for line in lines {
                owners.push(Box::new(configured_setting(owner, enforcement, when, line)));
            }
        };
    let lines_of = |path: &String| reader.read(path).map(|text| script(&text, path)).unwrap_or_default();
    let rules = reader.layered(&RULES, ".rules").iter().flat_map(lines_of).collect();
    add("udev rule", (EnforcementMode::OnLink, "when the device appears"), rules);
    for (owner, directories) in SCRIPTS {
        let paths = directories.iter().flat_map(|directory| reader.layered(&[*directory], ""));
        let paths = paths.filter(|path| path.rsplit('/').next() != Some(ETHTOOL_SCRIPT));
        add(owner, LINK_UP, paths.collect::<Vec<_>>().iter().flat_map(lines_of).collect());
    }
    let mut paths = vec!["/etc/network/interfaces".to_owned()];
    paths.extend(reader.layered(&["/etc/network/interfaces.d"], ""));
    let of_interfaces =
        |path: &String| reader.read(path).map(|text| interfaces(&text, path)).unwrap_or_default();
    add("ifupdown", LINK_UP, paths.iter().flat_map(of_interfaces).collect());
    for path in ["/etc/rc.local", "/etc/rc.d/rc.local"] {
        add("rc.local", (EnforcementMode::AtBoot, "at boot"), lines_of(&path.to_owned()));
    }
    owners
}

fn configured_setting(
    owner: &'static str,
    enforcement: EnforcementMode,
    when: &str,
    line: ScriptLine,
) -> ConfiguredSetting {
    let location = line.at.clone();
    ConfiguredSetting {
        owner,
        what: format!("runs '{}' {when}", line.text),
        read_from: line.at,
        enforcement,
        sets: line.sets,
        commands: match enforcement {
            EnforcementMode::AtBoot => Box::new(|_, _| Vec::new()),
            _ => Box::new(move |knob, _| {
                let WantedKnob { setting, to, .. } = knob;
                vec![format!("# {location}: remove the line, or have it set '{setting}' to '{to}'")]
            }),
        },
    }
}

/// A line of a script with all knobs that it sets.
pub(super) struct ScriptLine {
    at: String,
    text: String,
    sets: Vec<OwnedSetting>,
}

/// Lines, each joined with its continuation lines (after a backslash), and the number of the first
/// of them.
fn join_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut continues = false;
    for (number, line) in (1..).zip(text.lines()) {
        let (part, has_more) = line.strip_suffix('\\').map_or((line, false), |part| (part, true));
        match lines.last_mut() {
            Some((_, last_line)) if continues => {
                last_line.push(' ');
                last_line.push_str(part.trim());
            }
            _ => lines.push((number, part.trim().to_owned())),
        }
        continues = has_more;
    }
    lines.retain(|(_, line)| !line.starts_with('#') && !line.is_empty());
    lines
}

/// The lines of a script, or of a file of udev's rules, that set a knob.
pub(super) fn script(text: &str, path: &str) -> Vec<ScriptLine> {
    let line = |(number, text): (usize, String)| {
        let (sets, interface) = (command::settings(&text), rule_interface(&text).map(str::to_owned));
        script_line(path, number, text, sets, interface.as_deref())
    };
    join_lines(text).into_iter().filter_map(line).collect()
}

fn script_line(
    path: &str,
    number: usize,
    text: String,
    mut sets: Vec<OwnedSetting>,
    interface: Option<&str>,
) -> Option<ScriptLine> {
    for set in &mut sets {
        set.interface = set.interface.take().or_else(|| interface.map(str::to_owned));
    }
    (!sets.is_empty()).then(|| ScriptLine { at: format!("{path}:{number}"), text, sets })
}

// The interface that a udev rule matches: `KERNEL=="eth*"`, `NAME=="eth0"`, `ENV{INTERFACE}=="eth0"`.
fn rule_interface(line: &str) -> Option<&str> {
    ["KERNEL==\"", "NAME==\"", "ENV{INTERFACE}==\""].iter().find_map(|key| {
        let (_, value) = line.split_once(key)?;
        // Alternatives, and the kernel names of queues, are not supported.
        let (pattern, _) = value.split_once('"')?;
        (!pattern.contains('|') && !pattern.starts_with("rx-") && !pattern.starts_with("tx-"))
            .then_some(pattern)
    })
}

/// The lines of `/etc/network/interfaces` that set a knob: options of ethtool's script, and commands.
pub(super) fn interfaces(text: &str, path: &str) -> Vec<ScriptLine> {
    let mut interface: Option<String> = None;
    let mut lines = Vec::new();
    for (number, line) in join_lines(text) {
        let (key, value) = line.split_once(char::is_whitespace).unwrap_or((&line, ""));
        let sets = match key {
            "iface" | "auto" | "allow-hotplug" | "mapping" | "source" => {
                if key == "iface" {
                    interface = value.split_whitespace().next().map(str::to_owned);
                }
                Vec::new()
            }
            "up" | "pre-up" | "post-up" => command::settings(value),
            key => OPTIONS
                .iter()
                .filter_map(|(start, kind)| Some(kind.knob(key.strip_prefix(start)?)))
                .map(|knob| knob.set_to(Some(value.trim().to_owned())))
                .collect(),
        };
        lines.extend(script_line(path, number, line, sets, interface.as_deref()));
    }
    lines
}

#[cfg(test)]
mod tests {
    use linerate_host::Setting;
    use linerate_host::setting::QueueDirection;

    use super::super::tests::{claims, gro, rings};
    use super::*;
    use crate::claim::ClaimExclusion;

    const RULE: &str = "# steer\nACTION==\"add\", SUBSYSTEM==\"net\", KERNEL==\"eth0\", \\\n  \
        RUN+=\"/bin/sh -c 'for f in /sys/class/net/$name/queues/rx-*/rps_cpus; do echo f > $f; done'\"\n\
        SUBSYSTEM==\"net\", NAME==\"eth1\", RUN+=\"/usr/sbin/ethtool -G $name rx 1024\"\n";
    const INTERFACES: &str = "auto eth0\niface eth0 inet static\n  address 192.0.2.1/24\n  offload-gro on\n  \
        hardware-dma-ring-rx 512\n  post-up /sbin/ethtool -L $IFACE combined 2\n\niface eth1 inet dhcp\n  offload-gro off\n";

    const FILES: [(&str, &str); 4] = [
        ("/etc/udev/rules.d/90-rps.rules", RULE),
        ("/etc/network/interfaces", INTERFACES),
        ("/etc/network/if-up.d/ethtool", "$ETHTOOL --set-ring \"$IFACE\" rx 1\nethtool -G eth0 rx 1\n"),
        ("/etc/rc.local", "#!/bin/sh\nethtool -K eth2 gro on\n"),
    ];

    #[test]
    fn udev_rules_are_reported_with_file_and_line() {
        let rps = |interface: &str| Setting::QueueCpus {
            interface: interface.into(),
            direction: QueueDirection::Receive,
            queue: 0,
        };
        let found = claims(&FILES, &rps("eth0"), "3");
        assert_eq!((found.len(), found[0].read_from.as_str()), (1, "/etc/udev/rules.d/90-rps.rules:2"));
        assert_eq!(claims(&FILES, &rps("eth1"), "3"), []);
        let found = claims(&FILES, &rings("eth1"), "rx 4096");
        assert_eq!((found.len(), found[0].enforcement), (1, EnforcementMode::OnLink));
        assert_eq!(claims(&FILES, &rings("eth1"), "rx 1024"), []);
    }

    #[test]
    fn ifupdown_options_and_commands_claim_settings() {
        let found = claims(&FILES, &gro("eth0"), "off");
        assert_eq!((found.len(), found[0].read_from.as_str()), (1, "/etc/network/interfaces:4"));
        assert_eq!(claims(&FILES, &gro("eth1"), "off"), []);
        let channels = Setting::Channels { interface: "eth0".into() };
        assert_eq!(claims(&FILES, &channels, "combined 8")[0].read_from, "/etc/network/interfaces:6");
        assert_eq!(
            claims(&FILES, &rings("eth0"), "rx 4096").len(),
            1,
            "ethtool's own if-up script claims nothing"
        );
    }

    #[test]
    fn boot_scripts_need_no_exclusion() {
        let found = claims(&FILES, &gro("eth2"), "off");
        assert_eq!((found.len(), &found[0].exclusion), (1, &ClaimExclusion::NotNeeded));
    }
}
