//! A request for a turn at a host: as it is asked for, as it waits, and the
//! start that it is granted.
//!
//! Does not know the host's limits, nor the queue.

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

/// Client and crawler that a request is from, by which turns and places are
/// shared out.
#[derive(Debug, Clone)]
pub struct TurnOwner {
    /// Client.
    pub client: Arc<Client>,
    /// Product token of the crawler, in lower case, otherwise the client's address;
    /// `None` for our own fetch of a robots.txt that the client waits for.
    pub crawler: Option<Arc<str>>,
}

impl TurnOwner {
    /// Makes the owner of our own fetch of a robots.txt for `client`.
    pub fn of_robots(client: &Arc<Client>) -> Self {
        Self {
            client: Arc::clone(client),
            crawler: None,
        }
    }

    /// Returns the client of a page; `None` for our own fetch of a robots.txt, whose
    /// response no client reads.
    pub(super) fn reader(&self) -> Option<&Arc<Client>> {
        self.crawler.as_ref().map(|_| &self.client)
    }

    /// Returns whether both are from the same client.
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
    /// Address of the host, if known; for `pace.address`.
    pub address: Option<IpAddr>,
    /// Pace records that the site states for this crawler.
    pub pace_records: Option<Arc<PaceRecords>>,
    /// Longest wait.
    pub max_wait: Duration,
    /// Time at which the origin's robots.txt was fetched. If that was before
    /// this process began, a page may have been asked for until then.
    pub robots_fetched_at: Option<Timestamp>,
    /// Whether the origin's robots.txt had to be fetched first.
    pub robots_fetch: RobotsFetch,
    /// Number of arrival that the request has from a turn that it gave back
    /// ([`super::Turn::arrival`]).
    pub arrival: Option<u64>,
    /// Relation to a page, if the crawler's requisites follow their page; `None`: a
    /// request that waits for a turn of its own.
    pub embedding: Option<Embedding>,
}

/// Relation of a request to the pages that may embed its URL, as its fields state it.
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

/// Number that stands for a URL in the memory of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UrlNumber(u64);

impl UrlNumber {
    /// Returns the number of `url`.
    #[must_use]
    pub fn of(url: &Target) -> Self {
        // Keyed at random, so that no one can make a URL with the number of another.
        static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        Self(HASHER.hash_one(url))
    }
}

/// Robots.txt that had to be fetched before a page, from which the page keeps its
/// distance or not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RobotsFetch {
    /// No fetch: the cached robots.txt was used.
    #[default]
    No,
    /// Fetched after the request came. The page keeps its distance from it,
    /// unless that takes longer than the request may wait: its crawler, which
    /// comes again, would find the robots.txt expired again.
    Once,
    /// Fetched after the page's turn came. It expires before the delay is over,
    /// so the page follows at once.
    Again,
}

/// Estimate of when a request could start, were it made now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartEstimate {
    /// Reason and length of its delay.
    pub delay: Delay,
    /// Least time from a start at the host to the next one, about.
    pub pause: Duration,
}

/// Answer to a request that waits.
pub(super) type TurnAnswer = Result<Grant, Delay>;

/// Place of a request in the queue of its host.
#[derive(Debug, Clone)]
pub(super) struct QueuePlace {
    /// Client and crawler that take turns with the others.
    pub(super) owner: TurnOwner,
    /// Kind: robots.txt, requisites and pages have lines of their own.
    pub(super) kind: Kind,
    /// Number of arrival, by which the requests of one crawler are in order.
    pub(super) arrival: u64,
}

/// Request from when it asks for its turn until it starts or leaves.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) place: QueuePlace,
    pub(super) pace_records: Option<Arc<PaceRecords>>,
    pub(super) address: Option<IpAddr>,
    /// Claim on its ceilings, if it comes under any.
    pub(super) claim: Option<CeilingClaim>,
    pub(super) deadline: Uptime,
    /// Time before which the request need not be looked at.
    pub(super) not_before: Uptime,
    /// Whether the request is looked at sooner if the driver is woken.
    pub(super) is_woken: bool,
    /// Reason that holds up this request while its host is free.
    pub(super) held_by: Option<Reason>,
    /// Wakes the driver of the queue; `None` before the request joins one.
    pub(super) driver: Option<Arc<Notify>>,
    /// Way to the ticket; `None` before the request joins a queue.
    pub(super) ticket: Option<oneshot::Sender<TurnAnswer>>,
}

/// Requests that start before another one, as many as may be.
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
    /// Number.
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

/// Start that was granted, with all that has to be undone or reported with it.
#[derive(Debug)]
pub(super) struct Grant {
    /// Start in the host's schedule, to be ended or given back.
    pub(super) start: Start,
    /// Client of the request; `None` for our own robots.txt fetch.
    pub(super) client: Option<Arc<Client>>,
    /// Claim on the ceilings, which counts the request in until it is dropped.
    pub(super) ceilings: Option<CeilingClaim>,
    /// Number of the lease in which the request was started; `None` outside a fleet, and
    /// where the node is alone.
    pub(super) tenure: Option<u32>,
    /// Time of the start.
    pub(super) at: Uptime,
    /// Least time until the next start at the host.
    pub(super) pause: Duration,
    /// Back-off that ended before this start, not reported yet.
    pub(super) ended_back_off: Option<BackOff>,
    /// Overruns of the host since the previous grant, for the metrics.
    pub(super) overruns: u32,
    /// Turns at the host that were given up since the previous grant, for the
    /// metrics.
    pub(super) stalls: u32,
    /// Time that the request waited.
    pub(super) waited: Duration,
    /// Number of arrival, if the request waited.
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
            robots_fetch: RobotsFetch::No,
            arrival: None,
            embedding: None,
        }
    }
}

impl Waiter {
    /// Makes the waiter of a request; `arrival` is its number if it has none.
    pub(super) fn new(request: &TurnRequest<'_>, arrival: u64, now: &Now) -> Self {
        let crawler = request.owner.crawler.as_deref();
        let kind = match (crawler, request.robots_fetch) {
            (None, _) => Kind::RobotsTxt,
            (Some(_), RobotsFetch::No | RobotsFetch::Once) => Kind::Page,
            (Some(_), RobotsFetch::Again) => Kind::PageAtOnce,
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

    /// Makes this the waiter of a requisite.
    pub(super) fn follow_page(&mut self) {
        self.place.kind = Kind::Requisite;
        let claim = self.claim.take();
        self.set_claim(claim);
    }

    /// Sets the request's claim on its ceilings. Their rates do not count a requisite.
    pub(super) fn set_claim(&mut self, claim: Option<CeilingClaim>) {
        self.claim = match self.place.kind {
            Kind::Requisite => claim.and_then(CeilingClaim::without_rates),
            Kind::Page | Kind::PageAtOnce | Kind::RobotsTxt => claim,
        };
    }

    /// Answers the ticket. Returns a grant that nobody takes.
    pub(super) fn answer(self, answer: TurnAnswer) -> Option<Grant> {
        // The ticket may be gone: the client hung up.
        self.ticket?.send(answer).err()?.ok()
    }

    /// Gives up the request's places under its ceilings
    /// ([`CeilingClaim::give_way`]).
    pub(super) fn give_way(&mut self) {
        if let Some(claim) = &mut self.claim {
            claim.give_way();
        }
    }

    /// Lets the driver look at the request again, if it waits to be woken.
    pub(super) fn wake(&mut self) {
        if std::mem::take(&mut self.is_woken) {
            self.not_before = Uptime::ZERO;
        }
    }

    /// Notes a delay that holds up this request while its host is free.
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
