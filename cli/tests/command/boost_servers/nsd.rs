//! NSD as Debian packages it, with two server processes that have one socket each.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use linerate_testkit::reflector::installed::{InstalledNsd as Files, find};
use serde_json::Value;

use super::scene::{ADDRESS, BUSY_RATE, BoostServersTestHost, print_figure};
use super::traces::{family, name, steering, traces};
use crate::support::{count, machine, within};
use crate::tune::scene::text;

pub(super) const PORT: u16 = 5300;

const QUERIES: &str = "\
www.example.test A
www.example.test AAAA
nothing.example.test A
";

/// A running NSD, and the workload that queries it.
pub(super) struct NsdTestServer {
    pub(super) pid: u32,
    workload: String,
}

impl NsdTestServer {
    /// Starts NSD and waits until it answers. The receive queues are spread over both CPUs.
    pub(super) fn start(host: &mut BoostServersTestHost) -> Self {
        Self::start_with(host, true)
    }

    /// Without `reuseport` the server processes share one socket.
    pub(super) fn start_with(host: &mut BoostServersTestHost, reuseport: bool) -> Self {
        host.spread();
        let workload = format!("dns:{}", host.scene.save("queries", QUERIES));
        let address = SocketAddr::new(ADDRESS.parse().expect("an address"), PORT);
        let files = Files {
            directory: host.scene.directory(),
            addresses: &[address],
            servers: 2,
            reuseport,
            zones: &[],
            options: &[],
        };
        let config = files.write().expect("written");
        let nsd = find("nsd").expect("it is there");
        let pid = host.serve(PORT, nsd, &["-d", "-c", text(&config)]);
        let nsd = Self { pid, workload };
        within(20, "NSD has two servers", || nsd.servers().len() == 2);
        let first = host.run_load(PORT, &nsd.load_arguments(&["--rate", "500", "--duration", "0.2"]));
        assert_eq!(first["lost"], 0, "{first}");
        nsd
    }

    pub(super) fn workload(&self) -> &str {
        &self.workload
    }

