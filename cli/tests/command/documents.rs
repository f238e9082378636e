//! The JSON documents match their schemas, and their figures agree with each other.

use crate::schema::conforms;
use crate::serve::ServeProcess;
use crate::support::{
    TestDirectory, assert_refused, can_make_labs, checked_document, document_of, errors_of, is_root,
    linerate, machine, run_as_nobody, texts,
};

#[test]
fn a_result_is_printed_even_if_its_file_cannot_be_written() {
    let directory = tempfile::tempdir().expect("a directory");
    let state = directory.path().display().to_string();
    let commands: [&[&str]; 4] = [
        &["doctor", "--interface", "lo", "--html", "/dev/full"],
        &["doctor", "--interface", "lo", "--json", "/dev/full"],
        &["tune", "plan", "--interface", "lo", "--json", "/dev/full"],
        &["tune", "status", "--state-dir", &state, "--json", "/dev/full"],
    ];
    for arguments in commands {
        let output = linerate(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?} {output:?}");
        assert!(!output.stdout.is_empty(), "{arguments:?}");
        assert!(
            errors_of(&output).starts_with("linerate: cannot write /dev/full: "),
            "{}",
            errors_of(&output)
        );
    }
}

#[test]
fn a_directory_that_cannot_be_written_is_refused_before_the_work() {
    if !is_root() {
        return;
    }
    let directory = TestDirectory::new();
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(directory.path(), readable).expect("set");
    let file = directory.file("x.json");
    let output = run_as_nobody(&["doctor", "--interface", "lo", "--json", &file]);
    assert_refused(&output, &format!("cannot write {file}: Permission denied"));
    assert!(output.stdout.is_empty(), "{output:?}");

    std::fs::write(&file, "of root").expect("written");
    let sticky = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
    std::fs::set_permissions(directory.path(), sticky).expect("set");
    let output = run_as_nobody(&["doctor", "--interface", "lo", "--json", &file]);
    assert_refused(&output, &format!("cannot write {file}: another user owns it"));
}

#[test]
fn load_and_serve_documents_agree_on_counts() {
    let server = ServeProcess::start("echo", &[]);
    let address = server.address().to_string();
    let load = linerate(&["load", &address, "--duration", "0.3", "--rate", "5k", "--json", "-"]);
    let load = checked_document(&load, 0, "linerate.load/2");
    let load = &load["result"];
    let count = |key: &str| load[key].as_u64().expect("a count");
    assert_eq!(count("sent"), count("answered") + count("lost"));

    let serve = server.stop();
    // The path over loopback loses nothing. Lost requests were lost before the server read them.
    assert!(serve["total"]["answered"].as_u64() >= Some(count("answered")), "{serve} {load}");
    assert!(serve["total"]["received"].as_u64() <= Some(count("sent")), "{serve} {load}");
}

#[test]
fn lab_reports_each_step_as_measured_or_skipped() {
    machine();
    if !can_make_labs() {
        return;
    }
    let directory = TestDirectory::new();
    let html = &directory.file("ladder.html");
    let steps = "reuseport,audit-off,ip-id-skip";
    let arguments =
        ["lab", "--quick", "--time", "6", "--quiet", "--steps", steps, "--json", "-", "--html", html];
    let output = linerate(&arguments);
    let report = checked_document(&output, 0, "linerate.ladder/2");
    let report = &report["result"];
    let steps = report["steps"].as_array().expect("steps");
    assert_eq!(texts(&report["steps"], "id"), ["baseline", "reuseport", "audit-off", "ip-id-skip"]);
    for step in steps {
        if step["applied"] == false {
            assert!(step["skipped_because"].as_str().is_some_and(|why| !why.is_empty()), "{step}");
            continue;
        }
        assert!(!step["latency_ns"].is_null(), "{step}");
        assert!(["2", "5"].iter().all(|load| step["goodput_at_overload"].get(load).is_some()), "{step}");
        assert!(step["transactions_per_second"]["median"].as_f64() > Some(0.0), "{step}");
        for figure in ["cycles_per_transaction", "instructions_per_transaction"] {
            let has_warning = step["warnings"].as_array().expect("warnings").iter().any(|warning| {
                warning["kind"] == "unknown"
                    && warning["detail"]
                        .as_str()
                        .is_some_and(|detail| detail.starts_with(figure.split('_').next().expect("a word")))
            });
            assert_eq!(step[figure].is_null(), has_warning, "{figure} of {step}");
        }
    }
    assert_eq!(steps[3]["versus_previous"]["id"], "reuseport");
    let verdict = steps[3]["versus_previous"]["verdict"].as_str().expect("a verdict");
    assert!(["better", "worse", "no-difference-shown"].contains(&verdict), "{verdict}");
    let page = std::fs::read_to_string(html).expect("the page was written");
    assert!(page.contains("<svg") && page.contains("ip-id-skip"));
}

#[test]
fn lab_up_and_down_match_their_schemas_and_list_has_the_lab() {
    machine();
    if !can_make_labs() {
        return;
    }
    let name = format!("documents-{}", std::process::id());
    let lab = |arguments: &[&str]| {
        let output = linerate(&[&["lab"], arguments].concat());
        assert!(output.status.success(), "{}", errors_of(&output));
        output
    };
    let up = document_of(&lab(&["up", &name, "--senders", "2", "--json", "-"]));
    conforms(&up, "linerate.labs/2");
    assert_eq!(up["result"]["labs"][0]["hosts"].as_array().map(Vec::len), Some(3));
    let list = document_of(&lab(&["list", "--json", "-"]));
    let labs = list["result"]["labs"].as_array().expect("labs");
    assert!(labs.iter().any(|lab| lab["name"] == name.as_str()), "{list}");
    let run = lab(&["exec", "--lab", &name, "sender1", "--", "cat", "/sys/class/net/eth0/operstate"]);
    assert_eq!(String::from_utf8_lossy(&run.stdout), "up\n");
    let down = document_of(&lab(&["down", &name, "--json", "-"]));
    conforms(&down, "linerate.clean/2");
    assert_eq!(down["result"]["labs"][0]["gone"], true);
}

#[test]
fn documents_of_calc_and_lab_list_match_their_schemas() {
    let list = document_of(&linerate(&["lab", "--list", "--json", "-"]));
    conforms(&list, "linerate.steps/2");
    assert_eq!(list["result"]["steps"][0]["id"], "baseline");
    let calc = linerate(&["calc", "--payload", "100", "--link", "10G", "--tps", "270k", "--json", "-"]);
    conforms(&document_of(&calc), "linerate.calc/2");
}
