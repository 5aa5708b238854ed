//! Request for a turn at a host: as it is made, as it waits, and the start that it is
//! granted.
//!
//! A request that waits is a [`Waiter`] in the queue of its host, which the queue's
//! driver, a task, checks until it may start. Does not know the host's limits, nor the
//! queue.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{Notify, oneshot};

use super::back_off::BackOff;
use super::ceilings::CeilingClaim;
use super::context::Now;
use super::schedule::{Kind, Start, Uptime};
use politesse_base::clients::client::Client;
use politesse_decision::delay::{Delay, DelayEnd};
use politesse_decision::reason::Reason;
use politesse_robots::PaceRecords;
use politesse_robots::origin::{Host, Target};

/// Client and crawler of a request, between which turns and places are shared fairly.
#[derive(Debug, Clone)]
pub struct TurnOwner {
    /// Client.
    pub client: Arc<Client>,
    /// Product token of the crawler in lower case, otherwise the client's address. `None`
    /// for our own fetch of a robots.txt that the client waits for.
    pub crawler: Option<Arc<str>>,
}

impl TurnOwner {
    /// Makes the owner of our own robots.txt fetch for `client`.
    pub fn of_robots(client: &Arc<Client>) -> Self {
        Self {
            client: Arc::clone(client),
            crawler: None,
        }
    }

    /// Returns the client of a page; `None` for our own robots.txt fetch, whose
    /// response no client reads.
    pub(super) fn reader(&self) -> Option<&Arc<Client>> {
        self.crawler.as_ref().map(|_| &self.client)
    }

    /// Returns whether both have the same client.
    pub(super) fn has_client_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.client, &other.client)
    }
}

/// Request for a turn.
#[derive(Debug, Clone)]
pub struct TurnRequest<'a> {
    /// Host that the request goes to.
    pub host: &'a Host,
    /// Client and crawler.
    pub owner: &'a TurnOwner,
    /// Address of the host if known, for `pace.address`.
    pub address: Option<IpAddr>,
    /// Pace records that the site states for this crawler.
    pub pace_records: Option<Arc<PaceRecords>>,
    /// Longest wait.
    pub max_wait: Duration,
    /// Time at which the origin's robots.txt was fetched. If that was before this
    /// process began, the previous process may have requested a page since.
    pub robots_fetched_at: Option<Timestamp>,
    /// Whether the origin's robots.txt had to be fetched first, and when.
    pub robots_fetch: RobotsFetch,
    /// Arrival number of the request's previous turn, which it gave back
    /// ([`super::Turn::arrival`]).
    pub arrival: Option<u64>,
    /// Relation to a page, if the crawler's requisites share the turn of their page.
    /// `None`: the request waits for a turn of its own.
    pub embedding: Option<Embedding>,
}

/// Relation of a request to the pages that may embed its URL, as stated by its header
/// fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Embedding {
    /// Requested URL.
    pub url: UrlNumber,
    /// URL that embeds it, or links to it (`Referer`).
    pub referrer: Option<UrlNumber>,
    /// Use of the response.
    pub destination: Destination,
}

/// Use that a browser makes of a response (Fetch Metadata Request Headers, section 2.1:
/// `Sec-Fetch-Dest`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// A page, in a window or a frame.
    Page,
    /// A file for a page, such as an image or a script.
    File,
    /// Not stated, or a fetch by a script.
    Unknown,
}

/// Number that represents a URL in the state of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UrlNumber(u64);

impl UrlNumber {
    /// Returns the number of `url`.
    #[must_use]
    pub fn of(url: &Target) -> Self {
        // Keyed at random, so that no one can construct a URL with the number of
        // another.
        static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        Self(HASHER.hash_one(url))
    }
}

/// Whether the robots.txt had to be fetched for a page, and when. This determines
/// whether the page keeps the host's delay after that fetch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RobotsFetch {
    /// No fetch: the cached robots.txt was used.
    #[default]
    NotNeeded,
    /// Fetched after the request arrived, before it waited for its turn. The page keeps
    /// the delay after the fetch, unless the delay is longer than the request may wait.
    /// In that case it starts at once: if it were put off, the robots.txt would have
    /// expired again at each retry.
    BeforeTurn,
    /// Fetched after the page's turn had come, because the robots.txt had expired during
    /// the wait. The page starts at once: after another delay, the file might have
    /// expired again.
    AfterTurn,
}

