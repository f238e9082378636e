//! Every parser of this crate by name, for the fuzzer: arbitrary bytes return an answer or an
//! error, never a panic.

use std::borrow::Cow;

use crate::CpuSet;
use crate::ethtool::HashFields;
use crate::interrupts;
use crate::netlink;
use crate::netlink::nfnetlink::{hook, table};
use crate::netlink::tc;
use crate::setting::SettingValue;
use crate::setting::irq_affinity::AffinityValue;
use crate::stage::filter::{self, NftTable};
use crate::stage::irq::TunedProfile;
use crate::stage::irq::owner::irqbalance;
use crate::stage::irq::served_queues::VectorNames;
use crate::stage::socket::SocketProtocol;
use crate::stage::softirq::{softirqs, softnet};
use crate::stage::thread::AuditRules;
use crate::stage::{machine, route, rss, socket, thread};
use crate::sys::ethtool;

pub type Parser = fn(&[u8]);

/// Grouped by stage. A parser with options reads them from the first bytes.
pub const PARSERS: &[(&str, Parser)] = &[
    ("CPU list", |bytes| drop(CpuSet::from_list(&text(bytes)))),
    ("CPU mask", |bytes| drop(CpuSet::from_mask(&text(bytes)))),
    ("capture", |bytes| drop(crate::capture::read_tar(bytes))),
    ("netlink acknowledgement", netlink::any_acknowledgement),
    ("netlink: an address", |bytes| _ = netlink::address::parse_address(bytes, 1)),
    // machine
    ("machine: /proc/stat, each CPU", |bytes| drop(machine::cpu_times(&text(bytes)))),
    // link
    ("link: ethtool answer", netlink::ethtool::any_answer),
    // rss
    ("rss: rule for a flow", |bytes| {
        drop(ethtool::RuleSpec::of(bytes, 0).map(|rule| (rule.listed(0), rule.text())));
    }),
    ("rss: rule for a flow as text", |bytes| {
        drop(ethtool::RuleSpec::parse(&text(bytes)).map(|rule| rule.text()));
    }),
    ("rss: queue statistics", crate::netlink::qstats::any_answer),
    ("rss: counter names", |bytes| _ = rss::parse_counter_name(&text(bytes)).count()),
    ("rss: indirection table", |bytes| crate::setting::any_table(&text(bytes))),
    ("rss: hash fields", |bytes| _ = HashFields::from_letters(&text(bytes))),
    // irq
    ("irq: /proc/interrupts", |bytes| drop(interrupts::parse(&text(bytes)))),
    ("irq: name of a vector", |bytes| {
        let text = text(bytes);
        let (interface, rest) = text.split_once('\n').unwrap_or(("eth0", &text));
        let (device, name) = rest.split_once('\n').unwrap_or(("virtio0", rest));
        let names = VectorNames { interface, device: Some(device) };
        let _ = (names.owns_any(name), names.names_interface(name), names.served_queues(name));
    }),
    ("irq: arguments of irqbalance", |bytes| {
        drop(irqbalance::banned_interrupts(&text(bytes).split('\0').collect::<Vec<_>>()));
    }),
    ("irq: environment of irqbalance", |bytes| drop(irqbalance::environment(&text(bytes)))),
    ("irq: irqbalance's answer", |bytes| drop(crate::root::irqbalance::parse_setup(&text(bytes)))),
    ("irq: affinity", |bytes| drop(AffinityValue::parse(&SettingValue::new(text(bytes))))),
    ("irq: TuneD profile", |bytes| {
        // The active profile is `x`.
        let read = |path: &str| Some(if path.contains("/x/") { text(bytes).into() } else { "x".to_owned() });
        _ = TunedProfile::active(&read).settings().count();
    }),
    // softirq
    ("softirq: /proc/net/softnet_stat", |bytes| {
        let online = CpuSet::from_iter(0..u32::from(bytes.first().copied().unwrap_or(0)));
        drop(softnet::parse(&text(bytes.get(1..).unwrap_or_default()), Some(&online)));
    }),
    ("softirq: NAPI instances", |bytes| {
        let (napi, queue) = bytes.split_at(bytes.len() / 2);
        drop(netlink::napi::decode(&[napi.to_vec()], &[queue.to_vec()]));
    }),
    ("softirq: /proc/softirqs", |bytes| drop(softirqs::parse(&text(bytes), "NET_RX"))),
    // filter
    ("filter: /proc/net/stat/nf_conntrack", |bytes| drop(filter::statistics(&text(bytes)))),
    ("filter: /proc/modules", |bytes| drop(filter::parse_loaded_modules(&text(bytes)))),
    ("filter: modules.builtin", |bytes| drop(filter::parse_builtin_modules(&text(bytes)))),
    ("filter: a netfilter hook", |bytes| drop(hook::parse_hook(bytes))),
    ("filter: a table of nftables", |bytes| drop(table::parse_table(bytes))),
    ("filter: a chain of nftables", |bytes| drop(table::add_chain(bytes, &mut [NftTable::default()]))),
    ("filter: a tc filter", |bytes| _ = tc::count(std::iter::once(bytes))),
    ("filter: a ruleset as text", |bytes| crate::setting::any_ruleset(&text(bytes))),
    // route
    ("route: /proc/net/snmp and netstat", |bytes| drop(route::parse_snmp(&text(bytes)))),
    ("route: /proc/net/snmp6", |bytes| drop(route::parse_snmp6(&text(bytes)))),
    // socket
    ("socket: sock_diag message", |bytes| _ = crate::netlink::diag_socket(bytes)),
    ("socket: /proc/net/udp", |bytes| drop(socket::proc_net_sockets(&text(bytes), SocketProtocol::Udp))),
    ("socket: ip_local_port_range", |bytes| _ = socket::port_range(&text(bytes))),
    ("socket: reuseport members", |bytes| drop(crate::reuseport::members(bytes))),
    ("socket: steering table", |bytes| drop(text(bytes).parse::<crate::setting::SteeringTable>())),
    ("socket: descriptor link", |bytes| _ = crate::process::owners::DescriptorKind::of(&text(bytes))),
    ("socket: program's fdinfo", |bytes| _ = socket::program_type(&text(bytes))),
    // thread
    ("thread: task stat", |bytes| drop(thread::TaskStat::parse(&text(bytes)))),
    ("thread: io_uring", |bytes| drop(thread::registered_sockets(&text(bytes)))),
    ("thread: task status", |bytes| drop(crate::process::task::parse_allowed_cpus(&text(bytes)))),
    ("thread: task syscall", |bytes| _ = thread::ThreadActivity::parse(&text(bytes))),
    ("thread: epoll's fdinfo", |bytes| drop(thread::parse_epoll_targets(&text(bytes)))),
    ("thread: an audit rule", |bytes| drop(netlink::audit::count_rule(bytes, &mut AuditRules::default()))),
    // transmit
    ("transmit: queueing discipline", |bytes| drop(netlink::qdisc::parse_qdisc(bytes))),
];

