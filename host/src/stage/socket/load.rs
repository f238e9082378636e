//! Selects the services that rules check: services that the user named, and services with load or
//! losses.

use super::{HostSockets, ServiceSockets, SocketProtocol, SocketState};
use crate::CpuSet;
use crate::finding::{CostUnit, Evidence};
use crate::stage::link::LinkState;
use crate::stage::rss::rules::table_misses;
use crate::stage::softirq::traffic;
use crate::stage::thread::ServingThread;
use crate::stage::view::is_small_loss_total;
use crate::stage::{HostView, PacketPath};

/// Default of `ip_local_port_range` (inet_init_net in net/ipv4/af_inet.c).
const USUAL_LOCAL_PORTS: (u16, u16) = (32_768, 60_999);

/// CPUs' worth of time above which a service is checked, between two readings and on average since
/// boot.
const BUSY_NOW: f64 = 0.2;
const BUSY_SINCE_BOOT: f64 = 0.02;

/// Below this share of received datagrams, losses since boot are not a current problem.
const NOTABLE_SHARE: f64 = 0.001;

/// Packets per second below which a cost per packet hardly matters: a microsecond per packet is
/// then 2 % of a CPU. An average hides peaks.
pub(in crate::stage) const FEW_NOW: f64 = 20_000.0;
const FEW_ON_AVERAGE: f64 = 5_000.0;

pub(in crate::stage) const UDP_DATAGRAMS: [&str; 4] =
    ["Udp.InDatagrams", "Udp.InErrors", "Udp6InDatagrams", "Udp6InErrors"];
pub(in crate::stage) const RECEIVED: [&str; 2] = ["Udp.InDatagrams", "Udp6InDatagrams"];
pub(in crate::stage) const IP_PACKETS: [&str; 2] = ["Ip.InReceives", "Ip6InReceives"];

impl HostSockets {
    /// UDP services. Services on ephemeral ports are left out unless the user named them.
    pub fn udp_services(&self) -> impl Iterator<Item = &ServiceSockets> {
        let services = self.services().iter();
        services.filter(|service| service.protocol == SocketProtocol::Udp && !self.is_ephemeral(service))
    }

    /// Whether the service has an ephemeral port, as a query of a resolver, and the user did not name it.
    pub fn is_ephemeral(&self, service: &ServiceSockets) -> bool {
        let (first, last) = self.local_ports.value().copied().unwrap_or(USUAL_LOCAL_PORTS);
        service.protocol == SocketProtocol::Udp
            && !service.named
            && (first..=last).contains(&service.local.port())
    }
}

impl<'a> HostView<'a> {
    pub(in crate::stage) fn udp_services(&self) -> impl Iterator<Item = &'a ServiceSockets> + use<'a> {
        self.now.socket.udp_services()
    }

    /// Whether the user named the service, or it loses packets, or it uses enough CPU time.
    pub(in crate::stage) fn matters(&self, service: &ServiceSockets) -> bool {
        service.named || self.loses(service) || self.has_load(service)
    }

    fn has_load(&self, service: &ServiceSockets) -> bool {
        self.service_cpus(service) >= if self.before.is_some() { BUSY_NOW } else { BUSY_SINCE_BOOT }
    }

    /// The packet rate, if it is so low that a cost per packet does not matter, and no service loses
    /// packets. The rate of one interface is returned despite losses, because an idle interface does
    /// not cause them.
    pub(crate) fn light_load(&self, unit: &CostUnit) -> Option<Evidence> {
        let (unit_name, names) = match unit {
            CostUnit::UdpDatagram => ("UDP datagrams", &UDP_DATAGRAMS[..]),
            CostUnit::IpPacket => ("IP packets", &IP_PACKETS[..]),
            CostUnit::PacketOf(interface) => return traffic::light_load(self, interface),
        };
        if self.udp_services().any(|service| self.matters(service) && self.loses(service)) {
            return None;
        }
        let packet_count = |path: &PacketPath| path.route.snmp_sum(names);
        let (rate, threshold, when) = match self.before {
            Some(_) => (self.rate(packet_count)?, FEW_NOW, ""),
            None => (packet_count(self.now)? as f64 / self.service_seconds()?, FEW_ON_AVERAGE, " on average"),
        };
        (rate < threshold).then(|| Evidence {
            what: format!("{unit_name} per second{when}, too few for this to matter"),
            value: rate.round().into(),
            read_from: "/proc/net/snmp, /proc/net/snmp6".to_owned(),
        })
    }

