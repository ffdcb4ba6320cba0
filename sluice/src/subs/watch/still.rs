// SPDX-License-Identifier: Apache-2.0
//! When files that somebody writes may be read: once they rested. Knows no file and no clock.

use std::time::Duration;

/// First wait for a shaper that is away; it doubles.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MOST: Duration = Duration::from_secs(15);
/// A file whose last line has no end rests so many times longer: its writer may have been held up within it.
const LONG: u32 = 5;

/// What tells one state of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    /// Device and inode: another after rename-over.
    pub(super) file: (u64, u64),
    pub(super) size: u64,
    pub(super) modified: (i64, i64),
    pub(super) changed: (i64, i64),
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Wait,
    /// A file has been gone for the settling time.
    Gone,
    /// Read; `long`: they rested long enough even for a line without end.
    Read {
        long: bool,
    },
}

/// The files so far.
pub(super) struct Still {
    settle: Duration,
    seen: Option<Vec<Stamp>>,
    /// Since when they are as seen.
    since: Option<Duration>,
    /// What was seen has been dealt with.
    done: bool,
    /// Waiting for the long rest.
    patient: bool,
    /// Not before, for the shaper is away.
    retry: Option<(Duration, Duration)>,
}

impl Still {
    pub(super) fn new(settle: Duration) -> Self {
        Self { settle, seen: None, since: None, done: false, patient: false, retry: None }
    }

    /// The files as they are at `now`; `None`: not all are there.
    pub(super) fn look(&mut self, now: Duration, files: Option<Vec<Stamp>>) -> Step {
        if self.since.is_none() || files != self.seen {
            self.seen = files;
            self.disturbed(now);
            return Step::Wait;
        }
        let rested = now.saturating_sub(self.since.unwrap_or(now));
        if self.done || rested < self.settle {
            return Step::Wait;
        }
        if self.seen.is_none() {
            return Step::Gone;
        }
        let long = rested >= self.settle * LONG;
        let early = self.retry.is_some_and(|(at, _)| now < at);
        if early || (self.patient && !long) { Step::Wait } else { Step::Read { long } }
    }

    /// They changed while they were read.
    pub(super) fn disturbed(&mut self, now: Duration) {
        self.since = Some(now);
        (self.done, self.patient, self.retry) = (false, false, None);
    }

    /// They look half written.
    pub(super) fn not_yet(&mut self) {
        self.patient = true;
    }

    /// Dealt with, well or not; the next change counts.
    pub(super) fn done(&mut self) {
        self.done = true;
    }

    /// The shaper was away.
    pub(super) fn again(&mut self, now: Duration) {
        let wait = self.retry.map_or(RETRY, |(_, wait)| (wait * 2).min(RETRY_MOST));
        self.retry = Some((now + wait, wait));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(time: u64) -> Duration {
        Duration::from_millis(time)
    }

    #[expect(clippy::unnecessary_wraps, reason = "as the watcher sees it")]
    fn file(ino: u64, size: u64) -> Option<Vec<Stamp>> {
        Some(vec![Stamp { file: (1, ino), size, modified: (size.cast_signed(), 0), changed: (0, 0) }])
    }

    /// What each look sees and is told.
    fn play(still: &mut Still, looks: &[(u64, Option<Vec<Stamp>>, Step)]) {
        for (at, files, step) in looks {
            assert_eq!(still.look(ms(*at), files.clone()), *step, "at {at} ms");
        }
    }

    const READ: Step = Step::Read { long: false };

    #[test]
    fn a_file_is_read_once_it_rested_and_then_not_again() {
        let mut still = Still::new(ms(500));
        play(
            &mut still,
            &[
                (0, file(1, 10), Step::Wait),
                (400, file(1, 10), Step::Wait),
                (450, file(1, 20), Step::Wait),
                (900, file(1, 20), Step::Wait),
                (950, file(1, 20), READ),
            ],
        );
        still.done();
        play(&mut still, &[(99_000, file(1, 20), Step::Wait)]);
        // another file of the same size was put in its place
        play(&mut still, &[(99_100, file(2, 20), Step::Wait), (99_600, file(2, 20), READ)]);
    }

    #[test]
    fn a_gone_file_is_told_after_the_settling_time_and_its_return_is_a_change() {
        let mut still = Still::new(ms(500));
        play(&mut still, &[(0, file(1, 10), Step::Wait), (500, file(1, 10), READ)]);
        still.done();
        play(
            &mut still,
            &[
                (600, None, Step::Wait),
                (700, file(1, 10), Step::Wait),
                (800, None, Step::Wait),
                (1_300, None, Step::Gone),
                (1_400, file(1, 10), Step::Wait),
                (1_900, file(1, 10), READ),
            ],
        );
    }

    #[test]
    fn a_line_without_end_rests_five_times_as_long() {
        let mut still = Still::new(ms(500));
        play(&mut still, &[(0, file(1, 10), Step::Wait), (500, file(1, 10), READ)]);
        still.not_yet();
        play(
            &mut still,
            &[(2_400, file(1, 10), Step::Wait), (2_500, file(1, 10), Step::Read { long: true })],
        );
    }

    #[test]
    fn an_absent_shaper_is_tried_less_and_less_often_and_a_change_starts_anew() {
        let mut still = Still::new(ms(500));
        play(&mut still, &[(0, file(1, 10), Step::Wait), (500, file(1, 10), READ)]);
        still.again(ms(500));
        play(&mut still, &[(1_400, file(1, 10), Step::Wait), (1_500, file(1, 10), READ)]);
        still.again(ms(1_500));
        play(
            &mut still,
            &[(3_400, file(1, 10), Step::Wait), (3_500, file(1, 10), Step::Read { long: true })],
        );
        for _ in 0..9 {
            still.again(ms(3_500));
        }
        play(
            &mut still,
            &[(18_400, file(1, 10), Step::Wait), (18_500, file(1, 10), Step::Read { long: true })],
        );
        still.again(ms(18_500));
        play(&mut still, &[(18_600, file(1, 11), Step::Wait), (19_100, file(1, 11), READ)]);
    }

    #[test]
    fn what_changes_while_it_is_read_rests_anew() {
        let mut still = Still::new(ms(500));
        play(&mut still, &[(0, file(1, 10), Step::Wait), (500, file(1, 10), READ)]);
        still.disturbed(ms(510));
        play(&mut still, &[(900, file(1, 10), Step::Wait), (1_010, file(1, 10), READ)]);
    }
}
