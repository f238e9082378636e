use std::collections::BTreeSet;

use proptest::prelude::*;

use super::table::SpotTable;
use super::*;
use crate::flame::fixture::profile;

fn spot_of(names: &[&str]) -> Option<String> {
    find(&profile(&format!("1 server task {}", names.join(";")))).pop().map(|spot| spot.id)
}

const SENDING: [&str; 4] =
    ["entry_SYSCALL_64_after_hwframe", "do_syscall_64", "__x64_sys_sendto", "udp_sendmsg"];
const RECEIVING: [&str; 5] =
    ["net_rx_action", "__napi_poll", "process_backlog", "__netif_receive_skb", "udp_queue_rcv_one_skb"];

fn below(outer: &[&'static str], inner: &[&'static str]) -> Option<String> {
    spot_of(&[outer, inner].concat())
}

#[test]
fn spot_table_has_unique_ids_known_rules_and_remedies() {
    let ids: Vec<&str> = TABLE.hot_spots().map(|spot| spot.id.as_str()).collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "each id occurs once");
    let wrong =
        "[lists]\npacket_path = []\n[[spot]]\nid = 'a'\nstage = 'link'\nwhat = 'b'\nfinding = 'link.nothing'";
    assert_eq!(SpotTable::read(wrong).expect_err("no such rule"), "doctor has no rule link.nothing");
    let short = "[lists]\npacket_path = []\n[[spot]]\nid = 'a'\nstage = 'link'\nwhat = 'b'";
    assert_eq!(SpotTable::read(short).expect_err("no remedy"), "a lacks words");
}

