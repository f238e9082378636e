# A neglected interface: half of its queues, all interrupts on one CPU, a firewall with too small a
# conntrack table, and reverse-path filtering.
# shellcheck shell=sh
ethtool -L igb0 combined 4 || exit
for irq in /sys/class/net/igb0/device/msi_irqs/*; do
    echo 1 >/proc/irq/${irq##*/}/smp_affinity || exit
done
sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.igb0.rp_filter=1 || exit
nft -f - <<'END' || exit
table inet fw {
    chain input {
        type filter hook input priority 0; policy accept;
        ct state established,related accept
        udp dport 4000 accept
    }
}
END
sysctl -qw net.netfilter.nf_conntrack_max=270 net.netfilter.nf_conntrack_udp_timeout=5 || exit
sysctl -qw net.netfilter.nf_conntrack_udp_timeout_stream=5 || exit
until [ "$(cat /sys/class/net/igb0/operstate)" = up ]; do sleep 0.1; done
