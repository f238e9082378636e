//! XDP in generic mode.

use super::InterfaceFilters;
use crate::finding::{Rule, RuleMatch, Severity};
use crate::netlink::XdpAttachKind;
use crate::stage::HostView;
use crate::stage::link::DeviceKind;

pub(in crate::stage) const RULE: Rule = Rule {
    id: "filter.generic-xdp",
    title: "An XDP program runs in generic mode",
    why: "In generic mode the program runs after the driver has created a socket buffer for the packet, \
          which XDP is supposed to avoid. A packet with too little headroom is copied first. Generic mode is \
          used if the driver cannot run programs, or if a loader falls back silently.",
    effect: "In native mode a packet that the program drops or sends back needs no socket buffer: an echo in \
             the program answered 3.1 M packets/s under a flood on one CPU, an echo on a socket 0.01 M \
             packets/s.",
    published_ratio: None,
    source: "net/core/dev.c, netif_receive_generic_xdp; the second measured on a veth, Linux 6.18",
    kernels: "4.12 and later",
    remedy: "Let its owner attach the program in native mode (`xdpdrv`), if the driver supports it.",
    caveats: "The driver cannot run XDP programs, or the program requires generic mode.",
    check: |view| {
        view.now.filter.interfaces.iter().filter_map(|filters| match_interface(view, filters)).collect()
    },
};

fn match_interface(view: &HostView<'_>, filters: &InterfaceFilters) -> Option<RuleMatch> {
    let program = (*filters.xdp.value()?).filter(|program| program.mode == XdpAttachKind::Generic)?;
    let interface = &filters.interface;
    let driver_runs_xdp = filters.driver_runs_xdp.value().copied().flatten();
    let device = view.now.link_of(interface).and_then(|link| link.device.value());
    let severity = match (driver_runs_xdp, device) {
        (Some(false), _) => Severity::Note,
        (_, Some(DeviceKind::Hardware | DeviceKind::Virtio)) => Severity::Medium,
        _ => Severity::Low,
    };
    let driver_note = match driver_runs_xdp {
        Some(true) => ", though its driver can run it itself",
        Some(false) => ", since its driver cannot run it itself",
        None => "",
    };
    let title = format!("The XDP program on {interface} runs in generic mode{driver_note}");
    let rule_match = RuleMatch::new(severity, title)
        .evidence(format!("mode of the XDP program on {interface}"), "generic", "RTM_GETLINK, IFLA_XDP")
        .evidence_if("id of the program", program.id, "RTM_GETLINK, IFLA_XDP")
        .evidence_if(
            format!("the driver of {interface} runs XDP programs"),
            driver_runs_xdp,
            "netdev netlink, dev-get, xdp-features",
        );
    Some(rule_match)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PacketPath;

    fn matches(attached: &str, features: &str) -> Vec<RuleMatch> {
        RULE.once(&PacketPath::scripted([
            ("/sys/class/net/eth0/ifindex", "2\n"),
            ("/calls/xdp/eth0/attached.json", attached),
            ("/calls/xdp/eth0/features.json", features),
        ]))
    }

    #[test]
    fn generic_xdp_is_low_unless_the_driver_does_not_support_xdp() {
        for (features, severity, driver_note) in [
            (r#"{"errno": 95}"#, Severity::Low, ""),
            (r#"{"basic": true}"#, Severity::Low, ", though its driver can run it itself"),
            (r#"{"basic": false}"#, Severity::Note, ", since its driver cannot run it itself"),
        ] {
            let matches = matches(r#"{"id": 17, "mode": "generic"}"#, features);
            let title = format!("The XDP program on eth0 runs in generic mode{driver_note}");
            assert_eq!(matches[0].summary(), (severity, title.as_str()));
        }
    }

    #[test]
    fn native_offloaded_mixed_or_no_xdp_is_not_reported() {
        for attached in
            [r#"{"mode": "native"}"#, r#"{"mode": "offloaded"}"#, r#"{"mode": "several"}"#, "null"]
        {
            assert!(matches(attached, "{}").is_empty(), "{attached}");
        }
    }
}