    /// Seconds since the youngest service that matters was started; since boot if there is none.
    /// Uptime is the host's, but a container counts its packets from its own start.
    fn service_seconds(&self) -> Option<f64> {
        let watches = &self.now.thread.processes;
        let start_time = |service: &ServiceSockets| {
            let owners = service.processes.value()?;
            let watches =
                owners.iter().filter_map(|owner| watches.iter().find(|watch| watch.pid == owner.pid));
            watches.filter_map(|watch| watch.started_seconds).reduce(f64::min)
        };
        let services = self.udp_services().filter(|service| self.matters(service));
        let start_times: Vec<f64> = services.map(start_time).collect::<Option<_>>()?;
        let seconds = self.now.uptime_seconds.value()? - start_times.into_iter().fold(0.0, f64::max);
        (seconds > 0.0).then_some(seconds)
    }

    /// Whether it loses packets: between two readings, or with one reading a notable number since
    /// its sockets were created.
    pub(in crate::stage) fn loses(&self, service: &ServiceSockets) -> bool {
        match self.before {
            Some(_) => self.loss_rate(service).is_some_and(|rate| rate > 0.0),
            None => service.drops().is_some_and(|drops| self.is_notable_loss(drops)),
        }
    }

    /// Whether losses of sockets since boot, or since the sockets were created, are more than a few
    /// packets and more than a small share of the received datagrams.
    pub(super) fn is_notable_loss(&self, lost_packets: u64) -> bool {
        let received = self.now.route.snmp_sum(&RECEIVED);
        let is_small_share = received.is_some_and(|received| {
            (lost_packets as f64) < received.saturating_add(lost_packets) as f64 * NOTABLE_SHARE
        });
        !is_small_loss_total(lost_packets) && !is_small_share
    }

    /// Packets per second. `None` without two readings, or if unknown.
    pub(in crate::stage) fn loss_rate(&self, service: &ServiceSockets) -> Option<f64> {
        service
            .sockets
            .iter()
            .filter_map(|socket| self.socket_loss_rate(socket))
            .reduce(|left, right| left + right)
    }

    /// Packets per second.
    pub(in crate::stage) fn socket_loss_rate(&self, socket: &SocketState) -> Option<f64> {
        self.rate(|path| path.socket_of(socket.inode)?.drops)
    }

    /// CPUs' worth of time of all threads of a service.
    pub(in crate::stage) fn service_cpus(&self, service: &ServiceSockets) -> f64 {
        self.cpus_of_threads(&self.threads_of(service))
    }

    pub(in crate::stage) fn threads_of(&self, service: &ServiceSockets) -> Vec<&'a ServingThread> {
        let mut threads: Vec<&ServingThread> =
            service.sockets.iter().flat_map(|socket| self.serving_socket(socket.inode)).collect();
        threads.sort_by_key(|thread| (thread.pid, thread.tid));
        threads.dedup_by_key(|thread| (thread.pid, thread.tid));
        threads
    }

    /// CPUs on which packets for a service enter the network stack, without those of idle interfaces
    /// if the service and another interface are busy. `None` if the CPU of any queue with packets is
    /// unknown, so that no CPU is wrongly reported as without packets. `None` also for a service on the
    /// loopback, which has no queues.
    pub(in crate::stage) fn receive_cpus(&self, service: &ServiceSockets) -> Option<CpuSet> {
        if service.is_on_loopback() {
            return None;
        }
        let links = self.now.link.iter();
        let links = links.filter(|link| link.up.value() != Some(&false) && !link.receives_by_vf());
        let (idle_links, busy_links): (Vec<&LinkState>, Vec<&LinkState>) =
            links.partition(|link| traffic::is_quiet(self, &link.interface));
        let mut cpus = Vec::new();
        // A service with little load may be that of an idle interface.
        let has_load = !busy_links.is_empty() && self.has_load(service);
        let links = if has_load { busy_links } else { [busy_links, idle_links].concat() };
        for link in links {
            let rps = self.now.softirq.rps_queues(&link.interface);
            let uses_rps = rps.iter().any(|item| item.cpus.value().is_some_and(|cpus| !cpus.is_empty()));
            let silent_queues = table_misses::silent_queues(self, &link.interface);
            for queue in (0..*link.receive_queues.value()?).filter(|queue| !silent_queues.contains(queue)) {
                let rps_cpus = self.now.softirq.rps_cpus(&link.interface, queue);
                if uses_rps && rps_cpus.is_none() {
                    return None;
                }
                cpus.extend(self.now.stack_cpus(&link.interface, queue)?);
            }
        }
        let cpu_set: CpuSet = cpus.into_iter().collect();
        (!cpu_set.is_empty()).then_some(cpu_set)
    }
}