    /// Arguments for a `linerate load` that queries NSD.
    pub(super) fn load_arguments<'a>(&'a self, arguments: &[&'a str]) -> Vec<&'a str> {
        [&["--workload", &self.workload], arguments].concat()
    }

    /// NSD's server processes, which answer queries.
    pub(super) fn servers(&self) -> Vec<u32> {
        family(self.pid).into_iter().filter(|pid| name(*pid).starts_with("nsd: server")).collect()
    }

    /// The process that forks the server processes.
    pub(super) fn parent(&self) -> u32 {
        family(self.pid).into_iter().find(|pid| name(*pid) == "nsd: main").expect("a parent")
    }
}

/// The share of datagrams that were read on the CPU where they arrived, and the number of
/// datagrams.
fn share(agreement: &Value) -> (f64, u64) {
    let packets = count(agreement, "packets");
    (count(agreement, "on_arrival_cpu") as f64 / packets as f64, packets)
}

/// Each server process was seen to read the datagrams of one of the two sockets, and no other process
/// was.
fn assert_readers(server: &Value, nsd: &NsdTestServer) {
    assert_eq!((&server["name"], &server["processes"][0]["pid"]), (&"nsd".into(), &nsd.pid.into()));
    let groups = server["groups"].as_array().expect("groups");
    let udp = groups.iter().find(|group| group["protocol"] == "udp").expect("a group");
    assert!(udp["reuseport"] == true && udp["ordered"] == true && udp["steering"] == "none", "{udp}");
    let readers = server["readers"].as_array().expect("readers");
    assert!(readers.iter().all(|reader| reader["seen"] == "reading"), "{readers:?}");
    let pids: BTreeSet<u64> = readers.iter().map(|reader| count(reader, "pid")).collect();
    assert_eq!(pids, nsd.servers().into_iter().map(u64::from).collect(), "{readers:?}");
    for member in udp["members"].as_array().expect("sockets") {
        let cookie = &member["socket"]["cookie"];
        let reads = |reader: &&Value| reader["sockets"].as_array().is_some_and(|all| all.contains(cookie));
        assert_eq!(readers.iter().filter(reads).count(), 1, "{server}");
    }
}

/// Applies and undoes a boost several times under load. No request may be lost. If full socket
/// buffers drop some, repeats all at half the rate, with at most `ATTEMPTS` attempts.
fn apply_and_undo_under_load(host: &BoostServersTestHost, nsd: &NsdTestServer, mut rate: f64) {
    const ATTEMPTS: u32 = 3;
    let times = if std::env::var_os("LINERATE_TEST_LONG").is_some() { 10 } else { 2 };
    let port = PORT.to_string();
    for attempt in 1..=ATTEMPTS {
        let full = host.full_buffers();
        let mut load = host.start_load(PORT, rate, &nsd.load_arguments(&[]));
        for switch in 0..times {
            host.expect(0, &["--port", &port, "apply", "--yes", "--look", "0.3"]);
            assert_eq!(steering(host, PORT)[0].1, "\"cpu\"", "switch {switch}");
            host.expect(0, &["--port", &port, "undo"]);
            assert!(load.is_running(), "the load ends early");
        }
        let outcome = load.end();
        let [sent, answered, lost] = ["sent", "answered", "lost"].map(|key| count(&outcome, key));
        let full = host.full_buffers() - full;
        print_figure(&format!(
            "nsd boosted and undone {times} times at {rate:.0}/s: {sent} sent, {lost} lost, {full} of full buffers"
        ));
        if lost == 0 {
            assert_eq!(sent, answered);
            return;
        }
        // On a busy machine a process may wait for a CPU so long that its socket buffer fills up.
        // Any other loss is linerate's fault.
        assert!(lost <= full && attempt < ATTEMPTS, "{outcome}");
        rate /= 2.0;
    }
}

#[test]
fn boosting_nsd_under_load_loses_nothing_and_undo_restores_all() {
    machine();
    let Some(mut host) = BoostServersTestHost::up(&["nsd", "ss"]) else { return };
    let nsd = NsdTestServer::start(&mut host);
    let port = PORT.to_string();
    let boost = |verb: &[&'static str]| [&["--port", port.as_str()], verb].concat();
    let before = traces(&host, nsd.pid, PORT);
    let rate = BUSY_RATE;

    let load = host.start_load(PORT, rate, &nsd.load_arguments(&[]));
    let plan = host.document(&boost(&["plan", "--look", "1"]));
    load.end();
    assert_readers(&plan["server"], &nsd);
    let (share_before, packets) = share(&plan["agreement"]);
    print_figure(&format!(
        "nsd at {rate:.0}/s, as found: {:.1} % of {packets} read where they arrived",
        share_before * 100.0
    ));
    apply_and_undo_under_load(&host, &nsd, rate);
    assert_eq!(before, traces(&host, nsd.pid, PORT));

    let load = host.start_load(PORT, rate, &nsd.load_arguments(&[]));
    let applied = host.document(&boost(&["apply", "--yes", "--look", "1"]));
    load.end();
    assert_eq!(applied["verification"]["verdict"], "as_planned", "{applied}");
    let (share_after, packets) = share(&applied["now"]["agreement"]);
    print_figure(&format!("nsd boosted: {:.2} % of {packets} read where they arrived", share_after * 100.0));
    assert!(share_after >= 0.999 && share_after >= share_before, "{share_before} {share_after}");
    let boosted = traces(&host, nsd.pid, PORT);
    assert_ne!(before, boosted);
    host.expect(0, &boost(&["undo"]));
    assert_eq!(before, traces(&host, nsd.pid, PORT));

    let options = ["--receive-buffer", "8388608", "--busy-poll", "50", "--look", "0.5"];
    host.expect(0, &[&boost(&["apply", "--yes"])[..], &options].concat());
    let boosted = traces(&host, nsd.pid, PORT);
    let sockets: Vec<&String> =
        boosted.iter().filter(|(name, _)| name.starts_with("socket")).map(|(_, value)| value).collect();
    let sockets_with = |text: &str| sockets.iter().filter(|value| value.contains(text)).count();
    // Two sockets, each open in three processes: a server process, its parent and its grandparent.
    assert_eq!(sockets_with("receive buffer Ok(8388608)"), 6, "{boosted:#?}");
    assert_eq!(sockets_with("\"50\""), 6, "{boosted:#?}");
    host.expect(0, &boost(&["undo"]));
    assert_eq!(before, traces(&host, nsd.pid, PORT));
}
