//! The settings of the lab's receiver for each configuration. The baseline is a host as a stock distribution leaves it.

use linerate_host::setting::{NftFamily, Offload, QueueDirection};
use linerate_host::{CpuSet, Setting, SettingValue};

use super::placement::{CpuPlacement, queue_cpus};
use crate::ladder::configuration::ServerConfiguration;

/// Name of the nftables table with the distribution's ruleset.
pub(super) const TABLE: &str = "stock";

/// Whether each part of the receiver can be set, or why not. Parts that cannot be set stay
/// unchanged, and their steps are refused.
#[derive(Debug, Clone)]
pub(super) struct SettableParts {
    /// RPS and XPS masks.
    pub queue_cpus: Result<(), String>,
    pub offload: Result<(), String>,
    /// An nftables table with connection tracking.
    pub netfilter: Result<(), String>,
    /// The original value.
    pub audit: Result<SettingValue, String>,
    pub busy_poll: Result<(), String>,
}

#[derive(Debug, Clone)]
pub(super) struct ReceiverInterface {
    pub interface: String,
    pub queues: u32,
    pub port: u16,
}

/// Every setting of the receiver under a configuration, with its value.
pub(super) fn settings(
    receiver: &ReceiverInterface,
    placement: &CpuPlacement,
    settable: &SettableParts,
    configuration: &ServerConfiguration,
) -> Vec<(Setting, SettingValue)> {
    let mut settings = sysctls(&receiver.interface, configuration);
    if settable.queue_cpus.is_ok() {
        for queue in 0..receiver.queues {
            let queue_setting =
                |direction| Setting::QueueCpus { interface: receiver.interface.clone(), direction, queue };
            let receive_cpus = placement.receive_cpus(configuration.receive_spread);
            // The empty mask chooses by flow hash.
            let transmit_cpus = match configuration.transmit_by_cpu {
                true => queue_cpus(&placement.server, queue, receiver.queues),
                false => CpuSet::new(),
            };
            for (direction, cpus) in
                [(QueueDirection::Receive, receive_cpus), (QueueDirection::Transmit, transmit_cpus)]
            {
                settings.push((queue_setting(direction), SettingValue::new(cpus.to_mask())));
            }
        }
    }
    if settable.offload.is_ok() {
        let gro =
            Setting::Offload { interface: receiver.interface.clone(), offload: Offload::GenericReceive };
        settings.push((gro, SettingValue::new(if configuration.gro { "on" } else { "off" })));
    }
    if settable.netfilter.is_ok() {
        let table = Setting::NftTable { family: NftFamily::Inet, table: TABLE.to_owned() };
        settings.push((
            table,
            if configuration.netfilter { ruleset(receiver.port) } else { SettingValue::new("") },
        ));
    }
    if let Ok(audit_value) = &settable.audit {
        settings.push((
            Setting::Audit,
            if configuration.audit { audit_value.clone() } else { SettingValue::new("0") },
        ));
    }
    settings
}

fn sysctls(interface: &str, configuration: &ServerConfiguration) -> Vec<(Setting, SettingValue)> {
    let bool_value = |flag: bool| SettingValue::new(if flag { "1" } else { "0" });
    let validate = configuration.source_validation;
    // For rp_filter the larger value of "all" and the interface applies, for accept_local either of them
    // (Documentation/networking/ip-sysctl.rst).
    let name = interface.replace('.', "/");
    vec![
        (Setting::sysctl("net.ipv4.conf.all.rp_filter"), bool_value(validate)),
        (Setting::sysctl(format!("net.ipv4.conf.{name}.rp_filter")), bool_value(validate)),
        (Setting::sysctl(format!("net.ipv4.conf.{name}.accept_local")), bool_value(!validate)),
        (Setting::sysctl("net.ipv4.udp_early_demux"), bool_value(configuration.early_demux)),
    ]
}

/// A server's ruleset as in the guides of distributions: stateful, with the service's port open.
pub(super) fn ruleset(port: u16) -> SettingValue {
    SettingValue::new(format!(
        "table inet {TABLE} {{
    chain input {{
        type filter hook input priority 0; policy drop;
        ct state invalid drop
        ct state established,related accept
        iifname \"lo\" accept
        meta l4proto {{ icmp, ipv6-icmp }} accept
        udp dport {port} accept
    }}
    chain forward {{
        type filter hook forward priority 0; policy drop;
    }}
    chain output {{
        type filter hook output priority 0; policy accept;
    }}
}}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(settable: &SettableParts, configuration: &ServerConfiguration) -> Vec<(String, String)> {
        let receiver = ReceiverInterface { interface: "eth0".into(), queues: 2, port: 7 };
        settings(&receiver, &CpuPlacement::shared(&[0, 1]), settable, configuration)
            .into_iter()
            .map(|(setting, value)| (setting.to_string(), value.to_string()))
            .collect()
    }

    fn all_settable() -> SettableParts {
        SettableParts {
            queue_cpus: Ok(()),
            offload: Ok(()),
            netfilter: Ok(()),
            audit: Ok(SettingValue::new("1")),
            busy_poll: Ok(()),
        }
    }

    #[test]
    fn transmit_by_cpu_gives_each_queue_its_cpu() {
        let by_cpu = ServerConfiguration { transmit_by_cpu: true, ..ServerConfiguration::baseline() };
        let values = values(&all_settable(), &by_cpu);
        for (queue, mask) in [("eth0 tx-0/xps_cpus", "00000001"), ("eth0 tx-1/xps_cpus", "00000002")] {
            assert!(values.contains(&(queue.to_owned(), mask.to_owned())), "{values:?}");
        }
    }

    #[test]
    fn baseline_settings_match_a_stock_host() {
        let values = values(&all_settable(), &ServerConfiguration::baseline());
        let find = |name: &str| {
            values.iter().find(|(setting, _)| setting == name).map(|(_, value)| value.as_str()).expect(name)
        };
        assert_eq!(find("net.ipv4.conf.all.rp_filter"), "1");
        assert_eq!(find("eth0 generic-receive-offload"), "on");
        assert_eq!(find("eth0 rx-1/rps_cpus"), "00000001");
        assert_eq!(find("eth0 tx-1/xps_cpus"), "00000000");
        assert_eq!(find("audit enabled"), "1");
        assert!(find("nftables table inet stock").contains("ct state invalid drop"));
    }

    #[test]
    fn refused_parts_have_no_settings() {
        let refusal = || Err("refused".to_owned());
        let settable = SettableParts {
            queue_cpus: refusal(),
            offload: refusal(),
            netfilter: refusal(),
            audit: Err("refused".to_owned()),
            busy_poll: refusal(),
        };
        let values = values(&settable, &ServerConfiguration::baseline());
        assert!(values.iter().all(|(setting, _)| setting.starts_with("net.ipv4.")), "{values:?}");
    }
}
