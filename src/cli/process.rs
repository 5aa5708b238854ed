//! Shared parts of commands that run or ask a proxy: the runtime, signals, the control
//! socket, and the address to connect to.
//!
//! Does not know any command.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, available_parallelism};

use anyhow::Context as _;
use rustix::process::{Resource, getrlimit};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::config::Settings;
use crate::serve::RunningProxy;
use crate::serve::control::instance::Instance;
use crate::serve::control::joining::Holder;
use politesse_robots::origin::Scheme;

/// Threads for blocking calls. `upstream.dns_lookups` may use 512 of them; threads are
/// started only as needed.
const BLOCKING_THREADS_MAX: usize = 1024;

/// Threads that a start needs besides one per processor: for the log, the record, its
/// readers and name lookups.
const START_THREADS: usize = 16;

/// Address space of a thread: its stack, and the 64 MiB that the C library's allocator
/// reserves for it. If that exceeds the limit, the next allocation aborts.
const THREAD_BYTES: u64 = 66 << 20;

/// Address space that a start needs besides its threads.
const START_BYTES: u64 = 64 << 20;

/// Checks that the limits leave enough address space and threads for a start.
///
/// Without this check, the runtime panics if it cannot start a thread, and a failed
/// allocation aborts, both in the middle of a start.
///
/// # Errors
///
/// The resource that is short, and the limits to raise.
fn check_limits() -> anyhow::Result<()> {
    let processors = available_parallelism().map_or(1, NonZeroUsize::get);
    let threads = processors + START_THREADS;
    check_address_space(threads as u64 * THREAD_BYTES + START_BYTES)?;
    check_threads(threads)
}

/// Checks that the address space may grow by `wanted` bytes.
fn check_address_space(wanted: u64) -> anyhow::Result<()> {
    let Some(limit) = getrlimit(Resource::As).current else {
        return Ok(());
    };
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let kilobytes = size.and_then(|size| size.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    let left = limit.saturating_sub(kilobytes.unwrap_or_default() << 10);
    anyhow::ensure!(
        wanted <= left,
        "a start needs {} MiB of address space, most of which is never used, and the limit \
         (ulimit -v) leaves {} MiB: lift it, and limit memory by MemoryMax or a container; \
         docs/operating.md, Memory",
        wanted >> 20,
        left >> 20
    );
    Ok(())
}

/// Checks that `all` threads can exist at the same time, by starting them.
fn check_threads(all: usize) -> anyhow::Result<()> {
    // The threads end when the sender is dropped, so that all exist at the same time.
    let (sender, receiver) = mpsc::channel::<()>();
    let receiver = Arc::new(Mutex::new(receiver));
    let mut threads = Vec::with_capacity(all);
    let mut refused = None;
    for _ in 0..all {
        let receiver = Arc::clone(&receiver);
        let wait = move || drop(receiver.lock().map(|receiver| receiver.recv()));
        match thread::Builder::new().spawn(wait) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    let started = threads.len();
    drop(sender);
    for thread in threads {
        // The thread cannot panic: it only waits.
        let _ = thread.join();
    }
    match refused {
        None => Ok(()),
        Some(error) => Err(anyhow::Error::new(error).context(format!(
            "the system starts {started} threads, and {all} are needed: raise the limit on \
             processes (ulimit -u, TasksMax) or on memory; docs/operating.md, Memory"
        ))),
    }
}

/// Starts the runtime for commands that use the network.
pub(super) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    check_limits()?;
    // On one processor the single-threaded scheduler is cheaper: it runs woken tasks in
    // order, so several requests are read before the first is passed on, and the other
    // side is woken once for all of them.
    let is_alone = available_parallelism().is_ok_and(|processors| processors.get() == 1);
    let mut builder = if is_alone {
        tokio::runtime::Builder::new_current_thread()
    } else {
        tokio::runtime::Builder::new_multi_thread()
    };
    builder
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .build()
        .context("cannot start the runtime")
}

/// Opens the control socket, which `politesse run` uses to find the proxy. If that
/// fails, the proxy still serves other clients.
pub(super) fn open_control(running: &mut RunningProxy, command: &str) {
    if let Err(error) = running.open_control(command) {
        tracing::warn!(
            %error,
            "no control socket beside the record: `politesse run` will not find this proxy"
        );
    }
}

/// Reads the description of the proxy that holds the record in `folder`, if that proxy
/// answers.
pub(super) async fn holder_instance(folder: &Path) -> anyhow::Result<Instance> {
    let instance = Instance::read(folder)?;
    // The file may be left over from an earlier process, which does not answer.
    Holder::connect(folder).await?;
    Ok(instance)
}

/// Returns the address to connect to for a listener on `address`. A listener on a
/// wildcard address is reachable on loopback.
pub(super) fn reachable(address: &SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        IpAddr::V4(_) | IpAddr::V6(_) => address.ip(),
    };
    SocketAddr::new(ip, address.port())
}

