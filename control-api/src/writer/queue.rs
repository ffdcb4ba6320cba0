// SPDX-License-Identifier: Apache-2.0
//! The requests that wait for the writer, and the way back of their answers.
//!
//! Threads of the control side share one CPU, so what a change costs is largely who wakes whom how often. The writer is
//! woken when as many requests wait as it expects, not for each; and answers go back as one parcel a group, which a
//! task of the runtime hands out, so that its thread is woken once.
//!
//! Invariant: a request that was taken in is answered, or its sender dropped; never forgotten.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use super::{Answer, Command};

/// Requests that wait, at most; connections are fewer.
const QUEUE: usize = 4096;
/// How long a group waits for requests that came together before, and likely do again: first as long for any, then
/// for the rest of them.
const TOGETHER: Duration = Duration::from_micros(300);

/// A request and who waits for its answer.
pub(super) type Job = (Command, oneshot::Sender<Answer>);

/// Answers of a group and who waits for them.
pub(super) type Parcel = Vec<(oneshot::Sender<Answer>, Answer)>;

/// Hands out answers until the writer has ended.
#[derive(Debug)]
pub(crate) struct Postman(mpsc::UnboundedReceiver<Parcel>);

impl Postman {
    pub(crate) async fn run(mut self) {
        while let Some(parcel) = self.0.recv().await {
            for (reply, answer) in parcel {
                // The client may have gone.
                drop(reply.send(answer));
            }
        }
    }
}

/// Why a request was not taken in.
pub(super) enum Refused {
    Full,
    Ended,
}

#[derive(Debug, Default)]
struct Line {
    jobs: VecDeque<Job>,
    /// So many waiting requests wake the writer; `None` while it does not wait.
    wanted: Option<usize>,
    /// No more are taken in.
    ended: bool,
}

/// Both ends have it; see the module.
#[derive(Debug, Default)]
pub(super) struct Queue {
    line: Mutex<Line>,
    enough: Condvar,
}

impl Queue {
    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, job: Job) -> Result<(), Refused> {
        let mut line = self.line();
        if line.ended {
            return Err(Refused::Ended);
        }
        if line.jobs.len() >= QUEUE {
            return Err(Refused::Full);
        }
        line.jobs.push_back(job);
        let waiting = line.jobs.len();
        let enough = line.wanted.take_if(|wanted| *wanted <= waiting).is_some();
        drop(line);
        if enough {
            self.enough.notify_one();
        }
        Ok(())
    }

    /// Takes no more in; the writer ends when it has done what waits.
    pub(super) fn end(&self) {
        self.line().ended = true;
        self.enough.notify_one();
    }

    pub(super) fn has_ended(&self) -> bool {
        self.line().ended
    }
}

/// The writer's end. Dropping it, also by a panic, ends the queue.
pub(super) struct Inbox {
    queue: Arc<Queue>,
    answers: mpsc::UnboundedSender<Parcel>,
    /// Requests that are expected to come together.
    company: usize,
}

impl Inbox {
    pub(super) fn new() -> (Self, Arc<Queue>, Postman) {
        let queue = Arc::<Queue>::default();
        let (answers, parcels) = mpsc::unbounded_channel();
        (Self { queue: Arc::clone(&queue), answers, company: 1 }, queue, Postman(parcels))
    }

    /// Sends the answers of a group.
    pub(super) fn answer(&self, parcel: Parcel) {
        // without a runtime nobody waits for them
        drop(self.answers.send(parcel));
    }

    /// The next group, at most `most`, in the order they came: all that wait. Clients that wait for their answers
    /// ask again together, so it waits a little for as many as came before; one alone waits for nobody. Empty where
    /// none came for `patience`; `None` at the end.
    pub(super) fn group(&mut self, most: usize, patience: Option<Duration>) -> Option<Vec<Job>> {
        let queue = Arc::clone(&self.queue);
        let company = self.company.min(most);
        let mut line = queue.line();
        if company > 1 {
            line = queue.wait(line, company, Some(TOGETHER));
        }
        if line.jobs.is_empty() {
            line = queue.wait(line, 1, patience);
        }
        if !line.jobs.is_empty() && line.jobs.len() < company {
            line = queue.wait(line, company, Some(TOGETHER));
        }
        if line.jobs.is_empty() {
            return (!line.ended).then(Vec::new);
        }
        let count = line.jobs.len().min(most);
        let group = line.jobs.drain(..count).collect();
        drop(line);
        self.company = count.max(self.company.saturating_sub(1));
        Some(group)
    }
}

