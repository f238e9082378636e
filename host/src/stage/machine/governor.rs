//! Frequency scaling.

use std::collections::{BTreeMap, BTreeSet};

use crate::finding::{Rule, RuleMatch, Severity};
use crate::known::{UnknownReason, nonempty_text};
use crate::stage::HostView;
use crate::{CpuSet, Host, Known, Setting};

fn path(cpu: u32, file: &str) -> String {
    format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/{file}")
}

pub(super) fn governors(
    host: &Host,
    online: &Known<CpuSet>,
) -> Result<Option<BTreeMap<u32, String>>, UnknownReason> {
    let mut governors = BTreeMap::new();
    for cpu in online.known()?.iter() {
        let governor = host.read_optional(&path(cpu, "scaling_governor"), nonempty_text).into_known()?;
        governors.extend(governor.map(|governor| (cpu, governor)));
    }
    Ok(Some(governors).filter(|governors| !governors.is_empty()))
}

pub(super) fn driver(host: &Host, online: &Known<CpuSet>) -> Result<Option<String>, UnknownReason> {
    let first_cpu = online.known()?.iter().next().unwrap_or(0);
    host.read_optional(&path(first_cpu, "scaling_driver"), nonempty_text).into_known()
}

pub(in crate::stage) const RULE: Rule = Rule {
    id: "machine.governor",
    title: "CPUs do not run at full frequency",
    why: "The governor decides how fast a CPU runs. `powersave` keeps it at its lowest frequency, except \
          where the CPU itself decides (intel_pstate and amd-pstate in active mode), where it only prefers \
          saving energy. `ondemand`, `conservative` and `schedutil` follow the load, and so react late to \
          each burst of packets; softirq time of an otherwise idle CPU may not count as load at all.",
    effect: "The ratio of the frequencies for `powersave`, unless the CPU decides itself; a few percent and \
             steadier latency for the others.",
    published_ratio: None,
    source: "Linux Documentation/admin-guide/pm/cpufreq.rst, intel_pstate.rst and amd-pstate.rst",
    kernels: "all with frequency scaling",
    remedy: "Set the governor `performance` on the CPUs that process packets and run the service.",
    caveats: "Power or heat is limited, few CPUs are busy and gain more from the turbo frequency that idle \
              CPUs leave them, or another program (TuneD, the firmware) sets the governor: change it there.",
    check: |view| check(view).into_iter().collect(),
};

/// Whether the CPU chooses its own frequency, so that `powersave` does not mean the lowest
/// frequency.
fn sets_own_frequency(driver: Option<&str>) -> bool {
    matches!(driver, Some("intel_pstate" | "amd-pstate-epp" | "amd_pstate_epp"))
}

fn check(view: &HostView<'_>) -> Option<RuleMatch> {
    let machine = &view.now.machine;
    // A hypervisor need not follow the settings of a guest.
    let is_guest = machine.hypervisor.value().is_some_and(|is_guest| *is_guest);
    let governors = machine.governors.value()?.as_ref().filter(|_| !is_guest)?;
    let driver = machine.frequency_driver.value().and_then(Option::as_deref);
    let is_slow =
        |governor: &str| matches!(governor, "powersave" | "ondemand" | "conservative" | "schedutil");
    let slow_cpus: BTreeMap<u32, &str> = governors
        .iter()
        .map(|(cpu, governor)| (*cpu, governor.as_str()))
        .filter(|(_, governor)| is_slow(governor))
        .collect();
    let (first_cpu, first_governor) = slow_cpus.iter().next()?;
    let at_lowest =
        slow_cpus.values().any(|governor| *governor == "powersave") && !sets_own_frequency(driver);
    let severity = if at_lowest { Severity::Medium } else { Severity::Low };
    let names: BTreeSet<&str> = slow_cpus.values().copied().collect();
    let names: Vec<&str> = names.into_iter().collect();
    let clause = if names.len() == 1 { "which does not keep" } else { "none of which keeps" };
    let (slow_count, cpu_count) = (slow_cpus.len(), governors.len());
    let title = format!(
        "{slow_count} of {cpu_count} CPUs are governed by {}, {clause} full frequency",
        names.join(", ")
    );
    let mut rule_match = RuleMatch::new(severity, title)
        .evidence(
            format!("governor of CPU {first_cpu}"),
            *first_governor,
            path(*first_cpu, "scaling_governor"),
        )
        .evidence("CPUs with such a governor", slow_cpus.len(), "scaling_governor of each CPU")
        .evidence_if("frequency driver", driver, path(*first_cpu, "scaling_driver"));
    for (cpu, governor) in &slow_cpus {
        let setting = Setting::Governor { cpu: *cpu };
        rule_match = rule_match.change(setting, Some(governor), "performance");
    }
    Some(rule_match)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PacketPath;

    fn machine(governor: &str, driver: &str, flags: &str) -> PacketPath {
        let files = [
            ("/sys/devices/system/cpu/online".to_owned(), "0-1".to_owned()),
            ("/proc/cpuinfo".to_owned(), format!("flags : {flags}\n")),
            (path(0, "scaling_governor"), format!("{governor}\n")),
            (path(1, "scaling_governor"), "performance\n".to_owned()),
            (path(0, "scaling_driver"), format!("{driver}\n")),
        ];
        PacketPath::scripted(files)
    }

    #[test]
    fn governors_that_follow_the_load_are_low_severity() {
        let severity = |governor, driver| RULE.once(&machine(governor, driver, "fpu"))[0].severity;
        assert_eq!(severity("powersave", "intel_pstate"), Severity::Low);
        assert_eq!(severity("schedutil", "intel_cpufreq"), Severity::Low);
        let matches = RULE.once(&machine("powersave", "intel_cpufreq", "fpu"));
        let title = "1 of 2 CPUs are governed by powersave, which does not keep full frequency";
        assert_eq!(matches[0].summary(), (Severity::Medium, title));
        assert_eq!(matches[0].change_texts(), ["governor of CPU 0 performance"]);
    }

    #[test]
    fn performance_userspace_and_guest_governors_are_not_reported() {
        for (governor, flags) in
            [("performance", "fpu"), ("powersave", "fpu hypervisor"), ("userspace", "fpu")]
        {
            assert!(RULE.once(&machine(governor, "acpi-cpufreq", flags)).is_empty(), "{governor}");
        }
    }
}
