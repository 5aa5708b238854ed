//! `run --sealed`: runs a command whose network contains only the proxy.
//!
//! The program starts itself again (`enter`). That process enters a user and a network
//! namespace before it becomes the command (user_namespaces(7), network_namespaces(7)).
//! Only a single-threaded process can do so, and one that runs a proxy has several
//! threads. It binds the listener that the command uses as its proxy inside the
//! namespace, and passes it out to be served here. This side maps its user, receives
//! the listener and the counters, and lets it become the command.
//!
//! The new network has only loopback, so that anything not sent to the proxy has no
//! route, and the system counts it (`counters`).

mod counters;
pub(crate) mod enter;
mod failure;
mod loopback;

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener as StdUnixListener};
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{getegid, geteuid};
use tokio::net::UnixListener;
use tokio::process::Child;
use tokio::time::timeout;

use self::counters::BypassCounters;
pub(crate) use self::enter::{ENTER, LISTEN};
use self::enter::{GoOn, MAP_USER, SealMessage};
use self::failure::SealFailure;
use super::child;
use super::environment::Environment;
use crate::serve::control::MessageStream;
use politesse_base::clock;

/// Timeout for the steps of the process inside; they take milliseconds.
const STEPS_TIMEOUT: Duration = Duration::from_secs(10);
/// Path of this process's program, even if its file was replaced by another version.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// Process inside its namespaces that waits to become the command.
pub(super) struct SealedProcess {
    child: Child,
    messages: MessageStream,
    /// Listener that the command uses as its proxy.
    listener: OwnedFd,
    counters: BypassCounters,
    program: OsString,
}

impl SealedProcess {
    /// Starts a process inside new namespaces, for `command` with the variables of
    /// `environment`.
    ///
    /// # Errors
    ///
    /// Explains why namespaces are unavailable on this machine, and how to fix it.
    pub(super) async fn start(
        command: &[OsString],
        environment: &Environment,
    ) -> anyhow::Result<Self> {
        let (name, socket) = socket().context("cannot make a socket for --sealed")?;
        let mut inside = child::command(OWN_PROGRAM, environment);
        inside.arg0("politesse").args([ENTER, &name, "--"]);
        let mut child = inside.args(command).spawn().context(OWN_PROGRAM)?;
        let steps = timeout(STEPS_TIMEOUT, prepare(&socket, &mut child));
        let (messages, descriptors) = steps.await.context("--sealed")??;
        let mut descriptors = descriptors.into_iter();
        let missing = "the process inside passed no listener";
        Ok(Self {
            child,
            messages,
            listener: descriptors.next().context(missing)?,
            counters: BypassCounters::new(descriptors.next().context(missing)?, descriptors.next()),
            program: command.first().cloned().unwrap_or_default(),
        })
    }

    /// Returns the listener that the command uses as its proxy.
    ///
    /// # Errors
    ///
    /// No descriptor is free.
    pub(super) fn listener(&self) -> io::Result<OwnedFd> {
        self.listener.try_clone()
    }

    /// Lets the process become the command.
    ///
    /// # Errors
    ///
    /// The command cannot be started, as without `--sealed`.
    pub(super) async fn become_command(mut self) -> anyhow::Result<(Child, BypassCounters)> {
        self.messages.send(&GoOn {}).await?;
        // The socket closes when the command starts.
        match self.messages.next().await? {
            None => Ok((self.child, self.counters)),
            Some(SealMessage::Failed(failure)) => {
                Err(child::not_started(&self.program, failure.io_error()))
            }
            Some(SealMessage::Unshared | SealMessage::Ready) => {
                anyhow::bail!("--sealed: unexpected message")
            }
        }
    }
}

/// Opens a socket that the process inside can reach before it leaves this network. Its
/// name is abstract: no file is left behind, and an unmapped user needs access to none.
fn socket() -> io::Result<(String, UnixListener)> {
    let now = clock::now().as_nanosecond();
    let name = format!("politesse-run-{}-{now}", std::process::id());
    let address = UnixAddress::from_abstract_name(&name)?;
    let listener = StdUnixListener::bind_addr(&address)?;
    listener.set_nonblocking(true)?;
    Ok((name, UnixListener::from_std(listener)?))
}

/// Takes the steps of both processes until the one inside waits to become the command.
/// Returns the connection, and the descriptors that were passed out.
async fn prepare(
    socket: &UnixListener,
    child: &mut Child,
) -> anyhow::Result<(MessageStream, Vec<OwnedFd>)> {
    let mut messages = tokio::select! {
        // Connections are polled first: a process that has ended may have sent the
        // reason before.
        biased;
        messages = accept(socket, child.id()) => messages?,
        status = child.wait() => anyhow::bail!("the process inside ended: {}", status?),
    };
    loop {
        match messages.next().await.context("--sealed")? {
            Some(SealMessage::Unshared) => {
                let pid = child.id().context("the process inside has ended")?;
                map_user(pid).map_err(|error| SealFailure::new(MAP_USER, &error))?;
                messages.send(&GoOn {}).await?;
            }
            Some(SealMessage::Ready) => {
                let descriptors = messages.take_descriptors();
                return Ok((messages, descriptors));
            }
            Some(SealMessage::Failed(failure)) => return Err(failure.into()),
            None => anyhow::bail!("the process inside ended"),
        }
    }
}

/// Accepts the connection of the process `inside`. Any process may connect to an
/// abstract name; other connections are closed.
async fn accept(socket: &UnixListener, inside: Option<u32>) -> io::Result<MessageStream> {
    loop {
        let messages = MessageStream::from(socket.accept().await?.0);
        let pid = messages
            .peer()?
            .pid()
            .and_then(|pid| u32::try_from(pid).ok());
        if pid.is_some() && pid == inside {
            return Ok(messages);
        }
    }
}

/// Maps user and group of the process `pid` to themselves, so that files keep their
/// owners (user_namespaces(7)).
///
/// For the administrator, all users are mapped: otherwise it would have no power over
/// other users' files, and could not become another user.
fn map_user(pid: u32) -> io::Result<()> {
    let of = |name: &str| format!("/proc/{pid}/{name}");
    let is_administrator = geteuid().is_root();
    if is_administrator
        && let (Ok(users), Ok(groups)) = (
            identity_map("/proc/self/uid_map"),
            identity_map("/proc/self/gid_map"),
        )
        && fs::write(of("uid_map"), users).is_ok()
    {
        return fs::write(of("gid_map"), groups);
    }
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    fs::write(of("uid_map"), format!("{user} {user} 1\n"))?;
    // Without this only the administrator may map a group.
    fs::write(of("setgroups"), "deny")?;
    fs::write(of("gid_map"), format!("{group} {group} 1\n"))
}

/// Returns a map of all ids in the map at `path` to themselves. Each line of a map
/// holds the first id inside, the first id outside, and their number.
fn identity_map(path: &str) -> io::Result<String> {
    let text = fs::read_to_string(path)?;
    let line = |line: &str| {
        let mut numbers = line.split_whitespace();
        let (first, count) = (numbers.next()?, numbers.nth(1)?);
        Some(format!("{first} {first} {count}\n"))
    };
    Ok(text.lines().filter_map(line).collect())
}
