//! A server that does not get CPU time although the host has some.

use crate::CpuSet;
use crate::finding::{CostUnit, Rule, RuleMatch, Severity};
use crate::stage::HostView;
use crate::stage::socket::ServiceSockets;
use crate::stage::thread::{CpuQuota, ThreadWatch};

/// Share of exhausted periods above which they matter, since the cgroup was created or between two
/// readings.
const OFTEN: f64 = 0.01;

pub(in crate::stage) const RULE: Rule = Rule {
    id: "thread.held-back",
    title: "The server does not get the CPU time that the host has",
    why: "A CPU quota stops all threads of a cgroup for the rest of each period, a cpuset or an affinity can \
          put several threads on one CPU, SCHED_IDLE lets them run only on idle CPUs, and a stopped process \
          does not run at all. Packets wait in the receive buffer meanwhile, and are lost when it is full.",
    effect: "The threads read as fast as the CPUs allow.",
    published_ratio: None,
    source: "Documentation/admin-guide/cgroup-v2.rst, cpu.max; sched(7); kernel/sched/fair.c, throttle_cfs_rq",
    kernels: "all; quotas of cgroup v2 from 4.15",
    remedy: "Raise or remove the quota (CPUQuota= of the unit, the limit of the container), allow as many CPUs as there are threads, \
             give the server the ordinary scheduling policy, or continue it (SIGCONT).",
    caveats: "The limit is there to leave CPU time for others.",
    check,
};

fn check(view: &HostView<'_>) -> Vec<RuleMatch> {
    let services = view.udp_services().filter(|service| service.processes.value().is_some());
    RuleMatch::joined(services.flat_map(|service| match_service(view, service)))
}

fn match_service(view: &HostView<'_>, service: &ServiceSockets) -> Vec<RuleMatch> {
    let pids: Vec<u32> = service.processes.value().into_iter().flatten().map(|process| process.pid).collect();
    let watches = view.now.thread.processes.iter().filter(|watch| pids.contains(&watch.pid));
    let process_matches = watches.flat_map(|watch| {
        [
            match_stopped(service, watch),
            match_throttled(view, service, watch),
            match_scheduled_idle(view, service, watch),
        ]
    });
    process_matches.flatten().chain(match_crowded(view, service)).collect()
}

fn match_stopped(service: &ServiceSockets, watch: &ThreadWatch) -> Option<RuleMatch> {
    let threads = watch.threads.value()?;
    let title = format!("{} of {threads} threads of {} are stopped", watch.stopped, service.name());
    let stat = format!("/proc/{}/task/*/stat, field 3", watch.pid);
    (watch.stopped > 0)
        .then(|| RuleMatch::new(Severity::High, title).evidence("threads in state T", watch.stopped, stat))
}

fn match_throttled(view: &HostView<'_>, service: &ServiceSockets, watch: &ThreadWatch) -> Option<RuleMatch> {
    let quota = watch.cpu_quota.value()?.as_ref()?;
    let rate = |count: fn(&CpuQuota) -> u64| {
        view.rate(|path| {
            let found = path.thread.processes.iter().find(|other| other.pid == watch.pid)?;
            found.cpu_quota.value()?.as_ref().filter(|other| other.cgroup == quota.cgroup).map(count)
        })
    };
    let is_rare = |throttled: f64, periods: f64| throttled < periods * OFTEN;
    // The quota itself may keep the service below the CPU time of services that matter.
    let matters = view.matters(service) || view.service_cpus(service) >= quota.cpus / 2.0;
    let (severity, throttle_text) = match view.before {
        Some(_) => {
            let throttled = rate(|quota| quota.throttled).filter(|rate| *rate > 0.0)?;
            let is_rare = rate(|quota| quota.periods).is_some_and(|periods| is_rare(throttled, periods));
            let severity = if is_rare || !matters { Severity::Note } else { Severity::High };
            (severity, format!("stops it {throttled:.1} times per second"))
        }
        None if is_rare(quota.throttled as f64, quota.periods as f64) || quota.throttled == 0 => {
            return None;
        }
        None => {
            let text = format!("stopped it in {} of {} periods", quota.throttled, quota.periods);
            (if matters { Severity::Low } else { Severity::Note }, text)
        }
    };
    let title = format!("The CPU quota of {} is {:.2} CPUs and {throttle_text}", service.name(), quota.cpus);
    let stat = format!("{}/cpu.stat", quota.cgroup);
    let rule_match = RuleMatch::new(severity, title)
        .evidence("CPUs' worth of time", quota.cpus, format!("{}/cpu.max", quota.cgroup))
        .evidence("periods in which it was used up", quota.throttled, stat.clone())
        .evidence("periods", quota.periods, stat);
    Some(rule_match)
}

fn match_scheduled_idle(
    view: &HostView<'_>,
    service: &ServiceSockets,
    watch: &ThreadWatch,
) -> Option<RuleMatch> {
    let severity = if view.matters(service) { Severity::Medium } else { Severity::Note };
    let count = watch.scheduled_idle;
    let title = format!("{} runs only where a CPU has nothing else to do (SCHED_IDLE)", service.name());
    let stat = format!("/proc/{}/task/*/stat, field 41", watch.pid);
    (count > 0).then(|| RuleMatch::new(severity, title).evidence("threads with SCHED_IDLE", count, stat))
}

