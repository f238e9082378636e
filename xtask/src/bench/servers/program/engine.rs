//! Servers on the engine.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use linerate_engine::{
    Action, Backend, Builder, Echo, OverloadPolicy, Request, RunningServer, Server, Service, WorkerPinning,
};
use linerate_services::dns::{DnsService, ServedZones, Zones};

use super::super::workload::ZONE;
use super::{BUFFER, ProgramKind, REQUEST, ServerProgram};

// CPU time of [`BusyEcho`] per request, so that one other CPU can send five times its capacity.
const WORK: Duration = Duration::from_micros(2);

// An echo with some work per request, like most services.
struct BusyEcho;

impl Service for BusyEcho {
    fn answer(&mut self, _: &Request<'_>, _: &mut [u8]) -> Action {
        let begin = Instant::now();
        while begin.elapsed() < WORK {
            std::hint::spin_loop();
        }
        Action::Echo
    }
}

pub(super) fn serve(program: &ServerProgram) -> anyhow::Result<()> {
    let backend = match program.kind {
        ProgramKind::Xdp | ProgramKind::XdpSet | ProgramKind::XdpWorking | ProgramKind::DnsXdp => {
            let settings = program.xdp_settings.as_deref();
            Backend::Xdp(settings.map(serde_json::from_str).transpose()?.unwrap_or_default())
        }
        _ => Backend::default(),
    };
    let builder = Server::builder()
        .bind(program.bind)
        .workers(program.workers as usize)
        .pinning(WorkerPinning::Cpus(program.cpus.clone()))
        .backend(backend)
        .receive_buffer(BUFFER)
        .max_request(REQUEST);
    match program.kind {
        ProgramKind::DnsXdp => dns(builder, program, "AF_XDP"),
        ProgramKind::DnsMmsg => dns(builder, program, "instead"),
        ProgramKind::Xdp | ProgramKind::XdpSet => echo(builder, "AF_XDP"),
        ProgramKind::XdpWorking => wait(&builder.start(|_| BusyEcho)?, "AF_XDP"),
        ProgramKind::MmsgPolicy => echo(builder.overload(OverloadPolicy::protect()), ""),
        _ => echo(builder, "instead"),
    }
}

fn echo(builder: Builder, matters: &str) -> anyhow::Result<()> {
    wait(&builder.start(|_| Echo)?, matters)
}

fn dns(builder: Builder, program: &ServerProgram, required_feature: &str) -> anyhow::Result<()> {
    let file = program.zone.as_ref().context("a name server requires --zone")?;
    let served_zones = ServedZones::new(Zones::load(&[(ZONE, file)])?);
    wait(&builder.start(move |_| DnsService::new(Arc::clone(&served_zones)))?, required_feature)
}

// Serves until the end. A server that fell back to another backend would be measured under a wrong
// name; `required_feature` is the text of such a fallback.
fn wait(server: &RunningServer, required_feature: &str) -> anyhow::Result<()> {
    if let Some(fallback) =
        server.fallbacks().iter().find(|fallback| fallback.what.contains(required_feature))
    {
        bail!("{fallback}");
    }
    loop {
        thread::park();
    }
}
