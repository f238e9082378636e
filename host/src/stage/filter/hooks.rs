//! Functions at netfilter hooks.

use std::io;

use super::NetfilterHook;
use super::modules::KernelModules;
use crate::netlink::nfnetlink::hook;
use crate::{Host, HostError, Known};

const MODULE: &str = "nfnetlink_hook";

pub(super) fn hooks(host: &Host, modules: &KernelModules, interfaces: &[&str]) -> Known<Vec<NetfilterHook>> {
    let reply =
        host.call("nfnetlink/hooks", "listing netfilter's hooks", || match modules.skip_reason(MODULE) {
            Some(reason) => Err(io::Error::other(reason)),
            None => hook::hooks(interfaces),
        });
    match reply {
        // nfnetlink_rcv_msg in net/netfilter/nfnetlink.c returns this for unknown subsystems.
        Err(HostError::Call { what, source }) if source.raw_os_error() == Some(libc::EINVAL) => {
            Known::unknown(format!(
                "{what}: this kernel cannot (Linux 5.14 and later can, with CONFIG_NETFILTER_NETLINK_HOOK)"
            ))
        }
        reply => reply.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hooks_of(files: &[(&str, &str)]) -> Known<Vec<NetfilterHook>> {
        let host = Host::scripted(files.iter().copied());
        hooks(&host, &KernelModules::read(&host), &["eth0"])
    }

    #[test]
    fn netfilter_hooks_are_read_from_a_recorded_answer() {
        let answer =
            r#"[{"family": "ip", "hook": "prerouting", "priority": -200, "function": "ipv4_conntrack_in"}]"#;
        let hooks = hooks_of(&[("/calls/nfnetlink/hooks.json", answer)]).into_value().expect("hooks");
        assert_eq!(
            (&*hooks[0].function, hooks[0].priority, &*hooks[0].module),
            ("ipv4_conntrack_in", -200, "")
        );
    }

    #[test]
    fn unsupported_hook_listing_is_unknown_and_names_linux_5_14() {
        let unknown = hooks_of(&[("/calls/nfnetlink/hooks.json", r#"{"errno": 22}"#)]);
        assert!(unknown.why_contains("Linux 5.14"), "{unknown:?}");
        assert!(hooks_of(&[]).why().is_some());
    }
}
