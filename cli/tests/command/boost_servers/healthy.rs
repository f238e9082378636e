//! `linerate doctor` reports only notes about healthy servers.

use serde_json::Value;

use super::scene::BoostServersTestHost;
use crate::support::{document_of, errors_of, machine};

/// Requests per second.
const RATES: [f64; 2] = [0.0, 2_000.0];

/// Names of recipes, and of their programs.
const SERVERS: [(&str, &str); 7] = [
    ("nsd", "nsd"),
    ("knot", "knotd"),
    ("unbound", "unbound"),
    ("dnsmasq", "dnsmasq"),
    ("chrony", "chronyd"),
    ("freeradius", "freeradius"),
    ("rsyslog", "rsyslogd"),
];

/// Doctor's findings with a severity above note, except the CPU time that the hypervisor takes: this
/// machine may be a guest beside busy ones.
fn findings(host: &BoostServersTestHost, port: u16) -> Vec<String> {
    // --interval compares two readings. Counters since boot include other tests on this machine.
    let output = host.doctor(port, &["--interval", "1"]);
    let document = document_of(&output);
    let all = document["result"]["findings"].as_array().expect("findings");
    let above_note: Vec<&Value> = all.iter().filter(|finding| finding["severity"] != "note").collect();
    assert_eq!(output.status.code(), Some(i32::from(!above_note.is_empty())), "{}", errors_of(&output));
    let of_servers = above_note.into_iter().filter(|finding| finding["id"] != "machine.steal");
    of_servers.map(|finding| format!("{} {}", finding["severity"], finding["title"])).collect()
}

#[test]
fn doctor_reports_only_notes_for_healthy_servers() {
    machine();
    let Some(mut host) = BoostServersTestHost::up(&["ss"]) else { return };
    host.spread();
    for (name, program) in SERVERS {
        let Some((recipe, workload)) = host.serve_recipe(name, program) else { continue };
        let load = ["--workload", &workload];
        for rate in RATES {
            let load = (rate > 0.0).then(|| host.start_load(recipe.port, rate, &load));
            let diagnosis = findings(&host, recipe.port);
            let answered_count = load.map(|load| load.end()["answered"].as_u64());
            assert_eq!(diagnosis, Vec::<String>::new(), "{name} at {rate}/s");
            let has_answers = answered_count.is_none_or(|answered_count| answered_count > Some(0));
            assert!(has_answers || recipe.no_reply, "{name} does not answer");
        }
        host.end_servers();
    }
}
