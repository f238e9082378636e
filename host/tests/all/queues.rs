//! The queues of a real interface, read in a host of the lab.

use linerate_host::{Host, Known};
use linerate_host::{PacketPath, Scope};
use linerate_testkit::skip;

use super::lab;

#[test]
fn veth_queues_and_qdisc_are_read_and_recorded() {
    let test = "veth_queues_and_qdisc_are_read_and_recorded";
    let Some(lab) = lab(test) else { return };
    let link = &lab.links()[0];
    let sys = match lab.receiver().sys_path() {
        Ok(sys) => sys.to_owned(),
        Err(error) => return skip(test, error),
    };
    let scope = Scope { interfaces: vec![link.receiver.interface.clone()], ..Scope::default() };
    let host = Host::live_with_sys(sys).recording();
    let path = lab.receiver().run(|| PacketPath::observe(&host, &scope)).expect("run on the receiver");

    let rss = &path.rss[0];
    // A veth has no NIC's indirection table, hash or rules, and reports that.
    assert_eq!(
        (&rss.table, &rss.fields, &rss.ntuple),
        (&Known::Value(None), &Known::Value(None), &Known::Value(None))
    );
    let transmit = &path.transmit[0];
    let queues = transmit.queues.value().expect("listed");
    assert_eq!(path.link[0].transmit_queues, Known::Value(u32::try_from(queues.len()).expect("few")));
    assert!(queues.iter().all(|queue| queue.timeouts == Known::Value(0)), "{queues:?}");
    assert!(transmit.root().is_some_and(|root| !root.kind.is_empty()), "{transmit:?}");

    // The recording gives the same values again.
    let again = PacketPath::observe(&Host::recorded(host.into_recording()), &scope);
    let json = |path: &PacketPath| serde_json::to_value((&path.rss, &path.transmit)).expect("written");
    assert_eq!(json(&again), json(&path));
}
