//! Files of sysctls, which are applied at boot and when an interface appears (sysctl.d(5)).

use linerate_host::setting::sysctl_path;

use super::knob::{ConfigurationLine, OwnedKnob};
use super::owner::{FoundOwners, SettingOwner, WantedKnob};
use super::reader::{ConfigurationReader, matches};
use crate::claim::{ClaimExclusion, EnforcementMode, SettingClaim};
use crate::persist::{InitSystem, SYSCTL_FILE};

const DIRECTORIES: [&str; 5] =
    ["/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d", "/lib/sysctl.d"];

// sysctl(8) reads this file last with --system. systemd reads it only through a link in one of the directories above.
const LAST: &str = "/etc/sysctl.conf";

/// All lines, in the order in which they are applied.
struct SysctlFiles(Vec<ConfigurationLine>);

pub(super) fn observe(reader: &ConfigurationReader<'_>) -> FoundOwners {
    let mut paths = reader.layered(&DIRECTORIES, ".conf");
    if InitSystem::of(reader.host) == InitSystem::Other {
        paths.push(LAST.to_owned());
    }
    let lines_of =
        |path: String| reader.read(&path).map(|text| assignments(&text, &path)).unwrap_or_default();
    // `tune persist` replaces its own file the next time.
    let lines = paths.into_iter().filter(|path| path != SYSCTL_FILE).flat_map(lines_of).collect();
    vec![Box::new(SysctlFiles(lines))]
}

/// The lines of a file that set a sysctl, or exclude a name from patterns.
pub(super) fn assignments(text: &str, path: &str) -> Vec<ConfigurationLine> {
    let line = |(number, line): (usize, &str)| {
        let line = line.trim();
        if line.starts_with(['#', ';']) || line.is_empty() {
            return None;
        }
        let (name, to) = match line.split_once('=') {
            Some((name, to)) => (name.trim(), Some(to.trim().to_owned())),
            // A name without a value is valid only after `-`.
            None => (line.strip_prefix('-').map(|_| line)?, None),
        };
        let name = sysctl_path(name.trim_start_matches('-').trim());
        let set = OwnedKnob::Sysctl(name).set_to(to);
        Some(ConfigurationLine { at: format!("{path}:{number}"), text: line.to_owned(), set })
    };
    (1..).zip(text.lines()).filter_map(line).collect()
}

impl SysctlFiles {
    // The effective line: the last with the exact name, else the last pattern that matches.
    fn effective_line(&self, path: &str) -> Option<&ConfigurationLine> {
        let last_match = |is_match: &dyn Fn(&str) -> bool| {
            let is_of = |knob: &OwnedKnob| matches!(knob, OwnedKnob::Sysctl(name) if is_match(name));
            self.0.iter().rfind(|line| is_of(&line.set.knob))
        };
        last_match(&|name| name == path)
            .or_else(|| last_match(&|pattern| matches(pattern, path)))
            .filter(|line| line.set.to.is_some())
    }
}

impl SettingOwner for SysctlFiles {
    fn claim(&self, knob: &WantedKnob<'_>) -> Option<SettingClaim> {
        let path = knob.sets.iter().find_map(|set| match &set.knob {
            OwnedKnob::Sysctl(path) => Some(path),
            _ => None,
        })?;
        let line = self.effective_line(path)?;
        knob.contradicted_by(&line.set)?;
        let (enforcement, when) = if is_of_interface(path) {
            (EnforcementMode::OnLink, "at boot and when the interface appears")
        } else {
            (EnforcementMode::AtBoot, "at boot")
        };
        let is_later = is_in_later_file(&line.at);
        let exclusion = match (is_later, enforcement) {
            (true, _) => ClaimExclusion::ByHand {
                commands: vec![format!("# {}: make it '{} = {}'", line.at, knob.setting, knob.to)],
            },
            (false, EnforcementMode::OnLink) => ClaimExclusion::ByHand {
                commands: vec![
                    "linerate tune persist  # writes a later file, which decides from then on".to_owned(),
                ],
            },
            (false, _) => ClaimExclusion::NotNeeded,
        };
        let precedence =
            if is_later { ", also over a tune that persists, since its name is later" } else { "" };
        Some(SettingClaim {
            owner: "sysctl.d".to_owned(),
            what: format!("sets '{}' {when}{precedence}", line.text),
            read_from: line.at.clone(),
            enforcement,
            exclusion,
        })
    }
}

