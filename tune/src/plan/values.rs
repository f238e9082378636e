//! Values of a profile that no finding requires.

use linerate_host::setting::{NapiKnob, Offload};
use linerate_host::stage::link::{DeviceKind, LinkState};
use linerate_host::stage::socket::SocketProtocol;
use linerate_host::{PacketPath, Setting, SettingValue};

use super::SkippedFinding;
use super::draft::{AddedChange, DraftReason, PlanDraft};
use crate::profile::{InterfaceKnob, ProfileKnob, ProfileValue, SkipCondition, TuneProfile, ValueBound};

/// Adds all values of the profile, except values that a condition keeps unchanged.
pub(super) fn add(draft: &mut PlanDraft<'_>, path: &PacketPath, profile: &TuneProfile) {
    for wanted in &profile.values {
        for (setting, link) in settings(path, &wanted.knob) {
            let held = wanted.unless.iter().find_map(|condition| match condition {
                SkipCondition::NoUdpService => no_service(draft),
                condition => holds(path, link, *condition),
            });
            match held {
                Some(why) => leave(draft, &setting, why),
                None => add_one(draft, &setting, wanted),
            }
        }
    }
}

fn add_one(draft: &mut PlanDraft<'_>, setting: &Setting, wanted: &ProfileValue) {
    let reason = DraftReason {
        why: wanted.why.clone(),
        findings: Vec::new(),
        effect: None,
        source: wanted.source.clone(),
        risk: wanted.risk.clone(),
    };
    let to = match draft.bounded(setting, &wanted.to) {
        Ok(Some(to)) => to,
        Ok(None) => {
            if let Ok(now) = draft.read(setting) {
                draft.keep(setting, now);
            }
            return;
        }
        Err(why) => return leave(draft, setting, why),
    };
    if let Err(error) = setting.check(&to) {
        return leave(draft, setting, error.reason());
    }
    match draft.add(setting, None, &to, &reason) {
        AddedChange::Unread(error) => {
            let error = error.strip_prefix(&format!("{setting}: ")).unwrap_or(&error);
            leave(draft, setting, format!("what it is now cannot be read: {error}"));
        }
        AddedChange::Fixed(why) => {
            leave(draft, setting, why.to_owned());
            if let Some(left) = draft.skipped.last_mut() {
                left.commands.extend(setting.command(&to));
            }
        }
        AddedChange::Planned | AddedChange::Already => {}
    }
}

/// The settings of a knob, and the interface of each that belongs to one. Software interfaces have
/// no features worth setting.
fn settings<'p>(path: &'p PacketPath, knob: &ProfileKnob) -> Vec<(Setting, Option<&'p LinkState>)> {
    match knob {
        ProfileKnob::Sysctl(name) => vec![(Setting::sysctl(name.clone()), None)],
        ProfileKnob::Interface(knob) => {
            let links = path.link.iter().filter(|link| link.device.value() != Some(&DeviceKind::Software));
            links.map(|link| (of_interface(*knob, &link.interface), Some(link))).collect()
        }
        ProfileKnob::Governor => {
            let governed = path.machine.governors.value().and_then(Option::as_ref);
            governed.into_iter().flatten().map(|(cpu, _)| (Setting::Governor { cpu: *cpu }, None)).collect()
        }
    }
}

fn of_interface(knob: InterfaceKnob, interface: &str) -> Setting {
    let interface = interface.to_owned();
    match knob {
        InterfaceKnob::GenericReceiveOffload => {
            Setting::Offload { interface, offload: Offload::GenericReceive }
        }
        InterfaceKnob::RxUdpGroForwarding => {
            Setting::Offload { interface, offload: Offload::UdpReceiveForwarding }
        }
        InterfaceKnob::InterruptModeration => Setting::Coalesce { interface },
        InterfaceKnob::GroFlushTimeout => Setting::Napi { interface, knob: NapiKnob::GroFlushTimeout },
        InterfaceKnob::NapiDeferHardIrqs => Setting::Napi { interface, knob: NapiKnob::DeferHardIrqs },
        InterfaceKnob::ThreadedNapi => Setting::Napi { interface, knob: NapiKnob::Threaded },
    }
}

