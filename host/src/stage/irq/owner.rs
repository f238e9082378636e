//! Tools that set the affinity of interrupts: irqbalance, TuneD, systemd .link files, agents of
//! clouds.

pub(crate) mod irqbalance;
pub(crate) mod link_file;
pub(crate) mod tuned;

use super::IrqOwner;
use crate::finding::RuleMatch;
use crate::process::{GOOGLE_AGENT, HostProcess, IRQBALANCE, TUNED, processes};
use crate::stage::PacketPath;
use crate::{Host, Known};

/// Scripts that ran once leave no trace and cannot be found.
pub(super) fn observe(host: &Host) -> Known<Vec<IrqOwner>> {
    processes(host).map(|processes| {
        let of_processes = processes.iter().filter_map(|process| owner_of_process(host, process));
        of_processes.chain(link_file::observe(host)).collect()
    })
}

/// Adds the tools as evidence, and a first command that makes irqbalance leave these interrupts
/// alone.
pub(in crate::stage) fn add_owners(mut rule_match: RuleMatch, path: &PacketPath, irqs: &[u32]) -> RuleMatch {
    for owner in path.irq.owners.value().into_iter().flatten() {
        let is_listed = rule_match.evidence.iter().any(|evidence| evidence.read_from == owner.read_from);
        if !is_listed {
            rule_match = rule_match.evidence(owner.name.clone(), owner.how.clone(), owner.read_from.clone());
        }
        rule_match.first_commands.extend(owner.ban_command(irqs));
    }
    rule_match
}

impl IrqOwner {
    /// The command that makes irqbalance leave these interrupts alone from its next start on;
    /// `None` if irqbalance already leaves them alone, and for other tools.
    pub fn ban_command(&self, irqs: &[u32]) -> Option<String> {
        (self.name == "irqbalance").then(|| irqbalance::ban_command(self, irqs)).flatten()
    }
}

fn owner_of_process(host: &Host, process: &HostProcess) -> Option<IrqOwner> {
    let owner = match process.comm.as_str() {
        IRQBALANCE => Some(irqbalance::observe(host, process.pid)),
        TUNED => tuned::observe(host, process.pid),
        GOOGLE_AGENT => Some(IrqOwner {
            name: "google-guest-agent".to_owned(),
            how: "sets affinity and XPS when it starts".to_owned(),
            pid: Some(process.pid),
            read_from: format!("/proc/{}/comm", process.pid),
            leaves_alone: Vec::new(),
            environment: None,
        }),
        _ => None,
    };
    owner.filter(|_| process.is_of_root(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_a_user_is_no_irq_owner() {
        let (user, root) = ("Name:\tx\nUid:\t1000\t0\t0\t0\n", "Name:\tx\nUid:\t0\t0\t0\t0\n");
        let host = Host::scripted([
            ("/proc/612/comm", "irqbalance\n"),
            ("/proc/612/status", user),
            ("/proc/700/comm", "google_guest_ag\n"),
            ("/proc/700/status", root),
        ]);
        let owners = observe(&host).into_value().expect("owners");
        assert_eq!(owners.iter().map(|owner| owner.pid).collect::<Vec<_>>(), [Some(700)]);
    }

    #[test]
    fn google_guest_agent_is_an_irq_owner() {
        let host = Host::scripted([("/proc/1/comm", "systemd\n"), ("/proc/700/comm", "google_guest_ag\n")]);
        let owners = observe(&host).into_value().expect("owners");
        assert_eq!(owners[0].name, "google-guest-agent");
        assert_eq!((owners[0].pid, owners[0].read_from.as_str()), (Some(700), "/proc/700/comm"));
    }
}
