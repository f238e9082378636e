//! What the slides of 2016 show of the machine: T. Makita, "Boost UDP Transaction Performance", `LinuxCon` Japan 2016.

/// The CPU on which the interrupt of each queue was found; the driver's hint is the queue's own number.
pub(super) const IRQ_TO_CPU: [u32; 20] =
    [12, 11, 10, 10, 12, 14, 10, 4, 2, 13, 14, 0, 13, 12, 3, 11, 11, 14, 11, 13];

/// Packets each receive queue had taken in.
pub(super) const QUEUE_PACKETS: [u64; 20] = [
    198_005_155,
    153_339_750,
    162_870_095,
    172_303_801,
    153_728_776,
    158_138_563,
    164_411_653,
    165_924_489,
    176_545_406,
    165_340_188,
    150_279_834,
    150_983_782,
    157_623_687,
    150_743_910,
    158_634_344,
    158_497_890,
    4,
    3,
    0,
    8,
];

/// Per cent of each CPU's time in user mode, in the kernel, idle and in softirqs, before any step, rounded (sar).
pub(super) const CPU_PERCENT: [[u64; 4]; 20] = [
    [0, 0, 0, 100],
    [0, 0, 0, 100],
    [0, 0, 0, 100],
    [0, 0, 0, 100],
    [0, 0, 0, 100],
    [2, 84, 14, 0],
    [0, 87, 13, 0],
    [0, 85, 15, 0],
    [0, 85, 15, 0],
    [0, 85, 15, 0],
    [0, 0, 0, 100],
    [0, 0, 0, 100],
    [0, 0, 0, 100],
    [0, 0, 0, 100],
    [0, 0, 0, 100],
    [2, 84, 14, 0],
    [0, 87, 13, 0],
    [2, 84, 14, 0],
    [0, 85, 15, 0],
    [0, 85, 15, 0],
];

/// Queues the indirection table reaches: its 128 entries name 0 to 15 in turn, `ethtool -X ens1f0 equal 20` is refused.
pub(super) const TABLE_REACH: u32 = 16;
