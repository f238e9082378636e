//! Expositions as text: OpenMetrics 1.0, and the older text format of Prometheus (0.0.4), which node_exporter reads.
//!
//! Both are written here, because libraries write only one of them, and both must contain the same
//! series.

use std::fmt::Write as _;

use crate::metrics::family::{MetricFamily, MetricKind};
use crate::metrics::totals::{ExposedSeries, Exposition, MetricValue};

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ExpositionFormat {
    /// OpenMetrics 1.0
    #[value(name = "openmetrics")]
    OpenMetrics,
    /// Prometheus' text format 0.0.4
    Prometheus,
}

// Media types that a request may name.
const OPENMETRICS: &str = "application/openmetrics-text";
const TEXT: &str = "text/plain";

impl ExpositionFormat {
    /// The media type of a response.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            ExpositionFormat::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            ExpositionFormat::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    // The format that a request's `Accept` prefers (RFC 9110, 12.5.1); the older format if it does
    // not name OpenMetrics.
    pub(crate) fn from_accept_header(accept: &str) -> Self {
        let quality = |media_type: &str| {
            let ranges = accept.split(',').filter_map(|range| {
                let mut parts = range.split(';').map(str::trim);
                let name = parts.next()?;
                let weight = parts.find_map(|part| part.strip_prefix("q="));
                let weight = weight.map_or(1.0, |weight| weight.parse::<f64>().unwrap_or(0.0));
                name.eq_ignore_ascii_case(media_type).then_some(weight)
            });
            ranges.fold(0.0, f64::max)
        };
        let openmetrics = quality(OPENMETRICS);
        if openmetrics > 0.0 && openmetrics >= quality(TEXT) {
            ExpositionFormat::OpenMetrics
        } else {
            ExpositionFormat::Prometheus
        }
    }
}

pub(crate) fn write(exposition: &Exposition, format: ExpositionFormat) -> String {
    let mut text = String::new();
    for (family, rows) in &exposition.families {
        head(&mut text, family, format);
        rows.iter().for_each(|row| series(&mut text, family, row));
    }
    if format == ExpositionFormat::OpenMetrics {
        text.push_str("# EOF\n");
    }
    text
}

// The lines before the series of a family. The older format names a counter by its series.
fn head(text: &mut String, family: &MetricFamily, format: ExpositionFormat) {
    let name = match format {
        ExpositionFormat::OpenMetrics => family.name.to_owned(),
        ExpositionFormat::Prometheus => family.series(),
    };
    // Writing to a string does not fail.
    let _ = writeln!(text, "# HELP {name} {}", escape(family.help, format == ExpositionFormat::OpenMetrics));
    let _ = writeln!(text, "# TYPE {name} {}", family.kind_name());
    if format == ExpositionFormat::OpenMetrics && !family.unit.is_empty() {
        let _ = writeln!(text, "# UNIT {name} {}", family.unit);
    }
}

fn series(text: &mut String, family: &MetricFamily, row: &ExposedSeries) {
    text.push_str(family.name);
    if matches!(family.kind, MetricKind::Counter(_)) {
        text.push_str("_total");
    }
    // A label with an empty value is left out.
    let labels = family.labels.iter().zip(&row.labels).filter(|(_, value)| !value.is_empty());
    let mut separator = '{';
    for (name, value) in labels {
        let _ = write!(text, "{separator}{name}=\"{}\"", escape(value, true));
        separator = ',';
    }
    if separator == ',' {
        text.push('}');
    }
    // Writing to a string cannot fail.
    let _ = match row.number {
        MetricValue::Whole(count) => writeln!(text, " {count}"),
        MetricValue::Real(value) => writeln!(text, " {}", real(value)),
    };
}

/// A float in the notation of both formats.
fn real(value: f64) -> String {
    if value.is_nan() {
        "NaN".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned()
    } else {
        // Nine digits suffice, because counts are whole ticks or whole nanoseconds.
        let text = format!("{value:.9}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

fn escape(text: &str, quotes: bool) -> String {
    let mut output = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' => output.push_str("\\\\"),
            '\n' => output.push_str("\\n"),
            '"' if quotes => output.push_str("\\\""),
            character => output.push(character),
        }
    }
    output
}

#[cfg(test)]
mod tests;
