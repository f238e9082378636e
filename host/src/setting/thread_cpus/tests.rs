use std::process::{Child, Command};

use super::*;
use crate::SettingError;

const STAT: &str = "/proc/812/task/813/stat";
const STATUS: &str = "/proc/812/task/813/status";

fn line(started: u64) -> String {
    format!("813 (a (b) c) S 1 812 612 0 -1 4194304 1 0 0 0 5 3 0 0 20 0 2 0 {started} 8 9 10\n")
}

fn scripted_host(started: u64) -> Host {
    Host::scripted([
        (STAT, line(started).as_str()),
        (STATUS, "Name:\ta\nCpus_allowed:\tf\nCpus_allowed_list:\t0-3\nMems_allowed_list:\t0\n"),
    ])
}

fn setting() -> Setting {
    Setting::ThreadCpus { pid: 812, tid: 813, started: 1234 }
}

/// A process that does nothing.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        Self(Command::new("sleep").arg("600").spawn().expect("sleep runs"))
    }

    fn cpus(&self) -> Setting {
        Setting::thread_cpus(&Host::live(), self.0.id(), self.0.id()).expect("a running process")
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn thread_of_another_process_is_pinned_and_restored() {
    let host = Host::live();
    let child = Sleeper::start();
    let cpus = child.cpus();
    let before = cpus.read(&host).expect("read");
    let first = CpuSet::from_list(before.as_str()).expect("a list").iter().next().expect("a CPU");
    let first = SettingValue::new(first.to_string());
    cpus.write(&host, &first).expect("written");
    assert_eq!(cpus.read(&host).expect("read"), first);
    cpus.write(&host, &before).expect("written");
    assert_eq!(cpus.read(&host).expect("read"), before);
}

#[test]
fn missing_cpus_are_an_error_alone_and_in_a_list() {
    let host = Host::live();
    let child = Sleeper::start();
    let cpus = child.cpus();
    let before = cpus.read(&host).expect("read");
    // Beyond 1,024 CPUs, and beyond the limit of every kernel.
    let error = cpus.write(&host, &SettingValue::new("9000")).expect_err("no such CPU");
    assert!(error.to_string().contains("cpuset"), "{error}");
    assert_eq!(cpus.read(&host).expect("read"), before);
    let first = CpuSet::from_list(before.as_str()).expect("a list").iter().next().expect("a CPU");
    match cpus.write(&host, &SettingValue::new(format!("{first},9000"))).expect_err("half of it") {
        SettingError::Partly { found, .. } => assert_eq!(found, first.to_string()),
        // If only one CPU is allowed, nothing changes.
        error => assert!(matches!(error, SettingError::Ignored { .. }), "{error}"),
    }
}

#[test]
fn ended_or_restarted_thread_is_gone() {
    let host = Host::live();
    let mut child = Sleeper::start();
    let cpus = child.cpus();
    let Setting::ThreadCpus { pid, tid, started } = cpus else { panic!("{cpus}") };
    let restarted = Setting::ThreadCpus { pid, tid, started: started + 1 };
    for setting in [restarted, {
        let _ = child.0.kill();
        let _ = child.0.wait();
        cpus
    }] {
        for outcome in [setting.read(&host).map(drop), setting.write(&host, &SettingValue::new("0"))] {
            let error = outcome.expect_err("the thread is gone");
            assert!(error.is_gone(), "{error}");
        }
    }
}

#[test]
fn affinity_errors_are_explained_by_errno() {
    let cpus = CpuSet::from_iter([3]);
    let message = |errno| explain_error(&std::io::Error::from_raw_os_error(errno), &cpus).to_string();
    assert!(message(libc::EPERM).contains("CAP_SYS_NICE"));
    assert!(message(libc::EINVAL).contains("cpuset") && message(libc::EINVAL).contains("CPUs 3"));
    assert!(message(libc::ESRCH).contains("ended"));
}

#[test]
fn scripted_host_writes_and_refuses_thread_cpus() {
    let setting = setting();
    let host = scripted_host(1234);
    assert_eq!(setting.to_string(), "CPUs of thread 813 of process 812");
    assert_eq!(setting.command(&SettingValue::new("2")).as_deref(), Some("taskset -pc 2 813"));
    assert!(
        setting.same(&SettingValue::new("0,1,2"), &SettingValue::new("2,0-1"))
            && !setting.same(&SettingValue::new(""), &SettingValue::new("0"))
    );
    setting.write(&host, &SettingValue::new("1,2")).expect("written");
    assert_eq!(setting.read(&host).expect("read").as_str(), "1-2");
    assert!(host.read(STATUS).expect("read").ends_with("Mems_allowed_list:\t0\n"));
    let denying_host = host.refusing("/calls/thread/812/813/cpus.json", libc::EPERM);
    assert!(setting.write(&denying_host, &SettingValue::new("0")).expect_err("refused").is_denied());
    assert!(setting.read(&scripted_host(1235)).expect_err("another thread").is_gone());
    assert_eq!(Setting::thread_cpus(&scripted_host(1234), 812, 813).expect("a thread"), setting);
}

#[test]
fn invalid_cpu_lists_are_refused() {
    for text in ["", "x", "3-1", "none", "-1"] {
        assert!(setting().check(&SettingValue::new(text)).is_err(), "{text}");
    }
}

#[test]
fn all_online_cpus_widen_to_all_possible_cpus() {
    let host = Host::scripted([
        ("/sys/devices/system/cpu/online", "0-3\n"),
        ("/sys/devices/system/cpu/possible", "0-7\n"),
    ]);
    let wide = |text: &str| widen(&host, &CpuSet::from_list(text).expect("a list")).to_string();
    assert_eq!((wide("0-3").as_str(), wide("0-2").as_str(), wide("0-9").as_str()), ("0-7", "0-2", "0-9"));
}
