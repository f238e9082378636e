//! `linerate boost` detects servers with one socket and explains them.

use linerate_testkit::reflector::installed::find;

use super::nsd::{self, NsdTestServer};
use super::scene::BoostServersTestHost;

/// Plans a boost of the server on a port. Returns standard output.
fn plan(host: &BoostServersTestHost, port: u16) -> String {
    let (out, err) = host.expect(0, &["--port", &port.to_string()]);
    assert_eq!(err, "", "{out}");
    out
}

#[test]
fn plan_reports_one_socket_for_chronyd() {
    let Some(mut host) = BoostServersTestHost::up("plan_reports_one_socket_for_chronyd", &["chronyd", "ss"])
    else {
        return;
    };
    let chronyd = find("chronyd").expect("it is there");
    let (recipe, pid, workload) = host.serve_recipe("chrony", chronyd);
    let plan_text = plan(&host, recipe.port);
    assert!(plan_text.contains("chrony") && plan_text.contains("one socket"), "{plan_text}");
    let server =
        || host.document(&["plan", "--port", &recipe.port.to_string(), "--look", "0.5"])["server"].take();
    let idle = server();
    assert_eq!(idle["readers"].as_array().map(Vec::len), Some(1), "{idle}");
    let reader = &idle["readers"][0];
    assert_eq!((&reader["pid"], &reader["seen"]), (&pid.into(), &"only_thread".into()), "{idle}");
    let [sockets, groups] = [&reader["sockets"], &idle["groups"]].map(|list| list.as_array().map(Vec::len));
    assert_eq!(sockets, groups, "{idle}");
    let load = host.start_load(recipe.port, 500.0, &["--workload", &workload]);
    let loaded = server();
    load.end();
    assert_eq!(loaded["readers"][0]["seen"], "reading", "{loaded}");
}

#[test]
fn plan_reports_one_socket_and_one_reading_thread_for_freeradius() {
    let test = "plan_reports_one_socket_and_one_reading_thread_for_freeradius";
    let Some(mut host) = BoostServersTestHost::up(test, &["freeradius", "ss"]) else { return };
    let freeradius = find("freeradius").expect("it is there");
    let (recipe, ..) = host.serve_recipe("freeradius", freeradius);
    let plan_text = plan(&host, recipe.port);
    assert!(
        plan_text.contains("1 of 3 threads read") && plan_text.contains("one socket, 1 thread"),
        "{plan_text}"
    );
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
