//! The CPUs for the threads of a server. A plan only suggests them, because the threads belong to
//! the server.

use linerate_host::Severity;
use linerate_host::finding::Finding;
use linerate_host::stage::HostView;
use linerate_host::stage::socket::ServiceSockets;
use linerate_host::stage::thread::ServingThread;

use super::SkippedFinding;

/// Sets the commands of a skipped finding about threads: they place the threads on the CPUs of the
/// plan.
pub(super) fn set_commands(
    skipped: &mut [SkippedFinding],
    view: &HostView<'_>,
    finding: &Finding,
    cpus: &[u32],
) {
    if finding.severity_under_load == Severity::Note || finding.id == "thread.audit" || cpus.is_empty() {
        return;
    }
    let Some(entry) =
        skipped.iter_mut().find(|skipped| skipped.finding == finding.id && skipped.title == finding.title)
    else {
        return;
    };
    let is_to_pin =
        |service: &&ServiceSockets| finding.title.contains(&service.name()) && !view.takes_turns(service);
    let services = view.now.socket.services().iter().filter(is_to_pin);
    let commands: Vec<String> = services.flat_map(|service| pin_commands(view, service, cpus)).collect();
    if !commands.is_empty() {
        entry.commands = commands;
    }
}

/// A CPU for each thread: the SO_INCOMING_CPU of its socket, or else the next CPU in the order of
/// thread IDs, because servers with one thread per CPU create the threads in the order of CPUs.
/// With more CPUs than threads, the first CPUs of `cpus` are used.
fn pin_commands(view: &HostView<'_>, service: &ServiceSockets, cpus: &[u32]) -> Vec<String> {
    let mut threads: Vec<&ServingThread> = view.serving();
    threads.retain(|thread| service.sockets.iter().any(|socket| thread.sockets.contains(&socket.inode)));
    threads.sort_by_key(|thread| (thread.pid, thread.tid));
    let mut sorted_cpus: Vec<u32> = cpus.iter().copied().take(threads.len()).collect();
    sorted_cpus.sort_unstable();
    let incoming_cpu = |thread: &ServingThread| {
        let socket = service.sockets.iter().find(|socket| thread.sockets == [socket.inode])?;
        socket.incoming_cpu().filter(|cpu| cpus.contains(cpu))
    };
    let pairs = threads.iter().zip(sorted_cpus.iter().copied().cycle());
    let placements = pairs.map(|(thread, cpu)| (thread, incoming_cpu(thread).unwrap_or(cpu)));
    let is_pinned = |thread: &ServingThread, cpu: u32| {
        thread.allowed.value().is_some_and(|allowed| allowed.len() == 1 && allowed.contains(cpu))
    };
    placements
        .filter(|(thread, cpu)| !is_pinned(thread, *cpu))
        .map(|(thread, cpu)| format!("taskset -pc {cpu} {}", thread.tid))
        .collect()
}
