# Describes the guest, one fact per line. NIC is replaced by an interface.
# shellcheck shell=sh
echo "CPUs: $(nproc)"
echo "nodes: $(ls -d /sys/devices/system/node/node* | wc -l)"
echo "threads a core: $(tr ',-' '\n\n' </sys/devices/system/cpu/cpu0/topology/thread_siblings_list | wc -l)"
echo "CPUs of node 0: $(cat /sys/devices/system/node/node0/cpulist)"
echo "queues of NIC: $(ls -d /sys/class/net/NIC/queues/rx-* | wc -l)"
echo "queues of vnet0: $(ls -d /sys/class/net/vnet0/queues/rx-* | wc -l)"
echo "node of NIC: $(cat /sys/class/net/NIC/device/numa_node)"
echo "driver of NIC: $(ethtool -i NIC | sed -n 's/^driver: //p')"
echo "driver of vnet0: $(ethtool -i vnet0 | sed -n 's/^driver: //p')"
