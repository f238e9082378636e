//! TuneD's active profile: its scheduler plugin moves interrupts off isolated CPUs, and its irq
//! plugins set affinities.
//!
//! TuneD 2.20 to 2.28 (`profiles/loader.py`, `profiles/merger.py`) load each file once, and an
//! included profile before the profile that includes it. The later value of an option counts.

use std::collections::BTreeSet;

use super::IrqOwner;
use crate::Host;
use crate::ini::{FileEntry, file_entries};

const ACTIVE: [&str; 2] = ["/etc/tuned/active_profile", "/etc/tuned/post_loaded_profile"];

/// In order of precedence. TuneD before 2.23 uses the second and the fourth directory.
const DIRECTORIES: [&str; 4] =
    ["/etc/tuned/profiles", "/etc/tuned", "/usr/lib/tuned/profiles", "/usr/lib/tuned"];

/// Limit for profiles that include each other.
const MOST_PROFILES: usize = 64;

/// The active profiles and those that they include, merged.
#[derive(Debug, Default)]
pub struct TunedProfile {
    pub names: Vec<String>,
    options: Vec<FileEntry>,
    loaded_paths: BTreeSet<String>,
}

/// An option of an enabled unit. It may contain variables.
#[derive(Debug)]
pub struct TunedSetting<'a> {
    pub plugin: &'a str,
    pub devices: &'a str,
    pub option: &'a FileEntry,
}

impl TunedProfile {
    /// `read` returns the text of a file, if there is one.
    pub fn active(read: &dyn Fn(&str) -> Option<String>) -> Self {
        let texts: Vec<String> = ACTIVE.into_iter().filter_map(read).collect();
        let names: Vec<_> = texts.iter().flat_map(|text| text.split_whitespace()).collect();
        let mut profile = Self::default();
        profile.load(&names, read);
        Self { names: names.into_iter().map(str::to_owned).collect(), ..profile }
    }

    fn load(&mut self, names: &[&str], read: &dyn Fn(&str) -> Option<String>) {
        for name in names {
            // TuneD ignores a missing profile after a hyphen.
            let name = name.strip_prefix('-').unwrap_or(name);
            // Such a name would lead out of the directories.
            if name.contains('/') || name.starts_with('.') || self.loaded_paths.len() >= MOST_PROFILES {
                continue;
            }
            let mut paths = DIRECTORIES.map(|directory| format!("{directory}/{name}/tuned.conf")).to_vec();
            paths.retain(|path| !self.loaded_paths.contains(path));
            let read_file = |path: String| read(&path).map(|text| (path, text));
            let Some((path, text)) = paths.into_iter().find_map(read_file) else { continue };
            let mut options = Vec::new();
            let lines: Vec<String> = text.lines().map(without_comment).collect();
            for mut option in file_entries(&lines.join("\n"), &path) {
                option.value = option.value.trim_matches('"').to_owned();
                option.replace_in(&mut options);
            }
            self.loaded_paths.insert(path);
            if let Some(included) = value(&options, "main", "include") {
                self.load(&included.split([',', ';']).map(str::trim).collect::<Vec<_>>(), read);
            }
            self.merge(options);
        }
    }

    fn merge(&mut self, options: Vec<FileEntry>) {
        self.options.retain(|FileEntry { section, key, .. }| {
            let is_in_unit = options.iter().any(|option| option.section == *section);
            let is_replaced = value(&options, section, "replace").is_some_and(is_true);
            let drop = value(&options, section, "drop").unwrap_or_default();
            let is_dropped = drop.split([',', ';']).any(|name| name.trim() == key);
            // A later unit without these options has their defaults.
            let is_reset = matches!(key.as_str(), "type" | "enabled" | "devices");
            !is_in_unit || !is_replaced && !is_dropped && !is_reset
        });
        for option in options {
            option.replace_in(&mut self.options);
        }
    }

    pub fn settings(&self) -> impl Iterator<Item = TunedSetting<'_>> {
        self.options.iter().filter_map(|option| {
            let of_unit = |key| value(&self.options, &option.section, key);
            of_unit("enabled").is_none_or(is_true).then(|| TunedSetting {
                plugin: of_unit("type").unwrap_or(&option.section),
                devices: of_unit("devices").unwrap_or("*"),
                option,
            })
        })
    }
}

