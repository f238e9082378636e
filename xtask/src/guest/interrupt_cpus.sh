# The CPUs of the interrupts of the queues, one line per interrupt.
# shellcheck shell=sh
for irq in $(sed -n 's/^ *\([0-9]*\):.* virtio1-\(in\|out\)put\..*/\1/p; s/^ *\([0-9]*\):.* igb0-TxRx-.*/\1/p' \
    /proc/interrupts); do
    echo "$irq $(cat /proc/irq/$irq/smp_affinity_list)"
done
