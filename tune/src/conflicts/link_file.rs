//! systemd's .link files, which udev applies when an interface appears (systemd.link(5)).

use linerate_host::ini::{self, FileEntry};
use linerate_host::stage::irq::{LinkFile, link_files};

use super::knob::{ConfigurationLine, EthtoolKind, OwnedKnob, OwnedSetting};
use super::owner::{ConfiguredSetting, FoundOwners};
use super::reader::{ConfigurationReader, ConfiguredInterface, matches};
use crate::claim::EnforcementMode;

// Keys of `[Link]` that ethtool has words for. Coalescing times are spans such as `50us`.
const KEYS: [(&str, EthtoolKind, &str); 27] = [
    ("RxBufferSize", EthtoolKind::Ring, "rx"),
    ("RxMiniBufferSize", EthtoolKind::Ring, "rx-mini"),
    ("RxJumboBufferSize", EthtoolKind::Ring, "rx-jumbo"),
    ("TxBufferSize", EthtoolKind::Ring, "tx"),
    ("RxChannels", EthtoolKind::Channel, "rx"),
    ("TxChannels", EthtoolKind::Channel, "tx"),
    ("OtherChannels", EthtoolKind::Channel, "other"),
    ("CombinedChannels", EthtoolKind::Channel, "combined"),
    ("GenericReceiveOffload", EthtoolKind::Feature, "gro"),
    ("GenericReceiveOffloadHardware", EthtoolKind::Feature, "rx-gro-hw"),
    ("LargeReceiveOffload", EthtoolKind::Feature, "lro"),
    ("GenericSegmentationOffload", EthtoolKind::Feature, "gso"),
    ("TCPSegmentationOffload", EthtoolKind::Feature, "tso"),
    ("ReceiveChecksumOffload", EthtoolKind::Feature, "rx"),
    ("TransmitChecksumOffload", EthtoolKind::Feature, "tx"),
    ("NTupleFilter", EthtoolKind::Feature, "ntuple"),
    ("RxCoalesceSec", EthtoolKind::Coalesce, "rx-usecs"),
    ("RxCoalesceIrqSec", EthtoolKind::Coalesce, "rx-usecs-irq"),
    ("RxMaxCoalescedFrames", EthtoolKind::Coalesce, "rx-frames"),
    ("RxMaxCoalescedIrqFrames", EthtoolKind::Coalesce, "rx-frames-irq"),
    ("TxCoalesceSec", EthtoolKind::Coalesce, "tx-usecs"),
    ("TxCoalesceIrqSec", EthtoolKind::Coalesce, "tx-usecs-irq"),
    ("TxMaxCoalescedFrames", EthtoolKind::Coalesce, "tx-frames"),
    ("TxMaxCoalescedIrqFrames", EthtoolKind::Coalesce, "tx-frames-irq"),
    ("StatisticsBlockCoalesceSec", EthtoolKind::Coalesce, "stats-block-usecs"),
    ("UseAdaptiveRxCoalesce", EthtoolKind::Coalesce, "adaptive-rx"),
    ("UseAdaptiveTxCoalesce", EthtoolKind::Coalesce, "adaptive-tx"),
];

pub(super) fn observe(reader: &ConfigurationReader<'_>) -> FoundOwners {
    let files = link_files(&|path| reader.list(path), &|path| reader.read(path));
    let mut owners = FoundOwners::new();
    for interface in reader.interfaces() {
        // Only the first file that matches counts.
        let Some(file) = files.iter().find(|file| is_for(file, interface)) else { continue };
        for line in file.entries.iter().filter_map(line) {
            owners.push(Box::new(owner(line, &interface.name)));
        }
    }
    owners
}

fn owner(line: ConfigurationLine, interface: &str) -> ConfiguredSetting {
    ConfiguredSetting {
        owner: "systemd .link",
        what: format!("sets '{}' when the interface appears", line.text),
        read_from: line.at.clone(),
        enforcement: EnforcementMode::OnLink,
        sets: vec![OwnedSetting { interface: Some(interface.to_owned()), ..line.set.clone() }],
        commands: Box::new(move |_, set| vec![drop_in_command(&line, set)]),
    }
}

fn is_for(file: &LinkFile, interface: &ConfiguredInterface) -> bool {
    if let Some(applied) = &interface.link_file {
        // /lib may be a link to /usr/lib.
        return applied.trim_start_matches("/usr") == file.path.trim_start_matches("/usr");
    }
    let is_met = |FileEntry { key, value: patterns, .. }: &FileEntry| {
        let is_match = |value: &str| {
            let (inverted, patterns) = match patterns.strip_prefix('!') {
                Some(negated) => (true, negated),
                None => (false, patterns.as_str()),
            };
            patterns.split_whitespace().any(|pattern| matches(pattern, value)) != inverted
        };
        match key.as_str() {
            "MACAddress" | "PermanentMACAddress" => {
                let addresses = patterns.to_ascii_lowercase().replace('-', ":");
                addresses.split_whitespace().any(|address| address == interface.address)
            }
            // The name that the driver gave is unknown.
            "OriginalName" => is_match(&interface.name),
            "Driver" => is_match(interface.driver.as_deref().unwrap_or_default()),
            "Path" => is_match(interface.path.as_deref().unwrap_or_default()),
            // A condition on the host: a claim too many is better than one too few.
            _ => true,
        }
    };
    // systemd 252 ignores a file without conditions, such as a link to /dev/null.
    let mut conditions = file.entries.iter().filter(|entry| entry.section == "Match").peekable();
    conditions.peek().is_some() && conditions.all(is_met)
}

