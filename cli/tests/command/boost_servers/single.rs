//! `linerate boost` detects servers with one socket and explains them.

use serde_json::Value;

use super::nsd::{self, NsdTestServer};
use super::scene::BoostServersTestHost;
use crate::support::is_installed;

/// Plans a boost of the server on a port. Returns standard output.
fn plan(host: &BoostServersTestHost, port: u16) -> String {
    let (out, err) = host.expect(0, &["--port", &port.to_string()]);
    assert_eq!(err, "", "{out}");
    out
}

#[test]
fn plan_reports_one_socket_and_the_option_for_more_sockets() {
    let Some(mut host) = BoostServersTestHost::up(&["ss"]) else { return };
    for (name, program, threads) in
        [("chrony", "chronyd", "reads, 1 thread"), ("freeradius", "freeradius", "1 of 3 threads read")]
    {
        let Some((recipe, _)) = host.serve_recipe(name, program) else { continue };
        let plan_text = plan(&host, recipe.port);
        for words in [name, threads, "one socket, 1 thread", "One thread reads one socket"] {
            assert!(plan_text.contains(words), "no '{words}' in {plan_text}");
        }
        if name == "chrony" {
            let plan = host.document(&["--port", &recipe.port.to_string(), "--no-datagrams"]);
            let readers = &plan["server"]["readers"];
            assert_eq!((readers[0]["seen"].as_str(), &readers[1]), (Some("only_thread"), &Value::Null));
        }
        host.end_servers();
    }
    if !is_installed("nsd") {
        return;
    }
    let nsd = NsdTestServer::start_with(&mut host, false);
    let load = host.start_load(nsd::PORT, 2_000.0, &nsd.load_arguments(&[]));
    let plan_text = plan(&host, nsd::PORT);
    load.end();
    assert!(
        plan_text.contains("one socket, 2 threads") && plan_text.contains("reuseport: yes"),
        "{plan_text}"
    );
    assert!(plan_text.contains("nsd.docs.nlnetlabs.nl"), "{plan_text}");
}
