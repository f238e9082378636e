//! An allocator that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Allocations by any thread so far.
pub(crate) static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
/// Bytes that are allocated, and the most there were since it was set.
pub(crate) static LIVE: AtomicU64 = AtomicU64::new(0);
pub(crate) static PEAK: AtomicU64 = AtomicU64::new(0);

fn taken(bytes: usize) {
    let live = LIVE.fetch_add(bytes as u64, Relaxed) + bytes as u64;
    PEAK.fetch_max(live, Relaxed);
}

struct DnsAllocCounter;

#[global_allocator]
static ALLOCATOR: DnsAllocCounter = DnsAllocCounter;

// SAFETY: everything is the system allocator's doing; counting does not allocate.
unsafe impl GlobalAlloc for DnsAllocCounter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        taken(layout.size());
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
        taken(size);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
