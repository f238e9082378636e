//! Sysctls by their dotted name.
//!
//! As in sysctl(8), a slash in the name stands for a dot in the path, for interfaces such as
//! `eth0.5`: `net.ipv4.conf.eth0/5.rp_filter`. If the first of both characters is a slash, the name
//! is a path.

use std::borrow::Cow;

use super::knob::{Knob, WriteRefusal, quote};
use super::value::SettingValue;
use crate::{Host, HostError};

// Directories of per-interface sysctls, and names in them that are not interfaces (Linux
// Documentation/networking/ip-sysctl.rst, mpls-sysctl.rst).
const OF_INTERFACES: [&str; 5] =
    ["net/ipv4/conf", "net/ipv4/neigh", "net/ipv6/conf", "net/ipv6/neigh", "net/mpls/conf"];
const NO_INTERFACES: [&str; 2] = ["all", "default"];

pub(super) struct SysctlKnob<'a>(pub(super) &'a str);

impl SysctlKnob<'_> {
    pub(super) fn interface(&self) -> Option<Cow<'static, str>> {
        self.split_interface().map(|(_, interface, _)| Cow::Owned(interface))
    }

    pub(super) fn on_interface(&self, new_interface: &str) -> Option<String> {
        let (before, _, after) = self.split_interface()?;
        Some(swap_separators(&format!("{before}/{new_interface}/{after}")))
    }

    /// The path before the interface, the interface, and the path after it.
    fn split_interface(&self) -> Option<(&'static str, String, String)> {
        let path = sysctl_path(self.0);
        OF_INTERFACES.iter().find_map(|before| {
            let (interface, after) = path.strip_prefix(before)?.strip_prefix('/')?.split_once('/')?;
            let is_interface = !interface.is_empty() && !NO_INTERFACES.contains(&interface);
            is_interface.then(|| (*before, interface.to_owned(), after.to_owned()))
        })
    }

    fn path(&self) -> String {
        format!("/proc/sys/{}", sysctl_path(self.0))
    }
}

impl Knob for SysctlKnob<'_> {
    fn name(&self) -> String {
        self.0.to_owned()
    }

    fn name_error(&self) -> Option<String> {
        let is_valid = sysctl_path(self.0).split('/').all(|part| !matches!(part, "" | "." | ".."));
        (!is_valid).then(|| "it is no name of a sysctl such as net.core.rmem_max".to_owned())
    }

    fn read(&self, host: &Host) -> Result<SettingValue, HostError> {
        host.read(&self.path()).map(SettingValue::new)
    }

    fn canonical(&self, value: &SettingValue) -> Result<String, &'static str> {
        if value.as_str().contains('\n') {
            return Err("one line");
        }
        Ok(value.as_str().split_whitespace().collect::<Vec<_>>().join(" "))
    }

    fn write(&self, host: &Host, value: &SettingValue) -> Result<(), WriteRefusal> {
        Ok(host.write(&self.path(), value.as_str())?)
    }

    // A network namespace shows some sysctls of the whole machine read-only
    // (`sysctl_core_net_init` in net/core/sysctl_net_core.c, `nf_conntrack_standalone_init_sysctl`
    // in net/netfilter/nf_conntrack_standalone.c, as of Linux 6.18).
    fn fixed_reason(&self, host: &Host) -> Option<&'static str> {
        host.is_read_only(&self.path()).is_ok_and(|is_fixed| is_fixed).then(|| {
            if sysctl_path(self.0).starts_with("net/") {
                "it belongs to the whole machine, and cannot be set from a network namespace"
            } else {
                "the kernel does not allow changing it"
            }
        })
    }

    fn command(&self, value: &SettingValue) -> Option<String> {
        Some(format!("sysctl -w {}={}", self.0, quote(value.as_str())))
    }
}

/// The path of a sysctl below `/proc/sys`. Its first separator, `.` or `/`, determines the separator
/// (sysctl.d(5)).
pub fn sysctl_path(name: &str) -> String {
    match name.find(['.', '/']) {
        Some(first) if name.as_bytes().get(first) == Some(&b'/') => name.to_owned(),
        _ => swap_separators(name),
    }
}

/// The path of a dotted name, and the dotted name of a path.
fn swap_separators(name: &str) -> String {
    let swap = |letter| match letter {
        '.' => '/',
        '/' => '.',
        letter => letter,
    };
    name.chars().map(swap).collect()
}

#[cfg(test)]
mod tests {
    use crate::{Host, Setting, SettingError, SettingValue};

    #[test]
    fn a_sysctl_is_read_and_written_by_its_dotted_name() {
        let setting = Setting::sysctl("net.ipv4.conf.eth0/5.rp_filter");
        let host = Host::scripted([("/proc/sys/net/ipv4/conf/eth0.5/rp_filter", "1\n")]);
        assert_eq!(setting.read(&host).expect("read").as_str(), "1");
        setting.write(&host, &SettingValue::new("0")).expect("written");
        assert_eq!(setting.read(&host).expect("read").as_str(), "0");
        let by_path = Setting::sysctl("net/ipv4/conf/eth0.5/rp_filter");
        assert_eq!(by_path.read(&host).expect("read").as_str(), "0");
    }

