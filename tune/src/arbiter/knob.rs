//! What can be set, in words that settings and all who set them share.

use linerate_host::{Setting, SettingValue};

use super::command;
use super::scene::matches;

/// Something that can be set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum OwnedKnob {
    /// Its path below `/proc/sys`; a pattern in some files.
    Sysctl(String),
    /// What ethtool sets, by its word for it: `rx` of rings, `gro` of features.
    Link(EthtoolKind, String),
    /// A file of each queue or interface, by its name, such as `rps_cpus`.
    File(String),
    /// Where an interrupt goes.
    Interrupt,
    /// The governor of a CPU.
    Governor,
    /// The auditing of system calls.
    Audit,
    Filter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EthtoolKind {
    Ring,
    Channel,
    Feature,
    Coalesce,
    /// The indirection table, hash fields and rules for flows.
    Flow,
}

/// A knob, whose it is, and what it is set to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OwnedSetting {
    pub(super) knob: OwnedKnob,
    /// A pattern of interfaces; none for all, or for what belongs to none.
    pub(super) interface: Option<String>,
    /// None where it cannot be told.
    pub(super) to: Option<String>,
}

/// A line of somebody's configuration that sets something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ConfigurationLine {
    pub(super) at: String,
    /// As it is written there.
    pub(super) text: String,
    pub(super) set: OwnedSetting,
}

/// What a change sets.
pub(super) struct WantedKnob<'a> {
    pub(super) setting: &'a Setting,
    pub(super) to: &'a SettingValue,
    pub(super) sets: Vec<OwnedSetting>,
}

impl<'a> WantedKnob<'a> {
    pub(super) fn new(setting: &'a Setting, to: &'a SettingValue) -> Self {
        let single =
            |knob: OwnedKnob| vec![OwnedSetting { knob, interface: None, to: Some(to.as_str().to_owned()) }];
        let sets = match setting {
            Setting::Sysctl(name) => single(OwnedKnob::Sysctl(sysctl_path(name))),
            Setting::IrqAffinity { .. } => single(OwnedKnob::Interrupt),
            Setting::Governor { .. } => single(OwnedKnob::Governor),
            Setting::Audit => single(OwnedKnob::Audit),
            Setting::NftTable { .. }
            | Setting::NftRuleset
            | Setting::IptablesRule { .. }
            | Setting::IptablesTable { .. } => single(OwnedKnob::Filter),
            // Of a running process nobody's configuration speaks.
            Setting::Steering { .. } | Setting::Socket { .. } | Setting::ThreadCpus { .. } => Vec::new(),
            // What a person would type says it in the words that scripts use.
            other => other.command(to).map(|typed| command::sets(&typed)).unwrap_or_default(),
        };
        Self { setting, to, sets }
    }

    /// Whether it sets any knob that this predicate holds for.
    pub(super) fn turns(&self, is_it: impl Fn(&OwnedKnob) -> bool) -> bool {
        self.sets.iter().any(|set| is_it(&set.knob))
    }

    /// What it sets that such a line sets to something else.
    pub(super) fn contradicted_by(&self, other: &OwnedSetting) -> Option<&OwnedSetting> {
        self.sets.iter().find(|set| {
            let same_place = match (&other.interface, &set.interface) {
                (Some(pattern), Some(interface)) => matches(pattern, interface),
                _ => true,
            };
            same_place
                && set.knob.is_covered_by(&other.knob)
                && contradicts(set.to.as_deref(), other.to.as_deref())
        })
    }
}

impl OwnedKnob {
    fn is_covered_by(&self, other: &OwnedKnob) -> bool {
        match (self, other) {
            (OwnedKnob::Sysctl(path), OwnedKnob::Sysctl(pattern)) => matches(pattern, path),
            (OwnedKnob::Link(EthtoolKind::Flow, _), OwnedKnob::Link(EthtoolKind::Flow, _)) => true,
            _ => self == other,
        }
    }
}

/// What is not known may be another value.
fn contradicts(wanted: Option<&str>, other: Option<&str>) -> bool {
    let (Some(wanted), Some(other)) = (wanted, other) else { return true };
    let number = |text: &str| text.trim().parse::<i64>().ok();
    // TuneD: at least, and at most.
    if let Some(least) = other.strip_prefix('>') {
        return !matches!((number(wanted), number(least)), (Some(wanted), Some(least)) if wanted >= least);
    }
    if let Some(most) = other.strip_prefix('<') {
        return !matches!((number(wanted), number(most)), (Some(wanted), Some(most)) if wanted <= most);
    }
    !wanted.split_whitespace().eq(other.split_whitespace())
}

