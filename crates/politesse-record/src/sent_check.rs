//! Check that all sent requests are on record: compares the count of requests
//! stated by events with the endings of decisions.
//!
//! `upstream` counts a request before a connection gets it, and by then its
//! decision has a number. The count is read while the event gets its number. For
//! each process, therefore, at each event:
//!
//! - Endings with lower numbers were counted before: the sum over them is a lower
//!   bound of the count.
//! - Every counted request has a decision with a lower number: the sum over these
//!   decisions, whenever they ended, is an upper bound.
//!
//! The bounds differ by the exchanges in progress, and are equal after a clean
//! stop. A count above the upper bound reveals requests without a decision. If a
//! process ended without a stop, its final count is lost, and nothing is concluded
//! about the time after its last event.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::columns::{TableRow as _, count, signed};
use super::decision_row::CheckedRecord;
use super::events::{EventRow, ProcessEventKind};
use super::filter::EventFilter;
use super::pruned::PrunedEnd;
use super::reader::AuditReader;
use politesse_decision::decide::Permit;
use politesse_decision::reason::Verdict;
use politesse_decision::record::{Effect, StoredRuling};

/// Numbers of two events that state a count; the finding lies between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CountRange {
    pub(super) after: i64,
    pub(super) until: i64,
}

/// Finding about the count of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SentFinding {
    /// Number of sent requests that have no decision.
    Unrecorded { count: u64, counts: CountRange },
    /// Number of requests that endings state as sent but that were not counted.
    Uncounted { count: u64, counts: CountRange },
    /// The decision refused the request, and its ending says that it was sent.
    WithoutPermit(u64),
    /// A process ended without a stop; this event has its last count.
    Unknown { after: i64 },
}

/// State of one process, for the decisions read so far.
#[derive(Debug, Default)]
struct ProcessCount {
    /// Count at the first event used: 0 if that is the start.
    base: i64,
    /// Sum of the requests that the endings of its decisions state.
    recorded: i64,
    /// Maximum number of requests sent for decisions without an ending.
    open: i64,
    /// Endings of exchanges in progress at the current number: the number of each,
    /// and how often its request was sent.
    under_way: BinaryHeap<Reverse<(i64, i64)>>,
    under_way_sent: i64,
    /// Requests already reported as not on record.
    unrecorded: i64,
    /// Requests already reported as not counted.
    uncounted: i64,
    /// Events at which more requests may have been unrecorded than reported so far,
    /// and the last event before them: the number of each, and the maximum of
    /// unrecorded requests.
    doubtful: VecDeque<(i64, i64)>,
    last_event: i64,
    is_stopped: bool,
}

impl ProcessCount {
    fn started(seq: i64) -> Self {
        Self {
            doubtful: VecDeque::from([(seq, 0)]),
            last_event: seq,
            ..Self::default()
        }
    }

    /// Starts at the first count of a process whose start was removed by age.
    /// Exchanges in progress at that event may have been counted before or after
    /// it.
    fn resumed(before: &Self, event: &EventRow) -> Self {
        Self {
            base: sent_in(event),
            is_stopped: event.is(ProcessEventKind::Stopped),
            // Each of them may be sent again after the count.
            open: before.under_way.len().try_into().unwrap_or(i64::MAX)
                * i64::from(Permit::SENDS_MAX)
                + before.open,
            ..Self::started(signed(event.seq))
        }
    }

    /// Notes that all entries below `seq` are known.
    fn advance(&mut self, seq: i64) {
        while let Some(Reverse((ending, sent))) = self.under_way.peek().copied()
            && ending < seq
        {
            self.under_way.pop();
            self.under_way_sent -= sent;
        }
    }

    /// Adds a decision with its ending.
    fn add(&mut self, seq: i64, row: &CheckedRecord) {
        self.advance(seq);
        let sent = row.record.sent.map_or(0, signed);
        match row.ending {
            Some(ending) if 0 < sent => {
                self.recorded += sent;
                self.under_way_sent += sent;
                self.under_way.push(Reverse((ending.first, sent)));
            }
            None if lets_through(&row.record.ruling) => self.open += i64::from(Permit::SENDS_MAX),
            Some(_) | None => {}
        }
    }

