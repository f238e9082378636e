//! `linerate boost` detects servers with one socket and explains them.

use serde_json::Value;

use super::nsd::{self, NsdTestServer};
use super::scene::BoostServersTestHost;

/// Plans a boost of the server on a port. Returns standard output.
fn plan(host: &BoostServersTestHost, port: u16) -> String {
    let (out, err) = host.expect(0, &["--port", &port.to_string()]);
    assert_eq!(err, "", "{out}");
    out
}

#[test]
fn plan_reports_one_socket_and_one_reading_thread_for_chronyd_and_freeradius() {
    let test = "plan_reports_one_socket_and_one_reading_thread_for_chronyd_and_freeradius";
    let Some(mut host) = BoostServersTestHost::up(test, &["ss"]) else { return };
    for (name, program, threads) in
        [("chrony", "chronyd", "reads, 1 thread"), ("freeradius", "freeradius", "1 of 3 threads read")]
    {
        let Some((recipe, _)) = host.serve_recipe(test, name, program) else { continue };
        let plan_text = plan(&host, recipe.port);
        for words in [name, threads, "one socket, 1 thread"] {
            assert!(plan_text.contains(words), "no '{words}' in {plan_text}");
        }
        if name == "chrony" {
            let plan = host.document(&["--port", &recipe.port.to_string(), "--no-datagrams"]);
            let readers = &plan["server"]["readers"];
            assert_eq!((readers[0]["seen"].as_str(), &readers[1]), (Some("only_thread"), &Value::Null));
        }
        host.end_servers();
    }
}

#[test]
fn plan_advises_the_reuseport_option_for_nsd_with_one_socket() {
    let test = "plan_advises_the_reuseport_option_for_nsd_with_one_socket";
    let Some(mut host) = BoostServersTestHost::up(test, &["nsd", "ss"]) else { return };
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