/// Estimate of when a request could start if it were made now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartEstimate {
    /// Reason for the delay, and its length.
    pub delay: Delay,
    /// Approximate minimum time from one start at the host to the next.
    pub pause: Duration,
}

/// Answer to a waiting request.
pub(super) type TurnAnswer = Result<Grant, Delay>;

/// Place of a request in the queue of its host.
#[derive(Debug, Clone)]
pub(super) struct QueuePlace {
    /// Client and crawler that take turns with others.
    pub(super) owner: TurnOwner,
    /// Kind of request: robots.txt fetches, requisites and pages have lines of their
    /// own.
    pub(super) kind: Kind,
    /// Arrival number, which orders the requests of one crawler.
    pub(super) arrival: u64,
}

/// Request from the moment it asks for its turn until it starts or leaves.
#[derive(Debug)]
pub(super) struct Waiter {
    /// Place in the queue.
    pub(super) place: QueuePlace,
    /// Pace records that the site states for this crawler.
    pub(super) pace_records: Option<Arc<PaceRecords>>,
    /// Address of the host if known, for `pace.address`.
    pub(super) address: Option<IpAddr>,
    /// Claim on the request's ceilings, if any apply.
    pub(super) claim: Option<CeilingClaim>,
    /// Time at which the request gives up.
    pub(super) deadline: Uptime,
    /// Time before which the request need not be checked.
    pub(super) not_before: Uptime,
    /// Whether a wake-up of the driver makes it check the request earlier.
    pub(super) is_woken: bool,
    /// Reason for a delay that holds up this request while its host is free.
    pub(super) held_by: Option<Reason>,
    /// Wakes the driver of the queue; `None` before the request joins one.
    pub(super) driver: Option<Arc<Notify>>,
    /// Sends the answer to the ticket; `None` before the request joins a queue.
    pub(super) ticket: Option<oneshot::Sender<TurnAnswer>>,
}

/// Upper bound of the requests that start before another one.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RequestsAhead {
    /// Number of robots.txt fetches.
    pub(super) robots: usize,
    /// Pages.
    pub(super) pages: Vec<PagesAhead>,
}

/// Pages of one crawler that start before another request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PagesAhead {
    /// Number of pages.
    pub(super) count: usize,
    /// Pace records that the site states for their crawler.
    pub(super) records: Option<Arc<PaceRecords>>,
}

impl RequestsAhead {
    /// Returns the number of pages.
    pub(super) fn page_count(&self) -> usize {
        self.pages.iter().map(|pages| pages.count).sum()
    }

    /// Adds `count` pages of the crawler of `first`.
    pub(super) fn add(&mut self, count: usize, first: Option<&Waiter>) {
        let records = first.and_then(|first| first.pace_records.clone());
        self.pages.push(PagesAhead { count, records });
    }
}

/// Granted start, with everything that has to be undone or reported with it.
#[derive(Debug)]
pub(super) struct Grant {
    /// Start in the host's schedule, to be ended or given back later.
    pub(super) start: Start,
    /// Client of the request; `None` for our own robots.txt fetch.
    pub(super) client: Option<Arc<Client>>,
    /// Claim on the ceilings, which counts the request as in flight until it is
    /// dropped.
    pub(super) ceilings: Option<CeilingClaim>,
    /// Number of the lease under which the request was started. `None` outside a fleet,
    /// and while the node works without a store.
    pub(super) tenure: Option<u32>,
    /// Time of the start.
    pub(super) at: Uptime,
    /// Minimum time until the next start at the host.
    pub(super) pause: Duration,
    /// Back-off that ended before this start and is not reported yet.
    pub(super) ended_back_off: Option<BackOff>,
    /// Overruns of the host since the previous grant, for the metrics.
    pub(super) overruns: u32,
    /// Turns at the host that were given up since the previous grant, for the
    /// metrics.
    pub(super) stalls: u32,
    /// Time that the request waited.
    pub(super) waited: Duration,
    /// Arrival number, if the request waited.
    pub(super) arrival: Option<u64>,
}

