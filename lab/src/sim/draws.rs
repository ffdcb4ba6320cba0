// SPDX-License-Identifier: Apache-2.0
//! Random numbers, one stream for each purpose, so that a draw more of one kind leaves the others as they were.

use libm::{log, pow};
use rand_core::Rng;
use rand_pcg::Pcg32;

use crate::scenario::Size;

/// What a number is drawn for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// When flows start.
    Start,
    /// Which packets are lost behind the bottleneck.
    Loss,
    /// How long packets are delayed behind the bottleneck.
    Jitter,
    /// When the short flows of an entry come.
    Arrivals(u32),
    /// How large they are.
    Sizes(u32),
}

/// Draws for one purpose.
#[derive(Clone, Debug)]
pub(crate) struct Draws(Pcg32);

impl Draws {
    /// The stream of a purpose in the run of this seed.
    pub(crate) fn new(seed: u64, purpose: Purpose) -> Self {
        let stream = match purpose {
            Purpose::Start => 1,
            Purpose::Loss => 2,
            Purpose::Jitter => 3,
            Purpose::Arrivals(entry) => 16 + 2 * u64::from(entry),
            Purpose::Sizes(entry) => 17 + 2 * u64::from(entry),
        };
        let mut pcg = Pcg32::new(seed, stream);
        // The first outputs of neighbouring seeds are alike.
        pcg.next_u64();
        Self(pcg)
    }

    /// Evenly from 0 (included) to 1 (not).
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit exactly")]
    pub(crate) fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / 9_007_199_254_740_992.0
    }

    /// Whether something of this likelihood happens.
    pub(crate) fn happens(&mut self, likelihood: f64) -> bool {
        self.unit() < likelihood
    }

    /// Exponential, with this mean.
    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * log(1.0 - self.unit())
    }

    /// A size in bytes. The truncated Pareto is drawn by inversion, so no draw is thrown away.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "sizes are far below 2^53"
    )]
    pub(crate) fn size(&mut self, size: &Size) -> u64 {
        match *size {
            Size::Fixed(bytes) => bytes,
            Size::Pareto { shape, min_bytes, max_bytes } => {
                let (least, most) = (min_bytes as f64, max_bytes as f64);
                let tail = pow(least / most, shape);
                let bytes = least / pow(1.0 - self.unit() * (1.0 - tail), 1.0 / shape);
                (bytes as u64).clamp(min_bytes, max_bytes)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_and_seeds_differ_and_repeat() {
        let first = |seed, purpose| Draws::new(seed, purpose).unit().to_bits();
        let all = [
            first(1, Purpose::Start),
            first(1, Purpose::Loss),
            first(1, Purpose::Jitter),
            first(1, Purpose::Arrivals(0)),
            first(1, Purpose::Sizes(0)),
            first(1, Purpose::Arrivals(1)),
            first(2, Purpose::Start),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[at + 1..].contains(one), "{at} is not alone");
        }
        assert_eq!(first(1, Purpose::Start), all[0]);
    }

    #[test]
    fn draws_have_the_means_they_should_have() {
        let mut draws = Draws::new(5, Purpose::Loss);
        let n = 200_000;
        let mean = |mut draw: Box<dyn FnMut() -> f64>| (0..n).map(|_| draw()).sum::<f64>() / f64::from(n);
        let mut other = draws.clone();
        assert!((mean(Box::new(move || draws.unit())) - 0.5).abs() < 0.003);
        assert!((mean(Box::new(move || other.exponential(3.0))) / 3.0 - 1.0).abs() < 0.01);
        // truncated Pareto: a L^a / (1 - (L/H)^a) * (L^(1-a) - H^(1-a)) / (a - 1)
        let (shape, min_bytes, max_bytes) = (0.9_f64, 1_000_u64, 1_000_000_u64);
        let size = Size::Pareto { shape, min_bytes, max_bytes };
        let mut sizes = Draws::new(5, Purpose::Sizes(0));
        #[expect(clippy::cast_precision_loss, reason = "small")]
        let got = mean(Box::new(move || sizes.size(&size) as f64));
        let (l, h) = (1e3_f64, 1e6_f64);
        let wanted = shape * pow(l, shape) / (1.0 - pow(l / h, shape))
            * (pow(l, 1.0 - shape) - pow(h, 1.0 - shape))
            / (shape - 1.0);
        assert!((got / wanted - 1.0).abs() < 0.03, "{got} is not {wanted}");
    }
}
