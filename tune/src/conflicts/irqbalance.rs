//! irqbalance, which moves interrupts by load.
//!
//! An interrupt that is banned over its socket stays where it is, also when irqbalance rescans. Measured with Debian's 1.9.2
//! under traffic: of 20 interrupts on one CPU it moved 5 within 20 s. After a ban it moved none within 60 s, nor after SIGHUP
//! or a change of channels. The bans end with its process.

use std::collections::{BTreeMap, BTreeSet};

use linerate_host::stage::irq::{self, IrqOwner, IrqState};
use linerate_host::{Host, IrqbalanceSetup, Known, Setting, setting};

use super::owner::{FoundOwners, OwnerTerms, SettingOwner, WantedKnob};
use super::reader::ConfigurationReader;
use crate::claim::{ClaimExclusion, EnforcementMode, SettingClaim};
use crate::plan::{PlannedChange, TunePlan};

const NAME: &str = "irqbalance";

/// A running irqbalance.
struct IrqbalanceOwner {
    setter: IrqOwner,
    pid: u32,
    /// The knob of its bans and its answer over its socket, or why there is none.
    answer: Result<(Setting, IrqbalanceSetup), String>,
    /// Names by interrupt.
    names: BTreeMap<u32, String>,
}

pub(super) fn observe(reader: &ConfigurationReader<'_>) -> FoundOwners {
    let owners = match IrqState::observe(reader.host, &[]).owners {
        Known::Value(owners) => owners,
        // The reader reports that no process could be read.
        Known::Unknown { .. } => return Vec::new(),
    };
    let running = owners.into_iter().filter(|owner| owner.name == NAME);
    running
        .filter_map(|setter| {
            Some(Box::new(IrqbalanceOwner::ask(reader.host, setter)?) as Box<dyn SettingOwner>)
        })
        .collect()
}

impl IrqbalanceOwner {
    fn ask(host: &Host, setter: IrqOwner) -> Option<Self> {
        let pid = setter.pid?;
        let knob = Setting::irqbalance_bans(host, pid);
        let answer = knob.and_then(|knob| Ok((knob, host.irqbalance_setup(pid)?)));
        let names = irq::names(host).into_value().unwrap_or_default();
        Some(Self { pid, setter, answer: answer.map_err(|error| error.to_string()), names })
    }

    fn banned(&self) -> BTreeSet<u32> {
        let banned = self.answer.as_ref().map(|(_, setup)| setup.banned.clone()).unwrap_or_default();
        self.setter.leaves_alone.iter().copied().chain(banned).collect()
    }

    /// The current number of an interrupt, by its name: numbers change with boots and with
    /// channels.
    fn number(&self, setting: &Setting) -> Option<u32> {
        let Setting::IrqAffinity { irq, action } = setting else { return None };
        let has_name = |name: &String| name.split(", ").any(|name| name == action);
        if action.is_empty() || self.names.get(irq).is_some_and(has_name) {
            return Some(*irq);
        }
        let mut named = self.names.iter().filter(|(_, name)| has_name(name)).map(|(irq, _)| *irq);
        Some(named.next().unwrap_or(*irq))
    }

    /// The interrupts that the plan places, and those of its target that are in place already.
    fn placed(&self, plan: &TunePlan) -> BTreeSet<u32> {
        let changed = plan.changes.iter().map(|change| &change.setting);
        let all = changed.chain(plan.target.iter().map(|target| &target.setting));
        all.filter_map(|setting| self.number(setting)).collect()
    }

    fn by_hand(&self, irqs: &BTreeSet<u32>) -> Vec<String> {
        let irqs: Vec<u32> = irqs.iter().copied().collect();
        self.setter.ban_command(&irqs).into_iter().collect()
    }

    /// The change that bans these interrupts in addition to those banned now.
    fn change(&self, irqs: &BTreeSet<u32>) -> Result<Option<PlannedChange>, String> {
        let (knob, setup) = self.answer.as_ref().map_err(Clone::clone)?;
        let all = setup.banned.union(irqs).copied().collect();
        if all == setup.banned {
            return Ok(None);
        }
        let (from, to) = (setting::interrupts(&setup.banned), setting::interrupts(&all));
        knob.check(&to).map_err(|error| error.to_string())?;
        let why = format!(
            "irqbalance looks every {} s whether to move interrupts, and would revert this placement.",
            setup.interval_seconds
        );
        Ok(Some(PlannedChange {
            source: Some("irqbalance 1.9.2, irqbalance.c and classify.c".to_owned()),
            risk: Some(
                "irqbalance places all interrupts that are not banned again at its next scan. It \
                 forgets when it is restarted."
                    .to_owned(),
            ),
            ..PlannedChange::new(knob.clone(), from, to, why)
        }))
    }
}

impl SettingOwner for IrqbalanceOwner {
    fn claim(&self, wanted: &WantedKnob<'_>) -> Option<SettingClaim> {
        let irq = self.number(wanted.setting)?;
        if self.banned().contains(&irq) {
            return None;
        }
        let (what, exclusion) = match &self.answer {
            Ok((_, setup)) => (
                format!("looks every {} s whether to move interrupts", setup.interval_seconds),
                ClaimExclusion::InPlan,
            ),
            Err(why) => (
                format!("moves interrupts by load, and cannot exclude this one while it runs: {why}"),
                ClaimExclusion::ByHand { commands: self.by_hand(&[irq].into()) },
            ),
        };
        Some(SettingClaim {
            owner: NAME.to_owned(),
            what: format!("{what} (process {}: {})", self.pid, self.setter.how),
            read_from: self.setter.read_from.clone(),
            enforcement: EnforcementMode::Always,
            exclusion,
        })
    }

    fn terms(&self, plan: &TunePlan) -> Option<OwnerTerms> {
        let irqs = self.placed(plan);
        let new: BTreeSet<u32> = irqs.difference(&self.banned()).copied().collect();
        if new.is_empty() {
            return None;
        }
        match self.change(&new) {
            Ok(change) => change.map(|change| OwnerTerms::Change(Box::new(change))),
            Err(why) => Some(OwnerTerms::ByHand { owner: NAME, why, commands: self.by_hand(&new) }),
        }
    }
}
