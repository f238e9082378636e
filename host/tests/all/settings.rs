//! Settings of a lab's interfaces and of its host's firewall: written, and restored.

use linerate_host::setting::{NapiKnob, NftFamily, Offload, QueueDirection};
use linerate_host::stage::filter::IpFamily;
use linerate_host::{Host, HostError, Setting, SettingError, SettingValue};
use linerate_lab::Lab;
use linerate_testkit::skip;

fn lab(test: &str) -> Option<Lab> {
    Lab::builder().queues(2).start().map_err(|error| skip(test, error)).ok()
}

/// Runs on the receiver, with the name of its interface.
fn on_receiver<T: Send>(lab: &Lab, work: impl FnOnce(&Host, &str) -> T + Send) -> T {
    let sys = lab.receiver().sys_path().expect("its sysfs").to_owned();
    let interface = lab.links()[0].receiver.interface.clone();
    lab.receiver().run(move || work(&Host::live_with_sys(sys), &interface)).expect("run on the receiver")
}

/// Writes each value, reads it back, and restores the original value.
fn write_and_restore(host: &Host, setting: &Setting, values: &[&str]) -> Result<(), SettingError> {
    let before = setting.read(host)?;
    for value in values {
        setting.write(host, &SettingValue::new(value))?;
        let now = setting.read(host)?;
        assert!(setting.same(&now, &SettingValue::new(value)), "{setting}: {now}");
    }
    setting.write(host, &before)?;
    assert_eq!(setting.read(host)?, before, "{setting}");
    Ok(())
}

#[test]
fn veth_settings_are_written_and_restored() {
    let test = "veth_settings_are_written_and_restored";
    let Some(lab) = lab(test) else { return };
    let refusals: Vec<String> = on_receiver(&lab, |host, interface| {
        let name = || interface.to_owned();
        let offload = |offload| (Setting::Offload { interface: name(), offload }, ["off", "on"]);
        let napi = |knob, values| (Setting::Napi { interface: name(), knob }, values);
        let cpus = |direction| (Setting::QueueCpus { interface: name(), direction, queue: 1 }, ["1", "0"]);
        let knobs = [
            (Setting::Channels { interface: name() }, ["rx 1 tx 1", "rx 2 tx 1"]),
            offload(Offload::GenericReceive),
            offload(Offload::TcpSegmentation),
            offload(Offload::UdpSegmentation),
            offload(Offload::UdpReceiveForwarding),
            offload(Offload::ReceiveList),
            cpus(QueueDirection::Receive),
            cpus(QueueDirection::Transmit),
            (Setting::QueueReceivers { interface: name(), queue: 0 }, ["3", "1"]),
            (Setting::QueueFlows { interface: name(), queue: 1 }, ["4096", "256"]),
            napi(NapiKnob::GroFlushTimeout, ["20000", "0"]),
            napi(NapiKnob::DeferHardIrqs, ["2", "0"]),
            napi(NapiKnob::Threaded, ["1", "0"]),
            (Setting::sysctl(format!("net.ipv4.conf.{interface}.rp_filter")), ["2", "1"]),
        ];
        let outcomes = knobs.iter().map(|(setting, values)| write_and_restore(host, setting, values));
        outcomes.filter_map(Result::err).map(|error| error.to_string()).collect()
    });
    // For an ordinary user, sysfs belongs to another user namespace.
    if refusals.iter().any(|why| why.contains("Permission denied") || why.contains("not permitted")) {
        return skip(test, refusals.join("; "));
    }
    assert!(refusals.is_empty(), "{refusals:?}");
}

