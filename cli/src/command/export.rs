//! `linerate export`: counters of the packet path, for Prometheus.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::metrics::http::{ClientLimits, ExporterPages, HttpServer, RequestHandler};
use crate::metrics::{Exporter, ExporterOptions, ExpositionFormat, OptionalMetrics};
use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use linerate_host::{Host, OpenedCapture, Scope};

use crate::command::netns::NetnsArgs;
use crate::interrupt::InterruptFlag;
use crate::output::{self, OutputTarget};
use crate::quantity;

// The default address. No other exporter in Prometheus' list of ports uses 9853.
const LISTEN: &str = "127.0.0.1:9853";

/// Default interval between two writes of a file.
const EVERY: Duration = Duration::from_secs(15);

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    pub(super) netns: NetnsArgs,
    /// Serve /metrics on this address; port 0 chooses a free one [default: 127.0.0.1:9853, or
    /// nowhere with --textfile]
    #[arg(long, value_name = "ADDR:PORT", conflicts_with_all = ["root", "format"])]
    listen: Option<SocketAddr>,
    /// Allow a --listen address that other hosts can reach, without authentication
    #[arg(long, requires = "listen", conflicts_with_all = ["once", "root", "format"])]
    allow_remote: bool,
    #[command(flatten)]
    options: ExporterOptions,
    /// Write a .prom file for node_exporter's textfile collector
    #[arg(long, value_name = "FILE")]
    textfile: Option<PathBuf>,
    /// Interval between two writes, seconds [default: 15]
    #[arg(long, value_name = "SECONDS", requires = "textfile", conflicts_with_all = ["root", "format"], value_parser = quantity::seconds(1.0..=86_400.0))]
    every: Option<Duration>,
    /// Write once, to the file or to standard output, and exit
    #[arg(long, conflicts_with_all = ["listen", "every"])]
    once: bool,
    /// With --once: read a capture of another host, or a directory with its proc and sys
    #[arg(long, value_name = "DIR|FILE.tar.gz", requires = "once", conflicts_with = "with")]
    root: Option<PathBuf>,
    /// With --once: format on standard output
    #[arg(
        long,
        value_name = "FORMAT",
        value_enum,
        default_value = "openmetrics",
        requires = "once",
        conflicts_with = "textfile"
    )]
    format: ExpositionFormat,
}

impl ExportArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let traced = self.options.with.iter().find(|metrics| **metrics != OptionalMetrics::Pids);
        if let (true, Some(traced)) = (self.once, traced.and_then(ValueEnum::to_possible_value)) {
            bail!(
                "--once reads the host once, and --with {} has values after some seconds: leave out --once, and use \
                 --textfile",
                traced.get_name()
            );
        }
        let address = self.address()?;
        let host = match &self.root {
            Some(root) => OpenedCapture::open(root)?.first,
            None => Host::live(),
        };
        // A named interface must exist at the start, because a mistyped name would export nothing;
        // later it may disappear and return.
        Scope { interfaces: self.options.interfaces.clone(), ..Scope::default() }.check(&host)?;
        let interrupt = InterruptFlag::install()?;
        // Binds before the host is read, because reading takes time.
        let server = address.map(bind).transpose()?;
        let exporter = Exporter::new(host, self.options.clone());
        for (collector, reason) in exporter.unavailable_collectors() {
            status_line!("linerate: --with {collector} is off: {reason}");
        }
        let pages = Arc::new(ExporterPages::new(exporter));
        if self.once {
            return self.write_once(&pages).map(|()| ExitCode::SUCCESS);
        }
        // Findings come from the change between two readings, so take the first one now.
        drop(pages.metrics(ExpositionFormat::OpenMetrics));
        if let Some(server) = &server {
            status_line!("serving metrics on http://{}/metrics", server.address().context("the address")?);
        }
        self.serve_until_signal(server.as_ref(), &pages, &interrupt)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Serves and writes until a signal arrives.
    fn serve_until_signal(
        &self,
        server: Option<&HttpServer>,
        pages: &Arc<ExporterPages>,
        interrupt: &InterruptFlag,
    ) -> Result<()> {
        let handler: Arc<RequestHandler> = {
            let pages = Arc::clone(pages);
            Arc::new(move |request| pages.answer(request))
        };
        let write_interval = self.every.unwrap_or(EVERY);
        let mut next_write = Instant::now();
        // `None` before the first write, whose failure shows a wrong path. A later one may be a full disk.
        let mut has_failed = None;
        while !interrupt.is_raised() {
            if let Some(file) = &self.textfile
                && next_write <= Instant::now()
            {
                let write_result = replace_file(file, pages);
                match (&write_result, has_failed) {
                    (Err(_), None) => return write_result,
                    (Err(error), Some(false)) => {
                        status_line!("linerate: {}; trying again", output::one_line(error));
                    }
                    _ => {}
                }
                has_failed = Some(write_result.is_err());
                // A write that took too long is not repeated.
                next_write = (next_write + write_interval).max(Instant::now());
            }
            let remaining =
                self.textfile.is_some().then(|| next_write.saturating_duration_since(Instant::now()));
            match server {
                Some(server) if interrupt.wait_for(server, remaining)? => server.accept(&handler),
                Some(_) => {}
                None => interrupt.wait(remaining)?,
            }
        }
        Ok(())
    }

    fn write_once(&self, pages: &ExporterPages) -> Result<()> {
        match &self.textfile {
            Some(file) => replace_file(file, pages),
            None => output::print(&pages.metrics(self.format)),
        }
    }

    /// The address to listen on; `None` for no server.
    fn address(&self) -> Result<Option<SocketAddr>> {
        let by_default = !self.once && self.textfile.is_none();
        let Some(address) = self.listen.or_else(|| by_default.then(|| LISTEN.parse().ok()).flatten()) else {
            return Ok(None);
        };
        ensure!(
            address.ip().is_loopback() || self.allow_remote,
            "--listen {address}: other hosts could reach that; give --allow-remote if they may read what this host counts"
        );
        Ok(Some(address))
    }
}

fn bind(address: SocketAddr) -> Result<HttpServer> {
    HttpServer::bind(address, ClientLimits::default()).map_err(|error| {
        let is_denied = error.kind() == std::io::ErrorKind::PermissionDenied;
        let remedy = if is_denied {
            "ports below net.ipv4.ip_unprivileged_port_start (1024) need CAP_NET_BIND_SERVICE; grant it, or choose another \
             address with --listen"
        } else {
            "choose another address with --listen"
        };
        anyhow::Error::from(error).context(format!("cannot listen on {address}: {remedy}"))
    })
}

fn replace_file(file: &Path, pages: &ExporterPages) -> Result<()> {
    // node_exporter reads the older format. It ignores names that do not end with `.prom`, such as the temporary file.
    OutputTarget::File(file.to_owned()).write(&pages.metrics(ExpositionFormat::Prometheus))
}