impl<'a> TurnRequest<'a> {
    /// Makes the request for a robots.txt, to which no pace records apply.
    pub fn robots(host: &'a Host, owner: &'a TurnOwner, max_wait: Duration) -> Self {
        Self {
            host,
            owner,
            address: None,
            pace_records: None,
            max_wait,
            robots_fetched_at: None,
            robots_fetch: RobotsFetch::NotNeeded,
            arrival: None,
            embedding: None,
        }
    }
}

impl Waiter {
    /// Makes the waiter of a request; `arrival` is used if the request has no number
    /// yet.
    pub(super) fn new(request: &TurnRequest<'_>, arrival: u64, now: &Now) -> Self {
        let crawler = request.owner.crawler.as_deref();
        let kind = match (crawler, request.robots_fetch) {
            (None, _) => Kind::RobotsTxt,
            (Some(_), RobotsFetch::NotNeeded | RobotsFetch::BeforeTurn) => Kind::Page,
            (Some(_), RobotsFetch::AfterTurn) => Kind::PageAtOnce,
        };
        let ceilings = &now.active.ceilings;
        Self {
            place: QueuePlace {
                owner: request.owner.clone(),
                kind,
                arrival: request.arrival.unwrap_or(arrival),
            },
            pace_records: request.pace_records.clone(),
            address: request.address,
            claim: ceilings.claim(crawler, request.host, request.address),
            deadline: now.uptime.saturating_add(request.max_wait),
            not_before: Uptime::ZERO,
            is_woken: false,
            held_by: None,
            driver: None,
            ticket: None,
        }
    }

    /// Turns this into the waiter of a requisite.
    pub(super) fn follow_page(&mut self) {
        self.place.kind = Kind::Requisite;
        let claim = self.claim.take();
        self.set_claim(claim);
    }

    /// Sets the request's claim on its ceilings. A requisite does not count under their
    /// rates.
    pub(super) fn set_claim(&mut self, claim: Option<CeilingClaim>) {
        self.claim = match self.place.kind {
            Kind::Requisite => claim.and_then(CeilingClaim::without_rates),
            Kind::Page | Kind::PageAtOnce | Kind::RobotsTxt => claim,
        };
    }

    /// Answers the ticket. Returns the grant if the ticket is gone.
    pub(super) fn answer(self, answer: TurnAnswer) -> Option<Grant> {
        // The client may have hung up.
        self.ticket?.send(answer).err()?.ok()
    }

    /// Gives up the request's places under its ceilings
    /// ([`CeilingClaim::give_way`]).
    pub(super) fn give_way(&mut self) {
        if let Some(claim) = &mut self.claim {
            claim.give_way();
        }
    }

    /// Lets the driver check the request again, if it waits for a wake-up.
    pub(super) fn wake(&mut self) {
        if std::mem::take(&mut self.is_woken) {
            self.not_before = Uptime::ZERO;
        }
    }

    /// Records a delay that holds up this request while its host is free.
    pub(super) fn hold(&mut self, delay: &Delay, now: &Now) {
        self.not_before = now.uptime.saturating_add(delay.recheck_after());
        self.is_woken = matches!(delay.end, DelayEnd::OnEvent(_));
        self.held_by = Some(delay.reason);
    }

    /// Returns whether `delay` is longer than the request may wait.
    pub(super) fn is_hopeless(&self, delay: &Delay, now: &Now) -> bool {
        let until = delay.wait().map(|wait| now.uptime.saturating_add(wait));
        until.is_some_and(|until| self.deadline < until)
    }

    /// Returns the delay that holds up this request while its host is free.
    pub(super) fn own_delay(&self, now: &Now) -> Option<Delay> {
        let until = if self.is_woken {
            Uptime::MAX
        } else {
            self.not_before
        };
        Some(Delay::of_crawler(self.held_by?, now.end_at(until)))
    }
}
