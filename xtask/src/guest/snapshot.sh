# Every value that can be changed, by file or command. Counters are excluded by name.
# shellcheck shell=sh
find /proc/sys/net /proc/sys/kernel/numa_balancing /proc/irq /sys/class/net/NIC/ /sys/devices/system/cpu -type f |
    grep -vE '/statistics/|/spurious|/carrier_|/byte_queue_limits/(inflight|limit$|stall)|_count$|/nf_conntrack_buckets|/random/' |
    grep -vE '/cpuidle/|/crash_notes|/uevent|/power/|/route/flush|/neigh/.*_ms$|/cpufreq/.*_cur_freq|/traffic_' |
    grep -vE '/proc/irq/.*/effective_' | sort | while read -r file; do
    [ -r "$file" ] && printf '%s = ' "$file" && { cat "$file" 2>&1 || echo; } && echo
done
# Others than those of queues take effect with their next interrupt, which may be meanwhile. Of several CPUs the kernel chooses.
for irq in $(sed -n 's/^ *\([0-9]*\):.* NIC-.*/\1/p' /proc/interrupts); do
    grep -q '[-,]' /proc/irq/$irq/smp_affinity_list ||
        echo "$irq goes to $(cat /proc/irq/$irq/effective_affinity)"
done
for option in -k -c -g -l -x -a -n; do
    echo "ethtool $option:"
    ethtool $option NIC 2>&1
done
for flow in udp4 udp6 tcp4 tcp6; do ethtool -n NIC rx-flow-hash $flow; done
nft list ruleset
tc qdisc show dev NIC
