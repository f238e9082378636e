# Random tunes and boosts in the guest, with kill -9, changes by others and renames between them. Afterwards undo restores
# each value, or names it. Prints a line per history, and the differences that nobody explains; exit status 1 with any.
# Boosts require udp_diag in MODULES of xtask/src/guest/image.rs.
#
#   cargo xtask guest run --variant smt --traffic many --deadline 1500 -- sh -c "$(cat guest/histories.sh)" histories COUNT SEED
count=${1:-10}
seed=${2:-1}
serve="linerate serve echo --any --bind 198.18.82.2:4000 --workers 4 --sockets reuseport --no-pin"
name=vnet0
[ -e /sys/class/net/igb0 ] && nic=igb0 || nic=$(ls /sys/class/net | grep -vE '^(lo|vnet0)$' | head -1)

# Sets n to a number below $1.
pick() {
    seed=$(((seed * 1103515245 + 12345) & 0x7fffffff))
    n=$(((seed >> 8) % $1))
}

values() {
    for interface in "$name" "$nic"; do
        label=nic
        [ "$interface" = "$name" ] && label=vnet
        base=/sys/class/net/$interface
        for file in $base/queues/*/rps_cpus $base/queues/*/rps_flow_cnt $base/queues/*/xps_cpus $base/mtu \
            $base/tx_queue_len $base/gro_flush_timeout $base/napi_defer_hard_irqs $base/threaded; do
            [ -r "$file" ] && echo "$label/${file#$base/} = $(cat "$file" 2>&1)"
        done
        for irq in $(ls $base/device/msi_irqs $base/device/../msi_irqs 2>/dev/null | sort -un | grep -E '^[0-9]+$'); do
            echo "irq $irq = $(cat /proc/irq/$irq/smp_affinity)"
        done
        for option in -l -g -c -x -k; do
            ethtool $option "$interface" 2>&1 | sed "s/$interface/$label/;s/^/$label ethtool $option: /"
        done
        ethtool -n "$interface" rx-flow-hash udp4 2>&1 | sed "s/^/$label hash: /"
    done
    sysctl net.core net.ipv4.udp_mem net.ipv4.udp_rmem_min net.ipv4.conf.all.rp_filter kernel.numa_balancing 2>/dev/null |
        grep -v cookie
    grep Cpus_allowed_list /proc/$server/task/*/status | sed 's/.*://;s/^/server threads on/' | sort | uniq -c
}

# Sets mask to some of 20 CPUs.
mask() {
    pick 1048575
    mask=$(printf '%x' $((n + 1)))
}

# A change by somebody else: a line of values() that it changes.
interfere() {
    mask
    pick 2
    queue=$n
    pick 5
    case $n in
    0) path=queues/rx-$queue/rps_cpus ;;
    1) path=queues/tx-$queue/xps_cpus ;;
    2) path=tx_queue_len mask=$((500 + seed % 500)) ;;
    3) path=net.core.rmem_max ;;
    4) path=net.core.netdev_max_backlog ;;
    esac
    case $path in
    net.*) sysctl -qw $path=$((300000 + seed % 9999)) && foreign="$foreign $path" ;;
    *) echo $mask 2>/dev/null >/sys/class/net/$name/$path && foreign="$foreign vnet/$path" ;;
    esac
}

# What tune finds to fix.
disorder() {
    for irq in $(ls /sys/class/net/$nic/device/msi_irqs); do
        pick 2
        [ $n = 0 ] && echo 1 2>/dev/null >/proc/irq/$irq/smp_affinity
    done
    for queue in /sys/class/net/$name/queues/rx-*; do
        mask
        pick 3
        [ $n = 0 ] && echo $mask >$queue/rps_cpus
    done
    pick 4
    ethtool -L $nic combined $((1 + n)) 2>/dev/null
    pick 2
    [ $n = 0 ] && ethtool -X $nic weight 3 1 2>/dev/null
    pick 2
    [ $n = 0 ] && sysctl -qw net.core.rmem_max=$((212992 + seed % 9999))
    pick 64
    ethtool -G $nic rx $((256 + 8 * n)) 2>/dev/null
    sleep 1
}

# Runs a change, and kills it on the way once in three times.
change() {
    "$@" >/run/out 2>&1 &
    pick 3
    if [ $n = 0 ]; then
        pick 60
        sleep $((n / 10)).$((n % 10))
        kill -9 $! 2>/dev/null && log="$log killed"
    fi
    wait $! 2>/dev/null
    status=$?
    log="$log exit $status"
    log="$log ($(head -1 /run/out | cut -c1-160))"
}

rename() {
    ip link set $name down && ip link set $name name $1 && ip link set $1 up && name=$1
    ip address add 198.18.82.2/24 dev $name 2>/dev/null
    log="$log renamed"
}

start() {
    $serve >/dev/null 2>&1 &
    server=$!
    sleep 2
}

failed=0
start
history=0
while [ $history -lt $count ]; do
    history=$((history + 1))
    log= foreign=
    disorder
    values >/run/before
    for step in 1 2 3 4; do
        pick 8
        case $n in
        0 | 1 | 2)
            interface=$name
            pick 2
            [ $n = 0 ] && interface=$nic
            log="$log, tune $interface"
            change linerate tune apply --interface $interface --interval 1 --anyway --yes --measure=never
            ;;
        3 | 4)
            log="$log, boost"
            change linerate boost --port 4000 --look 1 --anyway apply --yes --measure=never
            ;;
        5)
            log="$log, other"
            interfere
            ;;
        6) [ $name = vnet0 ] && rename lan0 ;;
        7)
            log="$log, restart"
            kill $server && wait $server
            start
            ;;
        esac
    done
    : >/run/undo
    for try in 1 2 3 4 5 6 7 8; do
        linerate tune status >/run/status 2>&1
        grep -qE '^No tune|no tune' /run/status && break
        linerate tune undo >>/run/undo 2>&1
    done
    [ $name = vnet0 ] || rename vnet0
    sleep 1
    values >/run/after
    unexplained=
    for key in $(diff /run/before /run/after | sed -n 's/^[<>] \([^ ]*\) = .*/\1/p' | sort -u); do
        case " $foreign " in *" $key "*) ;; *) unexplained="$unexplained $key" ;; esac
    done
    diff /run/before /run/after | grep -E '^[<>]' | grep -qvE ' = ' && unexplained="$unexplained lines"
    changes=$(grep -c . /run/undo)
    echo "history $history:$log; by others:$foreign; undo printed $changes lines; unexplained:$unexplained"
    if [ -n "$unexplained" ]; then
        failed=1
        diff /run/before /run/after | grep -E '^[<>]'
        cat /run/undo /run/status
    fi
    [ -n "$foreign" ] && for key in $foreign; do grep "^$key" /run/before /run/after; done | tail -4
done
exit $failed