/// Whether a line, `path:line`, is in a file that is read after that of `tune persist`.
pub(crate) fn is_in_later_file(location: &str) -> bool {
    let name = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let file = location.rsplit_once(':').map_or(location, |(file, _)| file);
    name(file) > name(SYSCTL_FILE)
}

// Whether systemd's 99-systemd.rules applies a sysctl again for each interface that appears.
fn is_of_interface(path: &str) -> bool {
    let mut parts = path.split('/');
    let names = (parts.next(), parts.next(), parts.next(), parts.next());
    matches!(names, (Some("net"), Some("ipv4" | "ipv6"), Some("conf" | "neigh"), Some(name))
        if !matches!(name, "all" | "default" | "lo"))
}

#[cfg(test)]
mod tests {
    use linerate_host::Setting;

    use super::super::tests::commands;
    use super::*;

    /// Red Hat's systemd ships this file; comments removed.
    const DEFAULTS: &str = "kernel.sysrq = 16\nnet.ipv4.conf.default.rp_filter = 2\nnet.ipv4.conf.*.rp_filter = 2\n\
        -net.ipv4.conf.all.rp_filter\n\n-net.core.default_qdisc = fq_codel\n";

    fn claims(files: &[(&str, &str)], name: &str, to: &str) -> Vec<SettingClaim> {
        super::super::tests::claims(files, &Setting::sysctl(name), to)
    }

    #[test]
    fn sysctl_patterns_claim_every_interface_when_it_appears() {
        let found =
            claims(&[("/usr/lib/sysctl.d/50-default.conf", DEFAULTS)], "net.ipv4.conf.eth0.rp_filter", "0");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].read_from, "/usr/lib/sysctl.d/50-default.conf:3");
        assert_eq!(found[0].enforcement, EnforcementMode::OnLink);
        assert_eq!(
            found[0].what,
            "sets 'net.ipv4.conf.*.rp_filter = 2' at boot and when the interface appears"
        );
    }

    #[test]
    fn excluded_sysctl_names_are_not_claimed() {
        let files = [("/usr/lib/sysctl.d/50-default.conf", DEFAULTS)];
        assert_eq!(claims(&files, "net.ipv4.conf.all.rp_filter", "0"), []);
        assert_eq!(claims(&files, "net.core.default_qdisc", "fq_codel"), []);
        assert_eq!(claims(&files, "net.core.default_qdisc", "fq")[0].enforcement, EnforcementMode::AtBoot);
    }

    #[test]
    fn last_sysctl_file_decides_and_hidden_files_are_ignored() {
        let files = [
            ("/etc/sysctl.d/10-a.conf", "net.core.rmem_max = 1\n"),
            ("/etc/sysctl.d/20-b.conf", "net.core.rmem_max=2\n"),
            ("/usr/lib/sysctl.d/20-b.conf", "net.core.rmem_max=3\nnet.core.wmem_max=3\n"),
            (SYSCTL_FILE, "net.core.rmem_max=9\n"),
        ];
        let found = claims(&files, "net.core.rmem_max", "5");
        assert_eq!((found.len(), found[0].read_from.as_str()), (1, "/etc/sysctl.d/20-b.conf:1"));
        assert_eq!(found[0].exclusion, ClaimExclusion::NotNeeded);
        assert_eq!(claims(&files, "net.core.wmem_max", "5"), []);
        let last = [("/etc/sysctl.d/10-a.conf", "net.core.rmem_max = 1\n"), (LAST, "net/core/rmem_max=7\n")];
        let found = claims(&last, "net.core.rmem_max", "5");
        assert_eq!(commands(&found[0]), ["# /etc/sysctl.conf:1: make it 'net.core.rmem_max = 5'"]);
        let with_systemd = [last[0], last[1], ("/run/systemd/system/a.service", "")];
        let found = claims(&with_systemd, "net.core.rmem_max", "5");
        assert_eq!(found[0].read_from, "/etc/sysctl.d/10-a.conf:1");
    }
}
