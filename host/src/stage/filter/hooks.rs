//! Functions at netfilter hooks.

use std::io;

use super::NetfilterHook;
use super::modules::KernelModules;
use crate::netlink::nfnetlink::hook;
use crate::{Host, HostError, Known};

const MODULE: &str = "nfnetlink_hook";

pub(super) fn hooks(host: &Host, modules: &KernelModules, interfaces: &[&str]) -> Known<Vec<NetfilterHook>> {
    let answer =
        host.call("nfnetlink/hooks", "listing netfilter's hooks", || match modules.objection(MODULE) {
            Some(objection) => Err(io::Error::other(objection)),
            None => hook::hooks(interfaces),
        });
    match answer {
        // nfnetlink_rcv_msg in net/netfilter/nfnetlink.c returns this for unknown subsystems.
        Err(HostError::Call { what, source }) if source.raw_os_error() == Some(libc::EINVAL) => {
            Known::unknown(format!(
                "{what}: this kernel cannot (Linux 5.14 and later can, with CONFIG_NETFILTER_NETLINK_HOOK)"
            ))
        }
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observed(files: &[(&str, &str)]) -> Known<Vec<NetfilterHook>> {
        let host = Host::scripted(files.iter().copied());
        hooks(&host, &KernelModules::read(&host), &["eth0"])
    }

    #[test]
    fn a_capture_tells_of_hooks() {
        let answer =
            r#"[{"family": "ip", "hook": "prerouting", "priority": -200, "function": "ipv4_conntrack_in"}]"#;
        let hooks = observed(&[("/calls/nfnetlink/hooks.json", answer)]).into_value().expect("hooks");
        assert_eq!(
            (&*hooks[0].function, hooks[0].priority, &*hooks[0].module),
            ("ipv4_conntrack_in", -200, "")
        );
    }

    #[test]
    fn a_kernel_that_lists_no_hooks_says_from_when_on_they_do() {
        let unknown = observed(&[("/calls/nfnetlink/hooks.json", r#"{"errno": 22}"#)]);
        assert!(unknown.why().is_some_and(|why| why.contains("Linux 5.14")), "{unknown:?}");
        assert!(observed(&[]).why().is_some());
    }

    #[test]
    fn this_host_tells_or_says_why_not() {
        let host = Host::live();
        if let Known::Unknown { why } = hooks(&host, &KernelModules::read(&host), &["lo"]) {
            assert!(why.starts_with("listing netfilter's hooks: "), "{why}");
        }
    }
}
