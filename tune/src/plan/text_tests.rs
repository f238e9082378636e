use linerate_host::{Host, HostRecording};

use super::tests::{anyway, plan, recordings};
use super::*;

fn recorded_plan() -> (HostRecording, TunePlan) {
    let readings = recordings("makita-2016");
    let plan = plan(&readings, &anyway("udp-server"));
    (readings.into_iter().last().expect("a reading"), plan)
}

/// The error for a plan in which `from` was replaced by `to`.
fn error_after_edit(from: &str, to: &str) -> String {
    let text = recorded_plan().1.to_json();
    assert!(text.contains(from), "{from}");
    TunePlan::parse(&text.replacen(from, to, 1), "mine.json").expect_err("wrong").to_string()
}

#[test]
fn written_plans_parse_to_the_same_value() {
    let (_, plan) = recorded_plan();
    let text = plan.to_json();
    assert_eq!(TunePlan::parse(&text, "mine.json").expect("a plan"), plan);
    assert!(text.starts_with("{\n  \"schema\": \"linerate.plan/2\",\n") && text.ends_with("}\n"));
}

#[test]
fn plans_of_version_0_1_parse() {
    let (_, plan) = recorded_plan();
    let mut json: serde_json::Value = serde_json::from_str(&plan.to_json()).expect("JSON");
    let root = json.as_object_mut().expect("an object");
    // Later versions added these keys.
    root.retain(|key, _| !["target", "held_back"].contains(&key.as_str()));
    root.insert("schema".to_owned(), "linerate.plan/1".into());
    let mut text = json.to_string();
    for (new_key, old_key) in [
        ("exclusions", "agreements"),
        ("skipped", "left"),
        ("enforcement", "acts"),
        ("exclusion", "agreement"),
    ] {
        text = text.replace(&format!("\"{new_key}\":"), &format!("\"{old_key}\":"));
    }
    let parsed_plan = TunePlan::parse(&text, "mine.json").expect("a plan");
    assert_eq!(
        (parsed_plan.changes, parsed_plan.exclusions, parsed_plan.skipped),
        (plan.changes, plan.exclusions, plan.skipped)
    );
}

#[test]
fn parse_errors_name_the_file_and_the_problem_in_one_line() {
    for (from, to, expected) in [
        (
            "\"schema\": \"linerate.plan/2\"",
            "\"schema\": \"linerate.doctor/1\"",
            "mine.json is no plan: its schema is 'linerate.doctor/1', not 'linerate.plan/2'",
        ),
        ("\"goal\": \"udp-server\",", "", "mine.json is no plan: missing field `goal` at line"),
        ("\"goal\":", "\"gaol\":", "mine.json is no plan: unknown field `gaol`, expected one of"),
        (
            "\"interrupts\": \"nothing\"",
            "\"interrupts\": \"all\"",
            "mine.json is no plan: unknown variant `all`, expected one of",
        ),
        (
            "\"to\": \"00010020\"",
            "\"to\": \"cpu 5\"",
            "mine.json: ens1f0 rx-5/rps_cpus: 'cpu 5' is not a mask such as",
        ),
        (
            "\"queue\": 6",
            "\"queue\": -6",
            "mine.json is no plan: invalid value: integer `-6`, expected u32 at line",
        ),
        ("\"net.ipv4.conf.all.rp_filter\"", "\"../../etc/passwd\"", "mine.json: "),
        (
            "ens1f0.accept_local\"",
            "ens1f0.rp_filter\"",
            "mine.json: net.ipv4.conf.ens1f0.rp_filter is there twice",
        ),
        ("}", "", "mine.json is no plan: "),
    ] {
        let error = error_after_edit(from, to);
        assert!(error.starts_with(expected) && !error.contains('\n'), "{expected}\n{error}");
    }
    let empty = TunePlan::parse("", "mine.json").expect_err("wrong").to_string();
    assert_eq!(empty, "mine.json is no plan: EOF while parsing a value at line 1 column 0");
}

#[test]
fn check_rejects_plans_that_no_longer_match_the_host() {
    let (recording, plan) = recorded_plan();
    let host = |changes: &[(&str, &str)]| {
        let host = Host::rehearsal(recording.clone());
        for (path, content) in changes {
            host.write(path, content).expect("a file that is there");
        }
        host
    };
    let check_result = |plan: &TunePlan, changes: &[(&str, &str)]| {
        plan.check(&host(changes)).map_err(|error| error.to_string())
    };
    assert_eq!(check_result(&plan, &[]), Ok(()));
    // A setting that already has its planned value requires no new plan.
    assert_eq!(check_result(&plan, &[("/proc/sys/net/ipv4/conf/all/rp_filter", "0\n")]), Ok(()));
    // A driver that was loaded again has the same device with another index.
    assert_eq!(check_result(&plan, &[("/sys/class/net/ens1f0/ifindex", "7\n")]), Ok(()));
    for (path, content, expected) in [
        (
            "/proc/sys/net/ipv4/conf/all/rp_filter",
            "2\n",
            "net.ipv4.conf.all.rp_filter is '2' now, and was '1' when the plan was made: make a new plan",
        ),
        (
            "/sys/class/net/ens1f0/queues/rx-6/rps_cpus",
            "00040\n",
            "ens1f0 rx-6/rps_cpus is '00040' now, and was '00000' when the plan was made: make a new plan",
        ),
        (
            "/sys/devices/system/cpu/online",
            "0-17\n",
            "affinity of IRQ 123 (ens1f0-TxRx-18) is to be '00040000', and CPU 18 is not online: make a new plan",
        ),
    ] {
        assert_eq!(check_result(&plan, &[(path, content)]), Err(expected.to_owned()));
    }
    let mut plan_without_devices = plan.clone();
    plan_without_devices.devices.clear();
    let error = check_result(&plan_without_devices, &[]).expect_err("no devices");
    assert_eq!(
        error,
        "ens1f0 is in the change of ens1f0 rx-5/rps_cpus, and not among the plan's devices: make a new plan"
    );
    let result = plan
        .check(&Host::scripted([("/sys/class/net/lo/ifindex", "1\n"), ("/sys/class/net/lo/address", "0\n")]));
    assert_eq!(result.expect_err("gone").to_string(), "ens1f0 is gone: make a new plan");
}
