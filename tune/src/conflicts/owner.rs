//! Owners of settings: programs and configuration files, and their claims on a planned change.

use linerate_host::setting::sysctl_path;
use linerate_host::{CpuSet, Setting, SettingValue};

use super::command;
use super::knob::{OwnedKnob, OwnedSetting};
use super::reader::matches;
use crate::claim::{ClaimExclusion, EnforcementMode, SettingClaim};
use crate::plan::TunePlan;

pub(super) type FoundOwners = Vec<Box<dyn SettingOwner>>;

pub(super) trait SettingOwner {
    /// The owner's effect on this setting, if it contradicts the planned value.
    fn claim(&self, knob: &WantedKnob<'_>) -> Option<SettingClaim>;

    /// Adds the change that makes the owner leave all settings of a plan alone, or the commands for a
    /// person. Does nothing if one exclusion per claim is enough.
    fn exclude(&self, _plan: &mut TunePlan) {}
}

/// The commands by which a person excludes a [`ConfiguredSetting`] that contradicts a planned change;
/// none if it does not act while the host runs. The second argument is the contradicting part of the
/// change.
pub(super) type ExclusionCommands = Box<dyn Fn(&WantedKnob<'_>, &OwnedSetting) -> Vec<String>>;

/// An owner that sets fixed values: a service, or one line of a configuration file.
pub(super) struct ConfiguredSetting {
    pub(super) owner: &'static str,
    pub(super) what: String,
    pub(super) read_from: String,
    pub(super) enforcement: EnforcementMode,
    pub(super) sets: Vec<OwnedSetting>,
    pub(super) commands: ExclusionCommands,
}

impl SettingOwner for ConfiguredSetting {
    fn claim(&self, knob: &WantedKnob<'_>) -> Option<SettingClaim> {
        let set = self.sets.iter().find_map(|owned_setting| knob.contradicted_by(owned_setting))?;
        let commands = (self.commands)(knob, set);
        Some(SettingClaim {
            owner: self.owner.to_owned(),
            what: self.what.clone(),
            read_from: self.read_from.clone(),
            enforcement: self.enforcement,
            exclusion: match commands.is_empty() {
                true => ClaimExclusion::NotNeeded,
                false => ClaimExclusion::ByHand { commands },
            },
        })
    }
}

// This command for any planned value.
pub(super) fn by_hand(command: impl Into<String>) -> ExclusionCommands {
    let commands = vec![command.into()];
    Box::new(move |_, _| commands.clone())
}

// A planned change, as knobs that owners may set too.
pub(super) struct WantedKnob<'a> {
    pub(super) setting: &'a Setting,
    pub(super) to: &'a SettingValue,
    pub(super) sets: Vec<OwnedSetting>,
}

impl<'a> WantedKnob<'a> {
    pub(super) fn new(setting: &'a Setting, to: &'a SettingValue) -> Self {
        let single = |knob: OwnedKnob| vec![knob.set_to(Some(to.as_str().to_owned()))];
        let sets = match setting {
            Setting::Sysctl(name) => single(OwnedKnob::Sysctl(sysctl_path(name))),
            Setting::IrqAffinity { .. } => single(OwnedKnob::Interrupt),
            Setting::Governor { .. } => single(OwnedKnob::Governor),
            Setting::Audit => single(OwnedKnob::Audit),
            Setting::NftTable { .. } | Setting::IptablesRule { .. } => single(OwnedKnob::Filter),
            // No configuration file describes a running process.
            Setting::Steering { .. } | Setting::Socket { .. } | Setting::ThreadCpus { .. } => Vec::new(),
            // The command that a person would type uses the same words as scripts.
            other => other.command(to).map(|line| command::settings(&line)).unwrap_or_default(),
        };
        Self { setting, to, sets }
    }

