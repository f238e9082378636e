//! `linerate export` on a lab's receiver: known losses, an interface that disappears and comes
//! back, and a scrape by another host.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};

use linerate_lab::{Lab, LabChild, LabHost};

use super::metrics_address;
use super::prometheus::page_of;
use crate::support::{
    self, assert_refused, await_line, program, run_on, shell, start_echo, start_on, start_root_lab, within,
};

const SERVER: &str = "198.18.0.1:4097";

/// Values by series name with labels.
type ScrapedSeries = BTreeMap<String, f64>;

/// A running `linerate export`.
pub(super) struct LabExportProcess {
    _child: LabChild,
    pub(super) address: SocketAddr,
    messages: Vec<String>,
}

impl LabExportProcess {
    pub(super) fn start(host: &LabHost, arguments: &[&str]) -> Self {
        let mut child = start_on(host, program(), &[&["export"], arguments].concat());
        let (address, messages) = await_line(&mut child.stderr, metrics_address);
        Self { _child: child, address, messages }
    }

    /// Scrapes from this host and returns all series.
    fn scrape(&self, host: &LabHost) -> ScrapedSeries {
        let text = page_of(host, self.address, "/metrics").expect("an answer");
        let (head, body) = text.split_once("\r\n\r\n").expect("a body");
        assert!(head.contains(" 200 OK"), "{head}");
        let lines = body.lines().filter(|line| !line.starts_with('#'));
        let series = |line: &str| {
            let (name, value) = line.rsplit_once(' ').expect("a value");
            (name.to_owned(), value.parse().expect("a number"))
        };
        lines.map(series).collect()
    }
}

/// Prints a SKIP line and returns `None` without root or if no lab can be created.
fn lab() -> Option<Lab> {
    start_root_lab(Lab::builder().queues(2))
}

/// The series of a metric, as labels and values.
fn series_of<'s>(series: &'s ScrapedSeries, metric: &str) -> Vec<(&'s str, f64)> {
    let labels = |(name, value): (&'s String, &f64)| {
        let labels = name.strip_prefix(metric).filter(|rest| rest.is_empty() || rest.starts_with('{'))?;
        Some((labels, *value))
    };
    series.iter().filter_map(labels).collect()
}

fn value(series: &ScrapedSeries, name: &str) -> f64 {
    series.get(name).copied().unwrap_or(0.0)
}

/// No counter may decrease between two scrapes.
fn assert_no_counter_decreases(before: &ScrapedSeries, after: &ScrapedSeries) {
    for (name, value) in
        before.iter().filter(|(name, _)| name.split('{').next().is_some_and(|name| name.ends_with("_total")))
    {
        assert!(
            after.get(name).is_none_or(|later| later >= value),
            "{name}: {value}, then {:?}",
            after.get(name)
        );
    }
}

#[test]
fn drops_and_cost_metrics_match_a_known_loss() {
    const SENT: u32 = 200;
    const LOST: &str = "linerate_drops_lost_packets_total{direction=\"request\",reason=\"netfilter_drop\"}";
    const READ: &str = "linerate_drops_passed_packets_total{point=\"read\",direction=\"request\"}";
    const RECEIVED: &str = "linerate_drops_passed_packets_total{point=\"received\",direction=\"request\"}";
    let Some(lab) = lab() else { return };
    support::machine();
    let (receiver, sender) = (lab.receiver(), &lab.senders()[0]);
    shell(
        receiver,
        "nft add table inet t; nft 'add chain inet t c { type filter hook input priority 0; }'; \
         nft add rule inet t c udp dport 4097 numgen inc mod 2 0 counter drop",
    );
    let _echo = start_echo(receiver, SERVER.parse().expect("an address"));
    let client = sender.run(|| UdpSocket::bind("0.0.0.0:0")).expect("the host runs").expect("a socket");
    client.connect(SERVER).expect("connected");
    let arguments =
        ["--listen", "127.0.0.1:0", "--interface", "eth0", "--port", "4097", "--with", "drops,cost,headroom"];
    let export = LabExportProcess::start(receiver, &arguments);
    assert!(export.messages.is_empty(), "{:?}", export.messages);
    let before = export.scrape(receiver);
    for collector in ["drops", "cost", "headroom"] {
        assert_eq!(
            value(&before, &format!("linerate_collector_up{{collector=\"{collector}\"}}")),
            1.0,
            "{before:#?}"
        );
    }
    for _ in 0..SENT {
        client.send(b"one of two").expect("sent");
    }
    let mut after = before;
    within(30, "all are read or lost", || {
        let now = export.scrape(receiver);
        assert_no_counter_decreases(&after, &now);
        after = now;
        value(&after, LOST) + value(&after, READ) >= f64::from(SENT)
    });
    let half = f64::from(SENT / 2);
    assert_eq!((value(&after, LOST), value(&after, READ), value(&after, RECEIVED)), (half, half, 2.0 * half));
    let lost: f64 =
        series_of(&after, "linerate_drops_lost_packets_total").iter().map(|(_, packets)| packets).sum();
    assert_eq!(lost, half, "under one reason: {:?}", series_of(&after, "linerate_drops_lost_packets_total"));
    assert_eq!(value(&after, "linerate_drops_missed_events_total"), 0.0);

    // Cost is measured in windows. Some of the packets fall into one.
    within(30, "a cost", || {
        for _ in 0..SENT {
            client.send(b"one of two").expect("sent");
        }
        let now = export.scrape(receiver);
        assert_no_counter_decreases(&after, &now);
        after = now;
        series_of(&after, "linerate_cost_cpu_seconds_total")
            .iter()
            .any(|(labels, seconds)| labels.contains("context=\"net_rx\"") && *seconds > 0.0)
    });
    let cpus = series_of(&after, "linerate_machine_cpu_seconds_total");
    let cpus = cpus.iter().filter(|(labels, _)| labels.contains("mode=\"user\"")).count();
    let cost = series_of(&after, "linerate_cost_cpu_seconds_total");
    assert!((1..=cpus).contains(&(cost.len() / 3)) && cost.len().is_multiple_of(3), "{cpus} CPUs: {cost:?}");
    let stolen = series_of(&after, "linerate_cost_stolen_seconds_total");
    assert_eq!(stolen.len() * 3, cost.len(), "{stolen:?}");
    let all: f64 = cost.iter().map(|(_, seconds)| seconds).sum();
    // The sums add the same fractions of a second in a different order.
    let of_others: f64 = stolen.iter().map(|(_, seconds)| seconds).sum();
    assert!(of_others <= all + 1e-6, "{stolen:?} of {cost:?}");
    assert_eq!(series_of(&after, "linerate_cost_look_ratio").len(), 1);
    // The kernel defines the reasons and linerate the points, so the number of series does not
    // depend on the traffic.
    assert!(after.keys().filter(|name| name.starts_with("linerate_drops_")).count() < 50, "{after:#?}");
}

