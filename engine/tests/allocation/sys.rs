//! A global allocator that counts allocations.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Allocations by any thread so far.
pub(crate) static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

struct EngineAllocCounter;

#[global_allocator]
static ALLOCATOR: EngineAllocCounter = EngineAllocCounter;

// SAFETY: every call goes to the system allocator unchanged, and counting does not allocate.
unsafe impl GlobalAlloc for EngineAllocCounter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise; it came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller's promise; it came from `System`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
