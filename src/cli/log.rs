//! Log on stderr: sets up its form and level, and throttles lines that repeat.
//!
//! Events whose target is [`REPEATING`], and those of other crates, are
//! throttled by callsite: the first `log.burst` of a kind are written at once,
//! then one line a second, which says how many were left out.

use std::collections::HashMap;
use std::fmt;
use std::io::IsTerminal as _;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use tokio::time::Instant;
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, reload};

use crate::clock;
use crate::config::{LogFormat, Settings};
use crate::metrics::LOG_LINES_LEFT_OUT;
use crate::throttle::{Fate, PAUSE, REPEATING, Throttle};

/// Beginning of the targets of this program's own events.
const OWN: &str = "politesse";

/// Log of this process. Dropping it reports the lines that were left out.
pub(super) struct ProcessLog {
    reload: Box<dyn Fn(EnvFilter) -> Result<(), reload::Error>>,
    repeats: Repeats,
}

impl ProcessLog {
    /// Sets the lowest level that is written.
    pub(super) fn set_level(&self, level: Level) {
        let set = |filter| (self.reload)(filter).map_err(anyhow::Error::from);
        if let Err(error) = filter(level).and_then(set) {
            tracing::warn!(%error, "log.level stays as it was");
        }
    }
}

impl Drop for ProcessLog {
    fn drop(&mut self) {
        self.repeats.report(|throttle, _| throttle.last_report());
    }
}

fn filter(level: Level) -> anyhow::Result<EnvFilter> {
    EnvFilter::builder()
        .parse(format!("warn,{OWN}={level}"))
        .context("log.level")
}

/// Starts the log, in the configured form.
pub(super) fn start(settings: &Settings) -> anyhow::Result<ProcessLog> {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter(settings.log.level)?)
        .with_writer(std::io::stderr)
        .with_target(false)
        // If stderr is closed, exchanges go on.
        .log_internal_errors(false);
    let terminal = std::io::stderr().is_terminal();
    let pretty = match settings.log.format {
        LogFormat::Pretty => true,
        LogFormat::Json => false,
        LogFormat::Auto => terminal,
    };
    let repeats = Repeats::new(settings.log.burst)?;
    let layer = repeats.clone();
    let (started, reload): (_, Box<dyn Fn(EnvFilter) -> _>) = if pretty {
        let builder = builder.with_ansi(terminal).with_filter_reloading();
        let handle = builder.reload_handle();
        let reload = move |filter| handle.reload(filter);
        (builder.finish().with(layer).try_init(), Box::new(reload))
    } else {
        let builder = builder.json().flatten_event(true).with_filter_reloading();
        let handle = builder.reload_handle();
        let reload = move |filter| handle.reload(filter);
        (builder.finish().with(layer).try_init(), Box::new(reload))
    };
    started.map_err(|error| anyhow::anyhow!("cannot log: {error}"))?;
    Ok(ProcessLog { reload, repeats })
}

/// Events that repeat, by callsite.
#[derive(Clone)]
struct Repeats(Arc<RepeatState>);

/// State that the layer and the reporting thread share.
struct RepeatState {
    burst: NonZeroU32,
    started: Instant,
    kinds: Mutex<HashMap<Identifier, RepeatedEvent>>,
    reporter: thread::Thread,
}

/// Events of one callsite.
struct RepeatedEvent {
    throttle: Throttle,
    /// Message of the first one that was left out.
    example: String,
}

impl Repeats {
    /// Starts the thread that reports the lines left out. It sleeps while there
    /// are none.
    fn new(burst: NonZeroU32) -> anyhow::Result<Self> {
        let (sender, receiver) = std::sync::mpsc::channel::<Self>();
        let reporter = thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || {
                if let Ok(repeats) = receiver.recv() {
                    repeats.keep_reporting();
                }
            })
            .context("no thread for the log")?;
        let repeats = Self(Arc::new(RepeatState {
            burst,
            started: clock::instant(),
            kinds: Mutex::default(),
            reporter: reporter.thread().clone(),
        }));
        sender.send(repeats.clone()).context("no log")?;
        Ok(repeats)
    }

    fn keep_reporting(&self) {
        loop {
            while self.is_report_due() {
                thread::sleep(PAUSE);
                self.report(Throttle::report);
            }
            thread::park();
        }
    }

    fn is_report_due(&self) -> bool {
        let kinds = self.kinds();
        kinds.values().any(|kind| kind.throttle.has_left_out())
    }

    /// Writes how many events of each callsite were left out, by the count that
    /// `take_count` takes from its throttle.
    fn report(&self, take_count: fn(&mut Throttle, Duration) -> Option<u64>) {
        let now = self.now();
        let report = |event: &mut RepeatedEvent| {
            Some((take_count(&mut event.throttle, now)?, event.example.clone()))
        };
        // The lock is released before events are written: writing one takes it
        // again, in `admit`.
        let reports: Vec<_> = self.kinds().values_mut().filter_map(report).collect();
        for (count, like) in reports {
            tracing::warn!(left_out = count, like, "more lines like this were left out");
        }
    }

    fn now(&self) -> Duration {
        clock::instant().saturating_duration_since(self.0.started)
    }

    fn kinds(&self) -> MutexGuard<'_, HashMap<Identifier, RepeatedEvent>> {
        let kinds = self.0.kinds.lock();
        kinds.unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides whether `event` is written.
    fn admit(&self, event: &Event<'_>) -> bool {
        let mut kinds = self.kinds();
        let callsite = event.metadata().callsite();
        let kind = kinds.entry(callsite).or_insert_with(|| RepeatedEvent {
            throttle: Throttle::new(self.0.burst.get()),
            example: String::new(),
        });
        let is_first = !kind.throttle.has_left_out();
        if kind.throttle.decide(self.now()) == Fate::Write {
            return true;
        }
        LOG_LINES_LEFT_OUT.inc();
        if is_first {
            kind.example.clear();
            event.record(&mut MessageReader(&mut kind.example));
            self.0.reporter.unpark();
        }
        false
    }
}

impl<S: Subscriber> Layer<S> for Repeats {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let target = event.metadata().target();
        let repeats = target == REPEATING || !target.starts_with(OWN);
        !repeats || self.admit(event)
    }
}

/// Reads the message of an event.
struct MessageReader<'a>(&'a mut String);

impl Visit for MessageReader<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            *self.0 = format!("{value:?}");
        }
    }
}
