//! Colours by part of the packet path.

use inferno::flamegraph::color::Color;

use crate::flame::profile::{FrameKind, StackFrame};
use crate::symbols::begins_with_any;

/// A part of the packet path with its colour and the prefixes of its functions.
#[derive(Debug, Clone, Copy)]
pub struct PalettePart {
    pub name: &'static str,
    /// Red, green, blue.
    pub colour: (u8, u8, u8),
    /// Separated by spaces.
    prefixes: &'static str,
}

const APPLICATION: PalettePart = PalettePart { name: "application", colour: (126, 201, 126), prefixes: "" };

const OTHER: PalettePart = PalettePart { name: "other kernel", colour: (222, 214, 196), prefixes: "" };

// The first match wins. Names are those of Linux 4.19 to 6.18.
const PARTS: [PalettePart; 9] = [
    PalettePart {
        name: "waiting for locks",
        colour: (232, 72, 60),
        prefixes: "native_queued_spin_lock_slowpath queued_spin_lock_slowpath __pv_queued_spin_lock_slowpath \
                   pv_wait kvm_wait queued_read_lock_slowpath queued_write_lock_slowpath rwsem_down_ \
                   __mutex_lock mutex_spin_on_owner osq_lock",
    },
    PalettePart {
        name: "copying",
        colour: (240, 168, 104),
        prefixes: "copy_user _copy_ __copy_ copyin copyout rep_movs memcpy skb_copy_ __skb_datagram_iter \
                   simple_copy_to_iter csum_partial csum_and_copy ip_generic_getfrag",
    },
    PalettePart {
        name: "memory",
        colour: (206, 170, 214),
        prefixes: "kmem_cache_ kmalloc __kmalloc kfree ___slab __slab slab_ page_pool_ __alloc_skb alloc_skb \
                   build_skb napi_build_skb napi_alloc __napi_alloc skb_release __kfree_skb consume_skb \
                   sock_wfree get_page_from_freelist __alloc_pages alloc_pages free_unref \
                   skb_attempt_defer_free sk_skb_reason_drop",
    },
    PalettePart {
        name: "filter, taps, BPF",
        colour: (240, 208, 88),
        prefixes: "nf_ nft_ ipt_ xt_ ip_vs_ ebt_ bpf_prog_ __bpf_prog do_xdp_generic packet_rcv tpacket_rcv \
                   tcf_ tcx_ cls_ sch_handle_ingress __audit audit_",
    },
    PalettePart {
        name: "sending",
        colour: (232, 152, 184),
        prefixes: "dev_queue_xmit __dev_queue_xmit __dev_xmit_skb dev_hard_start_xmit sch_direct_xmit \
                   __qdisc_run qdisc_ pfifo_fast fq_ validate_xmit udp_send udpv6_send udp_push ip_output \
                   ip_finish_output __ip_finish_output ip_local_out __ip_local_out ip_send_skb ip_make_skb \
                   __ip_append ip_append __ip_select_ident ip6_send ip6_output ip6_finish veth_xmit \
                   loopback_xmit sock_sendmsg __sock_sendmsg __sys_send",
    },
    PalettePart {
        name: "sockets",
        colour: (112, 184, 224),
        prefixes: "udp_ __udp udpv6 udp4_ udp6_ sock_ __sock ____sys_recv __sys_recv ___sys_recv do_recvmmsg \
                   inet_recvmsg inet6_recvmsg skb_consume_udp reuseport_ tcp_ raw_ unix_ ep_ __ep_ do_epoll \
                   io_uring io_",
    },
    PalettePart {
        name: "route, IP",
        colour: (120, 208, 196),
        prefixes: "ip_ ip6_ ipv6_ fib_ __fib inet_ rt_ dst_ neigh_ arp_ icmp_ __mkroute",
    },
    PalettePart {
        name: "driver, NAPI, GRO",
        colour: (132, 152, 232),
        prefixes: "net_rx_action net_tx_action __napi_poll napi_ __napi dev_gro gro_ skb_gro process_backlog \
                   netif_ __netif enqueue_to_backlog get_rps_cpu eth_ veth_ virtnet_ virtqueue_ ixgbe i40e_ \
                   ice_ mlx4_ mlx5 ena_ bnxt_ igb_ igc_ e1000 tg3_ gve_ nfp_ tun_ br_",
    },
    PalettePart {
        name: "interrupts, scheduler",
        colour: (176, 180, 188),
        prefixes: "asm_ sysvec_ common_interrupt handle_softirqs __do_softirq do_softirq __local_bh irq_ \
                   __irq handle_irq run_ksoftirqd smpboot_ schedule __schedule try_to_wake_up __wake_up \
                   wake_up finish_task_switch tick_ hrtimer_ do_idle cpu_startup cpuidle default_idle \
                   pv_native_safe_halt",
    },
];

/// In display order.
pub fn legend() -> impl Iterator<Item = PalettePart> {
    PARTS.into_iter().chain([OTHER, APPLICATION])
}

pub(super) fn part(frame: &StackFrame) -> PalettePart {
    if frame.kind == FrameKind::User {
        return APPLICATION;
    }
    let has_prefix = |part: &&PalettePart| begins_with_any(&frame.name, part.prefixes);
    PARTS.iter().find(has_prefix).copied().unwrap_or(OTHER)
}

// The colour of its part, lighter or darker by name, so that neighbours differ.
pub(super) fn colour(frame: &StackFrame) -> Color {
    let hash = frame.name.bytes().fold(5381_u32, |hash, byte| hash.wrapping_mul(33) ^ u32::from(byte));
    let shade = (hash % 25) as i16 - 12;
    let (r, g, b) = part(frame).colour;
    let shift = |value: u8| (i16::from(value) + shade).clamp(0, 255) as u8;
    Color { r: shift(r), g: shift(g), b: shift(b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_map_to_packet_path_parts() {
        for (name, kind, part_name) in [
            ("native_queued_spin_lock_slowpath", FrameKind::Kernel, "waiting for locks"),
            ("nft_do_chain", FrameKind::Kernel, "filter, taps, BPF"),
            ("udp_sendmsg", FrameKind::Kernel, "sending"),
            ("ip_send_skb", FrameKind::Kernel, "sending"),
            ("udp_queue_rcv_one_skb", FrameKind::Kernel, "sockets"),
            ("fib_table_lookup", FrameKind::Kernel, "route, IP"),
            ("dev_gro_receive", FrameKind::Kernel, "driver, NAPI, GRO"),
            ("handle_softirqs", FrameKind::Kernel, "interrupts, scheduler"),
            ("do_syscall_64", FrameKind::Kernel, "other kernel"),
            ("memcpy", FrameKind::User, "application"),
        ] {
            let frame = StackFrame { name: name.to_owned(), module: None, kind };
            assert_eq!(part(&frame).name, part_name, "{name}");
        }
    }
}