/// Returns the URL of a page of the admin listener on `address`, for a browser on this
/// machine.
pub(super) fn admin_url(settings: &Settings, address: &SocketAddr, path: &str) -> String {
    let scheme = match settings.admin.tls.cert {
        Some(_) => Scheme::Https,
        None => Scheme::Http,
    };
    format!("{}://{}{path}", scheme.as_str(), reachable(address))
}

/// Action that a signal requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SignalRequest {
    /// End the program (SIGTERM, SIGINT).
    Stop,
    /// Reread the configuration (SIGHUP).
    Reload,
}

/// Signals that stop or reload the program. Once this value exists, none of them ends
/// the process by itself.
pub(super) struct Signals {
    /// SIGTERM.
    pub(super) terminate: AwaitedSignal,
    /// SIGINT.
    pub(super) interrupt: AwaitedSignal,
    /// SIGHUP.
    pub(super) hangup: AwaitedSignal,
}

/// A signal that is listened for, or that stays ignored.
pub(super) struct AwaitedSignal(Option<Signal>);

impl AwaitedSignal {
    /// Waits for the next signal; for ever if it is ignored.
    pub(super) async fn recv(&mut self) {
        match &mut self.0 {
            Some(signal) => {
                signal.recv().await;
            }
            None => std::future::pending().await,
        }
    }
}

impl Signals {
    /// Listens for all of them.
    pub(super) fn new() -> std::io::Result<Self> {
        Self::except(0)
    }

    /// Listens for the signals that this process was not started to ignore (`nohup`
    /// ignores SIGHUP). Child processes would inherit a handler as the default action,
    /// and would no longer ignore the signal.
    pub(super) fn except_ignored() -> std::io::Result<Self> {
        Self::except(ignored_signals())
    }

    /// Listens for all signals except those whose bits are set in `ignored`.
    fn except(ignored: u64) -> std::io::Result<Self> {
        let listen_for = |kind: SignalKind| {
            // Bit 0 is signal 1.
            let is_ignored = ignored & (1 << (kind.as_raw_value() - 1)) != 0;
            let signal = (!is_ignored).then(|| signal(kind)).transpose();
            signal.map(AwaitedSignal)
        };
        Ok(Self {
            terminate: listen_for(SignalKind::terminate())?,
            interrupt: listen_for(SignalKind::interrupt())?,
            hangup: listen_for(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal and returns its request.
    pub(super) async fn next(&mut self) -> SignalRequest {
        tokio::select! {
            _ = self.terminate.recv() => SignalRequest::Stop,
            _ = self.interrupt.recv() => SignalRequest::Stop,
            _ = self.hangup.recv() => SignalRequest::Reload,
        }
    }

    /// Waits for the next signal that stops the program. Reloads are skipped: a
    /// stopping program reads no configuration.
    pub(super) async fn stop(&mut self) {
        while self.next().await == SignalRequest::Reload {}
    }
}

/// Returns the signals that this process ignores, one bit per signal, starting with
/// signal 1 (proc(5), `SigIgn`); 0 if the file does not exist.
fn ignored_signals() -> u64 {
    // Asking the system directly would take unsafe code.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let bits = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    bits.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok())
        .unwrap_or_default()
}
