//! `linerate boost` detects servers with one socket and explains them.

use std::path::Path;

use linerate_testkit::reflector::installed::{self, find};

use super::nsd::{self, NsdTestServer};
use super::scene::{ADDRESS, BoostServersTestHost};
use crate::tune::scene::text;

/// Plans a boost of the server on a port. Returns standard output.
fn plan(host: &BoostServersTestHost, port: u16) -> String {
    let (out, err) = host.expect(0, &["--port", &port.to_string()]);
    assert_eq!(err, "", "{out}");
    out
}

#[test]
fn plan_reports_one_socket_for_chronyd() {
    const PORT: u16 = 1230;
    let Some(mut host) = BoostServersTestHost::up("plan_reports_one_socket_for_chronyd", &["chronyd", "ss"])
    else {
        return;
    };
    let address = ADDRESS.parse().expect("an address");
    let config = installed::chrony(Path::new(&host.directory()), Some(address), PORT).expect("written");
    // -x: chronyd must not set the clock.
    let chronyd = find("chronyd").expect("it is there");
    host.serve(PORT, chronyd, &["-x", "-d", "-u", "root", "-f", text(&config)]);
    let plan_text = plan(&host, PORT);
    assert!(plan_text.contains("chrony") && plan_text.contains("one socket"), "{plan_text}");
}

fn radius(directory: &str) -> String {
    format!(
        "prefix = /usr
libdir = /usr/lib/freeradius
logdir = {directory}
run_dir = {directory}
db_dir = {directory}
raddbdir = {directory}
pidfile = {directory}/pid
security {{
  status_server = no
}}
thread pool {{
  start_servers = 4
  max_servers = 4
  min_spare_servers = 1
  max_spare_servers = 4
  max_requests_per_server = 0
}}
client lab {{
  ipaddr = 198.18.0.0/15
  secret = testing123
}}
server lab {{
  listen {{
    type = auth
    ipaddr = {ADDRESS}
    port = 1812
  }}
  authorize {{
  }}
}}
"
    )
}

#[test]
fn plan_reports_one_socket_and_one_reading_thread_for_freeradius() {
    let test = "plan_reports_one_socket_and_one_reading_thread_for_freeradius";
    let Some(mut host) = BoostServersTestHost::up(test, &["freeradius", "ss"]) else { return };
    let directory = host.directory();
    host.write("radiusd.conf", &radius(&directory));
    let freeradius = find("freeradius").expect("it is there");
    host.serve(1812, freeradius, &["-f", "-l", "stdout", "-d", &directory]);
    let plan_text = plan(&host, 1812);
    assert!(
        plan_text.contains("1 of 5 threads read") && plan_text.contains("one socket, 1 thread"),
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
