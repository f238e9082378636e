//! Checks whether a plan still fits this host.

use linerate_host::setting::SocketKnob;
use linerate_host::{CpuSet, Host, Setting, SettingValue};

use super::{PlannedChange, TunePlan};
use crate::device::DeviceStatus;

/// Why a plan cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// It is not JSON, or its fields are not the fields of a plan.
    #[error("{origin} is no plan: {what}")]
    Text {
        origin: String,
        /// The fault, with line and column.
        what: String,
    },
    /// It is another kind of document.
    #[error("{origin} is no plan: its schema is '{found}', not '{}'", super::SCHEMA)]
    Schema { origin: String, found: String },
    /// A setting or a value in it is not valid.
    #[error("{origin}: {what}")]
    Value {
        origin: String,
        /// The setting or value, and the expected form.
        what: String,
    },
    /// An interface is not the device for which the plan was made.
    #[error("{interface} {what}: make a new plan")]
    Interface {
        /// Its name in the plan.
        interface: String,
        /// Its current state.
        what: String,
    },
    /// It names CPUs that are not online.
    #[error("{setting} is to be '{to}', and {cpus} not online: make a new plan")]
    Cpus {
        setting: String,
        to: String,
        /// The CPUs, as `CPU 3 is` or `CPUs 3-4 are`.
        cpus: String,
    },
    /// A setting does not have the value that it had when the plan was made.
    #[error("{setting} is '{found}' now, and was '{from}' when the plan was made: make a new plan")]
    Changed { setting: String, from: String, found: String },
    /// A setting cannot be read.
    #[error("{what}: make a new plan")]
    Unread {
        /// The setting and the host's error.
        what: String,
    },
    /// The host does not report facts that the check requires.
    #[error("{what}")]
    Host { what: String },
}

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
            let value_error = |error: linerate_host::SettingError| PlanError::Value {
                origin: "the plan".to_owned(),
                what: error.to_string(),
            };
            change.setting.check(&change.to).map_err(value_error)?;
            check_cpus(&change.setting, &change.to, &online)?;
            check_from(change, host)?;
        }
        Ok(())
    }

    fn check_devices(&self, host: &Host) -> Result<(), PlanError> {
        for device in &self.devices {
            let interface = device.interface.clone();
            let unread = |error: linerate_host::HostError| PlanError::Host { what: error.to_string() };
            let what = match device.status(host).map_err(unread)? {
                DeviceStatus::Same => continue,
                DeviceStatus::Renamed(name) => format!("is called {name} now"),
                DeviceStatus::Gone => "is gone".to_owned(),
                DeviceStatus::Replaced => "is another device now".to_owned(),
            };
            return Err(PlanError::Interface { interface, what });
        }
        Ok(())
    }

    /// A plan from a capture may name interfaces without their devices.
    fn check_device_of(&self, setting: &Setting) -> Result<(), PlanError> {
        let Some(interface) = setting.interface().map(std::borrow::Cow::into_owned) else { return Ok(()) };
        // In sysctls, these stand for all interfaces and for future interfaces.
        let is_generic = matches!(interface.as_str(), "all" | "default");
        if is_generic || self.devices.iter().any(|device| device.interface == interface) {
            return Ok(());
        }
        let what = format!("is in the change of {setting}, and not among the plan's devices");
        Err(PlanError::Interface { interface, what })
    }
}

fn online(host: &Host) -> Result<CpuSet, PlanError> {
    const PATH: &str = "/sys/devices/system/cpu/online";
    let unread = |error: String| PlanError::Host { what: error };
    let text = host.read(PATH).map_err(|error| unread(error.to_string()))?;
    CpuSet::from_list(&text).map_err(|error| unread(format!("{PATH}: {error}")))
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
    Err(PlanError::Cpus { setting: setting.to_string(), to: to.to_string(), cpus })
}

fn check_from(change: &PlannedChange, host: &Host) -> Result<(), PlanError> {
    let current = change.setting.read(host).map_err(|error| PlanError::Unread { what: error.to_string() })?;
    let is_as_planned =
        change.setting.same(&current, &change.from) || change.setting.same(&current, &change.to);
    if is_as_planned || change.is_moved_by_others() {
        return Ok(());
    }
    Err(PlanError::Changed {
        setting: change.setting.to_string(),
        from: change.from.to_string(),
        found: current.to_string(),
    })
}
