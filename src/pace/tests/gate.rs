//! Gate that lets all tasks of a simulated process stand still, as SIGSTOP does: time
//! goes on, timers end and messages come, and nothing of it is looked at.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use crate::pace::Scheduler;

impl Scheduler {
    /// Has the tasks of hosts stand still where `gate` is shut. Only the first call
    /// counts.
    pub(crate) fn stand_still_at(&self, gate: Gate) {
        let _ = self.context.host_tasks.gate.set(gate);
    }
}

/// Gate before the tasks of one process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate(Arc<Mutex<GateState>>);

#[derive(Debug, Default)]
struct GateState {
    is_shut: bool,
    waiting: Vec<Waker>,
}

impl Gate {
    /// Lets the tasks stand still.
    pub(crate) fn shut(&self) {
        self.0.lock().unwrap().is_shut = true;
    }

    /// Lets the tasks go on.
    pub(crate) fn open(&self) {
        let mut state = self.0.lock().unwrap();
        state.is_shut = false;
        state.waiting.drain(..).for_each(Waker::wake);
    }

    /// Makes a task one of those that stand still together.
    pub(crate) fn hold<F: Future>(&self, task: F) -> impl Future<Output = F::Output> + use<F> {
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