#[test]
fn spinlock_spot_is_determined_by_the_nearest_caller() {
    for lock in ["native_queued_spin_lock_slowpath", "__pv_queued_spin_lock_slowpath"] {
        let spot = |outer: &[&'static str], inner| below(outer, &[inner, "_raw_spin_lock_bh", lock]);
        let is = |id: &str| Some(id.to_owned());
        assert_eq!(spot(&RECEIVING, "__udp_enqueue_schedule_skb"), is("socket-lock"));
        assert_eq!(spot(&SENDING, "__dev_queue_xmit"), is("qdisc-lock"));
        assert_eq!(spot(&RECEIVING, "ep_poll_callback"), is("wake-up-lock"));
        assert_eq!(spot(&RECEIVING, "__slab_free"), is("memory-lock"));
        assert_eq!(spot(&["net_rx_action"], "somewhere"), is("other-lock"));
        // Outside the packet path, a generic lock is no spot.
        assert_eq!(spot(&["ksys_write"], "somewhere"), None);
    }
}

#[test]
fn spots_are_found_by_compiler_variants_and_callers() {
    let is = |id: &str| Some(id.to_owned());
    assert_eq!(below(&RECEIVING, &["nf_hook_slow.part.0"]), is("netfilter"));
    assert_eq!(
        below(&RECEIVING, &["nf_hook_slow", "nf_conntrack_in", "hash_conntrack_raw"]),
        is("conntrack")
    );
    assert_eq!(below(&RECEIVING, &["__fib_validate_source", "fib_table_lookup"]), is("source-validation"));
    assert_eq!(below(&RECEIVING, &["ip_route_input_slow", "fib_table_lookup"]), is("route-lookup"));
    assert_eq!(below(&SENDING, &["ip_make_skb", "__ip_select_ident"]), is("ip-id"));
    assert_eq!(below(&RECEIVING, &["do_xdp_generic", "bpf_prog_6deef7357e7b4530_drop"]), is("generic-xdp"));
    assert_eq!(below(&RECEIVING, &["bpf_prog_6deef7357e7b4530_drop", "__htab_map_lookup_elem"]), is("bpf"));
    assert_eq!(spot_of(&["do_syscall_64", "syscall_trace_enter", "__audit_syscall_entry"]), is("audit"));
    // The work of a system call is not the cost of its entry.
    assert_eq!(spot_of(&SENDING), None);
    assert_eq!(spot_of(&SENDING[..2]), is("syscall-entry"));
}

#[test]
fn application_and_kernel_copies_are_separate_spots() {
    let mut application = profile("3 server task main;__memcpy_avx_unaligned_erms\n1 server task main");
    application.frames.iter_mut().for_each(|frame| frame.kind = FrameKind::User);
    let found = find(&application);
    let shares: Vec<_> = found.iter().map(|s| (s.id.as_str(), s.share_of_busy, s.share_of_path)).collect();
    assert_eq!(shares, [("application-copy", 0.75, 0.0)]);
    assert_eq!(below(&SENDING, &["memcpy_orig"]), Some("copy".into()));
}

#[test]
fn interrupted_functions_are_not_spots() {
    let mut profile = profile("5 server softirq udp_recvmsg;_copy_to_iter;handle_softirqs;net_rx_action");
    assert_eq!(find(&profile), []);
    assert_eq!(samples_in_path(&profile), 5);
    profile.stacks[0].context = CpuContext::Idle;
    assert_eq!(samples_in_path(&profile), 0);
}

#[test]
fn spots_and_their_functions_are_sorted_by_samples() {
    let found = find(&profile(&format!(
        "10 server task net_rx_action;dev_gro_receive\n\
         50 server task {};__udp_enqueue_schedule_skb;__pv_queued_spin_lock_slowpath\n\
         20 server task net_rx_action;dev_gro_receive;inet_gro_receive\n\
         20 server task net_rx_action;veth_poll",
        RECEIVING.join(";")
    )));
    let shares: Vec<_> = found.iter().map(|s| (s.id.as_str(), s.share_of_path, s.samples)).collect();
    assert_eq!(shares, [("socket-lock", 0.5, 50), ("gro", 0.3, 30)]);
    let functions: Vec<_> = found[1].functions.iter().map(|f| (f.name.as_str(), f.samples)).collect();
    assert_eq!(functions, [("inet_gro_receive", 20), ("dev_gro_receive", 10)]);
    assert_eq!(found[0].finding.as_deref(), Some("socket.shared-by-threads"));
}

/// Functions of every kind to build stacks of.
const ANY: [&str; 14] = [
    "net_rx_action",
    "udp_sendmsg",
    "do_syscall_64",
    "handle_softirqs",
    "__udp_enqueue_schedule_skb",
    "memcpy",
    "dev_gro_receive",
    "nf_hook_slow",
    "__pv_queued_spin_lock_slowpath",
    "bpf_prog_1",
    "__dev_queue_xmit",
    "",
    ".",
    "kmem_cache_free",
];

proptest! {
    #[test]
    fn spot_shares_never_exceed_the_total(
        stacks in proptest::collection::vec(
            (proptest::collection::vec(0_u32..20, 0..12), 0_u32..14, 0_u64..1000, 0_usize..6), 0..20)
    ) {
        let mut input = profile(&format!("1 server task {}", ANY.join(";")));
        input.stacks.clear();
        for (frames, entry, samples, context) in stacks {
            let context = CpuContext::ALL[context];
            input.stacks.push(SampledStack { frames, context, entry, cpu: 0, pid: 1, comm: String::new(), samples });
        }
        let found = find(&input);
        let busy: u64 = input.stacks.iter().filter(|s| s.context != CpuContext::Idle).map(|s| s.samples).sum();
        prop_assert!(found.iter().map(|spot| spot.samples).sum::<u64>() <= busy);
        prop_assert!(found.iter().map(|spot| spot.share_of_busy).sum::<f64>() <= 1.0 + 1e-9);
        prop_assert!(found.iter().map(|spot| spot.share_of_path).sum::<f64>() <= 1.0 + 1e-9);
        for spot in &found {
            prop_assert_eq!(spot.functions.iter().map(|f| f.samples).sum::<u64>(), spot.samples);
        }
        prop_assert!(found.is_sorted_by(|a, b| a.samples >= b.samples));
    }
}