fn value<'a>(options: &'a [FileEntry], section: &str, key: &str) -> Option<&'a str> {
    let option = options.iter().find(|option| option.section == section && option.key == key);
    option.map(|option| option.value.as_str())
}

fn is_true(value: &str) -> bool {
    matches!(value, "True" | "true" | "1")
}

/// A comment starts with a number sign at the start of a line or after white space.
fn without_comment(line: &str) -> String {
    line.split_inclusive(char::is_whitespace).take_while(|word| !word.starts_with('#')).collect()
}

/// `None` if the active profile does not set affinities.
pub(super) fn observe(host: &Host, pid: u32) -> Option<IrqOwner> {
    let profile = TunedProfile::active(&|path| host.read(path).ok());
    let affinity_setting = |TunedSetting { plugin, option, .. }: TunedSetting<'_>| {
        let FileEntry { path, key, value, .. } = option;
        let sets_affinity = matches!(
            (plugin, key.as_str()),
            ("scheduler", "isolated_cores" | "default_irq_smp_affinity")
                | ("irqbalance", "banned_cpus")
                | ("irq", "affinity" | "mode")
        );
        let name = path.rsplit('/').nth(1).unwrap_or_default();
        sets_affinity.then(|| format!("{key}={value} (profile {name})"))
    };
    let affinity_settings: Vec<String> = profile.settings().filter_map(affinity_setting).collect();
    (!affinity_settings.is_empty()).then(|| IrqOwner {
        name: "tuned".to_owned(),
        how: affinity_settings.join("; "),
        pid: Some(pid),
        read_from: ACTIVE[0].to_owned(),
        leaves_alone: Vec::new(),
        environment: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(profile: &'static str) -> Host {
        Host::scripted([
            ("/etc/tuned/active_profile", "edge\n"),
            ("/etc/tuned/edge/tuned.conf", profile),
            (
                "/usr/lib/tuned/realtime/tuned.conf",
                "[main]\ninclude=network-latency\n[scheduler]\nisolated_cores=${isolated_cores}\n",
            ),
            (
                "/usr/lib/tuned/network-latency/tuned.conf",
                "[main]\ninclude=edge\n[sysctl]\nnet.core.busy_read=50\n",
            ),
        ])
    }

    #[test]
    fn profiles_that_include_isolated_cores_make_tuned_an_irq_owner() {
        let owner = observe(&host("[main]\nsummary=ours\ninclude=realtime\n"), 9).expect("an owner");
        assert!(
            owner.how.starts_with("isolated_cores=${isolated_cores} (profile realtime)"),
            "{}",
            owner.how
        );
        assert_eq!((owner.pid, owner.read_from.as_str()), (Some(9), ACTIVE[0]));
    }

    #[test]
    fn profiles_without_isolated_cores_do_not_make_tuned_an_irq_owner() {
        assert_eq!(
            observe(&host("[main]\ninclude=network-latency,../../x\n[cpu]\ngovernor=performance\n"), 9),
            None
        );
        assert_eq!(observe(&Host::scripted::<String, String>([]), 9), None);
    }

    #[test]
    fn irq_owner_has_only_settings_that_tuned_merges_into_the_active_profile() {
        let files = [
            ("/etc/tuned/active_profile", "edge\n"),
            ("/etc/tuned/edge/tuned.conf", "[main]\ninclude=a ; b # a diamond\n[irq]\naffinity=1 # ours\n"),
            ("/etc/tuned/a/tuned.conf", "[main]\ninclude=c\ninclude=-base,-gone\n[irq]\naffinity=2\n"),
            ("/etc/tuned/b/tuned.conf", "[main]\ninclude=base\n[scheduler]\ndrop=isolated_cores\n"),
            ("/etc/tuned/c/tuned.conf", "[irqbalance]\nbanned_cpus=7\n"),
            (
                "/etc/tuned/base/tuned.conf",
                "[scheduler] # base\nisolated_cores=4-7\ndefault_irq_smp_affinity=#3\n[cores]\ntype=irq\nenabled=0\naffinity=5\n",
            ),
        ];
        let owner = observe(&Host::scripted(files), 9).expect("an owner");
        assert_eq!(owner.how, "default_irq_smp_affinity=#3 (profile base); affinity=1 (profile edge)");
    }
}
