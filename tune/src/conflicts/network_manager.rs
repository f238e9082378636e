//! NetworkManager, which applies a connection's profile when it activates the connection (nm-settings-keyfile(5)).

use linerate_host::ini;

use super::knob::{ConfigurationLine, EthtoolKind, OwnedSetting};
use super::owner::{ConfiguredSetting, FoundOwners};
use super::reader::{ConfigurationReader, ConfiguredInterface, matches};
use crate::claim::EnforcementMode;

const DIRECTORIES: [&str; 3] = [
    "/etc/NetworkManager/system-connections",
    "/run/NetworkManager/system-connections",
    "/usr/lib/NetworkManager/system-connections",
];

/// Prefixes of the options in `[ethtool]`.
const KINDS: [(&str, EthtoolKind); 4] = [
    ("feature-", EthtoolKind::Feature),
    ("ring-", EthtoolKind::Ring),
    ("coalesce-", EthtoolKind::Coalesce),
    ("channels-", EthtoolKind::Channel),
];

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ConnectionProfile {
    uuid: String,
    /// Keys and values that an interface has to match: `interface-name`, `mac-address`, ...
    conditions: Vec<(String, String)>,
    lines: Vec<ConfigurationLine>,
}

pub(super) fn observe(reader: &ConfigurationReader<'_>) -> FoundOwners {
    let mut owners = FoundOwners::new();
    if reader.process("NetworkManager").is_none() {
        return owners;
    }
    let paths = reader.layered(&DIRECTORIES, ".nmconnection");
    let read_profile = |path: String| reader.read(&path).map(|text| profile(&text, &path));
    let profiles: Vec<ConnectionProfile> = paths.into_iter().filter_map(read_profile).collect();
    if profiles.iter().all(|profile| profile.lines.is_empty()) {
        return owners;
    }
    for interface in reader.interfaces() {
        let state = format!("/run/NetworkManager/devices/{}", interface.index);
        let state = reader.host.read(&state).unwrap_or_default();
        for profile in profiles.iter().filter(|profile| profile.is_for(interface, active_uuid(&state))) {
            for line in &profile.lines {
                owners.push(Box::new(owner(line, &profile.uuid, &interface.name)));
            }
        }
    }
    owners
}

fn owner(line: &ConfigurationLine, uuid: &str, interface: &str) -> ConfiguredSetting {
    let option = line.text.split('=').next().unwrap_or_default().to_owned();
    let uuid = uuid.to_owned();
    let command = move |set: &OwnedSetting| {
        let to = match set.to.as_deref() {
            Some("on") if option.starts_with("feature-") => "true",
            Some("off") if option.starts_with("feature-") => "false",
            // nm-settings(5): the options of coalescing are numbers.
            Some("on") => "1",
            Some("off") => "0",
            Some(to) => to,
            None => "''",
        };
        format!(
            "nmcli connection modify {uuid} ethtool.{option} {to}  # it does so when it is taken up again"
        )
    };
    ConfiguredSetting {
        owner: "NetworkManager",
        what: format!("sets '{}' when the connection is taken up", line.text),
        read_from: line.at.clone(),
        enforcement: EnforcementMode::OnLink,
        sets: vec![OwnedSetting { interface: Some(interface.to_owned()), ..line.set.clone() }],
        commands: Box::new(move |_, set| vec![command(set)]),
    }
}

/// The active profile in NetworkManager's state file of a device.
pub(super) fn active_uuid(state: &str) -> Option<&str> {
    ini::entries(state)
        .find(|entry| (entry.section, entry.key) == ("device", "connection-uuid"))
        .map(|entry| entry.value)
}

pub(super) fn profile(text: &str, path: &str) -> ConnectionProfile {
    let mut profile = ConnectionProfile::default();
    for entry in ini::entries(text) {
        match (entry.section, entry.key) {
            ("connection", "uuid") => entry.value.clone_into(&mut profile.uuid),
            ("connection" | "match", key @ ("interface-name" | "driver" | "path" | "type"))
            | ("ethernet" | "802-3-ethernet", key @ "mac-address") => {
                profile.conditions.push((key.to_owned(), entry.value.to_owned()));
            }
            ("ethtool", key) => profile.lines.extend(line(key, &entry, path)),
            _ => {}
        }
    }
    profile
}

