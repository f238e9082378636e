//! TuneD's active profile, which TuneD applies when it starts and when the profile changes.

use linerate_host::ini::FileEntry;
use linerate_host::setting::sysctl_path;
use linerate_host::stage::irq::{TunedProfile, TunedSetting};
use linerate_host::{CpuSet, Setting};

use super::command;
use super::knob::{EthtoolKind, OwnedKnob, OwnedSetting};
use super::owner::{ConfiguredSetting, FoundOwners, SettingOwner, WantedKnob};
use super::reader::ConfigurationReader;
use crate::claim::{ClaimExclusion, EnforcementMode, SettingClaim};

/// Name of the profile that the suggested commands create.
const OURS: &str = "linerate";

/// The CPUs that the active profile keeps interrupts off.
struct IsolatedCpus {
    active: Vec<String>,
    cpus: String,
    at: String,
}

pub(super) fn observe(reader: &ConfigurationReader<'_>) -> FoundOwners {
    if reader.process("tuned").is_none() {
        return Vec::new();
    }
    let profile = TunedProfile::active(&|path| reader.read(path));
    let mut owners: FoundOwners = Vec::new();
    for setting in profile.settings() {
        let (active, at) = (profile.names.clone(), setting.option.location());
        if (setting.plugin, setting.option.key.as_str()) == ("scheduler", "isolated_cores") {
            owners.push(Box::new(IsolatedCpus { active, cpus: setting.option.value.clone(), at }));
            continue;
        }
        for set in owned_settings(&setting) {
            let active = active.clone();
            owners.push(Box::new(ConfiguredSetting {
                owner: "tuned",
                what: effect(&format!("{}={}", setting.option.key, setting.option.value), &active),
                read_from: at.clone(),
                enforcement: EnforcementMode::OnRestart,
                sets: vec![set],
                commands: Box::new(move |knob, set| commands(&active, set, knob)),
            }));
        }
    }
    owners
}

fn effect(option: &str, active: &[String]) -> String {
    format!("sets '{option}' when it starts or changes its profile, which is {}", active.join(" "))
}

pub(super) fn owned_settings(setting: &TunedSetting<'_>) -> Vec<OwnedSetting> {
    let TunedSetting { plugin, devices, option: FileEntry { key, value, .. } } = *setting;
    // A variable or a function may have any value.
    let literal = |value: &str| (!value.contains("${")).then(|| value.to_owned());
    match (plugin, key.as_str()) {
        ("sysctl", name) => vec![OwnedKnob::Sysctl(sysctl_path(name)).set_to(literal(value))],
        // Of several governors TuneD sets the first that the driver has.
        ("cpu", "governor") => {
            vec![OwnedKnob::Governor.set_to(literal(value).filter(|value| !value.contains('|')))]
        }
        ("sysfs", path) => command::settings(&format!("echo {value} > {path}")),
        ("net", "ring") => device_settings(EthtoolKind::Ring, devices, value),
        ("net", "channels") => device_settings(EthtoolKind::Channel, devices, value),
        ("net", "coalesce") => device_settings(EthtoolKind::Coalesce, devices, value),
        ("net", "features") => device_settings(EthtoolKind::Feature, devices, value),
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
}
