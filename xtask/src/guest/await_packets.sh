# Waits for packets: after a reset the interface needs time for its link and neighbours. A reset of
# igb removes the counters of its old queues, and the old sum is read until the link is up
# (igb_update_stats of drivers/net/ethernet/intel/igb/igb_main.c, Linux 6.12).
# shellcheck shell=sh
received=/sys/class/net/igb0/statistics/rx_packets
lowest=$(cat $received)
until
    now=$(cat $received)
    [ $now -ge $lowest ] || lowest=$now
    [ $now -gt $((lowest + 1000)) ]
do sleep 0.1; done