fn line(key: &str, entry: &ini::IniEntry<'_>, path: &str) -> Option<ConfigurationLine> {
    let (kind, name) = KINDS.iter().find_map(|(start, kind)| Some((*kind, key.strip_prefix(start)?)))?;
    let to = if kind.is_switch(name) { ini::switch(entry.value) } else { Some(entry.value) };
    let (at, text) = (format!("{path}:{}", entry.line), format!("{key}={}", entry.value));
    Some(ConfigurationLine { at, text, set: kind.knob(name).set_to(to.map(str::to_owned)) })
}

impl ConnectionProfile {
    // Whether the profile applies to an interface: by the active profile if that is known, else by its conditions.
    fn is_for(&self, interface: &ConfiguredInterface, active_uuid: Option<&str>) -> bool {
        if let Some(active_uuid) = active_uuid {
            return self.uuid == active_uuid;
        }
        self.conditions.iter().all(|(key, value)| {
            let matches_any = |text: &str| value.split([';', ',', ' ']).any(|pattern| matches(pattern, text));
            match key.as_str() {
                "interface-name" => matches_any(&interface.name),
                "mac-address" => value.to_ascii_lowercase() == interface.address,
                "driver" => matches_any(interface.driver.as_deref().unwrap_or_default()),
                "path" => matches_any(interface.path.as_deref().unwrap_or_default()),
                _ => true,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use linerate_host::Setting;

    use super::super::tests::{claims, commands, gro};
    use super::*;

    /// nmcli 1.42 wrote this file.
    const FILE: &str = "[connection]\nid=Wired connection 1\nuuid=0f6d-1\ntype=ethernet\ninterface-name=eth0\n\n\
        [ethernet]\n\n[ethtool]\nfeature-gro=true\nring-rx=1024\nchannels-combined=4\ncoalesce-adaptive-rx=1\npause-rx=false\n\n[ipv4]\nmethod=auto\n";
    const PATH: &str = "/etc/NetworkManager/system-connections/Wired connection 1.nmconnection";

    const HOST: [(&str, &str); 6] = [
        ("/proc/9/comm", "NetworkManager\n"),
        ("/sys/class/net/eth0/ifindex", "2\n"),
        ("/sys/class/net/eth0/address", "02:00:00:00:00:01\n"),
        ("/sys/class/net/eth1/ifindex", "3\n"),
        ("/sys/class/net/eth1/address", "02:00:00:00:00:02\n"),
        (PATH, FILE),
    ];

    #[test]
    fn connection_profile_claims_settings_of_its_interface() {
        let found = claims(&HOST, &gro("eth0"), "off");
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].enforcement, found[0].read_from.clone()),
            (EnforcementMode::OnLink, format!("{PATH}:10"))
        );
        assert_eq!(
            commands(&found[0]),
            [
                "nmcli connection modify 0f6d-1 ethtool.feature-gro false  # it does so when it is taken up again"
            ]
        );
        let adaptive = claims(&HOST, &Setting::Coalesce { interface: "eth0".into() }, "adaptive-rx off");
        assert!(commands(&adaptive[0])[0].contains("ethtool.coalesce-adaptive-rx 0 "), "{adaptive:?}");
        assert_eq!(claims(&HOST, &gro("eth1"), "off"), []);
        assert_eq!(claims(&HOST, &Setting::Channels { interface: "eth0".into() }, "combined 8").len(), 1);
    }

    #[test]
    fn only_the_active_connection_profile_claims_settings() {
        for (path, state, interface, count) in [
            ("/run/NetworkManager/devices/2", "[device]\nmanaged=1\nconnection-uuid=other\n", "eth0", 0),
            ("/run/NetworkManager/devices/3", "[device]\nconnection-uuid=0f6d-1\n", "eth1", 1),
        ] {
            let files = [&HOST[..], &[(path, state)]].concat();
            assert_eq!(claims(&files, &gro(interface), "off").len(), count, "{state}");
        }
    }
}
