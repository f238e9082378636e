//! Checks whether a plan still fits this host.

use linerate_host::setting::SocketKnob;
use linerate_host::{CpuSet, Host, Setting, SettingValue};

use super::{PlannedChange, TunePlan};

/// Why a plan cannot be read or applied, in one line.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct PlanError(pub(super) String);

impl TunePlan {
    /// Whether the plan can be applied on this host as it is: its interfaces are the same devices,
    /// its CPUs are online, and each setting has its value from when the plan was made, or the
    /// planned value. Reads only.
    ///
    /// # Errors
    /// The first difference, in one line.
    pub fn check(&self, host: &Host) -> Result<(), PlanError> {
        self.check_devices(host)?;
        let online = online(host)?;
        for change in self.exclusions.iter().chain(&self.changes) {
            self.check_device_of(&change.setting)?;
            let checked = change.setting.check(&change.to);
            checked.map_err(|error| PlanError(format!("the plan: {error}")))?;
            check_cpus(&change.setting, &change.to, &online)?;
            check_from(change, host)?;
        }
        Ok(())
    }

    fn check_devices(&self, host: &Host) -> Result<(), PlanError> {
        for device in &self.devices {
            let checked = device.must_be_in_place(host);
            checked.map_err(|reason| PlanError(format!("{reason}: make a new plan")))?;
        }
        Ok(())
    }

    /// A plan from a capture may name interfaces without their devices.
    fn check_device_of(&self, setting: &Setting) -> Result<(), PlanError> {
        let Some(interface) = setting.interface().map(std::borrow::Cow::into_owned) else { return Ok(()) };
        if self.devices.iter().any(|device| device.interface == interface) {
            return Ok(());
        }
        Err(PlanError(format!(
            "{interface} is in the change of {setting}, and not among the plan's devices: make a new plan"
        )))
    }
}

fn online(host: &Host) -> Result<CpuSet, PlanError> {
    const PATH: &str = "/sys/devices/system/cpu/online";
    host.read_parsed(PATH, CpuSet::from_list).map_err(|error| PlanError(error.to_string()))
}

/// The kernel applies a mask with offline CPUs only in part, or refuses it.
fn check_cpus(setting: &Setting, to: &SettingValue, online: &CpuSet) -> Result<(), PlanError> {
    let cpus: CpuSet = match setting {
        Setting::IrqAffinity { .. } | Setting::QueueCpus { .. } => {
            let mask = to.as_str().split_whitespace().next().unwrap_or_default();
            CpuSet::from_mask(mask).map(CpuSet::into_iter).into_iter().flatten().collect()
        }
        Setting::Governor { cpu } => CpuSet::from_iter([*cpu]),
        // A value that is not a list of CPUs requires no CPU.
        Setting::ThreadCpus { .. } | Setting::Socket { knob: SocketKnob::IncomingCpu, .. } => {
            CpuSet::from_list(to.as_str()).unwrap_or_default()
        }
        _ => return Ok(()),
    };
    let offline: CpuSet = cpus.iter().filter(|cpu| !online.contains(*cpu)).collect();
    if offline.is_empty() {
        return Ok(());
    }
    let cpus = if offline.len() == 1 { format!("CPU {offline} is") } else { format!("CPUs {offline} are") };
    Err(PlanError(format!("{setting} is to be '{to}', and {cpus} not online: make a new plan")))
}

fn check_from(change: &PlannedChange, host: &Host) -> Result<(), PlanError> {
    let PlannedChange { setting, from, to, .. } = change;
    let current = setting.read(host).map_err(|error| PlanError(format!("{error}: make a new plan")))?;
    if setting.same(&current, from) || setting.same(&current, to) || change.is_moved_by_others() {
        return Ok(());
    }
    Err(PlanError(format!(
        "{setting} is '{current}' now, and was '{from}' when the plan was made: make a new plan"
    )))
}
