//! How a fetch of robots.txt goes: a turn at the host, a place among the
//! fetches under way, the redirects, all within the time limit.
//!
//! RFC 9309, section 2.3.1.2. What is held, and who waits for it, is not known
//! here.

use std::future::ready;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::{Client, Shared, Sought};
use crate::clock;
use crate::decision::access::{Cause, Snapshot, StatusMeaning, status_meaning};
use crate::decision::decide::{Inquiry, RobotsPermit, Verdict, decide};
use crate::robots_cache::fetch::{FetchRobots, Hop, RobotsQuery};
use crate::robots_cache::places::Place;
use crate::robots_cache::snapshots::{Flight, State, Teller};
use crate::robots_cache::trail::Trail;
use crate::upstream::location::redirect_target;
use politesse_robots::origin::{Host, ROBOTS_TXT, Target};

/// What a fetch needs to ask a host.
pub(super) struct Leave<'a, F: FetchRobots> {
    turn: F::Turn,
    place: Place<'a>,
}

/// Where one request of a fetch led.
enum Step {
    /// To the answer.
    End(Hop),
    /// To another URL.
    On(Target),
}

/// What is left of the time for a fetch. What the pace of a host takes does not
/// count.
struct Left(Duration);

impl Left {
    /// What came of `work`, unless the time is up before.
    async fn spend<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let begun = clock::instant();
        let done = timeout(self.0, work).await.ok();
        let spent = clock::instant().duration_since(begun);
        self.0 = self.0.saturating_sub(spent);
        done
    }
}

/// What comes of something without a wait, if anything does.
async fn at_once<T>(work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        done = work => Some(done),
        () = ready(()) => None,
    }
}

impl<F: FetchRobots> Shared<F> {
    /// Leave to ask, if it comes in time; nothing at all where whoever waited has
    /// hung up, so that they do not stand before those who wait.
    pub(super) async fn in_turn(
        &self,
        mut flight: Flight,
        client: &Client,
    ) -> Option<(Flight, Option<Leave<'_, F>>)> {
        let host = flight.key.origin.host().clone();
        let teller = flight.teller();
        let mut leave = pin!(self.leave(&teller, &host, client));
        loop {
            tokio::select! {
                biased;
                leave = &mut leave => return Some((flight, leave)),
                () = flight.abandoned() => match flight.abandon() {
                    Ok(()) => return None,
                    Err(again) => flight = again,
                },
            }
        }
    }

