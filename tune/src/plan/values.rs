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
    for value in &profile.values {
        for (setting, link) in settings(path, &value.knob) {
            let mut conditions = value.unless.iter();
            let skip_reason =
                conditions.find_map(|condition| unchanged_reason(draft, path, link, *condition));
            match skip_reason {
                Some(reason) => skip_setting(draft, &setting, reason),
                None => add_value(draft, &setting, value),
            }
        }
    }
}

fn add_value(draft: &mut PlanDraft<'_>, setting: &Setting, value: &ProfileValue) {
    let reason = DraftReason {
        why: value.why.clone(),
        source: value.source.clone(),
        risk: value.risk.clone(),
        ..DraftReason::default()
    };
    let to = match draft.bounded(setting, &value.to) {
        Ok(Some(to)) => to,
        Ok(None) => {
            if let Ok(current) = draft.read(setting) {
                draft.add_target(setting, current);
            }
            return;
        }
        Err(skip_reason) => return skip_setting(draft, setting, skip_reason),
    };
    if let Err(error) = setting.check(&to) {
        return skip_setting(draft, setting, error.reason());
    }
    let is_held_back = draft.precondition.is_some() && setting.spreads_packets();
    match draft.add(is_held_back, setting, None, &to, &reason) {
        AddedChange::Unread(error) => {
            skip_setting(draft, setting, format!("what it is now cannot be read: {}", error.reason()));
        }
        AddedChange::Fixed(skip_reason) => {
            skip_setting(draft, setting, skip_reason.to_owned());
            if let Some(skipped) = draft.skipped.last_mut() {
                skipped.commands.extend(setting.command(&to));
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
            links.map(|link| (interface_setting(*knob, &link.interface), Some(link))).collect()
        }
        ProfileKnob::Governor => {
            let governed = path.machine.governors.value().and_then(Option::as_ref);
            governed.into_iter().flatten().map(|(cpu, _)| (Setting::Governor { cpu: *cpu }, None)).collect()
        }
    }
}

fn interface_setting(knob: InterfaceKnob, interface: &str) -> Setting {
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
fn unchanged_reason(
    draft: &PlanDraft<'_>,
    path: &PacketPath,
    link: Option<&LinkState>,
    condition: SkipCondition,
) -> Option<String> {
    match condition {
        SkipCondition::MergedDatagrams => merged_datagrams(path),
        SkipCondition::Forwards => {
            let bridged = link.is_some_and(|link| !matches!(link.bridge.value(), Some(None)));
            // There is no such counter for IPv6, only the number of packets.
            let forwards = path.route.snmp("Ip.Forwarding") != Some(2)
                || path.route.snmp("Ip6OutForwDatagrams").is_some_and(|packets| packets > 0);
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
        SkipCondition::NoUdpService => {
            let reason = "no UDP service here is busy; where one is to come, name it with --port or --pid";
            (!draft.has_service).then(|| reason.to_owned())
        }
    }
}

/// Sockets can ask for merged datagrams since Linux 5.0.
fn merged_datagrams(path: &PacketPath) -> Option<String> {
    if path.machine.kernel_is_at_least((5, 0)) == Some(false) {
        return None;
    }
    let services = path.socket.services().iter().filter(|service| service.protocol == SocketProtocol::Udp);
    let mut sockets =
        services.flat_map(|service| service.sockets.iter().map(move |socket| (service, socket)));
    sockets.find_map(|(service, socket)| match socket.known_options() {
        Some(options) if !options.gro => None,
        Some(_) => Some(format!("{} accepts merged datagrams", service.name())),
        // The socket of a query may have been closed meanwhile.
        None if path.socket.is_ephemeral(service) => None,
        None => Some(format!("whether {} accepts merged datagrams is unknown", service.name())),
    })
}

fn skip_setting(draft: &mut PlanDraft<'_>, setting: &Setting, why: String) {
    draft.skipped.push(SkippedFinding::note("profile", format!("{setting} stays as it is"), why));
}

/// The pairs that the driver supports.
fn supported_pairs(current: &SettingValue, requested: &SettingValue) -> Result<SettingValue, String> {
    let supported: Vec<&str> = current.as_str().split_whitespace().step_by(2).collect();
    let words: Vec<&str> = requested.as_str().split_whitespace().collect();
    let is_supported = |pair: &&[&str]| pair.first().is_some_and(|name| supported.contains(name));
    let pairs: Vec<String> = words.chunks(2).filter(is_supported).map(|pair| pair.join(" ")).collect();
    if pairs.is_empty() {
        Err("its driver has nothing of it".to_owned())
    } else {
        Ok(SettingValue::new(pairs.join(" ")))
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
                    Setting::Coalesce { .. } => supported_pairs(&self.read(setting)?, &value).map(Some),
                    _ => Ok(Some(value)),
                };
            }
            ValueBound::AtLeast(bound) => (*bound, |current, bound| current >= bound),
            ValueBound::AtMost(bound) => (*bound, |current, bound| current <= bound),
        };
        let current = self.read(setting)?;
        let number: u64 =
            current.as_str().parse().map_err(|_| format!("it reads '{current}', which is no number"))?;
        Ok((!is_within(number, bound)).then(|| SettingValue::new(bound.to_string())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_host::{Host, HostRecording, Scope};

    #[test]
    fn gro_stays_on_for_sockets_that_accept_merged_datagrams_and_unknown_services() {
        let reason = |port: u16, gro: Option<bool>| {
            let sockets = format!(r#"[{{"local": "10.0.0.1:{port}", "inode": 700}}]"#);
            let options =
                gro.map(|gro| format!(r#"{{"gro": {gro}, "incoming_cpu": null, "reuseport": false}}"#));
            let files = [("/proc/50/comm", "echo\n".to_owned()), ("/calls/sock_diag/udp4.json", sockets)];
            let options = options.map(|options| ("/calls/socket/700/options.json", options));
            let files: Vec<(&str, String)> = files.into_iter().chain(options).collect();
            let files = files.iter().map(|(path, text)| (*path, text.as_str()));
            let recording = HostRecording::from_files(files).with_links([("/proc/50/fd/3", "socket:[700]")]);
            merged_datagrams(&PacketPath::observe(&Host::recorded(recording), &Scope::default()))
        };
        assert!(reason(53, None).is_some() && reason(53, Some(true)).is_some());
        assert_eq!(reason(53, Some(false)), None);
        assert_eq!(reason(40_000, None), None, "a query that is answered");
        assert!(reason(40_000, Some(true)).is_some(), "a client of QUIC");
    }
}