/// Bytes as [`crate::Host::read`] returns them.
pub fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::test_runner::TestRunner;

    /// Texts that resemble those of some parsers.
    const TEXTS: [&str; 17] = [
        "\\PC*",
        "([ -~]{0,20}[ \t:,=/x0-9a-f-]{0,30}\n){0,6}",
        "(tfd:|Cpus_allowed_list:|1 \\(a\\) )[ 0-9a-f,:ino-]{0,40}",
        "[0-9,x-]{0,20}",
        "[a-z{};,\"# \n]{0,60}",
        "([0-9a-f,]{0,9} ?(at)? ?[0-9]{0,12} ?){0,2}",
        "(SLEEP |IRQ |BANNED |LOAD |[0-9]{1,12} |[ -~]{0,5}){0,12}",
        "(flow-type|raw) (udp4|tcp6|[0-9a-f]{0,9})( [a-z-]{0,8} [0-9.:]{0,8}){0,3}",
        "(CPU[0-9 ]{0,3}){0,4}\n?(NET_RX:[0-9 x]{0,30}\n)?",
        "[\0-\x03]([0-9a-fg]{0,9} ?){0,40}\n?",
        "-?[0-9]{1,22} ?(0x[0-9a-f]{0,20} ?){0,3}",
        "(UserFiles:\n)?[ 0-9:a-z\\[\\]\n]{0,60}",
        "sl local_address\n 1: [ 0-9A-F:]{0,90} 07 \\PC*\n 0: 00000000:07E8 [ 0-9A-F:]{0,90} 07 [ 0-9A-F:]{0,90}",
        ".{0,12}\n.{0,12}\n.{0,40}",
        "(\\[?[A-Za-z_=# ]{0,20}\\]?\n){0,6}",
        "[ -~\0\n=]{0,80}",
        "( {0,3}CPU[0-9]{1,2}){0,4}\n?([ -~]{0,6}:?[ 0-9a-zA-Z,-]{0,40}\n){0,4}",
    ];

    fn parse_all(bytes: &[u8]) {
        for (_, parser) in PARSERS {
            parser(bytes);
        }
    }

    proptest! {
        /// The first byte of some messages is an address family.
        #[test]
        fn parsing_arbitrary_bytes_never_panics(
            mut bytes in proptest::collection::vec(any::<u8>(), 1..200),
            family in proptest::sample::select(&[libc::AF_INET as u8, libc::AF_INET6 as u8][..]),
        ) {
            parse_all(&bytes);
            bytes[0] = family;
            parse_all(&bytes);
        }
    }

    #[test]
    fn parsing_nearly_valid_text_never_panics() {
        for regex in TEXTS {
            let texts = proptest::string::string_regex(regex).expect("a regular expression");
            let parse = |text: String| {
                parse_all(text.as_bytes());
                Ok(())
            };
            TestRunner::default().run(&texts, parse).expect("no panic");
        }
    }
}
