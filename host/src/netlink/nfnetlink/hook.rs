//! Functions at netfilter hooks (linux/netfilter/nfnetlink_hook.h, Linux 5.14).

use std::io;

use serde::{Deserialize, Serialize};

use super::{attribute_number, family_name, list, split_message, truncated_error};
use crate::netlink::attribute::{RequestAttributes, attribute, text};

const SUBSYSTEM: u8 = 12;
const GET: u8 = 0;
const INET: u8 = 1;
const ARP: u8 = 3;
const NETDEV: u8 = 5;

const HOOK_NUMBER: u16 = 1;
const PRIORITY: u16 = 2;
const DEVICE: u16 = 3;
const FUNCTION: u16 = 4;
const MODULE: u16 = 5;
const CHAIN: u16 = 6;
const CHAIN_DESCRIPTION: u16 = 1;
const CHAIN_TABLE: u16 = 1;
const CHAIN_FAMILY: u16 = 2;
const CHAIN_NAME: u16 = 3;

const IP_FAMILIES: [u8; 2] = [2, 10];
// Hooks of the IP families by number (linux/netfilter.h), in packet order.
const IP_HOOKS: [(u32, &str); 5] =
    [(0, "prerouting"), (1, "input"), (2, "forward"), (3, "output"), (4, "postrouting")];
// Hooks of a device; egress since Linux 5.16.
const INGRESS: (u32, &str) = (0, "ingress");
const EGRESS: (u32, &str) = (1, "egress");
// `NF_INET_INGRESS` of linux/netfilter.h: a chain of family inet at a device (Linux 5.10).
const INET_INGRESS: (u32, &str) = (5, "ingress");

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetfilterHook {
    /// `ip`, `ip6` or `netdev`.
    pub family: String,
    /// `prerouting`, `input`, `forward`, `output`, `postrouting`, `ingress` or `egress`.
    pub hook: String,
    /// Of family `netdev`.
    #[serde(default)]
    pub interface: Option<String>,
    /// Lower comes first.
    pub priority: i32,
    /// The kernel function or nftables chain: `ipv4_conntrack_in`, `chain inet filter input`; empty
    /// if the kernel does not report it.
    #[serde(default)]
    pub function: String,
    /// Empty if it is built in or unknown.
    #[serde(default)]
    pub module: String,
}

pub(super) fn hook_name(family: u8, number: u32) -> Option<&'static str> {
    let hooks: &[(u32, &str)] = match family {
        NETDEV => &[INGRESS, EGRESS],
        ARP => &[(0, "input"), (1, "output"), (2, "forward")],
        INET if number == INET_INGRESS.0 => &[INET_INGRESS],
        _ => &IP_HOOKS,
    };
    hooks.iter().find(|hook| hook.0 == number).map(|hook| hook.1)
}

/// All functions at the hooks of IPv4, IPv6 and these interfaces, in packet order.
pub(crate) fn hooks(interfaces: &[&str]) -> io::Result<Vec<NetfilterHook>> {
    let mut hooks = Vec::new();
    let mut device_errors = Vec::new();
    for interface in interfaces {
        device_errors.extend(list_device_hooks(interface, INGRESS, &mut hooks));
    }
    for (hook, name) in IP_HOOKS {
        for family in IP_FAMILIES {
            list_hooks(family, (hook, name), None, &mut hooks)?;
        }
    }
    for interface in interfaces {
        device_errors.extend(list_device_hooks(interface, EGRESS, &mut hooks));
    }
    // Device errors come last, because a kernel without hook lists reports that for IPv4 first.
    device_errors.into_iter().next().map_or(Ok(hooks), Err)
}

// No error if the kernel has no such hook or the device was removed.
fn list_device_hooks(
    interface: &str,
    hook: (u32, &str),
    hooks: &mut Vec<NetfilterHook>,
) -> Option<io::Error> {
    let error = list_hooks(NETDEV, hook, Some(interface), hooks).err()?;
    let absent_errnos = [libc::EPROTONOSUPPORT, libc::EOPNOTSUPP, libc::ENODEV];
    let is_expected = error.raw_os_error().is_some_and(|errno| absent_errnos.contains(&errno));
    (!is_expected).then_some(error)
}

