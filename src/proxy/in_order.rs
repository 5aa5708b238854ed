//! Requests of one connection begin in the order in which they came.
//!
//! Each stream of HTTP/2 is a task of its own, and tasks run in any order. What
//! a request asks for at once, its place in a line above all, it is to ask for
//! in its turn.

use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::sync::oneshot::{self, Receiver, Sender};

/// The requests of a connection.
#[derive(Debug, Default)]
pub(super) struct StartOrder {
    latest: Mutex<Option<Receiver<()>>>,
}

/// What a request does, which begins after that of the one before it.
#[derive(Debug)]
pub(super) struct OrderedStart<F> {
    request: Pin<Box<F>>,
    /// Ends when the one before has begun, or is gone.
    before: Option<Receiver<()>>,
    /// Lets the next one begin when it is dropped.
    begun: Option<Sender<()>>,
}

impl StartOrder {
    /// The next to begin.
    pub(super) fn next<F: Future>(&self, request: F) -> OrderedStart<F> {
        let (begun, latest) = oneshot::channel();
        let mut place = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        OrderedStart {
            request: Box::pin(request),
            before: place.replace(latest),
            begun: Some(begun),
        }
    }
}

impl<F: Future> Future for OrderedStart<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<F::Output> {
        if let Some(before) = &mut self.before {
            // Nothing is ever sent.
            let _ = ready!(Pin::new(before).poll(task));
            self.before = None;
        }
        let polled = self.request.as_mut().poll(task);
        self.begun = None;
        polled
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::future::{pending, poll_fn};

    use super::*;

    /// Polls each of these once, in this order.
    async fn poll_once<F: Future + Unpin>(several: &mut [F]) {
        poll_fn(|task| {
            for one in &mut *several {
                let _ = Pin::new(one).poll(task);
            }
            Poll::Ready(())
        })
        .await;
    }

    // Issue 6, Must hold: order within a crawler.
    #[tokio::test]
    async fn whatever_is_polled_first_begins_in_its_turn() {
        let (order, begun) = (StartOrder::default(), RefCell::new(Vec::new()));
        let begin = |number| {
            let begun = &begun;
            order.next(async move {
                begun.borrow_mut().push(number);
                pending::<()>().await;
            })
        };
        let mut requests = [1, 2, 3].map(begin);
        requests.reverse();
        for _ in 0..3 {
            poll_once(&mut requests).await;
        }
        assert_eq!(*begun.borrow(), [1, 2, 3]);
    }

    // Who is gone keeps nobody waiting.
    #[tokio::test]
    async fn a_request_that_is_gone_is_passed_over() {
        let order = StartOrder::default();
        let first = order.next(pending::<u8>());
        let second = order.next(async { 2 });
        drop(first);
        assert_eq!(second.await, 2);
    }
}
