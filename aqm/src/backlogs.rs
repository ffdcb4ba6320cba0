// SPDX-License-Identifier: Apache-2.0
//! What waits in each of many queues, and which of them is the longest.
//!
//! The bytes lie in one array, as in Linux sch_fq_codel, so that a search for the longest queue is one pass over four
//! bytes a queue. [`Backlogs::fat`] needs it only now and then: a queue can only overtake the one last found by growing,
//! which is seen as it grows, or by the other's shrinking, after which it is at most half as long as it was found or
//! [`SHEDS_A_SCAN`] answers old. In between the answer may be off by what came and went meanwhile.

/// Answers given before the next pass, as many as Linux drops after one (`drop_batch`).
const SHEDS_A_SCAN: u32 = 64;

/// Packets and bytes of every queue.
#[derive(Debug)]
pub(crate) struct Backlogs {
    bytes: Box<[u32]>,
    packets: Box<[u32]>,
    waiting: u64,
    /// The longest queue as far as it is known.
    fat: u32,
    /// Its bytes when it was found.
    found: u32,
    /// Answers left before the next pass.
    left: u32,
}

impl Backlogs {
    /// Nothing waits in any of so many queues.
    pub(crate) fn new(queues: u32) -> Self {
        let zeros = || vec![0; queues.max(1) as usize].into_boxed_slice();
        Self { bytes: zeros(), packets: zeros(), waiting: 0, fat: 0, found: 0, left: 0 }
    }

    /// How many queues there are.
    #[expect(clippy::cast_possible_truncation, reason = "made from a u32")]
    pub(crate) fn queues(&self) -> u32 {
        self.packets.len() as u32
    }

    /// A packet joins a queue.
    pub(crate) fn add(&mut self, queue: u32, bytes: u32) {
        let at = queue as usize;
        self.bytes[at] = self.bytes[at].saturating_add(bytes);
        self.packets[at] += 1;
        self.waiting += 1;
        if self.bytes[at] > self.bytes[self.fat as usize] {
            self.fat = queue;
        }
    }

    /// A packet left a queue.
    pub(crate) fn take(&mut self, queue: u32, bytes: u32) {
        let at = queue as usize;
        debug_assert!(self.packets[at] > 0, "queue {queue} holds nothing");
        self.bytes[at] = self.bytes[at].saturating_sub(bytes);
        self.packets[at] = self.packets[at].saturating_sub(1);
        self.waiting = self.waiting.saturating_sub(1);
    }

    /// Packets in a queue.
    pub(crate) fn packets(&self, queue: u32) -> u32 {
        self.packets[queue as usize]
    }

    /// Bytes in a queue.
    pub(crate) fn bytes(&self, queue: u32) -> u32 {
        self.bytes[queue as usize]
    }

    /// Packets in all of them.
    pub(crate) const fn waiting(&self) -> u64 {
        self.waiting
    }

    /// The queue with the most bytes, the first of equals, by one pass over all; `None` if nothing waits.
    #[expect(clippy::cast_possible_truncation, reason = "indices of a slice made from a u32")]
    pub(crate) fn longest(&self) -> Option<u32> {
        if self.waiting == 0 {
            return None;
        }
        let most = self.bytes.iter().copied().max().filter(|&most| most > 0);
        let at = match most {
            Some(most) => self.bytes.iter().position(|&bytes| bytes == most),
            // packets that count nothing
            None => self.packets.iter().position(|&packets| packets > 0),
        };
        at.map(|at| at as u32)
    }

    /// A queue that is the longest, or was lately: see the top of the file. `None` if nothing waits.
    pub(crate) fn fat(&mut self) -> Option<u32> {
        let stale = self.left == 0
            || self.packets[self.fat as usize] == 0
            || self.bytes[self.fat as usize] < self.found / 2;
        if stale {
            self.fat = self.longest()?;
            self.found = self.bytes[self.fat as usize];
            self.left = SHEDS_A_SCAN;
        }
        self.left -= 1;
        Some(self.fat)
    }

    /// Bytes on the heap.
    pub(crate) fn memory(&self) -> usize {
        (self.bytes.len() + self.packets.len()) * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_is_by_bytes_and_the_first_of_equals() {
        let mut backlogs = Backlogs::new(4);
        assert_eq!(backlogs.longest(), None);
        assert_eq!(backlogs.fat(), None);
        backlogs.add(3, 0);
        assert_eq!(backlogs.longest(), Some(3), "a packet that counts nothing waits all the same");
        backlogs.add(2, 100);
        backlogs.add(1, 100);
        backlogs.add(3, 99);
        assert_eq!(backlogs.longest(), Some(1));
        assert_eq!((backlogs.waiting(), backlogs.queues()), (4, 4));
    }

    #[test]
    fn a_queue_that_overtakes_by_growing_is_seen_at_once() {
        let mut backlogs = Backlogs::new(1024);
        backlogs.add(7, 1000);
        assert_eq!(backlogs.fat(), Some(7));
        backlogs.add(9, 1001);
        assert_eq!(backlogs.fat(), Some(9));
    }

    #[test]
    fn a_queue_that_shrinks_is_left_at_half_its_length_or_after_64_answers() {
        let mut backlogs = Backlogs::new(1024);
        for _ in 0..100 {
            backlogs.add(7, 1000);
            backlogs.add(8, 999);
        }
        let mut from = [0_u32; 1024];
        for _ in 0..100 {
            let queue = backlogs.fat().unwrap();
            from[queue as usize] += 1;
            backlogs.take(queue, if queue == 7 { 1000 } else { 999 });
        }
        assert_eq!(from[7] + from[8], 100);
        assert!(from[7].abs_diff(from[8]) <= 64, "{} and {}", from[7], from[8]);
        assert!(from[8] >= 18);
    }

    #[test]
    fn shedding_everything_ends_with_none_and_never_names_an_empty_queue() {
        let mut backlogs = Backlogs::new(16);
        for packet in 0..1000 {
            backlogs.add(packet % 16, 40 + packet);
        }
        for _ in 0..1000 {
            let queue = backlogs.fat().unwrap();
            let bytes = backlogs.bytes(queue).min(1500);
            let last = backlogs.packets(queue) == 1;
            backlogs.take(queue, if last { backlogs.bytes(queue) } else { bytes / 2 });
        }
        assert_eq!((backlogs.fat(), backlogs.longest(), backlogs.waiting()), (None, None, 0));
    }
}
