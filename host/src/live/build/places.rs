//! The sites of a finding: items that it would change, and items that its text and evidence name.

use std::collections::BTreeSet;

use crate::setting::{QueueDirection, Setting};
use crate::stage::irq::contains_word;
use crate::{Finding, PacketPath, StageName};

use crate::live::snapshot::{FindingSite, LiveFinding};

/// A finding with more queues and CPUs than this is shown at their interfaces.
const MOST: usize = 16;

pub(super) fn found(path: &PacketPath, finding: &Finding) -> LiveFinding {
    let mut places = BTreeSet::new();
    for change in &finding.changes {
        places.extend(of_setting(path, &change.setting));
    }
    let words = words(finding);
    of_words(path, finding.stage, &words, &mut places);
    let is_queue = |place: &&FindingSite| {
        matches!(place, FindingSite::Receive(..) | FindingSite::Transmit(..) | FindingSite::Cpu(_))
    };
    if places.iter().filter(is_queue).count() > MOST {
        let interfaces: Vec<FindingSite> = places
            .iter()
            .filter_map(|place| match place {
                FindingSite::Receive(interface, _) | FindingSite::Transmit(interface, _) => {
                    Some(FindingSite::Interface(interface.clone()))
                }
                _ => None,
            })
            .collect();
        places.retain(|place| !is_queue(&place));
        places.extend(interfaces);
    }
    LiveFinding {
        id: finding.id.to_owned(),
        stage: finding.stage,
        severity: finding.severity,
        title: finding.title.clone(),
        remedy: finding.remedy.to_owned(),
        places: places.into_iter().collect(),
    }
}

fn of_setting(path: &PacketPath, setting: &Setting) -> Option<FindingSite> {
    match setting {
        Setting::QueueCpus { interface, direction: QueueDirection::Receive, queue }
        | Setting::QueueFlows { interface, queue } => Some(FindingSite::Receive(interface.clone(), *queue)),
        Setting::QueueCpus { interface, direction: QueueDirection::Transmit, queue }
        | Setting::QueueReceivers { interface, queue } => {
            Some(FindingSite::Transmit(interface.clone(), *queue))
        }
        Setting::IrqAffinity { irq, .. } => path.irq.interfaces.iter().find_map(|item| {
            let vector = item.vectors.value()?.iter().find(|vector| vector.irq == *irq)?;
            Some(FindingSite::Receive(item.interface.clone(), vector.receive_queue?))
        }),
        other => other.interface().map(|interface| FindingSite::Interface(interface.into_owned())),
    }
}

fn words(finding: &Finding) -> Vec<String> {
    let evidence = finding.evidence.iter();
    let text = evidence.flat_map(|item| [item.what.clone(), item.read_from.clone()]);
    std::iter::once(finding.title.clone()).chain(text).collect()
}

fn of_words(path: &PacketPath, stage: StageName, words: &[String], places: &mut BTreeSet<FindingSite>) {
    for link in &path.link {
        let interface = link.interface.as_str();
        let has_one = places.iter().any(|place| match place {
            FindingSite::Interface(name) | FindingSite::Receive(name, _) | FindingSite::Transmit(name, _) => {
                name == interface
            }
            _ => false,
        });
        if !has_one && words.iter().any(|text| contains_word(text, interface)) {
            places.insert(FindingSite::Interface(interface.to_owned()));
        }
    }
    for service in path.socket.services() {
        let name = service.name();
        if words.iter().any(|text| text.contains(&name)) {
            places.insert(FindingSite::Service(name));
        }
    }
    if stage == StageName::Thread {
        let serving = path.thread.serving.value().into_iter().flatten();
        let ids = serving.map(|thread| thread.tid);
        let directory = |tid: u32| format!("/task/{tid}/");
        places.extend(
            ids.filter(|tid| words.iter().any(|text| text.contains(&directory(*tid))))
                .map(FindingSite::Thread),
        );
    }
    if matches!(stage, StageName::Softirq | StageName::Machine | StageName::Irq) {
        places.extend(words.iter().flat_map(|text| cpus_in(text)).map(FindingSite::Cpu));
    }
}

/// The numbers after the word `CPU`.
fn cpus_in(text: &str) -> Vec<u32> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let pairs = words.windows(2).filter(|pair| matches!(pair.first(), Some(&("CPU" | "cpu"))));
    pairs
        .filter_map(|pair| pair.get(1)?.trim_matches(|letter: char| !letter.is_ascii_digit()).parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_words_and_cpus_numbers_after_that_word() {
        assert!(
            contains_word("eth0 loses packets", "eth0")
                && contains_word("/sys/class/net/eth0/queues", "eth0")
        );
        assert!(!contains_word("eth01 loses packets", "eth0") && !contains_word("veth0", "eth0"));
        assert_eq!(cpus_in("CPU 3 takes all, and not CPU 17, or CPUs"), [3, 17]);
        assert!(cpus_in("").is_empty());
    }
}