#[test]
fn remote_scrapes_require_allow_remote() {
    let Some(lab) = lab() else { return };
    let (receiver, sender) = (lab.receiver(), &lab.senders()[0]);
    let refusal = run_on(receiver, program(), &["export", "--listen", "198.18.0.1:0"]);
    assert_refused(&refusal, "--listen 198.18.0.1:0: other hosts could reach that; give --allow-remote");

    let export = LabExportProcess::start(receiver, &["--listen", "198.18.0.1:0", "--allow-remote"]);
    assert!(export.messages.is_empty(), "{:?}", export.messages);
    assert_eq!(series_of(&export.scrape(sender), "linerate_build_info").len(), 1);
}

#[test]
fn counters_continue_when_an_interface_is_recreated() {
    const SENT: &str = "linerate_link_transmit_packets_total{interface=\"far0\"}";
    const AT_ONCE: u32 = 50;
    let Some(lab) = lab() else { return };
    let receiver = lab.receiver();
    let add_interface = || {
        shell(
            receiver,
            "ip link add far0 type veth peer name far1; ip link set far1 address 02:00:00:00:00:02; \
             ip address add 192.0.2.1/24 dev far0; ip link set far0 up; ip link set far1 up; \
             ip neigh add 192.0.2.2 lladdr 02:00:00:00:00:02 dev far0",
        );
    };
    let send = || {
        let socket =
            receiver.run(|| UdpSocket::bind("192.0.2.1:0")).expect("the host runs").expect("a socket");
        for _ in 0..AT_ONCE {
            socket.send_to(b"far", "192.0.2.2:9").expect("sent");
        }
    };
    add_interface();
    let arguments = ["--listen", "127.0.0.1:0", "--interface", "eth0", "--interface", "far0"];
    let export = LabExportProcess::start(receiver, &arguments);
    let mut last = export.scrape(receiver);
    let mut until = |description: &str, condition: &dyn Fn(&ScrapedSeries) -> bool| {
        within(30, description, || {
            let now = export.scrape(receiver);
            assert_no_counter_decreases(&last, &now);
            last.extend(now.clone());
            condition(&now)
        });
        value(&last, SENT)
    };
    let initial = until("the interface", &|series| series.contains_key(SENT));
    send();
    let first = until("the packets", &|series| value(series, SENT) >= initial + f64::from(AT_ONCE));
    shell(receiver, "ip link delete far0");
    until("the removal of the interface", &|series| {
        assert!(series.keys().any(|name| name.contains("interface=\"eth0\"")), "the other stays");
        !series.keys().any(|name| name.contains("interface=\"far0\"") && name.starts_with("linerate_link_"))
    });
    add_interface();
    until("the interface again", &|series| series.contains_key(SENT));
    send();
    until("the packets of both interfaces", &|series| value(series, SENT) >= first + f64::from(AT_ONCE));
}
