//! irqbalance, which moves interrupts by load.
//!
//! An interrupt that is banned over its socket stays where it is, also when irqbalance rescans. Measured with Debian's 1.9.2
//! under traffic: of 20 interrupts on one CPU it moved 5 within 20 s. After a ban it moved none within 60 s, nor after SIGHUP
//! or a change of channels. The bans end with its process.

use std::collections::{BTreeMap, BTreeSet};

use linerate_host::stage::irq::{self, IrqOwner, IrqState};
use linerate_host::{Host, IrqbalanceSetup, Setting, setting};

use super::owner::{FoundOwners, SettingOwner, WantedKnob};
use super::reader::ConfigurationReader;
use crate::claim::{ClaimExclusion, EnforcementMode, SettingClaim};
use crate::plan::{PlannedChange, TunePlan};

const NAME: &str = "irqbalance";

struct IrqbalanceOwner {
    setter: IrqOwner,
    pid: u32,
    /// The knob of its bans and its answer over its socket, or why there is none.
    answer: Result<(Setting, IrqbalanceSetup), String>,
    /// Names by interrupt.
    names: BTreeMap<u32, String>,
}

pub(super) fn observe(reader: &ConfigurationReader<'_>) -> FoundOwners {
    // The reader reports if no process could be read.
    let owners = IrqState::observe(reader.host, &[]).owners.into_value().unwrap_or_default();
    let irqbalance_owners = owners.into_iter().filter(|owner| owner.name == NAME);
    let boxed = |owner: IrqbalanceOwner| Box::new(owner) as Box<dyn SettingOwner>;
    irqbalance_owners.filter_map(|owner| IrqbalanceOwner::query(reader.host, owner)).map(boxed).collect()
}

impl IrqbalanceOwner {
    fn query(host: &Host, owner: IrqOwner) -> Option<Self> {
        let pid = owner.pid?;
        let knob = Setting::irqbalance_bans(host, pid);
        let answer = knob.and_then(|knob| Ok((knob, host.irqbalance_setup(pid)?)));
        let names = irq::handler_names(host).into_value().unwrap_or_default();
        Some(Self { pid, setter: owner, answer: answer.map_err(|error| error.to_string()), names })
    }

    fn banned_irqs(&self) -> BTreeSet<u32> {
        let socket_bans = self.answer.as_ref().map(|(_, setup)| setup.banned.clone()).unwrap_or_default();
        self.setter.leaves_alone.iter().copied().chain(socket_bans).collect()
    }

    /// The current number of an interrupt, by its name: numbers change with boots and with
    /// channels.
    fn number(&self, setting: &Setting) -> Option<u32> {
        let Setting::IrqAffinity { irq, action } = setting else { return None };
        let has_name = |name: &String| name.split(", ").any(|name| name == action);
        if action.is_empty() || self.names.get(irq).is_some_and(has_name) {
            return Some(*irq);
        }
        let mut matching_irqs = self.names.iter().filter(|(_, name)| has_name(name)).map(|(irq, _)| *irq);
        Some(matching_irqs.next().unwrap_or(*irq))
    }

    /// The interrupts that the plan places, and those of its target that are in place already.
    fn placed_irqs(&self, plan: &TunePlan) -> BTreeSet<u32> {
        let changed_settings = plan.changes.iter().map(|change| &change.setting);
        let settings = changed_settings.chain(plan.target.iter().map(|target| &target.setting));
        settings.filter_map(|setting| self.number(setting)).collect()
    }

    fn ban_commands(&self, irqs: &BTreeSet<u32>) -> Vec<String> {
        let irqs: Vec<u32> = irqs.iter().copied().collect();
        self.setter.ban_command(&irqs).into_iter().collect()
    }

    /// The change that bans these interrupts in addition to those banned now, or why no change can.
    fn change(&self, irqs: &BTreeSet<u32>) -> Result<PlannedChange, String> {
        let (knob, setup) = self.answer.as_ref().map_err(Clone::clone)?;
        let all_bans = setup.banned.union(irqs).copied().collect();
        let (from, to) = (setting::interrupts(&setup.banned), setting::interrupts(&all_bans));
        knob.check(&to).map_err(|error| error.to_string())?;
        let reason = format!(
            "irqbalance looks every {} s whether to move interrupts, and would revert this placement.",
            setup.interval_seconds
        );
        Ok(PlannedChange {
            source: Some("irqbalance 1.9.2, irqbalance.c and classify.c".to_owned()),
            risk: Some(
                "irqbalance places all interrupts that are not banned again at its next scan. It \
                 forgets when it is restarted."
                    .to_owned(),
            ),
            ..PlannedChange::new(knob.clone(), from, to, reason)
        })
    }
}

impl SettingOwner for IrqbalanceOwner {
    fn claim(&self, knob: &WantedKnob<'_>) -> Option<SettingClaim> {
        let irq = self.number(knob.setting)?;
        if self.banned_irqs().contains(&irq) {
            return None;
        }
        let (action, exclusion) = match &self.answer {
            Ok((_, setup)) => (
                format!("looks every {} s whether to move interrupts", setup.interval_seconds),
                ClaimExclusion::InPlan,
            ),
            Err(reason) => (
                format!("moves interrupts by load, and cannot exclude this one while it runs: {reason}"),
                ClaimExclusion::ByHand { commands: self.ban_commands(&[irq].into()) },
            ),
        };
        Some(SettingClaim {
            owner: NAME.to_owned(),
            what: format!("{action} (process {}: {})", self.pid, self.setter.how),
            read_from: self.setter.read_from.clone(),
            enforcement: EnforcementMode::Always,
            exclusion,
        })
    }

    fn exclude(&self, plan: &mut TunePlan) {
        let irqs = self.placed_irqs(plan);
        let new_irqs: BTreeSet<u32> = irqs.difference(&self.banned_irqs()).copied().collect();
        if new_irqs.is_empty() {
            return;
        }
        match self.change(&new_irqs) {
            Ok(change) => {
                plan.exclusions.retain(|exclusion| exclusion.setting != change.setting);
                plan.exclusions.push(change);
            }
            Err(reason) => leave_to_person(plan, &reason, &self.ban_commands(&new_irqs)),
        }
    }
}

fn leave_to_person(plan: &mut TunePlan, reason: &str, commands: &[String]) {
    let claims = plan.changes.iter_mut().flat_map(|change| &mut change.claims);
    for claim in claims.filter(|claim| claim.owner == NAME) {
        if claim.exclusion == ClaimExclusion::InPlan {
            claim.what.push_str("; ");
            claim.what.push_str(reason);
        }
        // One command serves all claims.
        claim.exclusion = ClaimExclusion::ByHand { commands: commands.to_vec() };
    }
}
