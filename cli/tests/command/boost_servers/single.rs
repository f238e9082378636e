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
fn chronyd_has_one_socket() {
    const PORT: u16 = 1230;
    let Some(mut host) = BoostServersTestHost::up("chronyd_has_one_socket", &["chronyd", "ss"]) else {
        return;
    };
    let address = ADDRESS.parse().expect("an address");
    let config = installed::chrony(Path::new(&host.directory()), Some(address), PORT).expect("written");
    // -x: chronyd must not set the clock.
    let chronyd = find("chronyd").expect("it is there");
    host.serve(PORT, chronyd, &["-x", "-d", "-u", "root", "-f", text(&config)]);
    let said = plan(&host, PORT);
    assert!(said.contains("chrony") && said.contains("one socket"), "{said}");
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
fn freeradius_has_one_socket_and_many_threads() {
    let test = "freeradius_has_one_socket_and_many_threads";
    let Some(mut host) = BoostServersTestHost::up(test, &["freeradius", "ss"]) else { return };
    let directory = host.directory();
    host.write("radiusd.conf", &radius(&directory));
    let freeradius = find("freeradius").expect("it is there");
    host.serve(1812, freeradius, &["-f", "-l", "stdout", "-d", &directory]);
    let said = plan(&host, 1812);
    assert!(said.contains("1 of 5 threads read") && said.contains("one socket, 1 thread"), "{said}");
}

#[test]
fn nsd_s_own_option_gives_each_of_its_servers_a_socket() {
    let test = "nsd_s_own_option_gives_each_of_its_servers_a_socket";
    let Some(mut host) = BoostServersTestHost::up(test, &["nsd", "ss"]) else { return };
    let nsd = NsdTestServer::start_with(&mut host, false);
    let load = host.loading(nsd::PORT, 2_000.0, &nsd.ask(&[]));
    let said = plan(&host, nsd::PORT);
    load.end();
    assert!(said.contains("one socket, 2 threads") && said.contains("reuseport: yes"), "{said}");
    assert!(said.contains("nsd.docs.nlnetlabs.nl"), "{said}");
}
