//! Settings that a shell line changes by ethtool, sysctl, or writes to files of queues, interrupts
//! and CPUs.

use linerate_host::setting::sysctl_path;

use super::knob::{EthtoolKind, OwnedKnob, OwnedSetting};

const QUEUE_FILES: [&str; 4] = ["rps_cpus", "xps_cpus", "rps_flow_cnt", "xps_rxqs"];
const INTERFACE_FILES: [&str; 4] = ["sriov_numvfs", "gro_flush_timeout", "napi_defer_hard_irqs", "threaded"];

pub(super) fn settings(line: &str) -> Vec<OwnedSetting> {
    let words: Vec<&str> = line
        .split(|letter: char| letter.is_whitespace() || "\"';|&()".contains(letter))
        .filter(|word| !word.is_empty())
        .collect();
    let mut settings = Vec::new();
    for (index, word) in words.iter().enumerate() {
        let arguments = words.get(index + 1..).unwrap_or_default();
        match word.rsplit('/').next() {
            Some("ethtool") => settings.extend(ethtool(arguments)),
            Some("sysctl") => settings.extend(arguments.iter().filter_map(|word| sysctl(word))),
            _ => settings.extend(file(word, words.get(..index).unwrap_or_default())),
        }
    }
    settings
}

/// `-G eth0 rx 4096 tx 512`
fn ethtool(words: &[&str]) -> Vec<OwnedSetting> {
    let (Some(option), Some(interface)) = (words.first(), words.get(1)) else { return Vec::new() };
    let kind = match *option {
        "-G" | "--set-ring" => EthtoolKind::Ring,
        "-L" | "--set-channels" => EthtoolKind::Channel,
        "-K" | "--offload" | "--features" => EthtoolKind::Feature,
        "-C" | "--coalesce" => EthtoolKind::Coalesce,
        "-N" | "-U" | "--config-nfc" | "--config-ntuple" | "-X" | "--set-rxfh-indir" | "--rxfh" => {
            EthtoolKind::Flow
        }
        _ => return Vec::new(),
    };
    // A variable may stand for any interface.
    let interface = (!interface.contains(['$', '%'])).then(|| (*interface).to_owned());
    let setting = |name: &str, to: Option<&str>| OwnedSetting {
        knob: kind.knob(name),
        interface: interface.clone(),
        to: to.filter(|to| !to.contains('$')).map(str::to_owned),
    };
    let values = words.get(2..).unwrap_or_default();
    if kind == EthtoolKind::Flow {
        return vec![setting("", Some(&values.join(" ")))];
    }
    values.chunks_exact(2).map(|pair| setting(pair.first().unwrap_or(&""), pair.get(1).copied())).collect()
}

fn sysctl(word: &str) -> Option<OwnedSetting> {
    let (name, to) = word.split_once('=')?;
    let to = (!to.contains('$')).then(|| to.to_owned());
    Some(OwnedKnob::Sysctl(sysctl_path(name)).set_to(to))
}

/// The queue in a path, such as `rx-0`; `None` for a variable or pattern, which may be any queue.
fn queue(path: &str) -> Option<&str> {
    let (_, below) = path.rsplit_once("queues/")?;
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    below.split('/').next().filter(|queue| queue.chars().all(is_plain))
}

/// A path, and the value that the words before it write: `echo 3 > PATH`.
fn file(path: &str, before: &[&str]) -> Option<OwnedSetting> {
    // udev assigns attributes like this: ATTR{queues/rx-0/rps_cpus}="f".
    let path = path.split(['}', '=']).next().unwrap_or(path);
    let path = path.rsplit(['>', '{']).next().unwrap_or(path);
    let name = path.rsplit('/').next().filter(|_| path.contains('/'))?;
    let knob = match name {
        "smp_affinity" | "smp_affinity_list" => OwnedKnob::Interrupt,
        "scaling_governor" => OwnedKnob::Governor,
        name if INTERFACE_FILES.contains(&name) => OwnedKnob::File(name.to_owned()),
        name if QUEUE_FILES.contains(&name) => match queue(path) {
            Some(queue) => OwnedKnob::File(format!("queues/{queue}/{name}")),
            None => OwnedKnob::of_queues(name),
        },
        _ => return None,
    };
    let interface = path.split_once("/sys/class/net/").and_then(|(_, below)| below.split('/').next());
    let interface = interface.filter(|name| !name.contains(['$', '%'])).map(str::to_owned);
    let echo = before.iter().rposition(|word| *word == "echo");
    let echo_arguments = echo.and_then(|at| before.get(at + 1..)).unwrap_or_default();
    let to = match echo_arguments {
        [to, ">"] if !to.contains('$') => Some((*to).to_owned()),
        _ => None,
    };
    Some(OwnedSetting { knob, interface, to })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings_of(line: &str) -> Vec<String> {
        let format_setting = |set: OwnedSetting| {
            let (interface, to) = (set.interface.unwrap_or_default(), set.to.unwrap_or_default());
            format!("{:?} {interface} {to}", set.knob)
        };
        settings(line).into_iter().map(format_setting).collect()
    }

    #[test]
    fn ethtool_commands_parse_to_settings() {
        assert_eq!(
            settings_of("/sbin/ethtool -G eth0 rx 4096 tx 512"),
            ["Link(Ring, \"rx\") eth0 4096", "Link(Ring, \"tx\") eth0 512"]
        );
        assert_eq!(
            settings_of("ACTION==\"add\", RUN+=\"/usr/sbin/ethtool -K $name generic-receive-offload off\""),
            ["Link(Feature, \"gro\")  off"]
        );
        assert_eq!(settings_of("ethtool -k eth0; ethtool eth0"), [""; 0]);
        assert_eq!(settings_of("ethtool -X eth0 equal 4"), ["Link(Flow, \"\") eth0 equal 4"]);
        assert_eq!(settings_of("ethtool --set-ring $IFACE rx $N"), ["Link(Ring, \"rx\")  "]);
    }

    #[test]
    fn writes_to_sysctls_and_sysfs_files_parse_to_settings() {
        assert_eq!(
            settings_of("echo f > /sys/class/net/eth0/queues/rx-0/rps_cpus"),
            ["File(\"queues/rx-0/rps_cpus\") eth0 f"]
        );
        assert_eq!(
            settings_of("SUBSYSTEM==\"net\", ATTR{queues/rx-0/rps_cpus}=\"ff\""),
            ["File(\"queues/rx-0/rps_cpus\")  "]
        );
        assert_eq!(
            settings_of("echo f > /sys/class/net/eth0/queues/rx-$i/rps_cpus"),
            ["File(\"queues/*/rps_cpus\") eth0 f"]
        );
        assert_eq!(settings_of("for i in /proc/irq/*/smp_affinity; do echo 1 >$i; done"), ["Interrupt  "]);
        assert_eq!(
            settings_of("echo performance > /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            ["Governor  performance"]
        );
        assert_eq!(settings_of("sysctl -qw net.core.rmem_max=1 x"), ["Sysctl(\"net/core/rmem_max\")  1"]);
        assert_eq!(settings_of("# multithreaded rps_cpus"), [""; 0]);
    }
}
