//! Log on stderr: sets its format and level, and throttles repeated lines.
//!
//! Events with the target [`REPEATING`], and those of other crates, are throttled by
//! callsite: the first `log.burst` of a kind are written at once, then one line per
//! second, which states how many were left out.
//!
//! A separate thread writes the lines, so that no request waits for a terminal or a
//! pipe. Errors are written directly, because they may be the last lines.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, IsTerminal as _, Write};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::writer::MakeWriterExt as _;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Registry, reload};

use crate::config::{LogFormat, LogOptions, Settings};
use politesse_base::metrics::LOG_LINES_LEFT_OUT;
use politesse_base::throttle::{Fate, PAUSE, REPEATING, Throttle};
use politesse_proxy::completion::EXCHANGES;

/// Prefix of the targets of this program's own events.
const OWN: &str = "politesse";

/// Maximum number of lines that wait for the writing thread. More are left out.
const WAITING_LINES_MAX: usize = 8192;

/// Longest wait at the end for writing the number of lost lines.
const LAST_LINE_WAIT: Duration = Duration::from_millis(100);

/// Log of this process. Dropping it reports the lines that were left out, and writes
/// the waiting ones. Lines that a reader does not take within a second are lost,
/// because a stop must not wait for it; their number is logged if the reader continues
/// by then.
pub(super) struct ProcessLog {
    /// Changes the filter after a reload of the configuration.
    filter: reload::Handle<Targets, Registry>,
    /// Limits events that repeat (`log.burst`).
    repeats: Repeats,
    /// Counts of lines, shared with the writing thread.
    lines: Arc<LineCounts>,
    /// Taken on drop, which waits for the writing thread.
    writer: Option<WorkerGuard>,
}

impl ProcessLog {
    /// Sets which events are written: the minimum level, and the exchanges.
    pub(super) fn set_filter(&self, options: &LogOptions) {
        if let Err(error) = self.filter.reload(filter(options)) {
            tracing::warn!(%error, "log.level stays as it was");
        }
    }
}

impl Drop for ProcessLog {
    fn drop(&mut self) {
        self.repeats.report(Throttle::last_report);
        drop(self.writer.take());
        let lost = self.lines.lost();
        if lost == 0 {
            return;
        }
        LOG_LINES_LEFT_OUT.inc_by(lost as u64);
        // On its own thread: the pipe may still be full, and a write to it would keep
        // the process from ending.
        let (done, written) = std::sync::mpsc::channel();
        thread::spawn(move || {
            tracing::error!(lost, "lines of the log were not taken before the end");
            done.send(())
        });
        written.recv_timeout(LAST_LINE_WAIT).unwrap_or_default();
    }
}

/// Makes the filter for `log.level` and `log.exchanges`. Other crates log only warnings
/// and errors.
fn filter(options: &LogOptions) -> Targets {
    let exchanges = if options.exchanges || Level::DEBUG <= options.level {
        LevelFilter::INFO
    } else {
        LevelFilter::OFF
    };
    Targets::new()
        .with_default(Level::WARN)
        .with_target(OWN, options.level)
        .with_target(EXCHANGES, exchanges)
}

/// Counts of lines on their way to stderr.
#[derive(Debug, Default)]
struct LineCounts {
    /// Lines that were handed to the queue.
    sent: AtomicUsize,
    /// Lines that found the queue full. The metric already counts them.
    dropped: AtomicUsize,
    /// Lines that were written.
    written: AtomicUsize,
}

impl LineCounts {
    /// Returns how many lines entered the queue but were not written.
    fn lost(&self) -> usize {
        let settled = [&self.dropped, &self.written].map(|count| count.load(Ordering::Acquire));
        let sent = self.sent.load(Ordering::Acquire);
        settled.into_iter().fold(sent, usize::saturating_sub)
    }
}

/// Writer that hands lines to a thread, and counts those that find the queue full.
#[derive(Clone)]
struct QueuedWriter {
    /// Queue of the thread; a full one drops lines.
    queue: NonBlocking,
    /// Counts of lines, shared with the thread.
    lines: Arc<LineCounts>,
}

impl QueuedWriter {
    /// Starts the thread, which writes to `target` until the guard is dropped.
    fn start(target: impl Write + Send + 'static) -> (Self, WorkerGuard) {
        let lines: Arc<LineCounts> = Arc::default();
        let target = CountingWriter {
            target,
            lines: Arc::clone(&lines),
        };
        let (queue, guard) = NonBlockingBuilder::default()
            .buffered_lines_limit(WAITING_LINES_MAX)
            .thread_name("log-writer")
            .finish(target);
        (Self { queue, lines }, guard)
    }
}

/// Writing end of the queue, which counts the lines it has written.
struct CountingWriter<W> {
    /// Writer that the lines go to.
    target: W,
    /// Counts of lines, shared with the beginning of the queue.
    lines: Arc<LineCounts>,
}

impl<W: Write> Write for CountingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.target.write(bytes)
    }

    // Called once per line.
    fn write_all(&mut self, line: &[u8]) -> io::Result<()> {
        self.target.write_all(line)?;
        self.lines.written.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.target.flush()
    }
}

