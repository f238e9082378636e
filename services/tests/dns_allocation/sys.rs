//! A global allocator that counts allocations and bytes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Allocations by any thread so far.
pub(crate) static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
/// Bytes that are allocated now. `PEAK`: their maximum since a test last set it.
pub(crate) static LIVE: AtomicU64 = AtomicU64::new(0);
pub(crate) static PEAK: AtomicU64 = AtomicU64::new(0);

fn count_allocation(bytes: usize) {
    let live = LIVE.fetch_add(bytes as u64, Relaxed) + bytes as u64;
    PEAK.fetch_max(live, Relaxed);
}

struct DnsAllocCounter;

#[global_allocator]
static ALLOCATOR: DnsAllocCounter = DnsAllocCounter;

// SAFETY: every call goes to the system allocator unchanged, and counting does not allocate.
unsafe impl GlobalAlloc for DnsAllocCounter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        count_allocation(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as u64, Relaxed);
        // SAFETY: the caller's promise; it came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        LIVE.fetch_sub(layout.size() as u64, Relaxed);
        count_allocation(size);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
