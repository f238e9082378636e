//! A global allocator that counts allocations and bytes.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Allocations by any thread so far, reallocations included.
pub static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
/// Bytes that are allocated now.
pub static LIVE_BYTES: AtomicU64 = AtomicU64::new(0);
/// The most bytes that were allocated at once since a test last set it.
pub static PEAK_BYTES: AtomicU64 = AtomicU64::new(0);

/// The system's allocator with counters, for `#[global_allocator]`.
pub struct CountingAllocator;

fn count_allocation(bytes: usize) {
    ALLOCATIONS.fetch_add(1, Relaxed);
    let live = LIVE_BYTES.fetch_add(bytes as u64, Relaxed) + bytes as u64;
    PEAK_BYTES.fetch_max(live, Relaxed);
}

// SAFETY: every call goes to the system allocator unchanged, and counting does not allocate.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_allocation(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size() as u64, Relaxed);
        // SAFETY: the caller's promise; it came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LIVE_BYTES.fetch_sub(layout.size() as u64, Relaxed);
        count_allocation(size);
        // SAFETY: the caller's promise; it came from `System`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