    #[test]
    fn missing_sysctl_is_gone_and_named_in_the_error() {
        let host = Host::scripted([("/proc/sys/net/core/rmem_max", "1\n")]);
        let error = Setting::sysctl("net.nothing").read(&host).expect_err("not there");
        assert!(error.to_string().starts_with("net.nothing: cannot read /proc/sys/net/nothing: "), "{error}");
        assert!(error.is_gone() && !error.is_denied() && !error.is_unsupported());
        let error =
            Setting::sysctl("net.nothing").write(&host, &SettingValue::new("1")).expect_err("not there");
        assert!(error.is_gone(), "{error}");
    }

    #[test]
    fn read_only_sysctl_of_a_network_namespace_is_fixed() {
        let setting = Setting::sysctl("net.core.rmem_max");
        let value = ("/proc/sys/net/core/rmem_max", "212992\n");
        let answer = |json| [value, ("/calls/read_only/proc/sys/net/core/rmem_max.json", json)];
        let why = setting.fixed_reason(&Host::scripted(answer("true"))).expect("fixed");
        assert!(why.contains("cannot be set from a network namespace"), "{why}");
        assert_eq!(setting.fixed_reason(&Host::scripted(answer("false"))), None);
        assert_eq!(setting.fixed_reason(&Host::scripted([value])), None, "a capture without this call");
        assert_eq!(Setting::sysctl("net.nothing").fixed_reason(&Host::live()), None);
    }

    #[test]
    fn recordings_include_whether_a_sysctl_is_fixed() {
        let [read_only, writable] = ["/proc/sys/kernel/osrelease", "/proc/sys/kernel/printk_ratelimit"];
        let host = Host::live().recording();
        host.read(read_only).expect("read");
        let is_readable = host.read(writable).is_ok();
        let recorded = Host::recorded(host.into_recording());
        assert!(Setting::sysctl("kernel.osrelease").fixed_reason(&recorded).is_some());
        if is_readable {
            assert_eq!(recorded.is_read_only(writable).ok(), Host::live().is_read_only(writable).ok());
        }
        // Once more from the recording.
        let again = recorded.recording();
        again.read(read_only).expect("read");
        let again = Host::recorded(again.into_recording());
        assert!(Setting::sysctl("kernel.osrelease").fixed_reason(&again).is_some());
        // Captures of earlier versions do not record it.
        let old = Host::scripted([(read_only, "6.18.0\n")]).recording();
        old.read(read_only).expect("read");
        let old = Host::recorded(old.into_recording());
        assert_eq!(old.read(read_only).expect("recorded"), "6.18.0\n");
        assert_eq!(Setting::sysctl("kernel.osrelease").fixed_reason(&old), None);
    }

    #[test]
    fn sysctl_names_outside_proc_sys_are_refused() {
        for name in ["", "net..x", "//.//.etc.passwd", "net/../../etc/passwd", "net.ipv4.", "/etc/passwd"] {
            let error = Setting::sysctl(name).read(&Host::live()).expect_err(name);
            assert!(matches!(error, SettingError::BadName { .. }), "{name}: {error}");
        }
    }

    #[test]
    fn sysctl_values_ignore_whitespace_and_refuse_line_breaks() {
        let setting = Setting::sysctl("net.ipv4.udp_mem");
        assert!(setting.same(&SettingValue::new("1 2 3"), &SettingValue::new("1\t2\t3")));
        assert_eq!(
            setting.command(&SettingValue::new("1 2")).as_deref(),
            Some("sysctl -w net.ipv4.udp_mem='1 2'")
        );
        assert!(setting.check(&SettingValue::new("1\n2")).is_err());
    }

    #[test]
    fn interface_in_a_sysctl_name_is_found_and_replaced() {
        let setting = Setting::sysctl("net.ipv4.conf.eth0/5.rp_filter");
        assert_eq!(setting.interface().as_deref(), Some("eth0.5"));
        assert_eq!(setting.on_interface("lan0"), Setting::sysctl("net.ipv4.conf.lan0.rp_filter"));
        let other = Setting::sysctl("net.ipv4.conf.lan0.rp_filter").on_interface("eth0.5");
        assert_eq!(other, setting);
        for name in ["net.ipv4.conf.all.rp_filter", "net.ipv6.conf.default.forwarding", "net.core.rmem_max"] {
            let setting = Setting::sysctl(name);
            assert_eq!(setting.interface(), None, "{name}");
            assert_eq!(setting.on_interface("eth1"), setting);
        }
    }
}
