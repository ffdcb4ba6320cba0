// SPDX-License-Identifier: Apache-2.0
//! Blocks of atomic words read and written faster than one at a time.
//!
//! The compiler turns relaxed atomic accesses into one instruction each and never into vectors. The CPU does more: one
//! with AVX reads and writes 16 aligned bytes at once (Intel SDM volume 3, 9.1.1; AMD APM volume 2, 7.3.2), so no word in
//! them is torn. Invariant: what is done here is what that many relaxed accesses in some order might do.

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Words of a block, of 32 bits twice as many.
pub const BLOCK: usize = 32;
const HALVES: usize = 2 * BLOCK;

/// Reads a block: the low half of each word, then its high half.
#[inline(always)]
#[expect(
    clippy::inline_always,
    reason = "the caller is compiled for its own vectors, and this is in its inner loop"
)]
pub fn load_block(from: &[AtomicU64; BLOCK], into: &mut [u32; HALVES]) {
    if !at_once(from) {
        return load_each(from, into);
    }
    // SAFETY: it reads the 256 bytes of `from` and writes the 256 of `into`, which are theirs and do not overlap, as
    // `into` is borrowed mutably; both are aligned enough for these instructions, and AVX is there. Others may write to
    // `from` meanwhile: see the module (tests: `a_block_is_what_its_words_are`, `no_word_is_torn`).
    unsafe { copy(from.as_ptr().cast(), into.as_mut_ptr().cast()) }
}

/// Writes a block; nobody else writes to it meanwhile, or some of either's words are lost.
#[inline(always)]
#[expect(clippy::inline_always, reason = "as above")]
pub fn store_block(from: &[u32; HALVES], into: &[AtomicU64; BLOCK]) {
    if !at_once(into) {
        return store_each(from, into);
    }
    // SAFETY: as above the other way round; `into` may be written to through a shared reference, being atomics, and
    // others may read it meanwhile (tests: as above).
    unsafe { copy(from.as_ptr().cast(), into.as_ptr().cast_mut().cast()) }
}

/// Whether 16 bytes of a block are one access.
#[inline(always)]
#[expect(clippy::inline_always, reason = "as above")]
fn at_once(block: &[AtomicU64; BLOCK]) -> bool {
    block.as_ptr().addr().is_multiple_of(16) && std::arch::is_x86_feature_detected!("avx")
}

/// Copies 256 bytes, 16 at a time.
///
/// # Safety
///
/// The CPU has AVX; both places hold that many bytes, and the second may be written to.
#[inline(always)]
unsafe fn copy(from: *const u8, into: *mut u8) {
    macro_rules! lines {
        ($($at:literal)*) => {
            // SAFETY: as the caller promises; it changes no flags, no stack, and of the registers the four named.
            unsafe {
                asm!(
                    $(
                        concat!("vmovdqu xmm0, [{from} + ", $at, "]"),
                        concat!("vmovdqu xmm1, [{from} + ", $at, " + 16]"),
                        concat!("vmovdqu xmm2, [{from} + ", $at, " + 32]"),
                        concat!("vmovdqu xmm3, [{from} + ", $at, " + 48]"),
                        concat!("vmovdqu [{into} + ", $at, "], xmm0"),
                        concat!("vmovdqu [{into} + ", $at, " + 16], xmm1"),
                        concat!("vmovdqu [{into} + ", $at, " + 32], xmm2"),
                        concat!("vmovdqu [{into} + ", $at, " + 48], xmm3"),
                    )*
                    from = in(reg) from,
                    into = in(reg) into,
                    out("xmm0") _,
                    out("xmm1") _,
                    out("xmm2") _,
                    out("xmm3") _,
                    options(nostack, preserves_flags),
                );
            }
        };
    }
    lines!(0 64 128 192);
}

#[expect(clippy::cast_possible_truncation, reason = "takes the halves")]
fn load_each(from: &[AtomicU64; BLOCK], into: &mut [u32; HALVES]) {
    for (word, halves) in from.iter().zip(into.as_chunks_mut::<2>().0) {
        let word = word.load(Relaxed);
        *halves = [word as u32, (word >> 32) as u32];
    }
}

fn store_each(from: &[u32; HALVES], into: &[AtomicU64; BLOCK]) {
    for (word, [low, high]) in into.iter().zip(from.as_chunks::<2>().0) {
        word.store(u64::from(*low) | u64::from(*high) << 32, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[repr(align(64))]
    struct Lines([AtomicU64; BLOCK + 1]);

    impl Lines {
        fn new() -> Self {
            Self(core::array::from_fn(|_| AtomicU64::new(0)))
        }

        /// A block that begins on a line, or 8 bytes after one.
        fn block(&self, off: usize) -> &[AtomicU64; BLOCK] {
            self.0[off..].first_chunk().unwrap()
        }
    }

    #[test]
    fn a_block_is_what_its_words_are() {
        for off in [0, 1] {
            let lines = Lines::new();
            let block = lines.block(off);
            let halves: [u32; HALVES] =
                core::array::from_fn(|at| 0x0101_0101_u32.wrapping_mul(u32::try_from(at).unwrap() + 7));
            store_block(&halves, block);
            let (mut once, mut each) = ([0; HALVES], [0; HALVES]);
            load_each(block, &mut each);
            load_block(block, &mut once);
            assert_eq!((once, each), (halves, halves), "{off}");
            assert_eq!(block[3].load(Relaxed), u64::from(halves[6]) | u64::from(halves[7]) << 32);
            assert_eq!(lines.0[if off == 0 { BLOCK } else { 0 }].load(Relaxed), 0, "and nothing beside it");
        }
    }

    #[test]
    fn no_word_is_torn() {
        let (lines, done) = (Lines::new(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..40_000_u32 {
                    if round % 2 == 0 {
                        store_block(&[round; HALVES], lines.block(0));
                    } else {
                        let word = u64::from(round) | u64::from(round) << 32;
                        lines.block(0).iter().for_each(|place| place.store(word, Relaxed));
                    }
                }
                done.store(true, Relaxed);
            });
            let (mut seen, mut last) = ([0; HALVES], [0; BLOCK]);
            while !done.load(Relaxed) {
                load_block(lines.block(0), &mut seen);
                for ([low, high], last) in seen.as_chunks::<2>().0.iter().zip(&mut last) {
                    assert_eq!(low, high, "the halves of one store");
                    assert!(low >= last, "a word goes back from {last} to {low}");
                    *last = *low;
                }
            }
        });
    }
}
