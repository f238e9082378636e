//! Virtual functions for virtual machines that use the host's bridge.

use super::LinkState;
use crate::finding::{Rule, RuleMatch};
use crate::stage::HostView;
use crate::{Known, Setting, Severity};

pub(in crate::stage) const RULE: Rule = Rule {
    id: "link.vf-unused",
    title: "Virtual machines go through a bridge, though the NIC has virtual functions",
    why: "Each packet of a virtual machine on a bridge is handled by the host's softirq, a tap and vhost, \
          and then by the machine. A virtual function of the NIC (SR-IOV) in the machine bypasses the host.",
    effect: "450,000 to 650,000 packets/s with one queue, 800,000 to 1,200,000 with several.",
    published_ratio: Some(1.5),
    source: "a study of packet rates, multi-queue and SR-IOV for virtual machines",
    kernels: "3.8 and later (sriov_numvfs)",
    remedy: "Switch the IOMMU on, create virtual functions, set the address of each by ip link set IF vf N \
             mac MAC spoofchk on, and assign one to each machine that needs the rate: in libvirt <interface \
             type='hostdev' managed='yes'><mac address='MAC'/><source><address type='pci' domain='0x0000' \
             bus='0x01' slot='0x10' function='0x0'/></source></interface>.",
    caveats: "The machines must migrate while they run, or the host's bridge filters or counts their \
              traffic: a virtual function bypasses both. On some NICs virtual functions also take queues \
              from the host.",
    check: |view| view.links_up().filter_map(|link| match_interface(view, link)).collect(),
};

fn match_interface(view: &HostView<'_>, link: &LinkState) -> Option<RuleMatch> {
    let (Known::Value(Some(sriov)), Known::Value(Some(bridge))) = (&link.sriov, &link.bridge) else {
        return None;
    };
    let (Some(total @ 1..), Some(0)) = (sriov.total, sriov.active) else { return None };
    let machines = u32::try_from(bridge.taps.len()).ok().filter(|taps| *taps > 0)?;
    let interface = &link.interface;
    let title = format!(
        "{interface} can have {total} virtual functions and has none, while {machines} tap {} on its bridge",
        if machines == 1 { "interface is" } else { "interfaces are" }
    );
    let directory = format!("/sys/class/net/{interface}/device");
    let rule_match = RuleMatch::new(Severity::Low, title)
        .costs_packets_of(interface)
        .evidence("virtual functions it can have", total, format!("{directory}/sriov_totalvfs"))
        .evidence("virtual functions it has", 0, format!("{directory}/sriov_numvfs"))
        .evidence("tap interfaces on its bridge", bridge.taps.clone(), bridge.read_from.clone())
        .evidence_if(
            "IOMMU",
            view.now.virtual_network.iommu.map(|is_on| if is_on { "on" } else { "off" }),
            "/sys/class/iommu",
        );
    let setting = Setting::VirtualFunctions { interface: interface.clone() };
    Some(rule_match.change(setting, Some(0), machines.min(total)))
}