    /// Compares the count in `event` with the recorded requests.
    fn compare(&mut self, event: &EventRow, mut report: impl FnMut(SentFinding)) {
        let seq = signed(event.seq);
        self.advance(seq);
        // Each difference is reported once: differences reported before are offset
        // here.
        let counted = sent_in(event) - self.base + self.uncounted;
        let counts = |after| CountRange { after, until: seq };
        let at_most = counted - (self.recorded - self.under_way_sent);
        if at_most < self.unrecorded {
            let short = self.unrecorded - at_most;
            self.uncounted += short;
            report(SentFinding::Uncounted {
                count: count(short),
                counts: counts(self.last_event),
            });
        }
        let at_least = counted - self.recorded - self.open;
        if self.unrecorded < at_least {
            // The requests were sent after the last event at which there were
            // certainly fewer.
            let after = self.doubtful.front().map_or(seq, |event| event.0);
            report(SentFinding::Unrecorded {
                count: count(at_least - self.unrecorded),
                counts: counts(after),
            });
            self.unrecorded = at_least;
        }
        self.doubtful.push_back((seq, at_most));
        let is_certain = |event: &(i64, i64)| event.1 <= self.unrecorded;
        if let Some(last) = self.doubtful.iter().rposition(is_certain) {
            self.doubtful.drain(..last);
        }
        self.last_event = seq;
        self.is_stopped = event.is(ProcessEventKind::Stopped);
    }
}

/// Check of the counts of a record. Decisions must be passed in order.
#[derive(Debug)]
pub(super) struct SentCheck {
    /// Events still to come.
    events: VecDeque<EventRow>,
    /// Current process; `None` before the first start.
    process: Option<ProcessCount>,
    /// Process before that, if its start was removed.
    unstarted: Option<ProcessCount>,
}

impl SentCheck {
    /// Starts before the first decision. All events are read at once, which are
    /// about one an hour.
    pub(super) fn new(reader: &AuditReader) -> rusqlite::Result<Self> {
        let mut events = VecDeque::new();
        let pruned = PrunedEnd::read(&reader.connection)?;
        let mut scan = reader.event_scan(&EventFilter::default())?;
        while let Some(page) = scan.next_page(EventRow::read)? {
            let is_counted =
                |event: &EventRow| event.sent.is_some() && pruned.last < signed(event.seq);
            events.extend(page.into_iter().filter(is_counted));
        }
        Ok(Self {
            events,
            process: None,
            unstarted: (0 < pruned.last).then(ProcessCount::default),
        })
    }

    /// Adds the next decision, with its ending.
    pub(super) fn add(&mut self, row: &CheckedRecord, mut report: impl FnMut(SentFinding)) {
        let seq = signed(row.record.seq);
        self.settle(seq, &mut report);
        if row.record.sent.is_some_and(|sent| 0 < sent) && !lets_through(&row.record.ruling) {
            report(SentFinding::WithoutPermit(row.record.seq));
        }
        if let Some(process) = self.process.as_mut().or(self.unstarted.as_mut()) {
            process.add(seq, row);
        }
    }

    /// Ends after the last decision.
    pub(super) fn end(mut self, mut report: impl FnMut(SentFinding)) {
        self.settle(i64::MAX, &mut report);
    }

    /// Processes the events below `seq`.
    fn settle(&mut self, seq: i64, report: &mut impl FnMut(SentFinding)) {
        while let Some(event) = self.events.pop_front_if(|event| signed(event.seq) < seq) {
            if event.is(ProcessEventKind::Started) {
                if let Some(before) = self.process.take()
                    && !before.is_stopped
                {
                    let after = before.last_event;
                    report(SentFinding::Unknown { after });
                }
                self.unstarted = None;
                self.process = Some(ProcessCount::started(signed(event.seq)));
            } else if let Some(mut before) = self.unstarted.take() {
                before.advance(signed(event.seq));
                self.process = Some(ProcessCount::resumed(&before, &event));
            // Without a start there is no base for the count. The check of numbers
            // reports that the start is missing.
            } else if let Some(process) = &mut self.process {
                process.compare(&event, &mut *report);
            }
        }
    }
}

/// Returns the count stated by an event.
fn sent_in(event: &EventRow) -> i64 {
    event.sent.map_or(0, signed)
}

/// Reports whether a ruling permitted its request to be sent upstream.
fn lets_through(ruling: &StoredRuling) -> bool {
    let is_cached = ruling.effect == Effect::Cached.as_str();
    let is_allowed = ruling.verdict == Verdict::Allow.as_str();
    let is_reported = ruling.effect == Effect::Reported.as_str();
    (is_allowed || is_reported) && !is_cached
}