    /// A turn and a place, if they come in time. Nobody has one while he waits
    /// for the other: a place is taken from all hosts, a turn from all who wait
    /// at that one.
    async fn leave(&self, teller: &Teller, host: &Host, client: &Client) -> Option<Leave<'_, F>> {
        let mut left = Left(self.options.timeout);
        let place = || self.places.take(client.asker.client);
        loop {
            let turn = self.turn(teller, host).await?;
            if let Some(place) = at_once(place()).await {
                return Some(Leave { turn, place });
            }
            drop(turn);
            let place = left.spend(place()).await?;
            if let Some(turn) = at_once(self.fetcher.turn(host)).await.flatten() {
                return Some(Leave { turn, place });
            }
        }
    }

    /// A turn at a host. Those who wait for the fetch are told if it does not
    /// come at once: their patience is not ours.
    async fn turn(&self, teller: &Teller, host: &Host) -> Option<F::Turn> {
        // Before it stands in line itself.
        let until = clock::instant() + self.fetcher.wait(host);
        let mut turn = pin!(self.fetcher.turn(host));
        if let Some(turn) = at_once(turn.as_mut()).await {
            return turn;
        }
        teller.tell(State::InLine {
            host: host.clone(),
            until,
        });
        let turn = turn.await;
        teller.tell(State::Asking);
        turn
    }

    /// Asks, and follows redirects, within the time limit, which begins with the
    /// leave. Where they lead on the same host, that is one turn: a pause
    /// between them could be longer than any wait.
    pub(super) async fn ask(
        self: &Arc<Self>,
        (trail, leave): (&mut Trail, Leave<'_, F>),
        flight: &Flight,
        client: &Client,
    ) -> Result<Hop, Cause> {
        let mut left = Left(self.options.timeout);
        let mut permit = RobotsPermit::first(&flight.key.origin);
        let (mut turn, mut place) = (leave.turn, Some(leave.place));
        loop {
            let step = self.step((trail, permit), (&mut turn, place.take()), (flight, client));
            let next = match left.spend(step).await {
                Some(Ok(Step::End(hop))) => return Ok(hop),
                Some(Ok(Step::On(next))) => next,
                Some(Err(cause)) => return Err(cause),
                None => return Err(trail.late()),
            };
            let is_foreign = next.origin != flight.key.origin;
            let is_judged = is_foreign && next.path_and_query() != ROBOTS_TXT;
            let host = next.origin.host();
            // Nobody keeps a turn while he waits for another, or all could wait
            // for each other.
            let kept = (!is_judged && host == trail.last.origin.host()).then_some(turn);
            if is_judged {
                let judged = left.spend(self.judge(&next, flight, client)).await;
                judged.unwrap_or_else(|| Err(trail.late()))?;
            }
            let again = match kept {
                Some(turn) => Some(turn),
                None => self.turn(&flight.teller(), host).await,
            };
            let Some(again) = again else {
                trail.not_before = Some(self.fetcher.wait(host));
                return Err(Cause::Busy);
            };
            turn = again;
            trail.follow(next.clone());
            permit = RobotsPermit::redirected(next);
        }
    }

    /// Asks one URL, and sees where it leads.
    ///
    /// Nobody keeps a place while he waits for another fetch, or all could wait
    /// for each other.
    async fn step(
        &self,
        (trail, permit): (&mut Trail, RobotsPermit),
        (turn, place): (&mut F::Turn, Option<Place<'_>>),
        (flight, client): (&Flight, &Client),
    ) -> Result<Step, Cause> {
        let url = trail.last.to_string();
        let earlier = flight.earlier.as_deref();
        let query = RobotsQuery {
            asker: &client.asker,
            known: earlier.and_then(|earlier| earlier.validators(&url)),
        };
        trail.conditional = query.known.is_some();
        trail.waits = true;
        let place = match place {
            Some(place) => place,
            None => self.places.take(client.asker.client).await,
        };
        trail.waits = false;
        let fetched = self.fetcher.fetch(permit, query, turn).await;
        drop(place);
        let hop = fetched.map_err(|error| trail.cause(&error))?;
        trail.status = Some(hop.status);
        if status_meaning(hop.status) != StatusMeaning::Redirect {
            return Ok(Step::End(hop));
        }
        let next = redirect_target(&trail.last, &hop.headers).ok_or(Cause::RedirectTarget)?;
        trail.check(&next, self.options.redirects)?;
        Ok(Step::On(next))
    }

    /// Asks another origin's rules whether a redirect may be followed to a
    /// page of it.
    ///
    /// That origin's own redirects are not waited for: two origins could wait
    /// for each other. Each says that it judges before it looks at the other,
    /// so at least one of them sees it.
    async fn judge(
        self: &Arc<Self>,
        target: &Target,
        flight: &Flight,
        client: &Client,
    ) -> Result<(), Cause> {
        let teller = flight.teller();
        teller.tell(State::Judging);
        let inquiry = Arc::new(Inquiry {
            crawler: client.crawler.clone(),
            target: target.clone(),
            method: "GET".to_owned(),
        });
        let snapshot = self.rules_of(&inquiry, client).await;
        let snapshot = snapshot.ok_or(Cause::RedirectDisallowed)?;
        teller.tell(State::Asking);
        let decision = decide(&inquiry, &snapshot, (&self.policy.load(), clock::now()));
        match decision.ruling().verdict {
            Verdict::Allow => Ok(()),
            Verdict::Disallow | Verdict::Later => Err(Cause::RedirectDisallowed),
        }
    }

    /// What the origin of an inquiry said, unless its fetch waits for another.
    async fn rules_of(
        self: &Arc<Self>,
        inquiry: &Inquiry,
        client: &Client,
    ) -> Option<Arc<Snapshot>> {
        let key = self.key(inquiry);
        let mut watched = match self.seek(&key, || client.clone()) {
            Sought::InForce(held) => return Some(Arc::clone(&held.snapshot)),
            Sought::Awaited(watched) => watched,
        };
        let state = watched.wait_for(|state| matches!(state, State::Judging | State::Done(_)));
        match state.await.as_deref() {
            Ok(State::Done(held)) => Some(Arc::clone(&held.snapshot)),
            Ok(State::Asking | State::InLine { .. } | State::Judging) | Err(_) => None,
        }
    }
}
