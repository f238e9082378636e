//! The sites of a finding: items that it would change, and items that its text and evidence name.

use std::collections::BTreeSet;

use crate::setting::{QueueDirection, Setting};
use crate::stage::irq::contains_word;
use crate::{Finding, PacketPath, StageName};

use crate::live::snapshot::{FindingSite, LiveFinding};

/// A finding with more queues and CPUs than this is shown at their interfaces.
const MOST: usize = 16;

pub(super) fn live_finding(path: &PacketPath, finding: &Finding) -> LiveFinding {
    let mut sites = BTreeSet::new();
    for change in &finding.changes {
        sites.extend(setting_site(path, &change.setting));
    }
    let texts = finding_texts(finding);
    add_named_sites(path, finding.stage, &texts, &mut sites);
    let is_queue = |site: &&FindingSite| {
        matches!(site, FindingSite::Receive(..) | FindingSite::Transmit(..) | FindingSite::Cpu(_))
    };
    if sites.iter().filter(is_queue).count() > MOST {
        let interfaces: Vec<FindingSite> = sites
            .iter()
            .filter_map(|site| match site {
                FindingSite::Receive(interface, _) | FindingSite::Transmit(interface, _) => {
                    Some(FindingSite::Interface(interface.clone()))
                }
                _ => None,
            })
            .collect();
        sites.retain(|site| !is_queue(&site));
        sites.extend(interfaces);
    }
    LiveFinding {
        id: finding.id.to_owned(),
        stage: finding.stage,
        severity: finding.severity,
        title: finding.title.clone(),
        remedy: finding.remedy.to_owned(),
        places: sites.into_iter().collect(),
    }
}

fn setting_site(path: &PacketPath, setting: &Setting) -> Option<FindingSite> {
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
        setting => setting.interface().map(|interface| FindingSite::Interface(interface.into_owned())),
    }
}

fn finding_texts(finding: &Finding) -> Vec<String> {
    let evidence = finding.evidence.iter();
    let text = evidence.flat_map(|item| [item.what.clone(), item.read_from.clone()]);
    std::iter::once(finding.title.clone()).chain(text).collect()
}

fn add_named_sites(path: &PacketPath, stage: StageName, texts: &[String], sites: &mut BTreeSet<FindingSite>) {
    for link in &path.link {
        let interface = link.interface.as_str();
        let has_site = sites.iter().any(|site| match site {
            FindingSite::Interface(name) | FindingSite::Receive(name, _) | FindingSite::Transmit(name, _) => {
                name == interface
            }
            _ => false,
        });
        if !has_site && texts.iter().any(|text| contains_word(text, interface)) {
            sites.insert(FindingSite::Interface(interface.to_owned()));
        }
    }
    for service in path.socket.services() {
        let name = service.name();
        if texts.iter().any(|text| text.contains(&name)) {
            sites.insert(FindingSite::Service(name));
        }
    }
    if stage == StageName::Thread {
        let serving = path.thread.serving.value().into_iter().flatten();
        let ids = serving.map(|thread| thread.tid);
        let directory = |tid: u32| format!("/task/{tid}/");
        sites.extend(
            ids.filter(|tid| texts.iter().any(|text| text.contains(&directory(*tid))))
                .map(FindingSite::Thread),
        );
    }
    if matches!(stage, StageName::Softirq | StageName::Machine | StageName::Irq) {
        sites.extend(texts.iter().flat_map(|text| cpus_in(text)).map(FindingSite::Cpu));
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
    fn interfaces_match_whole_words_and_cpus_match_numbers_after_cpu() {
        assert!(
            contains_word("eth0 loses packets", "eth0")
                && contains_word("/sys/class/net/eth0/queues", "eth0")
        );
        assert!(!contains_word("eth01 loses packets", "eth0") && !contains_word("veth0", "eth0"));
        assert_eq!(cpus_in("CPU 3 takes all, and not CPU 17, or CPUs"), [3, 17]);
        assert!(cpus_in("").is_empty());
    }
}
