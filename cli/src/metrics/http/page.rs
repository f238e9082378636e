//! The pages: the metrics, a health check, and an index.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{HttpRequest, HttpResponse};
use crate::metrics::exporter::Exporter;
use crate::metrics::text::{self, ExpositionFormat};
use crate::metrics::totals::Exposition;

// How long a scrape is fresh: more frequent requests get the same values again.
const FRESH: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(crate) struct ExporterPages {
    state: Mutex<ExporterState>,
}

#[derive(Debug)]
struct ExporterState {
    exporter: Exporter,
    /// When the last scrape ended, and its values.
    last: Option<(Instant, Exposition)>,
}

impl ExporterPages {
    pub(crate) fn new(exporter: Exporter) -> Self {
        Self { state: Mutex::new(ExporterState { exporter, last: None }) }
    }

    /// The page of a request.
    pub(crate) fn answer(&self, request: &HttpRequest) -> HttpResponse {
        match request.path.as_str() {
            "/metrics" => {
                let format = ExpositionFormat::from_accept_header(&request.accept);
                HttpResponse {
                    status: "200 OK",
                    content_type: format.content_type(),
                    body: self.metrics(format),
                }
            }
            "/-/healthy" => HttpResponse::line("200 OK", "linerate export is healthy"),
            "/" => HttpResponse {
                status: "200 OK",
                content_type: "text/html; charset=utf-8",
                body: INDEX.into(),
            },
            _ => HttpResponse::line("404 Not Found", "there are /metrics and /-/healthy"),
        }
    }

    // The metrics, at most `FRESH` old. One scrape at a time: concurrent requests wait, and share
    // its result.
    pub(crate) fn metrics(&self, format: ExpositionFormat) -> Arc<str> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *state;
        let (ended_at, exposition) = match state.last.take() {
            Some(last) if last.0.elapsed() < FRESH => last,
            _ => {
                let exposition = state.exporter.scrape();
                (Instant::now(), exposition)
            }
        };
        let text = text::write(&exposition, format).into();
        state.last = Some((ended_at, exposition));
        text
    }
}

const INDEX: &str = "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>linerate export</title>\n\
    <h1>linerate export</h1>\n<p>What the packet path of this host counts.</p>\n\
    <ul><li><a href=\"/metrics\">/metrics</a>: OpenMetrics, or the text format of Prometheus\n\
    <li><a href=\"/-/healthy\">/-/healthy</a>: whether it is alive</ul></html>\n";
