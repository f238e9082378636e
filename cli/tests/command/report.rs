//! `linerate report` joins results of other commands into one page.

use std::fs;

use crate::support::{TestDirectory, checked_document, document_of, linerate, program, texts};

#[test]
fn report_joins_results_and_lists_unreadable_files() {
    let runs = TestDirectory::new();
    let (doctor, page) = (runs.file("doctor.json"), runs.file("report.html"));
    let diagnosis = linerate(&["doctor", "--interface", "lo", "--json", &doctor]);
    assert!(diagnosis.status.code().is_some_and(|code| code < 2), "{diagnosis:?}");
    let newer = r#"{"schema": "linerate.doctor/999", "version": "99.0.0", "argv": []}"#;
    runs.write("newer.json", newer);
    runs.write("broken.json", "{");

    let report = linerate(&["report", &runs.path().display().to_string(), "--json", "-", "--html", &page]);
    let document = checked_document(&report, 0, "linerate.report/2");
    let files = |list: &str| texts(&document["result"][list], "file");
    assert_eq!(files("results").len(), 1, "{document}");
    assert!(files("results")[0].ends_with("doctor.json"), "{document}");
    let unread_files = files("unread");
    assert_eq!(unread_files.len(), 2, "{document}");
    assert!(unread_files.iter().any(|file| file.ends_with("newer.json")), "{document}");

    let page = fs::read_to_string(page).expect("a page");
    assert!(page.contains("newer.json") && page.contains("<svg"), "{page}");
}

#[test]
fn fleet_report_of_1000_hosts_fits_in_512_mib() {
    const HOSTS: usize = 1_000;
    let fleet = TestDirectory::new();
    let diagnosis = linerate(&["doctor", "--interface", "lo", "--json", "-"]);
    let document = document_of(&diagnosis);
    let text = document.to_string();
    for number in 0..HOSTS {
        let host = fleet.path().join(format!("host{number}"));
        fs::create_dir(&host).expect("made");
        let mut other = document.clone();
        match number {
            3 => fs::write(host.join("error.txt"), "unreachable\n").expect("written"),
            4 => other["schema"] = "linerate.doctor/999".into(),
            5 => other["result"]["stages"]["machine"]["cpu_model"] = "made-up".into(),
            _ => {}
        }
        let text = if number == 4 || number == 5 { other.to_string() } else { text.clone() };
        if number != 3 {
            fs::write(host.join("doctor.json"), text).expect("written");
        }
    }
    let (fleet, page) = (fleet.path().display().to_string(), fleet.file("fleet.html"));
    let output = std::process::Command::new("sh")
        .args(["-c", "ulimit -v 524288; exec \"$@\"", "sh"])
        .arg(program())
        .args(["report", "--fleet", &fleet, "--json", "-", "--html", &page])
        .output()
        .expect("a shell");
    let report = checked_document(&output, 0, "linerate.fleet/1");
    let hosts = report["result"]["hosts"].as_array().expect("hosts");
    assert_eq!(hosts.len(), HOSTS);
    // Hosts without a result are first.
    let problems =
        |row: usize| (hosts[row]["name"].as_str(), hosts[row]["problems"][0].as_str().expect("a problem"));
    let first = [problems(0), problems(1)];
    assert!(first.contains(&(Some("host3"), "unreachable")), "{first:?}");
    assert!(
        first.iter().any(|(name, why)| *name == Some("host4") && why.contains("linerate.doctor/999")),
        "{first:?}"
    );
    let outlier = &report["result"]["outliers"];
    assert_eq!(outlier.as_array().map(Vec::len), Some(1), "{outlier}");
    assert_eq!((&outlier[0]["host"], &outlier[0]["value"]), (&"host5".into(), &"made-up".into()));
    assert!(fs::read_to_string(&page).expect("a page").contains("host999"));

    // `linerate report` reads the document of a fleet like any other result.
    fs::write(&page, &output.stdout).expect("written");
    let summary = linerate(&["report", &page]);
    assert!(
        String::from_utf8_lossy(&summary.stdout).contains("1000 hosts: 2 without a diagnosis"),
        "{summary:?}"
    );
}
