//! Where the library's memory comes from: libc's heap. A signal handler that left `malloc` for good would leave it locked; so none
//! runs in there on the library's behalf.
use crate::lock::Stretch;
use core::alloc::{GlobalAlloc, Layout};
use std::alloc::System;

struct Heap;

#[global_allocator]
static HEAP: Heap = Heap;

// (The compiler would put all of that wherever something is dropped.)
// SAFETY: the system's allocator does it all.
unsafe impl GlobalAlloc for Heap {
    #[inline(never)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _whole = Stretch::begin();
        // SAFETY: as the caller's, here and below.
        unsafe { System.alloc(layout) }
    }

    #[inline(never)]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let _whole = Stretch::begin();
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    #[inline(never)]
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        let _whole = Stretch::begin();
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }

    #[inline(never)]
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let _whole = Stretch::begin();
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }
}
