//! Gate that suspends all tasks of a simulated process, as SIGSTOP does: time passes,
//! timers expire and messages arrive, but no task handles them.
//!
//! For the unit tests of the crates above (feature `testing`). A scheduler without a gate
//! behaves as it does without the feature.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use crate::Scheduler;

impl Scheduler {
    /// Suspends the tasks of hosts while `gate` is shut. Only the first call counts.
    pub fn stand_still_at(&self, gate: Gate) {
        let _ = self.context.host_tasks.gate.set(gate);
    }
}

/// Gate in front of the tasks of one process.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<Mutex<GateState>>);

#[derive(Debug, Default)]
struct GateState {
    is_shut: bool,
    waiting: Vec<Waker>,
}

impl Gate {
    /// Suspends the tasks.
    pub fn shut(&self) {
        self.0.lock().unwrap().is_shut = true;
    }

    /// Resumes the tasks.
    pub fn open(&self) {
        let mut state = self.0.lock().unwrap();
        state.is_shut = false;
        state.waiting.drain(..).for_each(Waker::wake);
    }

    /// Wraps `task` so that each poll first checks this gate.
    pub fn hold<F: Future>(&self, task: F) -> impl Future<Output = F::Output> + use<F> {
        GatedTask {
            gate: self.clone(),
            task: Box::pin(task),
        }
    }
}

struct GatedTask<F> {
    gate: Gate,
    task: Pin<Box<F>>,
}

impl<F: Future> Future for GatedTask<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let mut state = self.gate.0.lock().unwrap();
        if state.is_shut {
            state.waiting.push(cx.waker().clone());
            return Poll::Pending;
        }
        drop(state);
        self.task.as_mut().poll(cx)
    }
}