/// The path of a sysctl below `/proc/sys`: its first separator says which of `.` and `/` separates (sysctl.d(5)).
pub(super) fn sysctl_path(name: &str) -> String {
    if name.find(['.', '/']).and_then(|at| name.as_bytes().get(at)) == Some(&b'/') {
        return name.to_owned();
    }
    let swapped = |letter| match letter {
        '.' => '/',
        '/' => '.',
        other => other,
    };
    name.chars().map(swapped).collect()
}

/// A feature by the name that `ethtool -K` takes: the kernel, and `ethtool -k`, have others.
pub(super) fn feature(name: &str) -> &str {
    match name {
        "rx-gro" | "generic-receive-offload" => "gro",
        "tx-generic-segmentation" | "generic-segmentation-offload" => "gso",
        "tx-tcp-segmentation" | "tcp-segmentation-offload" => "tso",
        "rx-lro" | "large-receive-offload" => "lro",
        "rx-ntuple-filter" | "ntuple-filters" => "ntuple",
        "rx-hashing" | "receive-hashing" => "rxhash",
        "rx-checksum" | "rx-checksumming" => "rx",
        "tx-checksumming" => "tx",
        "tx-scatter-gather" | "scatter-gather" => "sg",
        "rx-vlan-hw-parse" | "rx-vlan-offload" => "rxvlan",
        "tx-vlan-hw-insert" | "tx-vlan-offload" => "txvlan",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_host::setting::Offload;

    fn set(knob: OwnedKnob, interface: Option<&str>, to: &str) -> OwnedSetting {
        OwnedSetting { knob, interface: interface.map(str::to_owned), to: Some(to.to_owned()) }
    }

    #[test]
    fn a_change_is_contradicted_by_another_value_only() {
        let setting = Setting::Rings { interface: "eth0".into() };
        let to = SettingValue::new("rx 4096 tx 512");
        let wanted = WantedKnob::new(&setting, &to);
        let ring = |name: &str| OwnedKnob::Link(EthtoolKind::Ring, name.into());
        assert!(wanted.contradicted_by(&set(ring("rx"), Some("eth*"), "1024")).is_some());
        assert!(wanted.contradicted_by(&set(ring("rx"), None, "4096")).is_none());
        assert!(wanted.contradicted_by(&set(ring("rx"), Some("eth1"), "1024")).is_none());
        assert!(wanted.contradicted_by(&set(ring("rx-mini"), None, "1024")).is_none());
    }

    #[test]
    fn features_are_known_by_all_their_names() {
        let setting = Setting::Offload { interface: "eth0".into(), offload: Offload::GenericReceive };
        let to = SettingValue::new("off");
        let wanted = WantedKnob::new(&setting, &to);
        let gro = |name: &str| OwnedKnob::Link(EthtoolKind::Feature, feature(name).into());
        assert!(wanted.contradicted_by(&set(gro("rx-gro"), None, "on")).is_some());
        assert!(wanted.contradicted_by(&set(gro("gro"), None, "off")).is_none());
    }

    #[test]
    fn sysctls_match_by_path_and_pattern() {
        let setting = Setting::sysctl("net.ipv4.conf.eth0/5.rp_filter");
        let to = SettingValue::new("0");
        let wanted = WantedKnob::new(&setting, &to);
        let sysctl = |name: &str| OwnedKnob::Sysctl(sysctl_path(name));
        assert!(wanted.contradicted_by(&set(sysctl("net/ipv4/conf/eth0.5/rp_filter"), None, "2")).is_some());
        assert!(wanted.contradicted_by(&set(sysctl("net.ipv4.conf.*.rp_filter"), None, "2")).is_some());
        assert!(wanted.contradicted_by(&set(sysctl("net.ipv4.conf.eth0.5.rp_filter"), None, "2")).is_none());
    }

    #[test]
    fn at_least_and_at_most_are_no_contradiction_where_they_hold() {
        assert!(!contradicts(Some("4096"), Some(">2048")));
        assert!(contradicts(Some("1024"), Some(">2048")));
        assert!(!contradicts(Some("5"), Some("<10")));
        assert!(contradicts(Some("a"), Some("<10")));
        assert!(!contradicts(Some("4096\t87380  6291456"), Some("4096 87380 6291456")));
        assert!(contradicts(None, Some("1")) && contradicts(Some("1"), None));
    }
}