fn list_hooks(
    family: u8,
    hook: (u32, &str),
    interface: Option<&str>,
    hooks: &mut Vec<NetfilterHook>,
) -> io::Result<()> {
    let request = RequestAttributes::default().bytes(HOOK_NUMBER, &hook.0.to_be_bytes());
    let request = match interface {
        Some(interface) => request.text(DEVICE, interface),
        None => request,
    };
    for answer in list(SUBSYSTEM, GET, family, &request)? {
        let mut function = parse_hook(&answer)?;
        hook.1.clone_into(&mut function.hook);
        function.interface = interface.map(str::to_owned);
        hooks.push(function);
    }
    Ok(())
}

/// The answer does not contain the hook; the caller fills it in.
pub(crate) fn parse_hook(body: &[u8]) -> io::Result<NetfilterHook> {
    let (family, attributes) = split_message(body)?;
    let text_of = |kind| attribute(attributes, kind).map(text);
    let chain =
        attribute(attributes, CHAIN).and_then(|chain| attribute(chain, CHAIN_DESCRIPTION)).map(chain_name);
    Ok(NetfilterHook {
        family: family_name(family),
        hook: String::new(),
        interface: None,
        priority: attribute_number(attributes, PRIORITY).ok_or_else(truncated_error)?.cast_signed(),
        // A kernel without CONFIG_KALLSYMS does not name functions.
        function: chain.or_else(|| text_of(FUNCTION)).unwrap_or_default(),
        module: text_of(MODULE).unwrap_or_default(),
    })
}

fn chain_name(description: &[u8]) -> String {
    let text_of = |kind| attribute(description, kind).map(text).unwrap_or_default();
    let family = attribute(description, CHAIN_FAMILY).and_then(|value| value.first().copied()).unwrap_or(0);
    format!("chain {} {} {}", family_name(family), text_of(CHAIN_TABLE), text_of(CHAIN_NAME))
}

#[cfg(test)]
mod tests {
    use super::*;
    fn answer(attributes: &RequestAttributes) -> Vec<u8> {
        [&[2_u8, 0, 0, 0], attributes.as_bytes()].concat()
    }

    #[test]
    fn hook_function_has_its_module_and_priority() {
        let attributes = RequestAttributes::default()
            .text(MODULE, "nf_conntrack")
            .text(FUNCTION, "ipv4_conntrack_in")
            .bytes(HOOK_NUMBER, &0_u32.to_be_bytes())
            .bytes(PRIORITY, &(-200_i32).to_be_bytes());
        let hook = parse_hook(&answer(&attributes)).expect("a function");
        assert_eq!((&*hook.family, hook.priority), ("ip", -200));
        assert_eq!((&*hook.function, &*hook.module), ("ipv4_conntrack_in", "nf_conntrack"));
    }

    #[test]
    fn hook_of_a_chain_is_named_as_in_nft() {
        let description = RequestAttributes::default()
            .text(CHAIN_TABLE, "fw")
            .text(CHAIN_NAME, "input")
            .bytes(CHAIN_FAMILY, &[1]);
        let chain = RequestAttributes::default().nested(CHAIN_DESCRIPTION, &description);
        let attributes = RequestAttributes::default()
            .text(FUNCTION, "nft_do_chain_inet")
            .bytes(PRIORITY, &[0; 4])
            .nested(CHAIN, &chain);
        assert_eq!(parse_hook(&answer(&attributes)).expect("a chain").function, "chain inet fw input");
    }

    #[test]
    fn hook_without_priority_is_an_error() {
        assert!(parse_hook(&answer(&RequestAttributes::default().text(FUNCTION, "f"))).is_err());
        assert!(parse_hook(&[2]).is_err());
    }
}