/// Why a value stays unchanged, if the condition holds or may hold.
fn holds(path: &PacketPath, link: Option<&LinkState>, condition: SkipCondition) -> Option<String> {
    match condition {
        SkipCondition::MergedDatagrams => merged_datagrams(path),
        SkipCondition::Forwards => {
            let bridged = link.is_some_and(|link| !matches!(link.bridge.value(), Some(None)));
            let forwards = path.route.snmp("Ip.Forwarding") != Some(2);
            match (bridged, forwards) {
                (true, _) => Some("the interface is a port of a bridge, or may be one".to_owned()),
                (_, true) => Some("this host forwards packets, or may do so".to_owned()),
                _ => None,
            }
        }
        SkipCondition::Guest => match path.machine.hypervisor.value() {
            Some(true) => Some("a hypervisor runs this host".to_owned()),
            _ => None,
        },
        // The caller checks this condition.
        SkipCondition::NoUdpService => None,
    }
}

fn no_service(draft: &PlanDraft<'_>) -> Option<String> {
    let why = "no UDP service here is busy; where one is to come, name it with --port or --pid";
    (!draft.has_service).then(|| why.to_owned())
}

/// Sockets can ask for merged datagrams since Linux 5.0.
fn merged_datagrams(path: &PacketPath) -> Option<String> {
    if path.machine.kernel_is_at_least(5, 0) == Some(false) {
        return None;
    }
    let services = path.socket.services().iter().filter(|service| service.protocol == SocketProtocol::Udp);
    for service in services {
        for socket in &service.sockets {
            match socket.set() {
                Some(options) if options.gro => {
                    return Some(format!("{} accepts merged datagrams", service.name()));
                }
                Some(_) => {}
                None => {
                    return Some(format!("whether {} accepts merged datagrams is unknown", service.name()));
                }
            }
        }
    }
    None
}

fn leave(draft: &mut PlanDraft<'_>, setting: &Setting, why: String) {
    draft.skipped.push(SkippedFinding {
        finding: "profile".to_owned(),
        severity: "note".to_owned(),
        title: format!("{setting} stays as it is"),
        why,
        commands: Vec::new(),
    });
}

/// The pairs that the driver supports.
fn offered(now: &SettingValue, wanted: &SettingValue) -> Result<SettingValue, String> {
    let has: Vec<&str> = now.as_str().split_whitespace().step_by(2).collect();
    let words: Vec<&str> = wanted.as_str().split_whitespace().collect();
    let of_driver = |pair: &&[&str]| pair.first().is_some_and(|name| has.contains(name));
    let kept: Vec<String> = words.chunks(2).filter(of_driver).map(|pair| pair.join(" ")).collect();
    if kept.is_empty() {
        Err("its driver has nothing of it".to_owned())
    } else {
        Ok(SettingValue::new(kept.join(" ")))
    }
}

impl PlanDraft<'_> {
    /// The value that a setting should have; `None` if it is within bounds.
    ///
    /// # Errors
    /// Why the value cannot be determined.
    fn bounded(&self, setting: &Setting, to: &ValueBound) -> Result<Option<SettingValue>, String> {
        let (bound, is_within): (u64, fn(u64, u64) -> bool) = match to {
            ValueBound::Exactly(value) => {
                let value = SettingValue::new(value);
                return match setting {
                    Setting::Coalesce { .. } => offered(&self.read(setting)?, &value).map(Some),
                    _ => Ok(Some(value)),
                };
            }
            ValueBound::AtLeast(bound) => (*bound, |now, bound| now >= bound),
            ValueBound::AtMost(bound) => (*bound, |now, bound| now <= bound),
        };
        let now = self.read(setting)?;
        let number: u64 =
            now.as_str().parse().map_err(|_| format!("it reads '{now}', which is no number"))?;
        Ok((!is_within(number, bound)).then(|| SettingValue::new(bound.to_string())))
    }
}
