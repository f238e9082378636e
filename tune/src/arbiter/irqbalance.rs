//! irqbalance, which moves interrupts by what it sees of load.
//!
//! Told over its socket to ban an interrupt, it leaves it where it is, also when it rescans. Debian's 1.9.2, measured under
//! traffic: of 20 interrupts put on one CPU it moved 5 within 20 s; banned, none within 60 s, nor after SIGHUP or a change
//! of channels. It forgets when it ends.

use std::collections::{BTreeMap, BTreeSet};

use linerate_host::stage::irq::{self, IrqOwner, IrqState};
use linerate_host::{Host, IrqbalanceSetup, Known, Setting, setting};

use super::knob::WantedKnob;
use super::scene::ArbiterHost;
use super::{Found, OwnerTerms, SettingOwner};
use crate::claim::{ClaimAgreement, EnforcementMode, SettingClaim};
use crate::plan::{ChangeImpact, PlannedChange, TunePlan};

const NAME: &str = "irqbalance";

/// One that runs.
#[derive(Debug)]
struct IrqbalanceOwner {
    setter: IrqOwner,
    pid: u32,
    /// What it tells of itself over its socket, and the knob of its bans; else why not.
    told: Result<(Setting, IrqbalanceSetup), String>,
    /// The names of interrupts.
    names: BTreeMap<u32, String>,
}

pub(super) fn observe(scene: &ArbiterHost<'_>) -> Found {
    let owners = match IrqState::observe(scene.host, &[]).owners {
        Known::Value(owners) => owners,
        // That no process could be read is told by the scene.
        Known::Unknown { .. } => return Vec::new(),
    };
    let running = owners.into_iter().filter(|owner| owner.name == NAME);
    running
        .filter_map(|setter| {
            Some(Box::new(IrqbalanceOwner::ask(scene.host, setter)?) as Box<dyn SettingOwner>)
        })
        .collect()
}

impl IrqbalanceOwner {
    fn ask(host: &Host, setter: IrqOwner) -> Option<Self> {
        let pid = setter.pid?;
        let knob = Setting::irqbalance_bans(host, pid);
        let told = knob.and_then(|knob| Ok((knob, host.irqbalance_setup(pid)?)));
        let names = irq::names(host).into_value().unwrap_or_default();
        Some(Self { pid, setter, told: told.map_err(|error| error.to_string()), names })
    }

    fn banned(&self) -> BTreeSet<u32> {
        let told = self.told.as_ref().map(|(_, setup)| setup.banned.clone()).unwrap_or_default();
        self.setter.leaves_alone.iter().copied().chain(told).collect()
    }

    /// The number that the interrupt of this name has now: numbers change with boots, and with channels.
    fn number(&self, setting: &Setting) -> Option<u32> {
        let Setting::IrqAffinity { irq, action } = setting else { return None };
        let bears = |name: &String| name.split(", ").any(|name| name == action);
        if action.is_empty() || self.names.get(irq).is_some_and(bears) {
            return Some(*irq);
        }
        let mut named = self.names.iter().filter(|(_, name)| bears(name)).map(|(irq, _)| *irq);
        Some(named.next().unwrap_or(*irq))
    }

    /// The interrupts that the plan puts somewhere, and those of its target that are there already.
    fn placed(&self, plan: &TunePlan) -> BTreeSet<u32> {
        let changed = plan.changes.iter().map(|change| &change.setting);
        let all = changed.chain(plan.target.iter().map(|target| &target.setting));
        all.filter_map(|setting| self.number(setting)).collect()
    }

    fn by_hand(&self, irqs: &BTreeSet<u32>) -> Vec<String> {
        let irqs: Vec<u32> = irqs.iter().copied().collect();
        self.setter.ban_command(&irqs).into_iter().collect()
    }

    /// The change that has it leave these alone, beside those that it does.
    fn change(&self, irqs: &BTreeSet<u32>) -> Result<Option<PlannedChange>, String> {
        let (knob, setup) = self.told.as_ref().map_err(Clone::clone)?;
        let all = setup.banned.union(irqs).copied().collect();
        if all == setup.banned {
            return Ok(None);
        }
        let (from, to) = (setting::interrupts(&setup.banned), setting::interrupts(&all));
        knob.check(&to).map_err(|error| error.to_string())?;
        Ok(Some(PlannedChange {
            setting: knob.clone(),
            from,
            to,
            why: format!(
                "irqbalance looks every {} s whether to move interrupts, and would take back where they are put.",
                setup.interval_seconds
            ),
            findings: Vec::new(),
            effect: None,
            source: Some("irqbalance 1.9.2, irqbalance.c and classify.c".to_owned()),
            risk: Some(
                "irqbalance places all interrupts that it is not told to leave alone anew at its next look. It \
                 forgets when it is restarted."
                    .to_owned(),
            ),
            interrupts: ChangeImpact::Nothing,
            claims: Vec::new(),
        }))
    }
}

impl SettingOwner for IrqbalanceOwner {
    fn claims(&self, wanted: &WantedKnob<'_>) -> Vec<SettingClaim> {
        let Some(irq) = self.number(wanted.setting) else { return Vec::new() };
        if self.banned().contains(&irq) {
            return Vec::new();
        }
        let (what, agreement) = match &self.told {
            Ok((_, setup)) => (
                format!("looks every {} s whether to move interrupts", setup.interval_seconds),
                ClaimAgreement::InPlan,
            ),
            Err(why) => (
                format!(
                    "moves interrupts by load, and cannot be told to leave this one alone while it runs: {why}"
                ),
                ClaimAgreement::ByHand { commands: self.by_hand(&[irq].into()) },
            ),
        };
        vec![SettingClaim {
            owner: NAME.to_owned(),
            what: format!("{what} (process {}: {})", self.pid, self.setter.how),
            read_from: self.setter.read_from.clone(),
            acts: EnforcementMode::Always,
            agreement,
        }]
    }

    fn agreement(&self, plan: &TunePlan, _: &Host) -> Option<OwnerTerms> {
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
