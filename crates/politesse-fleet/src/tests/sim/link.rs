//! Connection of a simulated node to the store, and the node's clock.
//!
//! Some calls are slow, arrive after the node has given up, or get no answer. They stay
//! on their way while the node is suspended or has ended.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::store::{BeatQuestion, Caller, HostCall, Store};
use crate::membership::Beat;
use politesse_pace::fleet_part::HostHistory;
use politesse_pace::lease::{
    LeaseAnswer, LeaseCall, LeaseFuture, LeaseOrder, LeaseStore, StoreLost,
};

pub(super) const TIMEOUT: Duration = Duration::from_millis(200);

/// Speed of a node's clock: the ratio of the time it shows to the real time.
///
/// Nodes know time only as durations on their own clocks. So a node with a fast clock is
/// simulated by one with a correct clock to which every given duration is shortened.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeClock(pub(super) f64);

impl NodeClock {
    /// Returns the real time until the clock has advanced by `time`.
    pub(super) fn takes(self, time: Duration) -> Duration {
        time.div_f64(self.0)
    }

    /// Returns how far the clock advances within `time`.
    fn shows(self, time: Duration) -> Duration {
        time.mul_f64(self.0)
    }
}

fn scaled(history: HostHistory, by: impl Fn(Duration) -> Duration) -> HostHistory {
    HostHistory {
        started: history.started.map(&by),
        ended: history.ended.map(&by),
        robots: history.robots.map(&by),
        adaptive: by(history.adaptive),
        robots_delay: by(history.robots_delay),
        remembered: by(history.remembered),
        ..history
    }
}

/// Connection of one process of a node to the store.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) caller: Caller,
    pub(super) clock: NodeClock,
    pub(super) store: Arc<Mutex<Store>>,
    /// Latest answer, with the process of the store that gave it. Connections to another
    /// process are closed.
    pub(super) beat: Mutex<Option<(u32, Beat)>>,
}

impl Link {
    /// Sends a heartbeat.
    pub(super) async fn beat(&self, mut question: BeatQuestion) -> Result<(u32, Beat), StoreLost> {
        let caller = self.caller;
        question.time_since_answer = self.clock.shows(question.time_since_answer);
        self.call(move |store| (store.run, store.beat(caller, &question)))
            .await
    }

    /// Lets the store act on a call that takes a while in each direction.
    async fn call<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Store) -> T + Send + 'static,
    ) -> Result<T, StoreLost> {
        let (sender, answer) = oneshot::channel();
        tokio::spawn(carry(
            Arc::clone(&self.store),
            self.caller.node,
            act,
            sender,
        ));
        let answered = timeout(self.clock.takes(TIMEOUT), answer).await;
        answered.ok().and_then(Result::ok).ok_or(StoreLost)
    }
}

/// Carries a call to the store, and the answer back.
async fn carry<T>(
    store: Arc<Mutex<Store>>,
    node: usize,
    act: impl FnOnce(&mut Store) -> T,
    answer: oneshot::Sender<T>,
) {
    let (there, back, run) = {
        let mut store = store.lock().unwrap();
        // One call in 50 is slow, and one in 500 arrives after the caller has given up.
        let longest = match store.chance.below(500) {
            0 if store.has_late_calls => 3_000_000,
            0..=10 => 150_000,
            _ => 2_000,
        };
        let there = store.chance.micros(longest);
        (there, store.chance.micros(longest), store.run)
    };
    sleep(there).await;
    let acted = loop {
        let goes_on = {
            let mut store = store.lock().unwrap();
            if store.cut_off.contains(&node) || store.run != run {
                return;
            }
            if !store.is_stopped() {
                break act(&mut store);
            }
            Arc::clone(&store.goes_on).notified_owned()
        };
        goes_on.await;
    };
    sleep(back).await;
    let store = store.lock().unwrap();
    if !store.cut_off.contains(&node) && !store.deaf.contains(&node) {
        // The store has acted, but the node may have given up.
        let _ = answer.send(acted);
    }
}

impl LeaseStore for Link {
    fn lease<'a>(&'a self, call: LeaseCall<'a>) -> LeaseFuture<'a> {
        let clock = self.clock;
        let by_store = |history| scaled(history, |time| clock.shows(time));
        let order = match call.order {
            LeaseOrder::Renew(history) => LeaseOrder::Renew(by_store(history)),
            LeaseOrder::Release(history) => LeaseOrder::Release(by_store(history)),
            order @ (LeaseOrder::Claim | LeaseOrder::EndBackOff) => order,
        };
        Box::pin(async move {
            let (run, generation, opens_us) = {
                let beat = self.beat.lock().unwrap();
                let (run, beat) = beat.as_ref().ok_or(StoreLost)?;
                (*run, beat.generation, beat.opens_us)
            };
            let call = HostCall {
                caller: self.caller,
                generation,
                opens_us,
                number: call.number,
                order,
            };
            let answer = self.call(move |store| (store.run == run).then(|| store.lease(&call)));
            match answer.await?.ok_or(StoreLost)? {
                LeaseAnswer::Held {
                    length,
                    is_wanted,
                    history,
                } => Ok(LeaseAnswer::Held {
                    length: clock.takes(length),
                    is_wanted,
                    history: history.map(|history| scaled(history, |time| clock.takes(time))),
                }),
                LeaseAnswer::Refused(time) => Ok(LeaseAnswer::Refused(clock.takes(time))),
                answer @ (LeaseAnswer::Noted | LeaseAnswer::Freed) => Ok(answer),
            }
        })
    }
}