impl Queue {
    /// Waits until so many wait, the queue ends, or time is over.
    #[expect(clippy::disallowed_methods, reason = "how long a request waits for company is real time")]
    fn wait<'a>(
        &'a self,
        mut line: MutexGuard<'a, Line>,
        wanted: usize,
        patience: Option<Duration>,
    ) -> MutexGuard<'a, Line> {
        let end = patience.map(|patience| Instant::now() + patience);
        while line.jobs.len() < wanted && !line.ended {
            line.wanted = Some(wanted);
            line = match end.map(|end| end.checked_duration_since(Instant::now())) {
                None => self.enough.wait(line).unwrap_or_else(PoisonError::into_inner),
                Some(Some(left)) if !left.is_zero() => {
                    self.enough.wait_timeout(line, left).unwrap_or_else(PoisonError::into_inner).0
                }
                Some(_) => break,
            };
        }
        line.wanted = None;
        line
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        let mut line = self.queue.line();
        line.ended = true;
        line.jobs.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::precondition::Expect;

    fn job(id: &str) -> (Job, oneshot::Receiver<Answer>) {
        let (reply, answer) = oneshot::channel();
        ((Command::Delete { id: id.to_owned(), expect: Expect::default() }, reply), answer)
    }

    fn ids(group: Option<Vec<Job>>) -> Vec<String> {
        let names = group.unwrap().into_iter().map(|(command, _)| match command {
            Command::Delete { id, .. } => id,
            other => panic!("{other:?}"),
        });
        names.collect()
    }

    #[test]
    fn groups_come_in_order_and_what_waits_at_the_end_is_still_done() {
        let (mut inbox, queue, _postman) = Inbox::new();
        for id in ["a", "b", "c"] {
            assert!(queue.push(job(id).0).is_ok());
        }
        assert_eq!(ids(inbox.group(2, None)), ["a", "b"]);
        queue.end();
        assert!(matches!(queue.push(job("d").0), Err(Refused::Ended)));
        assert_eq!(ids(inbox.group(2, None)), ["c"]);
        assert!(inbox.group(2, None).is_none());
    }

    #[test]
    fn a_group_that_expects_company_does_not_wait_for_ever() {
        let (mut inbox, queue, _postman) = Inbox::new();
        inbox.company = 100;
        assert!(queue.push(job("a").0).is_ok());
        assert_eq!(ids(inbox.group(512, None)), ["a"]);
        assert_eq!(ids(inbox.group(512, Some(Duration::from_millis(1)))), [""; 0]);
    }

    #[test]
    fn the_writer_wakes_for_as_many_as_it_expects() {
        let (mut inbox, queue, _postman) = Inbox::new();
        let pushing = std::thread::spawn(move || {
            for id in ["a", "b", "c", "d"] {
                assert!(queue.push(job(id).0).is_ok());
            }
        });
        let mut seen = Vec::new();
        while seen.len() < 4 {
            seen.extend(ids(inbox.group(512, None)));
        }
        pushing.join().unwrap();
        assert_eq!(seen, ["a", "b", "c", "d"]);
    }

    #[test]
    fn what_a_dead_writer_leaves_is_not_waited_for() {
        let (inbox, queue, _postman) = Inbox::new();
        let (left, mut answer) = job("a");
        assert!(queue.push(left).is_ok());
        drop(inbox);
        assert!(answer.try_recv().is_err_and(|error| error == oneshot::error::TryRecvError::Closed));
        assert!(queue.has_ended() && matches!(queue.push(job("b").0), Err(Refused::Ended)));
    }

    #[tokio::test]
    async fn a_parcel_reaches_all_who_wait() {
        let (inbox, _queue, postman) = Inbox::new();
        let (one, two) = (job("a"), job("b"));
        inbox.answer(vec![
            (one.0.1, Ok(super::super::Done::Deleted)),
            (two.0.1, Ok(super::super::Done::Deleted)),
        ]);
        drop(inbox);
        postman.run().await;
        assert!(one.1.await.unwrap().is_ok() && two.1.await.unwrap().is_ok());
    }
}
