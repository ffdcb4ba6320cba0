// SPDX-License-Identifier: Apache-2.0
//! Who of the connected waits for nothing of ours, so that they can make room for somebody who comes.
//!
//! Invariant: a connection is in the line exactly while it has no request under way: while it has not yet sent a
//! whole head, also during its TLS handshake, and between an answer and the next head. The longest in line is the
//! first to go.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::sync::Notify;

/// Those in line.
#[derive(Debug, Default)]
pub(crate) struct Lobby(Mutex<Line>);

#[derive(Debug, Default)]
struct Line {
    next: u64,
    waiting: BTreeMap<u64, Arc<Notify>>,
}

impl Lobby {
    fn line(&self) -> MutexGuard<'_, Line> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the one longest in line to go; whether there was one.
    pub(crate) fn make_room(&self) -> bool {
        let first = self.line().waiting.pop_first();
        first.inspect(|(_, leave)| leave.notify_one()).is_some()
    }
}

/// A connection's place.
#[derive(Debug)]
pub(crate) struct Seat {
    lobby: Arc<Lobby>,
    leave: Arc<Notify>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Requests under way.
    visits: usize,
    /// Number in line.
    place: Option<u64>,
}

impl Seat {
    /// At the end of the line.
    pub(crate) fn take(lobby: &Arc<Lobby>) -> Arc<Self> {
        let seat = Self { lobby: Arc::clone(lobby), leave: Arc::default(), state: Mutex::default() };
        seat.queue(&mut seat.state());
        Arc::new(seat)
    }

    /// Returns when the connection has to go.
    pub(crate) async fn asked_to_leave(&self) {
        self.leave.notified().await;
    }

    /// A request begins; it ends when what this gives is dropped.
    pub(crate) fn visit(self: &Arc<Self>) -> Visit {
        let mut state = self.state();
        state.visits += 1;
        self.unqueue(&mut state);
        drop(state);
        Visit(Arc::clone(self))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue(&self, state: &mut State) {
        let mut line = self.lobby.line();
        let place = line.next;
        line.next += 1;
        line.waiting.insert(place, Arc::clone(&self.leave));
        state.place = Some(place);
    }

    fn unqueue(&self, state: &mut State) {
        if let Some(place) = state.place.take() {
            self.lobby.line().waiting.remove(&place);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.unqueue(&mut self.state());
    }
}

/// A request under way.
#[derive(Debug)]
pub(crate) struct Visit(Arc<Seat>);

impl Drop for Visit {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.visits -= 1;
        if state.visits == 0 {
            self.0.queue(&mut state);
        }
    }
}

/// The body of an answer, during which the request is still under way.
pub(crate) struct Answer {
    pub(crate) body: Body,
    pub(crate) _visit: Visit,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(seat: &Seat) -> bool {
        let mut leave = std::pin::pin!(seat.asked_to_leave());
        leave.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop())).is_ready()
    }

    #[test]
    fn the_longest_idle_goes_first_and_nobody_with_a_request_under_way() {
        let lobby = Arc::new(Lobby::default());
        let seats: Vec<_> = (0..4).map(|_| Seat::take(&lobby)).collect();
        let (busy, again) = (seats[0].visit(), seats[1].visit());
        drop(again);
        let order = [2, 3, 1];
        for (turn, leaver) in order.into_iter().enumerate() {
            assert!(lobby.make_room());
            for (number, seat) in
                seats.iter().enumerate().filter(|(number, _)| !order[..turn].contains(number))
            {
                assert_eq!(told(seat), number == leaver, "turn {turn}: {number}");
            }
        }
        assert!(!lobby.make_room());
        let second = seats[0].visit();
        drop(busy);
        assert!(!lobby.make_room(), "one of its requests is still under way");
        drop(second);
        assert!(lobby.make_room() && told(&seats[0]));
    }

    #[test]
    fn who_has_gone_is_not_in_line() {
        let lobby = Arc::new(Lobby::default());
        let seat = Seat::take(&lobby);
        drop(seat.visit());
        drop(seat);
        assert!(!lobby.make_room() && lobby.line().waiting.is_empty());
    }
}