/// More reading threads than CPUs that they may run on, while the host has more CPUs.
fn match_crowded(view: &HostView<'_>, service: &ServiceSockets) -> Option<RuleMatch> {
    let threads = view.threads_of(service);
    let online = view.now.machine.online.value()?;
    let allowed: Vec<&CpuSet> = threads.iter().filter_map(|thread| thread.allowed.value()).collect();
    let cpus: CpuSet =
        allowed.iter().flat_map(|cpus| cpus.iter()).filter(|cpu| online.contains(*cpu)).collect();
    let is_crowded = allowed.len() == threads.len()
        && cpus.len() < threads.len()
        && cpus.len() < online.len()
        && view.matters(service);
    if !is_crowded || cpus.is_empty() {
        return None;
    }
    let cpus_text = if cpus.len() == 1 { format!("CPU {cpus}") } else { format!("CPUs {cpus}") };
    let title = format!(
        "{} threads of {} may run only on {cpus_text} of {}",
        threads.len(),
        service.name(),
        online.len()
    );
    let mut rule_match = RuleMatch::new(Severity::Medium, title).costs_per(CostUnit::UdpDatagram);
    for thread in threads.iter().take(8) {
        let status = format!("/proc/{}/task/{}/status, Cpus_allowed_list", thread.pid, thread.tid);
        let cpus = thread.allowed.value().map(ToString::to_string);
        rule_match = rule_match.evidence(format!("CPUs of thread {}", thread.tid), cpus, status);
    }
    Some(rule_match)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::socket::sample::{host, later, service, thread, thread_watch};
    use crate::{Known, PacketPath};

    fn path(cpus: [&str; 2]) -> PacketPath {
        let threads = vec![thread(51, 700, cpus[0]), thread(52, 701, cpus[1])];
        let mut path = host(&[]).with(service(2), threads);
        path.thread.processes = vec![thread_watch(None)];
        path
    }

    #[test]
    fn unpinned_or_separately_pinned_threads_are_not_held_back() {
        assert_eq!(RULE.titles(&HostView::once(&path(["0-3", "0-3"]))), []);
        assert_eq!(RULE.titles(&HostView::once(&path(["0", "1"]))), []);
    }

    #[test]
    fn threads_sharing_a_cpu_stopped_or_sched_idle_are_reported() {
        let title = "2 threads of udp 10.0.0.1:53 (echo) may run only on CPU 1 of 4";
        assert_eq!(RULE.titles(&HostView::once(&path(["1", "1"]))), [(Severity::Medium, title.to_owned())]);
        let mut path = path(["0", "1"]);
        path.thread.processes[0].stopped = 2;
        path.thread.processes[0].scheduled_idle = 1;
        let titles = [
            "2 of 2 threads of udp 10.0.0.1:53 (echo) are stopped",
            "udp 10.0.0.1:53 (echo) runs only where a CPU has nothing else to do (SCHED_IDLE)",
        ];
        let expected = [(Severity::High, titles[0].to_owned()), (Severity::Medium, titles[1].to_owned())];
        assert_eq!(RULE.titles(&HostView::once(&path)), expected);
    }

    #[test]
    fn only_cpu_quotas_that_throttle_the_service_are_reported() {
        let quota = |throttled| {
            let mut path = path(["0", "1"]);
            let cgroup = "/sys/fs/cgroup/dns".to_owned();
            let quota = CpuQuota { cgroup, cpus: 0.2, periods: 100, throttled };
            path.thread.processes[0].cpu_quota = Known::Value(Some(quota));
            path
        };
        assert_eq!(RULE.titles(&HostView::once(&quota(0))), []);
        let title = "The CPU quota of udp 10.0.0.1:53 (echo) is 0.20 CPUs and stopped it in 9 of 100 periods";
        assert_eq!(RULE.titles(&HostView::once(&quota(9))), [(Severity::Low, title.to_owned())]);
        let title = "The CPU quota of udp 10.0.0.1:53 (echo) is 0.20 CPUs and stops it 8.0 times per second";
        let now = later(&quota(89));
        assert_eq!(RULE.titles(&HostView::twice(&quota(9), &now)), [(Severity::High, title.to_owned())]);
        let mut idle = now.clone();
        idle.service().named = false;
        assert_eq!(RULE.titles(&HostView::twice(&quota(9), &idle))[0].0, Severity::Note);
        assert_eq!(RULE.titles(&HostView::once(&idle))[0].0, Severity::Note);
        assert_eq!(RULE.titles(&HostView::twice(&quota(89), &now)), []);
        for (periods, severity) in [(100, Severity::High), (101, Severity::Note)] {
            let mut now = later(&quota(10));
            now.thread.processes[0].cpu_quota.expect_mut().as_mut().expect("a quota").periods += periods;
            assert_eq!(RULE.titles(&HostView::twice(&quota(9), &now))[0].0, severity, "1 of {periods}");
        }
    }
}
