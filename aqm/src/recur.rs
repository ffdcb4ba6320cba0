// SPDX-License-Identifier: Apache-2.0
//! Likelihoods turned into decisions: `recur()` of RFC 9332 figure 4 and the kernel's random rolls.
//!
//! Invariant: over any run of n decisions at a constant likelihood p an accumulator acts n*p times, give or take one.
//! A likelihood of 1 always acts and one of 0 never does; the figure's accumulator would miss the first packet at 1.
//! Departure from figure 7: it shares one accumulator between the drop and the mark of one L packet and over-drops; here
//! each queue and purpose has its own, with a phase seeded by the owner so that subscribers do not act in step.

use crate::Prob;

/// What an accumulator is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Purpose {
    /// Marks of L with p_L.
    LMark = 0,
    /// Drops of L, and its marks of Classic strength.
    LDrop = 1,
    /// Drops and marks of C with p_C.
    Classic = 2,
    /// Marks of ECT(1) in C with p_CL.
    CoupledMark = 3,
}

/// The dice of one queue id: four accumulators, or the state of a generator in their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dice([u32; 4]);

impl Dice {
    /// Phases (and generator state) drawn from `seed`.
    pub(crate) const fn new(seed: u64) -> Self {
        let (a, state) = split_mix(seed);
        let (b, _) = split_mix(state);
        Self([low(a), high(a), low(b), high(b)])
    }

    /// Deterministic: acts once every 1/likelihood calls for this purpose.
    pub(crate) const fn recur(&mut self, purpose: Purpose, likelihood: Prob) -> bool {
        if likelihood.0 == u32::MAX {
            return true;
        }
        let (count, acts) = self.0[purpose as usize].overflowing_add(likelihood.0);
        self.0[purpose as usize] = count;
        acts
    }

    /// Random, as the kernel rolls: acts if a uniform u32 is at most the likelihood, so that even 0 acts once in 2^32.
    pub(crate) const fn roll(&mut self, likelihood: Prob) -> bool {
        self.word() <= likelihood.0
    }

    /// A uniform u32.
    pub(crate) const fn word(&mut self) -> u32 {
        let state = (self.0[1] as u64) << 32 | self.0[0] as u64;
        let (value, next) = split_mix(state);
        self.0[0] = low(next);
        self.0[1] = high(next);
        high(value)
    }
}

/// SplitMix64 (Steele, Lea and Flood 2014): the value drawn and the next state.
const fn split_mix(state: u64) -> (u64, u64) {
    let next = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = next;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31), next)
}

#[expect(clippy::cast_possible_truncation, reason = "takes the low half")]
const fn low(word: u64) -> u32 {
    word as u32
}

const fn high(word: u64) -> u32 {
    low(word >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acts_every_reciprocal_of_the_likelihood() {
        for gap in [2_u32, 3, 10, 1000] {
            let mut dice = Dice::new(7);
            let likelihood = Prob::from_f64(1.0 / f64::from(gap));
            let hits: Vec<u32> = (0..gap * 50).filter(|_| dice.recur(Purpose::LMark, likelihood)).collect();
            assert!(hits.len() >= 49, "{gap}: {}", hits.len());
            for pair in hits.windows(2) {
                let spacing = pair[1] - pair[0];
                assert!(spacing.abs_diff(gap) <= 1, "{gap}: {spacing}");
            }
        }
    }

    #[test]
    fn one_always_acts_and_zero_never() {
        for seed in 0..100 {
            let mut dice = Dice::new(seed);
            assert!((0..1000).all(|_| dice.recur(Purpose::Classic, Prob::ONE)));
            assert!((0..1000).all(|_| !dice.recur(Purpose::Classic, Prob::ZERO)));
        }
        assert!(Dice([0; 4]).recur(Purpose::Classic, Prob::ONE), "whatever the phase");
    }

    #[test]
    fn purposes_do_not_share_an_accumulator() {
        let likelihood = Prob::from_f64(0.3);
        let mut alone = Dice::new(1);
        let expected: Vec<bool> = (0..1000).map(|_| alone.recur(Purpose::LDrop, likelihood)).collect();
        let mut shared = Dice::new(1);
        let got: Vec<bool> = (0..1000)
            .map(|_| {
                shared.recur(Purpose::LMark, Prob::from_f64(0.9));
                shared.recur(Purpose::Classic, Prob::from_f64(0.5));
                shared.recur(Purpose::CoupledMark, Prob::from_f64(0.7));
                shared.recur(Purpose::LDrop, likelihood)
            })
            .collect();
        assert_eq!(expected, got);
    }

    #[test]
    fn phases_of_different_seeds_spread_over_the_whole_range() {
        let mut quarters = [0_u32; 4];
        for seed in 0..4000 {
            quarters[(Dice::new(seed).0[0] >> 30) as usize] += 1;
        }
        assert!(quarters.iter().all(|n| (900..1100).contains(n)), "{quarters:?}");
    }

    #[test]
    fn rolls_hit_their_likelihood() {
        let mut dice = Dice::new(3);
        let hits = (0..100_000).filter(|_| dice.roll(Prob::from_f64(0.25))).count();
        assert!((24_500..25_500).contains(&hits), "{hits}");
        let drawn = high(split_mix(u64::from(dice.0[1]) << 32 | u64::from(dice.0[0])).0);
        let mut same = dice;
        assert!(same.roll(Prob(drawn)), "a value equal to the likelihood acts, as in the kernel");
        assert!(!dice.roll(Prob(drawn - 1)));
        assert!((0..1000).all(|_| dice.roll(Prob::ONE)));
        assert!((0..1000).all(|_| !dice.roll(Prob::ZERO)));
    }
}