    /// The part of this change to which `other` gives another value.
    pub(super) fn contradicted_by(&self, other: &OwnedSetting) -> Option<&OwnedSetting> {
        self.sets.iter().find(|set| {
            let is_same_interface = match (&other.interface, &set.interface) {
                (Some(pattern), Some(interface)) => matches(pattern, interface),
                _ => true,
            };
            is_same_interface
                && set.knob.is_covered_by(&other.knob)
                && !(set.knob.is_mask() && is_same_mask(set.to.as_deref(), other.to.as_deref()))
                && contradicts(set.to.as_deref(), other.to.as_deref())
        })
    }
}

/// Masks are written with and without leading zeros.
fn is_same_mask(mask: Option<&str>, other_mask: Option<&str>) -> bool {
    let cpus = |mask: Option<&str>| CpuSet::from_mask(mask?).ok();
    cpus(mask).is_some_and(|cpus_of_mask| Some(cpus_of_mask) == cpus(other_mask))
}

/// An unknown value may be another one.
fn contradicts(value: Option<&str>, other_value: Option<&str>) -> bool {
    let (Some(value), Some(other_value)) = (value, other_value) else { return true };
    let number = |text: &str| text.trim().parse::<i64>().ok();
    // TuneD: at least, and at most.
    if let Some(least) = other_value.strip_prefix('>') {
        return !matches!((number(value), number(least)), (Some(value), Some(least)) if value >= least);
    }
    if let Some(most) = other_value.strip_prefix('<') {
        return !matches!((number(value), number(most)), (Some(value), Some(most)) if value <= most);
    }
    !value.split_whitespace().eq(other_value.split_whitespace())
}

#[cfg(test)]
mod tests {
    use super::super::knob::{EthtoolKind, feature};
    use super::*;
    use linerate_host::setting::{Offload, QueueDirection};

    #[test]
    fn only_another_value_of_the_same_knob_contradicts_a_change() {
        let rings = Setting::Rings { interface: "eth0".into() };
        let gro = Setting::Offload { interface: "eth0".into(), offload: Offload::GenericReceive };
        let rp_filter = Setting::sysctl("net.ipv4.conf.eth0/5.rp_filter");
        let ring = |name: &str| OwnedKnob::Link(EthtoolKind::Ring, name.into());
        let feature = |name: &str| OwnedKnob::Link(EthtoolKind::Feature, feature(name).into());
        let sysctl = |name: &str| OwnedKnob::Sysctl(sysctl_path(name));
        for (setting, to, knob, interface, other, contradicts) in [
            (&rings, "rx 4096 tx 512", ring("rx"), Some("eth*"), "1024", true),
            (&rings, "rx 4096 tx 512", ring("rx"), None, "4096", false),
            (&rings, "rx 4096 tx 512", ring("rx"), Some("eth1"), "1024", false),
            (&rings, "rx 4096 tx 512", ring("rx-mini"), None, "1024", false),
            (&gro, "off", feature("rx-gro"), None, "on", true),
            (&gro, "off", feature("gro"), None, "off", false),
            (&rp_filter, "0", sysctl("net/ipv4/conf/eth0.5/rp_filter"), None, "2", true),
            (&rp_filter, "0", sysctl("net.ipv4.conf.*.rp_filter"), None, "2", true),
            (&rp_filter, "0", sysctl("net.ipv4.conf.eth0.5.rp_filter"), None, "2", false),
        ] {
            let interface = interface.map(str::to_owned);
            let owned = OwnedSetting { knob, interface, to: Some(other.to_owned()) };
            let to = SettingValue::new(to);
            let is_contradicted = WantedKnob::new(setting, &to).contradicted_by(&owned).is_some();
            assert_eq!(is_contradicted, contradicts, "{setting}: {owned:?}");
        }
    }

    #[test]
    fn masks_contradict_only_other_masks_of_the_same_queue() {
        let setting =
            Setting::QueueCpus { interface: "eth0".into(), direction: QueueDirection::Receive, queue: 1 };
        let to = SettingValue::new("00000003");
        let wanted = WantedKnob::new(&setting, &to);
        let line =
            |queue: &str, mask: &str| format!("echo {mask} > /sys/class/net/eth0/queues/{queue}/rps_cpus");
        for (queue, mask, contradicts) in [
            ("rx-1", "3", false),
            ("rx-1", "2", true),
            ("rx-0", "2", false),
            ("rx-$i", "2", true),
            ("*", "03", false),
            ("*", "$mask", true),
        ] {
            let set = command::settings(&line(queue, mask)).remove(0);
            assert_eq!(wanted.contradicted_by(&set).is_some(), contradicts, "{queue} {mask}");
        }
    }

    #[test]
    fn bounds_contradict_only_values_outside() {
        assert!(!contradicts(Some("4096"), Some(">2048")));
        assert!(contradicts(Some("1024"), Some(">2048")));
        assert!(!contradicts(Some("5"), Some("<10")));
        assert!(contradicts(Some("a"), Some("<10")));
        assert!(!contradicts(Some("4096\t87380  6291456"), Some("4096 87380 6291456")));
        assert!(contradicts(None, Some("1")) && contradicts(Some("1"), None));
    }
}
