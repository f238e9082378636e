//! Tables that were created by hand, and filters of an interface, on a real host.

use linerate_host::{Diagnosis, Finding, Host, HostError, HostView, PacketPath, Scope};
use linerate_lab::Lab;
use linerate_testkit::skip;

use super::lab;

fn observe(lab: &Lab) -> PacketPath {
    let receiver = lab.receiver();
    let host = Host::live_with_sys(receiver.sys_path().expect("a sysfs"));
    let scope = Scope { interfaces: vec!["eth0".to_owned()], ..Scope::default() };
    receiver.run(|| PacketPath::observe(&host, &scope)).expect("a host that runs")
}

fn on_receiver(lab: &Lab, program: &str, line: &str) -> Result<String, HostError> {
    let arguments: Vec<&str> = line.split_whitespace().collect();
    lab.receiver().run(|| Host::live().program(program, &arguments, "")).expect("a host that runs")
}

fn empty_tables(path: &PacketPath) -> Option<Finding> {
    let findings = Diagnosis::of(&HostView::once(path)).findings;
    findings.into_iter().find(|finding| finding.id == "filter.hooks-without-rules")
}

#[test]
fn empty_nftables_table_is_a_finding_until_a_rule_is_added() {
    let test = "empty_nftables_table_is_a_finding_until_a_rule_is_added";
    let Some(lab) = lab(test) else { return };
    assert!(empty_tables(&observe(&lab)).is_none());
    let result = on_receiver(&lab, "nft", "add table inet fw").and_then(|_| {
        on_receiver(&lab, "nft", "add chain inet fw input { type filter hook input priority 0; }")
    });
    if let Err(error) = result {
        return skip(test, error);
    }
    let path = observe(&lab);
    // It may be unknown whether nf_tables is loaded. It is not queried then, because a query could
    // load the module.
    if let Some(why) = path.filter.nftables.why() {
        return skip(test, why);
    }
    let finding = empty_tables(&path).expect("an empty table");
    assert_eq!(finding.title, "The table nftables inet fw holds no rule and is at a hook all the same");
    assert_eq!(finding.commands, ["nft delete table inet fw"]);
    on_receiver(&lab, "nft", "add rule inet fw input udp dport 53 accept").expect("a rule");
    assert!(empty_tables(&observe(&lab)).is_none());
}

#[test]
fn tc_filters_are_counted_per_direction() {
    let test = "tc_filters_are_counted_per_direction";
    let Some(lab) = lab(test) else { return };
    let filter_counts = |lab: &Lab| {
        let path = observe(lab);
        path.filter.interfaces[0].tc.value().map(|tc| (tc.ingress, tc.egress))
    };
    let Some(none) = filter_counts(&lab) else {
        return skip(test, "tc filters may not be counted here");
    };
    assert_eq!(none, (0, 0));
    let filter = |place: &str, prio: u32| {
        let line = format!(
            "filter add dev eth0 {place} prio {prio} protocol ip u32 match ip dport {prio} 0xffff flowid 1:1"
        );
        on_receiver(&lab, "tc", &line)
    };
    let result = on_receiver(&lab, "tc", "qdisc add dev eth0 clsact")
        .and_then(|_| filter("ingress", 1))
        .and_then(|_| filter("ingress", 2))
        .and_then(|_| filter("egress", 1));
    match result {
        Ok(_) => assert_eq!(filter_counts(&lab), Some((2, 1))),
        Err(error) => skip(test, error),
    }
}
