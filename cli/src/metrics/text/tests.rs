use super::*;
use crate::metrics::families::{CPU_SECONDS, LINK_UP, LOST_PACKETS, SOFTIRQ_BACKLOG_LIMIT};
use proptest::prelude::*;

fn row(labels: &[&str], number: MetricValue) -> ExposedSeries {
    ExposedSeries { labels: labels.iter().map(|label| (*label).to_owned()).collect(), number }
}

fn exposition() -> Exposition {
    Exposition {
        families: vec![
            (&CPU_SECONDS, vec![row(&["0", "softirq"], MetricValue::Real(12.34))]),
            (&LINK_UP, vec![row(&["a\"b\\c\nd"], MetricValue::Real(1.0))]),
            (&SOFTIRQ_BACKLOG_LIMIT, vec![row(&[], MetricValue::Real(1000.0))]),
            (&LOST_PACKETS, vec![row(&["route", "Ip.InDiscards", "", ""], MetricValue::Whole(u64::MAX))]),
        ],
    }
}

#[test]
fn openmetrics_text_has_units_and_eof() {
    let text = write(&exposition(), ExpositionFormat::OpenMetrics);
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("# HELP")).collect();
    assert_eq!(
        lines,
        [
            "# TYPE linerate_machine_cpu_seconds counter",
            "# UNIT linerate_machine_cpu_seconds seconds",
            "linerate_machine_cpu_seconds_total{cpu=\"0\",mode=\"softirq\"} 12.34",
            "# TYPE linerate_link_up gauge",
            "linerate_link_up{interface=\"a\\\"b\\\\c\\nd\"} 1",
            "# TYPE linerate_softirq_backlog_limit_packets gauge",
            "# UNIT linerate_softirq_backlog_limit_packets packets",
            "linerate_softirq_backlog_limit_packets 1000",
            "# TYPE linerate_lost_packets counter",
            "# UNIT linerate_lost_packets packets",
            "linerate_lost_packets_total{stage=\"route\",reason=\"Ip.InDiscards\"} 18446744073709551615",
            "# EOF",
        ]
    );
}

#[test]
fn prometheus_text_has_total_in_types_and_no_units() {
    let text = write(&exposition(), ExpositionFormat::Prometheus);
    assert!(text.contains("# TYPE linerate_machine_cpu_seconds_total counter\n"), "{text}");
    assert!(!text.contains("# UNIT") && !text.contains("# EOF"), "{text}");
}

#[test]
fn the_accept_header_selects_the_preferred_format() {
    let prometheus_2_42 = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                           text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    for (accept, format) in [
        (prometheus_2_42, ExpositionFormat::OpenMetrics),
        ("", ExpositionFormat::Prometheus),
        ("*/*", ExpositionFormat::Prometheus),
        ("text/html,application/xhtml+xml", ExpositionFormat::Prometheus),
        ("application/openmetrics-text;q=0.1,text/plain", ExpositionFormat::Prometheus),
        ("Application/OpenMetrics-Text ; q=1", ExpositionFormat::OpenMetrics),
        ("application/openmetrics-text;q=0", ExpositionFormat::Prometheus),
        ("application/openmetrics-text;q=x,,;", ExpositionFormat::Prometheus),
    ] {
        assert_eq!(ExpositionFormat::from_accept_header(accept), format, "{accept}");
    }
}

#[test]
fn numbers_are_written_without_rounding_noise() {
    for (value, text) in [
        (0.0, "0"),
        (0.1 + 0.2, "0.3"),
        (1e-9, "0.000000001"),
        (1e15, "1000000000000000"),
        (f64::NAN, "NaN"),
        (f64::NEG_INFINITY, "-Inf"),
    ] {
        assert_eq!(real(value), text);
    }
}

/// The value of a label, as a reader of the formats unescapes it.
fn unescape_label(text: &str) -> String {
    let mut letters = text.chars();
    let mut value = String::new();
    while let Some(letter) = letters.next() {
        value.push(match (letter, letter == '\\') {
            (_, true) => match letters.next() {
                Some('n') => '\n',
                other => other.expect("an escaped letter"),
            },
            (letter, false) => letter,
        });
    }
    value
}

proptest! {
    #[test]
    fn arbitrary_labels_stay_on_one_line_and_unescape_unchanged(value in "\\PC*[\\\\\"\n]{0,3}\\PC*") {
        prop_assume!(!value.is_empty());
        let rows = vec![row(&[&value], MetricValue::Whole(7))];
        let text = write(&Exposition { families: vec![(&LINK_UP, rows)] }, ExpositionFormat::OpenMetrics);
        // Only a line feed ends a line in these formats.
        let lines: Vec<&str> = text.split('\n').filter(|line| line.starts_with("linerate_link_up{")).collect();
        prop_assert_eq!(lines.len(), 1);
        let escape = lines[0].strip_prefix("linerate_link_up{interface=\"").and_then(|rest| rest.strip_suffix("\"} 7"));
        prop_assert_eq!(unescape_label(escape.expect("a series")), value);
    }
}
