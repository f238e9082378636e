//! TuneD: its scheduler plugin moves interrupts off isolated CPUs, and its irq plugins set
//! affinities.

use super::IrqOwner;
use crate::{Host, ini};

const ACTIVE: &str = "/etc/tuned/active_profile";

/// Limit for profiles that include each other.
const DEEPEST_INCLUDE: usize = 8;

/// `None` if the active profile does not set affinities.
pub(super) fn observe(host: &Host, pid: u32) -> Option<IrqOwner> {
    let active = host.read(ACTIVE).ok()?;
    let mut found = Vec::new();
    let mut pending: Vec<(String, usize)> =
        active.split_whitespace().map(|name| (name.to_owned(), 0)).collect();
    while let Some((name, depth)) = pending.pop() {
        let Some(text) = profile(host, &name) else { continue };
        let (settings, includes) = settings(&text);
        found.extend(settings.into_iter().map(|setting| format!("{setting} (profile {name})")));
        if depth < DEEPEST_INCLUDE && found.len() < 100 {
            pending.extend(includes.into_iter().map(|name| (name, depth + 1)));
        }
    }
    (!found.is_empty()).then(|| IrqOwner {
        name: "tuned".to_owned(),
        how: found.join("; "),
        pid: Some(pid),
        read_from: ACTIVE.to_owned(),
        leaves_alone: Vec::new(),
        environment: None,
    })
}

fn profile(host: &Host, name: &str) -> Option<String> {
    // A name must not lead out of the directory.
    if name.contains('/') || name.starts_with('.') {
        return None;
    }
    ["/etc/tuned/profiles", "/etc/tuned", "/usr/lib/tuned/profiles", "/usr/lib/tuned"]
        .iter()
        .find_map(|directory| host.read(&format!("{directory}/{name}/tuned.conf")).ok())
}

/// The settings of a profile that move interrupts, and the profiles it includes.
pub(crate) fn settings(text: &str) -> (Vec<String>, Vec<String>) {
    let mut found = Vec::new();
    let mut includes = Vec::new();
    for ini::IniEntry { section, key, value, .. } in ini::entries(text) {
        match (section, key) {
            ("main", "include") => {
                includes.extend(value.split([',', ' ']).filter(|name| !name.is_empty()).map(str::to_owned));
            }
            ("scheduler", "isolated_cores" | "default_irq_smp_affinity") | ("irqbalance", "banned_cpus") => {
                found.push(format!("{key}={value}"));
            }
            (section, "affinity" | "mode") if section.starts_with("irq") => {
                found.push(format!("{key}={value}"));
            }
            _ => {}
        }
    }
    (found, includes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
    fn a_profile_that_isolates_cores_moves_interrupts_also_by_what_it_includes() {
        let owner = observe(&host("[main]\nsummary=ours\ninclude=realtime\n"), 9).expect("an owner");
        assert!(
            owner.how.starts_with("isolated_cores=${isolated_cores} (profile realtime)"),
            "{}",
            owner.how
        );
        assert_eq!((owner.pid, owner.read_from.as_str()), (Some(9), ACTIVE));
    }

    #[test]
    fn a_profile_that_leaves_interrupts_alone_owns_none() {
        assert_eq!(
            observe(&host("[main]\ninclude=network-latency,../../x\n[cpu]\ngovernor=performance\n"), 9),
            None
        );
        assert_eq!(observe(&Host::scripted::<String, String>([]), 9), None);
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in "(\\[?[a-z_=# ]{0,20}\\]?\n){0,6}") {
            let _ = settings(&text);
        }
    }
}
