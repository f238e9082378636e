//! Files that are shipped with the exporter: the documentation, dashboards and rules name existing
//! families, and Prometheus accepts them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::family;
use super::rules;
use serde_json::Value;

fn repository_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(repository_path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The queries of the dashboards, each after the title of its panel.
fn queries() -> Vec<(String, String)> {
    let dashboard = |name: &str| -> Value { serde_json::from_str(&text(name)).expect("JSON") };
    let dashboards = ["share/grafana/linerate.json", "share/grafana/linerate-fleet.json"].map(dashboard);
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut found = Vec::new();
    for panel in dashboards.iter().flat_map(|dashboard| list(&dashboard["panels"])) {
        let title = panel["title"].as_str().expect("a title").to_owned();
        for target in list(&panel["targets"]) {
            found.push((title.clone(), target["expr"].as_str().expect("a query").to_owned()));
        }
    }
    found
}

/// Runs promtool on a file. Returns false, after printing SKIP, if it is not installed.
fn promtool(test: &str, arguments: &[&str], file: &Path) -> bool {
    let Ok(output) = Command::new("promtool").args(arguments).arg(file).output() else {
        linerate_testkit::skip(test, "promtool is not installed");
        return false;
    };
    let messages = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&messages));
    true
}

#[test]
fn export_docs_have_the_table_of_families() {
    let document = text("docs/export.md");
    let table = super::table();
    assert!(document.contains(&table), "docs/export.md: put this there\n{table}");
}

#[test]
fn dashboards_query_existing_families_in_path_order() {
    let queries = queries();
    assert!(queries.len() > 30, "{}", queries.len());
    for (title, query) in &queries {
        let series = rules::series(query);
        assert!(!series.is_empty(), "{title}: {query}");
        series.iter().for_each(|series| assert!(family(series).is_some(), "{title}: {series}"));
    }
    let dashboard: Value = serde_json::from_str(&text("share/grafana/linerate.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let rows =
        panels.iter().filter(|panel| panel["type"] == "row").filter_map(|panel| panel["title"].as_str());
    let rows: Vec<&str> = rows.filter_map(|title| title.split([':', ' ']).next()).collect();
    assert_eq!(rows, ["Link", "RSS", "Softirq", "Filter", "Socket", "Thread", "Transmit", "Findings"]);
    let ids: BTreeSet<u64> = panels.iter().filter_map(|panel| panel["id"].as_u64()).collect();
    assert_eq!(ids.len(), panels.len(), "a panel's id twice");
}

#[test]
fn promtool_accepts_the_dashboard_queries() {
    // The queries as rules, which promtool checks, with values for Grafana's variables.
    let mut file = String::from("groups:\n- name: dashboard\n  rules:\n");
    for (number, (_, query)) in queries().iter().enumerate() {
        let query = query.replace("$__rate_interval", "5m").replace("$top", "10");
        file.push_str(&format!("  - record: dashboard:{number}\n    expr: {}\n", Value::from(query)));
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("dashboard.yml");
    std::fs::write(&path, file).expect("written");
    promtool("promtool_accepts_the_dashboard_queries", &["check", "rules"], &path);
}

#[test]
fn alert_rules_pass_their_promtool_tests() {
    let test = "alert_rules_pass_their_promtool_tests";
    if promtool(test, &["check", "rules"], &repository_path("share/prometheus/linerate.rules.yml")) {
        promtool(test, &["test", "rules"], &repository_path("share/prometheus/linerate.rules.test.yml"));
        promtool(test, &["check", "config"], &repository_path("share/prometheus/prometheus.yml"));
    }
}

#[test]
fn rules_refer_to_existing_families_and_every_alert_is_tested() {
    let file = text("share/prometheus/linerate.rules.yml");
    let tests = text("share/prometheus/linerate.rules.test.yml");
    let code = file.lines().filter(|line| !line.trim_start().starts_with('#'));
    let found: BTreeSet<&str> = code.clone().flat_map(rules::series).collect();
    assert!(found.len() > 10, "{found:?}");
    found.iter().for_each(|series| assert!(family(series).is_some(), "{series}"));
    for record in words_after(&file, "record: ") {
        assert!(record.starts_with("linerate:"), "{record}");
    }
    for alert in words_after(&file, "alert: ") {
        assert!(alert.starts_with("Linerate"), "{alert}");
        let fires = format!("alertname: {alert}\n        exp_alerts:\n          - exp_labels:");
        assert!(tests.contains(&fires), "{alert} never fires in linerate.rules.test.yml");
    }
    for id in words_after(&file, "finding: ") {
        assert!(linerate_host::diagnosis::rule(id).is_some(), "no finding {id}");
        let page =
            format!("runbook_url: file:///usr/share/doc/linerate/docs/findings.md#{}", id.replace('.', ""));
        assert!(file.contains(&page), "{id}");
    }
    let alerts = words_after(&file, "alert: ").len();
    assert_eq!(words_after(&file, "runbook_url: ").len(), alerts, "each alert has a page");
    assert_eq!(words_after(&file, " for: ").len(), alerts, "each alert waits");
}

/// The word after each `label`.
fn words_after<'t>(text: &'t str, label: &str) -> Vec<&'t str> {
    let rest = text.split(label).skip(1);
    rest.filter_map(|rest| rest.split(|letter: char| letter.is_whitespace() || letter == '}').next())
        .collect()
}