#[test]
fn refused_veth_settings_report_the_kernel_message() {
    let test = "refused_veth_settings_report_the_kernel_message";
    let Some(lab) = lab(test) else { return };
    let (channels, rings, fixed, gone, changeable) = on_receiver(&lab, |host, interface| {
        let name = || interface.to_owned();
        let refusal =
            |setting: Setting, value| setting.write(host, &SettingValue::new(value)).expect_err("refused");
        (
            refusal(Setting::Channels { interface: name() }, "rx 99"),
            refusal(Setting::Rings { interface: name() }, "rx 99"),
            refusal(Setting::Offload { interface: name(), offload: Offload::LargeReceive }, "on"),
            refusal(Setting::Channels { interface: "gone0".into() }, "rx 1"),
            [Offload::LargeReceive, Offload::GenericReceive]
                .map(|offload| host.is_offload_changeable(interface, offload).expect("features")),
        )
    });
    let kernel_message = "requested channel count exceeds maximum";
    assert!(channels.to_string().ends_with(kernel_message), "{channels}");
    assert!(!channels.is_gone() && !channels.is_unsupported() && !channels.is_denied());
    assert!(rings.is_unsupported() && rings.to_string().contains("Operation not supported"), "{rings}");
    assert!(fixed.is_unsupported() && fixed.to_string().ends_with("the device has it fixed"), "{fixed}");
    assert!(gone.is_gone(), "{gone}");
    assert_eq!(changeable, [false, true]);
}

#[test]
fn nft_tables_are_written_and_restored() {
    let test = "nft_tables_are_written_and_restored";
    let Some(lab) = lab(test) else { return };
    let first = "table inet ours {\n chain c { type filter hook input priority 0; policy drop; udp dport { 53 } accept; }\n}";
    let second = "table inet ours {\n chain c {\n type filter hook prerouting priority raw;\n fib daddr type local udp dport { 123, 53 } counter \
                  notrack\n }\n}";
    let outcome = on_receiver(&lab, |host, _| {
        let ours = Setting::NftTable { family: NftFamily::Inet, table: "ours".into() };
        write_and_restore(host, &ours, &[first, second])?;
        ours.write(host, &SettingValue::new(first))?;
        let printed = ours.read(host)?;
        write_and_restore(host, &ours, &[second, ""])?;
        // Another program adds a rule.
        host.program("nft", &["add", "rule", "inet", "ours", "c", "udp", "dport", "54", "accept"], "")
            .expect("added");
        assert!(!ours.same(&printed, &ours.read(host)?));
        let refusal = ours.write(host, &SettingValue::new("table inet ours { chain c { nonsense } }"));
        assert!(refusal.expect_err("no rule").to_string().contains("nft: "));
        Ok::<_, SettingError>(())
    });
    if let Err(error) = outcome {
        skip(test, error);
    }
}

#[test]
fn iptables_rules_are_written_and_restored() {
    let test = "iptables_rules_are_written_and_restored";
    let Some(lab) = lab(test) else { return };
    let outcome = on_receiver(&lab, |host, _| {
        let list = |table: &str| host.program("iptables-save", &["-t", table], "");
        // This creates the table.
        host.program("iptables", &["-t", "raw", "-A", "PREROUTING", "-p", "tcp", "-j", "ACCEPT"], "")?;
        let rules = |text: &str| -> Vec<String> {
            text.lines().filter(|line| line.starts_with("-A")).map(str::to_owned).collect()
        };
        let before = rules(&list("raw")?);
        let setting = |chain: &str, rule: &str| Setting::IptablesRule {
            family: IpFamily::Ip,
            table: "raw".into(),
            chain: chain.into(),
            rule: rule.into(),
        };
        for rule in [
            setting("PREROUTING", "-p udp --dport 53 -m addrtype --dst-type LOCAL -j NOTRACK"),
            setting("OUTPUT", "-p udp --sport 53 -j NOTRACK"),
        ] {
            assert_eq!(rule.read(host).expect("read").as_str(), "absent");
            write_and_restore(host, &rule, &["present"]).expect("written and restored");
        }
        assert_eq!(rules(&list("raw")?), before);
        host.program("iptables", &["-t", "mangle", "-S"], "")?;
        let tables = || host.program("nft", &["list", "tables"], "");
        let before = tables()?;
        let mangle = Setting::IptablesRule {
            family: IpFamily::Ip,
            table: "mangle".into(),
            chain: "OUTPUT".into(),
            rule: "-p udp -j ACCEPT".into(),
        };
        write_and_restore(host, &mangle, &["present"]).expect("written and restored");
        assert_eq!(tables()?, before);
        let refusal = setting("PREROUTING", "-p udp --nonsense 1").read(host);
        assert!(refusal.expect_err("no rule").to_string().contains("iptables: "));
        Ok::<_, HostError>(())
    });
    if let Err(error) = outcome {
        skip(test, error);
    }
}
