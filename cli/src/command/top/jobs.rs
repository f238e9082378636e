//! Jobs of some seconds that run in the background: counting drops, estimating headroom, and recording a flame graph.

use std::path::Path;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use linerate_host::Host;
use linerate_host::live::{HistoryItem, Snapshot};
use linerate_trace::drops::packet_counts::PortSubject;
use linerate_trace::drops::{DropsResult, DropsWatch, PacketAccounting};
use linerate_trace::flame::{self, FlameSelection, StackProfile, draw};
use linerate_trace::headroom::HeadroomSession;

use super::event::{JobResult, SessionEvent};
use crate::envelope::{CommandResult, Envelope};
use crate::origin::{HostSummary, unix_seconds};
use crate::output::OutputTarget;
use crate::render::style::TextStyle;
use crate::render::text;
use crate::top::service_of_socket;
use crate::top::state::{TopAction, TopState};

/// Duration of a job.
const TIME: Duration = Duration::from_secs(5);

/// Width of the documents, in columns.
const WIDTH: usize = 94;

/// Starts jobs.
pub(super) struct JobRunner {
    port: Option<u16>,
    interfaces: Vec<String>,
    tell: Sender<SessionEvent>,
}

impl JobRunner {
    pub(super) fn new(port: Option<u16>, interfaces: Vec<String>, events: Sender<SessionEvent>) -> Self {
        Self { port, interfaces, tell: events }
    }

    /// Starts a job; returns its name.
    pub(super) fn begin(&self, action: TopAction, state: &TopState) -> Option<&'static str> {
        let snapshot = state.snapshot.as_ref()?;
        let events = self.tell.clone();
        if action == TopAction::Flame {
            spawn(events, || flame_graph().map(JobResult::Flame));
            return Some("sampling stacks");
        }
        let ports: Vec<u16> =
            self.port.or_else(|| port_in_view(snapshot, state.item())).into_iter().collect();
        if action == TopAction::Headroom {
            let port = ports.first().copied();
            spawn(events, move || headroom(port).map(|lines| JobResult::Text("headroom", lines)));
            return Some("estimating headroom");
        }
        // The named interfaces that exist; empty if none is named on the command line.
        let present = snapshot.interfaces.iter().filter(|interface| interface.gone_seconds.is_none());
        let interfaces = match self.interfaces.as_slice() {
            [] => Vec::new(),
            names => present
                .map(|interface| interface.interface.clone())
                .filter(|name| names.contains(name))
                .collect(),
        };
        spawn(events, move || drops(ports, &interfaces).map(|lines| JobResult::Text("drops", lines)));
        Some("counting drops")
    }
}

fn spawn(events: Sender<SessionEvent>, job: impl FnOnce() -> Result<JobResult> + Send + 'static) {
    thread::spawn(move || {
        let job_result = job().unwrap_or_else(|error| JobResult::Failed(crate::output::one_line(&error)));
        // The session may have ended in the meantime, so a closed channel is no error.
        let _ = events.send(SessionEvent::Done(job_result));
    });
}

/// The port of the chosen service, socket or thread; without a choice, the port of the only
/// service.
fn port_in_view(snapshot: &Snapshot, item: Option<&HistoryItem>) -> Option<u16> {
    let services = snapshot.services.value()?;
    let service_of_thread = |tid: u32| {
        let thread = snapshot.threads.value()?.iter().find(|thread| thread.tid == tid)?;
        thread.services.first().cloned()
    };
    let service_name = match item {
        Some(HistoryItem::Service(name)) => Some(name.clone()),
        Some(HistoryItem::Thread(tid)) => service_of_thread(*tid),
        Some(HistoryItem::Socket(inode)) => {
            service_of_socket(snapshot, *inode).map(|service| service.name.clone())
        }
        _ => None,
    };
    match (service_name, services.as_slice()) {
        (Some(name), _) => services.iter().find(|service| service.name == name).map(|service| service.port),
        (None, [service]) => Some(service.port),
        (None, _) => None,
    }
}

fn drops(ports: Vec<u16>, interfaces: &[String]) -> Result<Vec<String>> {
    let host = Host::live();
    let port_subject = PortSubject { ports, peer: None };
    let mut watch = DropsWatch::start(&host, &port_subject, interfaces).context("drops")?.exact();
    let end = Instant::now() + TIME;
    while Instant::now() < end {
        let pause = watch.turn(&host).context("drops")?;
        thread::sleep(pause.min(end.saturating_duration_since(Instant::now())));
    }
    let accounting = PacketAccounting::make(&watch.total(&host).context("drops")?);
    Ok(lines(DropsResult::new(accounting)))
}

fn headroom(port: Option<u16>) -> Result<Vec<String>> {
    let port = port.context("headroom: choose a service first, or name one with --port")?;
    let host = Host::live();
    let session = HeadroomSession::start(&host, port).context("headroom");
    Ok(lines(session?.measure(TIME, &thread::sleep).context("headroom")?))
}

fn lines<T: CommandResult>(result: T) -> Vec<String> {
    let style = TextStyle { width: WIDTH, colour: false };
    let envelope = Envelope::new(HostSummary::default(), None, result);
    text::text(&envelope.document(), style).lines().map(str::to_owned).collect()
}

fn flame_graph() -> Result<String> {
    let host = Host::live();
    let profile =
        StackProfile::observe(&host, &flame::ProfileOptions::all(TIME), &|| false).context("flame graph")?;
    let draw_options = flame::DrawOptions {
        title: format!("CPU time on {}", super::super::tune::host_name(&host)),
        subtitle: None,
        shown: FlameSelection::default(),
        interactive: true,
    };
    let svg = draw::svg(&profile, &draw_options).context("flame graph")?;
    let svg = svg.context("flame graph: no sample was taken, since no CPU was busy")?;
    let now = unix_seconds().unwrap_or(0);
    let name = format!("linerate-flame-{now}.svg");
    OutputTarget::from(name.as_str()).write(&svg)?;
    let absolute_path = std::path::absolute(Path::new(&name)).unwrap_or_else(|_| name.clone().into());
    Ok(absolute_path.display().to_string())
}
