//! Arrival times of packets, and the current time.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::time::{ClockId, clock_gettime};

// Two 64-bit numbers (include/uapi/linux/sockios.h): on 64-bit targets `SIOCGSTAMPNS_OLD`, which
// all kernels have, on others `SIOCGSTAMPNS_NEW` (Linux 5.1).
#[cfg(target_pointer_width = "64")]
const SIOCGSTAMPNS: libc::Ioctl = 0x8907;
#[cfg(not(target_pointer_width = "64"))]
const SIOCGSTAMPNS: libc::Ioctl = libc::_IOR::<[i64; 2]>(0x89, 0x07);

// Arrival time of the last received packet, in nanoseconds of the real-time clock. From the first
// call on, the kernel records arrival times; earlier packets count as just arrived
// (net/core/sock.c, `sock_gettstamp`).
pub(crate) fn last_arrival_ns(socket: &impl AsFd) -> io::Result<i64> {
    let mut time = [0i64; 2];
    // SAFETY: the request writes two 64-bit numbers, the layout of `time`.
    let result = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), SIOCGSTAMPNS, time.as_mut_ptr()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(time[0].saturating_mul(1_000_000_000).saturating_add(time[1]))
}

// The real-time clock, in nanoseconds.
pub(crate) fn now_ns() -> i64 {
    let time = clock_gettime(ClockId::Realtime);
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
}

// The real-time clock at the last tick of the kernel, at most 10 ms ago; much cheaper to read.
pub(crate) fn coarse_now_ns() -> i64 {
    let time = clock_gettime(ClockId::RealtimeCoarse);
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
}

// The monotonic clock at the last tick of the kernel, in nanoseconds.
pub(crate) fn monotonic_ns() -> u64 {
    elapsed_ns(ClockId::MonotonicCoarse)
}

// The monotonic clock, in nanoseconds.
pub(crate) fn precise_ns() -> u64 {
    elapsed_ns(ClockId::Monotonic)
}

fn elapsed_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}