// The line of an entry that sets a known knob.
pub(super) fn line(entry: &FileEntry) -> Option<ConfigurationLine> {
    if entry.section != "Link" || entry.value.is_empty() {
        return None;
    }
    let (knob, to) = match entry.key.as_str() {
        "ReceivePacketSteeringCPUMask" => (OwnedKnob::of_queues("rps_cpus"), None),
        "SR-IOVVirtualFunctions" => (OwnedKnob::File("sriov_numvfs".to_owned()), Some(entry.value.clone())),
        key if key.starts_with("IRQAffinity") => (OwnedKnob::Interrupt, None),
        key => {
            let (_, kind, name) = KEYS.iter().find(|(known, _, _)| *known == key)?;
            let to = if kind.is_switch(name) {
                ini::switch(&entry.value).map(str::to_owned)
            } else if key.ends_with("Sec") {
                microseconds(&entry.value).map(|span| span.to_string())
            } else {
                Some(entry.value.clone())
            };
            (OwnedKnob::Link(*kind, (*name).to_owned()), to)
        }
    };
    let text = format!("{}={}", entry.key, entry.value);
    Some(ConfigurationLine { at: entry.location(), text, set: knob.set_to(to) })
}

// A span with one unit (systemd.time(7)); without a unit, seconds.
fn microseconds(span: &str) -> Option<u64> {
    let end = span.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(span.len());
    let (number, unit) = span.split_at_checked(end)?;
    let scale = match unit.trim() {
        "us" | "usec" | "µs" => 1,
        "ms" | "msec" => 1000,
        "" | "s" | "sec" => 1_000_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(scale)
}

// The command that adds a drop-in to the effective file. A new .link file would replace that whole
// file.
fn drop_in_command(line: &ConfigurationLine, set: &OwnedSetting) -> String {
    let file = line.at.rsplit_once(':').map_or(line.at.as_str(), |(file, _)| file);
    let key = line.text.split('=').next().unwrap_or_default();
    let Some(to) = &set.to else { return format!("# {}: remove '{}'", line.at, line.text) };
    let to = if key.ends_with("Sec") { format!("{to}us") } else { to.clone() };
    let name = file.split('/').find(|part| part.ends_with(".link") || part.ends_with(".link.d"));
    let directory = format!("/etc/systemd/network/{}.d", name.unwrap_or(file).trim_end_matches(".d"));
    format!("mkdir -p {directory} && printf '[Link]\\n{key}={to}\\n' > {directory}/90-linerate-{key}.conf")
}

#[cfg(test)]
mod tests {
    use super::super::tests::{claims, commands, gro, rings};
    use super::*;

    const NIC: [(&str, &str); 3] = [
        ("/sys/class/net/eth0/ifindex", "2\n"),
        ("/sys/class/net/eth0/address", "02:00:00:00:00:01\n"),
        (
            "/usr/lib/systemd/network/99-default.link",
            "[Match]\nOriginalName=*\n\n[Link]\nNamePolicy=keep kernel\n",
        ),
    ];

    #[test]
    fn only_the_first_matching_link_file_applies() {
        let second =
            ("/etc/systemd/network/20-all.link", "[Match]\nOriginalName=*\n[Link]\nTxBufferSize=64\n");
        let found = |first: &str, to: &str| {
            let files = [&NIC[..], &[("/etc/systemd/network/10-nic.link", first), second]].concat();
            claims(&files, &rings("eth0"), to)
        };
        let by_address =
            found("[Match]\nMACAddress=02-00-00-00-00-01\n[Link]\nRxBufferSize=1024\n", "rx 4096 tx 512");
        assert_eq!(by_address.len(), 1);
        assert_eq!(by_address[0].read_from, "/etc/systemd/network/10-nic.link:4");
        assert_eq!(
            commands(&by_address[0]),
            ["mkdir -p /etc/systemd/network/10-nic.link.d && printf '[Link]\\nRxBufferSize=4096\\n' > \
              /etc/systemd/network/10-nic.link.d/90-linerate-RxBufferSize.conf"]
        );
        assert_eq!(found("[Match]\nDriver=ice i40e\n[Link]\nRxBufferSize=1024\n", "rx 4096"), []);
        // As if it were a link to /dev/null.
        assert_eq!(found("", "rx 4096 tx 512").len(), 1);
    }

    #[test]
    fn link_file_recorded_by_udev_and_its_drop_ins_apply() {
        let files = [
            &NIC[..],
            &[
                (
                    "/run/udev/data/n2",
                    "E:ID_PATH=pci-0000:01:00.0\nE:ID_NET_LINK_FILE=/usr/lib/systemd/network/99-default.link\n",
                ),
                ("/etc/systemd/network/10-nic.link", "[Match]\nOriginalName=*\n[Link]\nRxBufferSize=1024\n"),
                (
                    "/etc/systemd/network/99-default.link.d/a.conf",
                    "[Link]\nGenericReceiveOffload=yes\nRxCoalesceSec=50us\n",
                ),
            ],
        ]
        .concat();
        assert_eq!(claims(&files, &rings("eth0"), "rx 4096"), []);
        assert_eq!(claims(&files, &gro("eth0"), "off")[0].enforcement, EnforcementMode::OnLink);
        assert_eq!(claims(&files, &gro("eth0"), "on"), []);
    }

    #[test]
    fn time_spans_parse_to_microseconds() {
        assert_eq!(microseconds("50us"), Some(50));
        assert_eq!(microseconds("2 ms"), Some(2000));
        assert_eq!(microseconds("1"), Some(1_000_000));
        assert_eq!(microseconds("1min 2s"), None);
        assert_eq!(microseconds("99999999999999999999"), None);
    }
}