impl Write for QueuedWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.lines.sent.fetch_add(1, Ordering::AcqRel);
        let written = self.queue.write(line);
        let dropped = self.queue.error_counter().dropped_lines();
        let counted = self.lines.dropped.fetch_max(dropped, Ordering::AcqRel);
        LOG_LINES_LEFT_OUT.inc_by(dropped.saturating_sub(counted) as u64);
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.queue.flush()
    }
}

/// Starts the log in the configured format.
pub(super) fn start(settings: &Settings) -> anyhow::Result<ProcessLog> {
    let (writer, guard) = QueuedWriter::start(io::stderr());
    let lines = Arc::clone(&writer.lines);
    let errors = io::stderr.with_max_level(Level::ERROR);
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(errors.or_else(move || writer.clone()))
        .with_target(false)
        // Exchanges continue if stderr is closed.
        .log_internal_errors(false);
    let terminal = io::stderr().is_terminal();
    let pretty = match settings.log.format {
        LogFormat::Pretty => true,
        LogFormat::Json => false,
        LogFormat::Auto => terminal,
    };
    let repeats = Repeats::new(settings.log.burst)?;
    let (filter, handle) = reload::Layer::new(filter(&settings.log));
    let layer = match pretty {
        true => layer.with_ansi(terminal).boxed(),
        false => layer.json().flatten_event(true).boxed(),
    };
    let stack = tracing_subscriber::registry().with(filter).with(layer);
    let started = stack.with(repeats.clone()).try_init();
    started.map_err(|error| anyhow::anyhow!("cannot log: {error}"))?;
    Ok(ProcessLog {
        filter: handle,
        repeats,
        lines,
        writer: Some(guard),
    })
}

/// Repeated events, by callsite.
#[derive(Clone)]
struct Repeats(Arc<RepeatState>);

/// State shared by the layer and the reporting thread.
struct RepeatState {
    /// Lines of one callsite that are written before more are left out (`log.burst`).
    burst: NonZeroU32,
    /// Events so far.
    by_callsite: Mutex<HashMap<Identifier, RepeatedEvent>>,
    /// Thread that reports left-out lines.
    reporter: thread::Thread,
}

/// Events of one callsite.
struct RepeatedEvent {
    /// Decides which events are left out, and counts them.
    throttle: Throttle,
    /// Message of the first event that was left out.
    example: String,
}

impl Repeats {
    /// Starts the thread that reports left-out lines. It sleeps while there are none.
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
            by_callsite: Mutex::default(),
            reporter: reporter.thread().clone(),
        }));
        sender.send(repeats.clone()).context("no log")?;
        Ok(repeats)
    }

    /// Reports left-out lines forever.
    fn keep_reporting(&self) {
        loop {
            while self.is_report_due() {
                thread::sleep(PAUSE);
                self.report(Throttle::report);
            }
            thread::park();
        }
    }

    /// Reports whether there are left-out lines to report.
    fn is_report_due(&self) -> bool {
        let by_callsite = self.by_callsite();
        by_callsite
            .values()
            .any(|kind| kind.throttle.has_left_out())
    }

    /// Logs how many events of each callsite were left out, with the count that
    /// `take_count` takes from its throttle.
    fn report(&self, take_count: fn(&mut Throttle) -> Option<u64>) {
        let report = |event: &mut RepeatedEvent| {
            Some((take_count(&mut event.throttle)?, event.example.clone()))
        };
        // The lock is released before events are written, because writing one takes it
        // again, in `admit`.
        let reports: Vec<_> = self.by_callsite().values_mut().filter_map(report).collect();
        for (count, like) in reports {
            tracing::warn!(left_out = count, like, "more lines like this were left out");
        }
    }

    fn by_callsite(&self) -> MutexGuard<'_, HashMap<Identifier, RepeatedEvent>> {
        let by_callsite = self.0.by_callsite.lock();
        by_callsite.unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides whether `event` is written.
    fn admit(&self, event: &Event<'_>) -> bool {
        let mut by_callsite = self.by_callsite();
        let callsite = event.metadata().callsite();
        let kind = by_callsite
            .entry(callsite)
            .or_insert_with(|| RepeatedEvent {
                throttle: Throttle::new(self.0.burst),
                example: String::new(),
            });
        let is_first = !kind.throttle.has_left_out();
        if kind.throttle.decide() == Fate::Write {
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    /// Pipe whose reader takes one line per message, and then none.
    struct SlowPipe(Receiver<()>);

    impl Write for SlowPipe {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.0.recv().map_err(io::Error::other)?;
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    // Ours: every lost line is counted.
    #[test]
    fn lines_not_read_before_the_end_are_counted() {
        let (reader, pipe) = channel();
        let (mut writer, guard) = QueuedWriter::start(SlowPipe(pipe));
        for line in [b"a\n"; 5] {
            writer.write_all(line).unwrap();
        }
        assert_eq!(writer.lines.lost(), 5);
        reader.send(()).unwrap();
        reader.send(()).unwrap();
        drop(guard);
        assert_eq!(writer.lines.lost(), 3);
    }
}
