//! TuneD's active profile, with all profiles that it includes.
//!
//! TuneD 2.20 (`profiles/loader.py`, `profiles/merger.py`) loads an included profile before the one that includes it, and the
//! later value of an option counts. It applies a profile when it starts and when the profile changes.

use std::collections::BTreeSet;

use linerate_host::stage::irq::tuned_profile_paths;
use linerate_host::{CpuSet, Setting, ini};

use super::command;
use super::knob::{ConfigurationLine, EthtoolKind, OwnedKnob, OwnedSetting, sysctl_path};
use super::owner::{ConfiguredSetting, FoundOwners, SettingOwner, WantedKnob};
use super::reader::ConfigurationReader;
use crate::claim::{ClaimExclusion, EnforcementMode, SettingClaim};

const ACTIVE: [&str; 2] = ["/etc/tuned/active_profile", "/etc/tuned/post_loaded_profile"];

/// Name of the profile that the suggested commands create.
const OURS: &str = "linerate";

// The most profiles that are read: a guard against endless inclusion.
const MOST_PROFILES: usize = 64;

/// The CPUs that the active profile keeps interrupts off.
struct IsolatedCpus {
    active: Vec<String>,
    cpus: String,
    at: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TunedOption {
    pub(super) unit: String,
    pub(super) key: String,
    pub(super) value: String,
    pub(super) at: String,
}

pub(super) fn observe(reader: &ConfigurationReader<'_>) -> FoundOwners {
    if reader.process("tuned").is_none() {
        return Vec::new();
    }
    let names = ACTIVE.iter().filter_map(|path| reader.read(path));
    let active: Vec<String> =
        names.flat_map(|text| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect();
    let mut choices = Vec::new();
    load(reader, &active, &mut BTreeSet::new(), &mut choices);
    let isolated =
        choices.iter().rev().find(|choice| choice.key == "isolated_cores" && choice.unit == "scheduler");
    let isolated = isolated.map(|choice| IsolatedCpus {
        active: active.clone(),
        cpus: choice.value.clone(),
        at: choice.at.clone(),
    });
    let mut owners: FoundOwners = Vec::new();
    for line in lines(&choices) {
        let profiles = active.clone();
        owners.push(Box::new(ConfiguredSetting {
            owner: "tuned",
            what: effect(&line.text, &active),
            read_from: line.at,
            enforcement: EnforcementMode::OnRestart,
            sets: vec![line.set],
            exclusion: Box::new(move |knob, set| ClaimExclusion::ByHand {
                commands: commands(&profiles, set, knob),
            }),
        }));
    }
    owners.extend(isolated.map(|isolated| Box::new(isolated) as Box<dyn SettingOwner>));
    owners
}

fn effect(option: &str, active: &[String]) -> String {
    format!("sets '{option}' when it starts or changes its profile, which is {}", active.join(" "))
}

fn load(
    reader: &ConfigurationReader<'_>,
    names: &[String],
    loaded_paths: &mut BTreeSet<String>,
    choices: &mut Vec<TunedOption>,
) {
    for name in names {
        if loaded_paths.len() >= MOST_PROFILES {
            return;
        }
        let mut paths = tuned_profile_paths(name.trim_start_matches('-'));
        paths.retain(|path| !loaded_paths.contains(path));
        let read_file = |path: String| reader.read(&path).map(|text| (path, text));
        let Some((path, text)) = paths.into_iter().find_map(read_file) else { continue };
        loaded_paths.insert(path.clone());
        let (included, own_options) = profile(&text, &path);
        load(reader, &included, loaded_paths, choices);
        merge(choices, own_options);
    }
}

/// The profiles that a profile includes, and its options.
pub(super) fn profile(text: &str, path: &str) -> (Vec<String>, Vec<TunedOption>) {
    let (mut included, mut options) = (Vec::new(), Vec::new());
    for entry in ini::entries(text) {
        // A comment may follow a value after white space.
        let value = entry.value.split_once(" #").map_or(entry.value, |(value, _)| value).trim();
        if (entry.section, entry.key) == ("main", "include") {
            included = value.split([',', ';']).map(|name| name.trim().to_owned()).collect();
        } else {
            options.push(TunedOption {
                unit: entry.section.to_owned(),
                key: entry.key.to_owned(),
                value: value.trim_matches('"').to_owned(),
                at: format!("{path}:{}", entry.line),
            });
        }
    }
    (included, options)
}

fn merge(choices: &mut Vec<TunedOption>, new_options: Vec<TunedOption>) {
    let is_replacing =
        |choice: &&TunedOption| choice.key == "replace" && ini::switch(&choice.value) == Some("on");
    let replaced_units: BTreeSet<&str> =
        new_options.iter().filter(is_replacing).map(|choice| choice.unit.as_str()).collect();
    choices.retain(|choice| !replaced_units.contains(choice.unit.as_str()));
    for choice in new_options {
        choices.retain(|earlier| (&earlier.unit, &earlier.key) != (&choice.unit, &choice.key));
        choices.push(choice);
    }
}

/// The options that set a known knob.
pub(super) fn lines(choices: &[TunedOption]) -> Vec<ConfigurationLine> {
    let unit_value = |unit: &str, key: &str| {
        choices
            .iter()
            .find(|choice| choice.unit == unit && choice.key == key)
            .map(|choice| choice.value.as_str())
    };
    let mut lines = Vec::new();
    for choice in choices {
        let unit = choice.unit.as_str();
        if unit_value(unit, "enabled").and_then(ini::switch) == Some("off") {
            continue;
        }
        let devices = unit_value(unit, "devices").unwrap_or("*");
        let sets = owned_settings(unit_value(unit, "type").unwrap_or(unit), devices, choice);
        lines.extend(sets.into_iter().map(|set| ConfigurationLine {
            at: choice.at.clone(),
            text: format!("{}={}", choice.key, choice.value),
            set,
        }));
    }
    lines
}

fn owned_settings(kind: &str, devices: &str, choice: &TunedOption) -> Vec<OwnedSetting> {
    // A variable or a function may have any value.
    let literal = |value: &str| (!value.contains("${")).then(|| value.to_owned());
    let single_setting =
        |knob: OwnedKnob, to: Option<String>| vec![OwnedSetting { knob, interface: None, to }];
    match (kind, choice.key.as_str()) {
        (_, "type" | "enabled" | "replace" | "devices" | "priority") => Vec::new(),
        ("sysctl", name) => single_setting(OwnedKnob::Sysctl(sysctl_path(name)), literal(&choice.value)),
        // Of several governors TuneD sets the first that the driver has.
        ("cpu", "governor") => {
            single_setting(OwnedKnob::Governor, literal(&choice.value).filter(|value| !value.contains('|')))
        }
        ("sysfs", path) => command::settings(&format!("echo {} > {path}", choice.value)),
        ("net", "ring") => device_settings(EthtoolKind::Ring, devices, &choice.value),
        ("net", "channels") => device_settings(EthtoolKind::Channel, devices, &choice.value),
        ("net", "coalesce") => device_settings(EthtoolKind::Coalesce, devices, &choice.value),
        ("net", "features") => device_settings(EthtoolKind::Feature, devices, &choice.value),
        _ => Vec::new(),
    }
}

// `rx 4096 tx 512`, in which colons, commas and semicolons may separate, too.
fn device_settings(kind: EthtoolKind, devices: &str, value: &str) -> Vec<OwnedSetting> {
    let words: Vec<&str> = value.split([' ', '\t', ':', ',', ';']).filter(|word| !word.is_empty()).collect();
    // Exclusions (`!eth0`) are ignored: a claim too many is better than one too few.
    let devices: Vec<&str> =
        devices.split([',', ' ']).filter(|name| !name.is_empty() && !name.starts_with('!')).collect();
    let devices = if devices.is_empty() { vec!["*"] } else { devices };
    let mut settings = Vec::new();
    for device in devices {
        for pair in words.chunks_exact(2) {
            let (name, to) = (pair.first().unwrap_or(&""), pair.get(1).unwrap_or(&""));
            settings.push(OwnedSetting {
                knob: kind.knob(name),
                interface: Some(device.to_owned()),
                to: (!to.contains("${")).then(|| (*to).to_owned()),
            });
        }
    }
    settings
}

impl SettingOwner for IsolatedCpus {
    fn claim(&self, knob: &WantedKnob<'_>) -> Option<SettingClaim> {
        if !matches!(knob.setting, Setting::IrqAffinity { .. }) {
            return None;
        }
        let mask = knob.to.as_str().split_whitespace().next().unwrap_or_default();
        let is_apart = match (CpuSet::from_mask(mask), CpuSet::from_list(&self.cpus)) {
            (Ok(to), Ok(isolated)) => !to.iter().any(|cpu| isolated.contains(cpu)),
            // A variable.
            _ => false,
        };
        let command = format!("# {}: name other CPUs, or plan for CPUs that are not among them", self.at);
        (!is_apart).then(|| SettingClaim {
            owner: "tuned".to_owned(),
            what: effect(&format!("isolated_cores={}", self.cpus), &self.active),
            read_from: self.at.clone(),
            enforcement: EnforcementMode::OnRestart,
            exclusion: ClaimExclusion::ByHand { commands: vec![command] },
        })
    }
}

/// The commands that create a profile that includes the active profile and then sets the option.
fn commands(active: &[String], set: &OwnedSetting, knob: &WantedKnob<'_>) -> Vec<String> {
    let to = set.to.as_deref().unwrap_or(knob.to.as_str());
    let device = set.interface.as_deref().unwrap_or("*");
    let lines = match &set.knob {
        OwnedKnob::Sysctl(_) => format!("[sysctl]\\n{}={to}", knob.setting),
        OwnedKnob::Governor => format!("[cpu]\\ngovernor={to}"),
        OwnedKnob::Link(kind, name) => {
            let option = match kind {
                EthtoolKind::Ring => "ring",
                EthtoolKind::Channel => "channels",
                EthtoolKind::Coalesce => "coalesce",
                EthtoolKind::Feature | EthtoolKind::Flow => "features",
            };
            format!("[net_{OURS}_{option}_{name}]\\ntype=net\\ndevices={device}\\n{option}={name} {to}")
        }
        _ => return vec![format!("# change it in a profile of your own that includes {}", active.join(","))],
    };
    let file = format!("/etc/tuned/{OURS}/tuned.conf");
    let mut commands = Vec::new();
    if !active.iter().any(|name| name == OURS) {
        let active = active.join(",");
        commands.push(format!(
            "test -e {file} || {{ mkdir -p /etc/tuned/{OURS} && printf '[main]\\ninclude={active}\\n' > {file}; }}"
        ));
    }
    commands.push(format!("printf '{lines}\\n' >> {file}"));
    commands.push(format!("tuned-adm profile {OURS}  # applies the whole profile again"));
    commands
}

#[cfg(test)]
mod tests {
    use super::super::tests::{claims, commands, gro, rings};
    use super::*;

    /// Debian's tuned 2.20.0 has this profile; comments removed.
    const LATENCY: &str = "#\n# tuned configuration\n#\n\n[main]\nsummary=Optimize\ninclude=latency-performance\n\n[vm]\n\
        transparent_hugepages=never\n\n[sysctl]\nnet.core.busy_read=50\nnet.core.busy_poll=50\n\
        net.ipv4.tcp_fastopen=3\nkernel.numa_balancing=0\n";
    const PERFORMANCE: &str = "[main]\nsummary=base\n[cpu]\nforce_latency=cstate.id_no_zero:1|3\ngovernor=performance\n\
        [sysctl]\nnet.core.busy_read = 10\nnet.core.somaxconn=>2048\n";
    const EDGE: &str = "[main]\ninclude = network-latency\n[net]\ndevices=eth0,eth1\nfeatures=gro: on, lro off\n\
        ring=rx 1024 # ours\n[off]\ntype=sysctl\nenabled=0\nnet.core.rmem_max=1\n\
        [scheduler]\nisolated_cores=4-7\n";

    const FILES: [(&str, &str); 5] = [
        ("/proc/9/comm", "tuned\n"),
        ("/etc/tuned/active_profile", "edge\n"),
        ("/etc/tuned/edge/tuned.conf", EDGE),
        ("/usr/lib/tuned/network-latency/tuned.conf", LATENCY),
        ("/usr/lib/tuned/latency-performance/tuned.conf", PERFORMANCE),
    ];

    fn sources(setting: &Setting, to: &str) -> Vec<String> {
        claims(&FILES, setting, to).into_iter().map(|claim| claim.read_from).collect()
    }

    #[test]
    fn including_tuned_profile_overrides_included_profiles() {
        let busy = Setting::sysctl("net.core.busy_read");
        assert_eq!(sources(&busy, "0"), ["/usr/lib/tuned/network-latency/tuned.conf:13"]);
        assert_eq!(sources(&busy, "50"), [""; 0]);
        assert_eq!(sources(&Setting::sysctl("net.core.somaxconn"), "4096"), [""; 0]);
        assert_eq!(sources(&Setting::sysctl("net.core.somaxconn"), "128").len(), 1);
        assert_eq!(sources(&Setting::sysctl("net.core.rmem_max"), "2"), [""; 0]);
    }

    #[test]
    fn tuned_claims_interface_governor_and_isolated_cpu_settings() {
        assert_eq!(sources(&gro("eth0"), "off"), ["/etc/tuned/edge/tuned.conf:5"]);
        assert_eq!(sources(&gro("eth2"), "off"), [""; 0]);
        assert_eq!(sources(&rings("eth1"), "rx 4096 tx 512"), ["/etc/tuned/edge/tuned.conf:6"]);
        assert_eq!(sources(&rings("eth1"), "rx 1024 tx 512"), [""; 0]);
        assert_eq!(sources(&Setting::Governor { cpu: 3 }, "powersave").len(), 1);
        let irq: Setting = serde_json::from_str(r#"{"irq_affinity": {"irq": 30}}"#).expect("a setting");
        assert_eq!(sources(&irq, "00000010"), ["/etc/tuned/edge/tuned.conf:12"]);
        assert_eq!(sources(&irq, "0000000f"), [""; 0]);
    }

    #[test]
    fn exclusion_commands_create_a_profile_that_includes_the_active_profile() {
        let claims = claims(&FILES, &Setting::sysctl("net.core.busy_read"), "0");
        assert_eq!(
            commands(&claims[0]),
            [
                "test -e /etc/tuned/linerate/tuned.conf || { mkdir -p /etc/tuned/linerate && \
                 printf '[main]\\ninclude=edge\\n' > /etc/tuned/linerate/tuned.conf; }",
                "printf '[sysctl]\\nnet.core.busy_read=0\\n' >> /etc/tuned/linerate/tuned.conf",
                "tuned-adm profile linerate  # applies the whole profile again",
            ]
        );
    }

    #[test]
    fn reading_profiles_that_include_each_other_terminates() {
        let files = [
            ("/proc/9/comm", "tuned\n"),
            ("/etc/tuned/active_profile", "a ../../x\n"),
            ("/etc/tuned/a/tuned.conf", "[main]\ninclude=b\n"),
            ("/etc/tuned/b/tuned.conf", "[main]\ninclude=a,b\n[sysctl]\nx.y=1\n"),
        ];
        assert_eq!(claims(&files, &Setting::sysctl("x.y"), "2").len(), 1);
    }
}
