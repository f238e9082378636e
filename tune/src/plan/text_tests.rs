use linerate_host::{Host, HostRecording};
use proptest::prelude::*;

use super::tests::{anyway, plan, recordings};
use super::*;

fn made() -> (HostRecording, TunePlan) {
    let readings = recordings("makita-2016");
    let plan = plan(&readings, &anyway("udp-server"));
    (readings.into_iter().last().expect("a reading"), plan)
}

/// The error for a plan in which `from` was replaced by `to`.
fn edited(from: &str, to: &str) -> String {
    let text = made().1.to_json();
    assert!(text.contains(from), "{from}");
    TunePlan::parse(&text.replacen(from, to, 1), "mine.json").expect_err("wrong").to_string()
}

#[test]
fn a_saved_plan_is_the_plan() {
    let (_, plan) = made();
    let text = plan.to_json();
    assert_eq!(TunePlan::parse(&text, "mine.json").expect("a plan"), plan);
    assert!(text.starts_with("{\n  \"schema\": \"linerate.plan/2\",\n") && text.ends_with("}\n"));
}

#[test]
fn a_plan_of_version_0_1_is_read() {
    let (_, plan) = made();
    let mut json: serde_json::Value = serde_json::from_str(&plan.to_json()).expect("JSON");
    let root = json.as_object_mut().expect("an object");
    // Later versions added these keys.
    root.retain(|key, _| !["target", "held_back"].contains(&key.as_str()));
    root.insert("schema".to_owned(), "linerate.plan/1".into());
    let mut text = json.to_string();
    for (now, then) in [
        ("exclusions", "agreements"),
        ("skipped", "left"),
        ("enforcement", "acts"),
        ("exclusion", "agreement"),
    ] {
        text = text.replace(&format!("\"{now}\":"), &format!("\"{then}\":"));
    }
    let read = TunePlan::parse(&text, "mine.json").expect("a plan");
    assert_eq!((read.changes, read.exclusions, read.skipped), (plan.changes, plan.exclusions, plan.skipped));
}

#[test]
fn nonsense_is_named_by_file_and_place_in_one_line() {
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
        let error = edited(from, to);
        assert!(error.starts_with(expected) && !error.contains('\n'), "{expected}\n{error}");
    }
    let empty = TunePlan::parse("", "mine.json").expect_err("wrong").to_string();
    assert_eq!(empty, "mine.json is no plan: EOF while parsing a value at line 1 column 0");
}

#[test]
fn a_plan_is_checked_against_the_host_as_it_is() {
    let (recording, plan) = made();
    let host = |changes: &[(&str, &str)]| {
        let host = Host::rehearsal(recording.clone());
        for (path, content) in changes {
            host.write(path, content).expect("a file that is there");
        }
        host
    };
    let said = |plan: &TunePlan, changes: &[(&str, &str)]| {
        plan.check(&host(changes)).map_err(|error| error.to_string())
    };
    assert_eq!(said(&plan, &[]), Ok(()));
    // A setting that already has its planned value requires no new plan.
    assert_eq!(said(&plan, &[("/proc/sys/net/ipv4/conf/all/rp_filter", "0\n")]), Ok(()));
    // A driver that was loaded again has the same device with another index.
    assert_eq!(said(&plan, &[("/sys/class/net/ens1f0/ifindex", "7\n")]), Ok(()));
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
        assert_eq!(said(&plan, &[(path, content)]), Err(expected.to_owned()));
    }
    let mut foreign = plan.clone();
    foreign.devices.clear();
    let error = said(&foreign, &[]).expect_err("no devices");
    assert_eq!(
        error,
        "ens1f0 is in the change of ens1f0 rx-5/rps_cpus, and not among the plan's devices: make a new plan"
    );
    let gone = plan
        .check(&Host::scripted([("/sys/class/net/lo/ifindex", "1\n"), ("/sys/class/net/lo/address", "0\n")]));
    assert_eq!(gone.expect_err("gone").to_string(), "ens1f0 is gone: make a new plan");
}

proptest! {
    #[test]
    fn any_text_is_a_plan_or_an_error_of_one_line(text in "\\PC{0,200}") {
        if let Err(error) = TunePlan::parse(&text, "any") {
            prop_assert!(!error.to_string().contains('\n'), "{}", error);
        }
    }
}

#[test]
fn a_plan_with_any_line_lost_or_cut_is_a_plan_or_an_error_of_one_line() {
    let text = made().1.to_json();
    let lines: Vec<&str> = text.lines().collect();
    let judge = |text: String| {
        if let Err(error) = TunePlan::parse(&text, "any") {
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    };
    for lost in (0..lines.len()).step_by(7) {
        let rest = lines.iter().enumerate().filter(|(number, _)| *number != lost);
        judge(rest.map(|(_, line)| format!("{line}\n")).collect());
        judge(lines[..lost].join("\n"));
    }
}
