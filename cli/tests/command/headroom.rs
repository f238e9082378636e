//! `linerate headroom` in a lab.

use std::net::SocketAddr;
use std::process::Output;

use linerate_lab::{Lab, LabHost};
use serde_json::Value;

use crate::schema::conforms;
use crate::support::{
    assert_refused, document_of, machine, program, run_on, start_echo, start_lab, start_on,
};

const PORT: u16 = 4098;

fn headroom(host: &LabHost, arguments: &[&str]) -> Output {
    run_on(host, program(), &[&["headroom", "--port", "4098"], arguments].concat())
}

fn sum(items: &Value, key: &str) -> f64 {
    items.as_array().expect("a list").iter().map(|item| item[key].as_f64().expect("a number")).sum()
}

#[test]
fn headroom_estimates_capacity_only_with_traffic() {
    let Some(lab) = start_lab(Lab::builder()) else { return };
    machine();
    assert_refused(&headroom(lab.receiver(), &["--duration", "1"]), "no UDP socket on port 4098");
    let address = SocketAddr::from((lab.links()[0].receiver.ipv4[0], PORT));
    let _echo = start_echo(lab.receiver(), address);
    let quiet = headroom(lab.receiver(), &["--duration", "1"]);
    let text = String::from_utf8_lossy(&quiet.stdout);
    assert!(quiet.status.code() == Some(1) && text.contains("read 0 datagrams"), "{quiet:?}");

    let load = ["load", &address.to_string(), "--rate", "10k", "--duration", "60", "--quiet"];
    let mut load = start_on(&lab.senders()[0], program(), &load);
    let busy = headroom(lab.receiver(), &["--duration", "3", "--json", "-"]);
    let _ = load.kill();
    let document = document_of(&busy);
    conforms(&document, "linerate.headroom/1");
    let (report, demand) = (&document["result"], &document["result"]["demand"]);
    for (items, key) in [("cpus", "arrival_share"), ("cpus", "read_share"), ("threads", "read_share")] {
        assert!((sum(&demand[items], key) - 1.0).abs() < 0.01, "{key} of {items}: {demand}");
    }
    let read = demand["read_per_second"].as_f64().expect("a rate");
    assert!(read > 100.0 && read < 15_000.0, "{demand}");
    match report["capacity"]["per_second"].as_f64() {
        Some(capacity) => assert!(capacity > read / 2.0 && busy.status.success(), "{report}"),
        // Other programs, such as builds, may use the CPUs during this test.
        None => {
            let why = report["capacity"]["unknown"].as_str().expect("a reason");
            assert!(why.contains("other programs took") || why.contains("the hypervisor took"), "{report}");
        }
    }
}
