//! TuneD: its scheduler plugin moves interrupts off isolated CPUs, and its irq plugins set
//! affinities.

use super::IrqOwner;
use crate::{Host, ini};

const ACTIVE: &str = "/etc/tuned/active_profile";

/// Limit for profiles that include each other.
const DEEPEST_INCLUDE: usize = 8;

/// `None` if the active profile does not set affinities.
pub(super) fn observe(host: &Host, pid: u32) -> Option<IrqOwner> {
    let profiles = host.read(ACTIVE).ok()?;
    let mut affinity_settings = Vec::new();
    let mut pending: Vec<(String, usize)> =
        profiles.split_whitespace().map(|name| (name.to_owned(), 0)).collect();
    while let Some((name, depth)) = pending.pop() {
        let paths = profile_paths(&name);
        let Some(text) = paths.iter().find_map(|path| host.read(path).ok()) else { continue };
        let (settings, includes) = parse_profile(&text);
        affinity_settings.extend(settings.into_iter().map(|setting| format!("{setting} (profile {name})")));
        if depth < DEEPEST_INCLUDE && affinity_settings.len() < 100 {
            pending.extend(includes.into_iter().map(|name| (name, depth + 1)));
        }
    }
    (!affinity_settings.is_empty()).then(|| IrqOwner {
        name: "tuned".to_owned(),
        how: affinity_settings.join("; "),
        pid: Some(pid),
        read_from: ACTIVE.to_owned(),
        leaves_alone: Vec::new(),
        environment: None,
    })
}

/// Where the file of a TuneD profile may be, in order of precedence. TuneD before 2.23 uses the
/// second and the fourth directory. Empty for a name that would lead out of the directories.
pub fn profile_paths(name: &str) -> Vec<String> {
    if name.contains('/') || name.starts_with('.') {
        return Vec::new();
    }
    ["/etc/tuned/profiles", "/etc/tuned", "/usr/lib/tuned/profiles", "/usr/lib/tuned"]
        .map(|directory| format!("{directory}/{name}/tuned.conf"))
        .to_vec()
}

/// The settings of a profile that move interrupts, and the profiles it includes.
pub(crate) fn parse_profile(text: &str) -> (Vec<String>, Vec<String>) {
    let mut settings = Vec::new();
    let mut includes = Vec::new();
    for ini::IniEntry { section, key, value, .. } in ini::entries(text) {
        match (section, key) {
            ("main", "include") => {
                includes.extend(value.split([',', ' ']).filter(|name| !name.is_empty()).map(str::to_owned));
            }
            ("scheduler", "isolated_cores" | "default_irq_smp_affinity") | ("irqbalance", "banned_cpus") => {
                settings.push(format!("{key}={value}"));
            }
            (section, "affinity" | "mode") if section.starts_with("irq") => {
                settings.push(format!("{key}={value}"));
            }
            _ => {}
        }
    }
    (settings, includes)
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
        assert_eq!((owner.pid, owner.read_from.as_str()), (Some(9), ACTIVE));
    }

    #[test]
    fn profiles_without_isolated_cores_do_not_make_tuned_an_irq_owner() {
        assert_eq!(
            observe(&host("[main]\ninclude=network-latency,../../x\n[cpu]\ngovernor=performance\n"), 9),
            None
        );
        assert_eq!(observe(&Host::scripted::<String, String>([]), 9), None);
    }
}
