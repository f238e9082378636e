//! `linerate headroom` in a lab.

use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};

use linerate_lab::{Lab, LabHost};
use linerate_testkit::reflector::Reflector;
use serde_json::Value;

use crate::schema;
use crate::support::{machine, program, skip};

const PORT: u16 = 4098;

fn headroom(host: &LabHost, arguments: &[&str]) -> Output {
    let mut command = Command::new(program());
    command.args(["headroom", "--port", "4098"]).args(arguments);
    host.run(move || command.output()).expect("the host runs").expect("the command starts")
}

fn sum(items: &Value, key: &str) -> f64 {
    items.as_array().expect("a list").iter().map(|item| item[key].as_f64().expect("a number")).sum()
}

#[test]
fn headroom_estimates_capacity_only_with_traffic() {
    let lab = match Lab::builder().start() {
        Ok(lab) => lab,
        Err(why) => return skip("headroom::headroom_estimates_capacity_only_with_traffic", &why.to_string()),
    };
    let _machine = machine();
    let address = SocketAddr::from((lab.links()[0].receiver.ipv4[0], PORT));
    let start = || Reflector::builder().address(address).start();
    let _echo = lab.receiver().run(start).expect("the host runs").expect("an echo");
    let quiet = headroom(lab.receiver(), &["--duration", "1"]);
    let text = String::from_utf8_lossy(&quiet.stdout);
    assert!(quiet.status.code() == Some(1) && text.contains("read 0 datagrams"), "{quiet:?}");

    let mut command = Command::new(program());
    command.args(["load", &address.to_string(), "--rate", "10k", "--duration", "60", "--quiet"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut load = lab.senders()[0].spawn(command).expect("the load starts");
    let busy = headroom(lab.receiver(), &["--duration", "3", "--json", "-"]);
    let _ = load.kill();
    let document: Value = serde_json::from_slice(&busy.stdout).expect("JSON");
    schema::conforms(&document, "linerate.headroom/1");
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