impl PacketPath {
    fn socket_of(&self, inode: u64) -> Option<&SocketState> {
        self.socket
            .services()
            .iter()
            .flat_map(|service| &service.sockets)
            .find(|socket| socket.inode == inode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::irq::sample::vectors;
    use crate::stage::link::DeviceKind;
    use crate::stage::rss::sample::{driver, ntuple_rule, rss};
    use crate::stage::socket::sample::{host, later, service, thread, thread_watch};
    use crate::stage::thread::ThreadWatch;
    use crate::{Diagnosis, Known, Severity};

    fn count(path: &mut PacketPath, name: &str, value: u64) {
        path.route.snmp = Known::Value([(name.to_owned(), value)].into());
    }

    fn server() -> PacketPath {
        let mut path = host(&[0, 1]).with(service(2), vec![thread(51, 700, "0-3"), thread(52, 701, "0-3")]);
        count(&mut path, "Udp.InDatagrams", 0);
        path
    }

    /// Severity and severity under load of `thread.unpinned`.
    fn severity(view: &HostView<'_>) -> (Severity, Severity) {
        let findings = Diagnosis::of(view).findings;
        let finding = findings.iter().find(|finding| finding.id == "thread.unpinned").expect("a finding");
        (finding.severity, finding.severity_under_load)
    }

    #[test]
    fn per_packet_costs_are_a_note_at_low_rates_without_losses() {
        const NOTE: (Severity, Severity) = (Severity::Note, Severity::Medium);
        const MEDIUM: (Severity, Severity) = (Severity::Medium, Severity::Medium);
        let after_ten_seconds = |name: &str, datagrams: u64, drops: u64| {
            let before = server();
            let mut now = later(&before);
            count(&mut now, name, datagrams);
            now.service().sockets[0].drops = Some(drops);
            severity(&HostView::twice(&before, &now))
        };
        assert_eq!(after_ten_seconds("Udp.InDatagrams", 20_000, 0), NOTE);
        assert_eq!(after_ten_seconds("Udp.InDatagrams", 200_000, 0), MEDIUM);
        assert_eq!(after_ten_seconds("Udp.InDatagrams", 20_000, 5), MEDIUM, "datagrams are lost");
        let mut unknown = later(&server());
        unknown.route.snmp = Known::unknown("no such file");
        assert_eq!(severity(&HostView::twice(&server(), &unknown)), MEDIUM);
    }

    #[test]
    fn few_datagrams_lost_since_a_socket_was_created_do_not_make_its_service_busy() {
        for (drops, received, loses) in [
            (1, 100, false),
            (9, 100, false),
            (10, 9_000, true),
            (10, 11_000, false),
            (1_000, 100_000, true),
            (1_000, 10_000_000, false),
        ] {
            let mut path = server();
            count(&mut path, "Udp.InDatagrams", received);
            let service = path.service();
            service.named = false;
            service.sockets[0].drops = Some(drops);
            let view = HostView::once(&path);
            let service = &path.socket.services()[0];
            assert_eq!((view.loses(service), view.matters(service)), (loses, loses), "{drops} {received}");
            let light_load = view.light_load(&CostUnit::UdpDatagram);
            assert_eq!(light_load.is_none(), loses || received > 500_000, "{drops} {received}");
        }
    }

    #[test]
    fn threads_that_take_turns_count_although_few_are_seen_at_their_turn() {
        let reading = |tid: u32, ticks: u64| {
            let seen = ServingThread { takes_turns_at: Some(4), ..thread(tid, 700, "0-3") };
            let mut path = host(&[0, 1]).with(service(1), vec![seen]);
            path.service().named = false;
            let ticks = (50..62).map(|tid| (tid, ticks)).collect();
            path.thread.processes = vec![ThreadWatch { ticks, ..thread_watch(None) }];
            path
        };
        let before = reading(51, 100);
        for (tid, ticks, cpus) in [(53, 140, 0.48), (53, 100, 0.0), (51, 600, 0.5)] {
            let now = later(&reading(tid, ticks));
            let view = HostView::twice(&before, &now);
            let service = &now.socket.services()[0];
            assert!((view.service_cpus(service) - cpus).abs() < 1e-9, "{tid} {ticks}");
            assert_eq!(view.matters(service), cpus > 0.0);
            let findings = Diagnosis::of(&view).findings;
            let is_unpinned = findings.iter().any(|finding| finding.id == "thread.unpinned");
            assert_eq!(is_unpinned, tid == 51, "the others are unknown");
        }
    }

    #[test]
    fn losses_of_a_service_do_not_make_an_idle_interface_busy() {
        let before = server();
        let with_packets = |mut path: PacketPath, packets: u64| {
            path.link[0].totals = Known::Value([("rx_packets".to_owned(), packets)].into());
            path
        };
        let mut now = with_packets(later(&before), 5_000);
        now.service().sockets[0].drops = Some(1_000);
        let before = with_packets(before, 0);
        let view = HostView::twice(&before, &now);
        assert!(view.light_load(&CostUnit::IpPacket).is_none());
        assert!(view.light_load(&CostUnit::PacketOf("eth0".to_owned())).is_some());
    }

    #[test]
    fn packets_come_by_no_queue_outside_the_table_and_no_idle_interface() {
        let mut before = host(&[0, 1]).with(service(1), vec![thread(51, 700, "0-3")]);
        let (mut idle_link, mut idle_rps) = (before.link[0].clone(), before.softirq.rps[0].clone());
        (idle_link.interface, idle_rps.interface) = ("eth1".to_owned(), "eth1".to_owned());
        for queue in idle_rps.queues.expect_mut() {
            queue.cpus = Known::Value(CpuSet::from_iter([3]));
        }
        before.link.push(idle_link);
        before.softirq.rps.push(idle_rps);
        let with_packets = |mut path: PacketPath, packets: [u64; 2]| {
            for (link, packets) in path.link.iter_mut().zip(packets) {
                link.totals = Known::Value([("rx_packets".to_owned(), packets)].into());
            }
            path
        };
        let before = with_packets(before, [0, 0]);
        let cpus = |now: &PacketPath| {
            let cpus = HostView::twice(&before, now).receive_cpus(&now.socket.services()[0]);
            cpus.map(|cpus| cpus.to_string())
        };
        let mut now = with_packets(later(&before), [1_000_000, 50]);
        assert_eq!(cpus(&now).as_deref(), Some("0-1,3"), "an idle service may use the idle interface");
        now.thread_mut(0).user_ticks = Known::Value(1_000);
        assert_eq!(cpus(&now).as_deref(), Some("0-1"));
        assert_eq!(cpus(&with_packets(now.clone(), [50, 50])).as_deref(), Some("0-1,3"), "all are idle");
        now.softirq.rps[1].queues = Known::unknown("gone");
        assert_eq!(cpus(&now).as_deref(), Some("0-1"), "CPUs of an idle interface do not matter");
        let once = HostView::once(&now).receive_cpus(&now.socket.services()[0]);
        assert_eq!(once, Some(CpuSet::from_iter([0, 1])), "nor of one idle since boot");
        let mut netvsc = with_packets(now.clone(), [1_000_000, 1_000_000]);
        assert_eq!(cpus(&netvsc), None);
        netvsc.link[1].driver = driver("hv_netvsc");
        netvsc.link[1].statistics = Known::Value(Some([("vf_rx_packets".to_owned(), 990_000)].into()));
        assert_eq!(cpus(&netvsc).as_deref(), Some("0-1"), "a virtual function has its own queues");
        let mut unknown = now.clone();
        unknown.softirq.rps[0].queues.expect_mut().remove(1);
        unknown.irq.interfaces = vectors(30, &[0, 1]);
        assert_eq!(cpus(&unknown), None, "RPS of a queue is unknown");
        now.link[0].device = Known::Value(DeviceKind::Hardware);
        now.rss = vec![rss("eth0", 1)];
        assert_eq!(cpus(&now).as_deref(), Some("0"));
        now.rss[0].ntuple = Known::Value(Some(vec![ntuple_rule(1)]));
        assert_eq!(cpus(&now).as_deref(), Some("0-1"), "a rule directs packets to the other queue");
    }

    #[test]
    fn the_average_rate_counts_from_the_server_start() {
        let average = |datagrams: u64, started_seconds: Option<f64>| {
            let mut path = server();
            count(&mut path, "Udp.InDatagrams", datagrams);
            path.thread.processes = vec![thread_watch(started_seconds)];
            severity(&HostView::once(&path)).0
        };
        // The host is up for 100 s.
        assert_eq!(average(200_000, Some(0.0)), Severity::Note);
        assert_eq!(average(200_000, Some(90.0)), Severity::Medium, "20,000 per second in 10 s");
        assert_eq!(average(200_000, None), Severity::Medium);
    }
}
