//! The process outside: starts the one inside, maps its user, takes the
//! listener and the counters, and lets it become the command.

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

use super::{Counters, ENTER, Failure, GoOn, Inside, Step, refusal};
use crate::cli::run::child;
use crate::cli::run::environment::Environment;
use crate::clock;
use crate::serve::control::messages::MessageStream;

/// How long the process inside may take for its steps; they take milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// The program that runs, also after its file was replaced by another version.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// A process in its namespaces that waits to become the command, and the
/// listener that it knows as its proxy.
pub(in crate::cli::run) struct Sealed {
    waiting: Waiting,
    listener: OwnedFd,
}

/// A process in its namespaces that waits to become the command.
pub(in crate::cli::run) struct Waiting {
    child: Child,
    lines: MessageStream,
    counters: Counters,
    program: OsString,
}

impl Sealed {
    /// Starts a process inside new namespaces, for `command` with the variables
    /// of `environment`.
    ///
    /// # Errors
    ///
    /// What forbids namespaces here, and what can be done about it.
    pub(in crate::cli::run) async fn prepare(
        command: &[OsString],
        environment: &Environment,
    ) -> anyhow::Result<Self> {
        let (name, socket) = socket().context("cannot make a socket for --sealed")?;
        let mut inside = child::command(OWN_PROGRAM, environment);
        inside.arg0("politesse").args([ENTER, &name, "--"]);
        let mut child = inside.args(command).spawn().context(OWN_PROGRAM)?;
        let steps = timeout(PATIENCE, steps(&socket, &mut child));
        let (lines, descriptors) = steps.await.context("--sealed")??;
        let mut descriptors = descriptors.into_iter();
        let missing = "the process inside passed no listener";
        let listener = descriptors.next().context(missing)?;
        let counters = Counters::new(descriptors.next().context(missing)?, descriptors.next());
        let program = command.first().cloned().unwrap_or_default();
        let waiting = Waiting {
            child,
            lines,
            counters,
            program,
        };
        Ok(Self { waiting, listener })
    }

    pub(in crate::cli::run) fn into_parts(self) -> (Waiting, OwnedFd) {
        (self.waiting, self.listener)
    }
}

impl Waiting {
    /// Lets the process become the command.
    ///
    /// # Errors
    ///
    /// A command that does not start, as without `--sealed`.
    pub(in crate::cli::run) async fn go(mut self) -> anyhow::Result<(Child, Counters)> {
        self.lines.send(&GoOn {}).await?;
        // The socket closes as the command begins.
        match self.lines.next().await? {
            None => Ok((self.child, self.counters)),
            Some(Inside::Failed(failure)) => {
                Err(child::not_started(&self.program, error_of(&failure)))
            }
            Some(Inside::Unshared | Inside::Ready) => anyhow::bail!("--sealed: out of order"),
        }
    }
}

/// A socket that the process inside can reach before it leaves our network. Its
/// name is abstract: no file is left behind, and none has to be reachable for
/// a user that is not mapped.
fn socket() -> io::Result<(String, UnixListener)> {
    let now = clock::now().as_nanosecond();
    let name = format!("politesse-run-{}-{now}", std::process::id());
    let address = UnixAddress::from_abstract_name(&name)?;
    let listener = StdUnixListener::bind_addr(&address)?;
    listener.set_nonblocking(true)?;
    Ok((name, UnixListener::from_std(listener)?))
}

/// The steps of both processes until the one inside waits to become the command.
/// Returns the conversation, and what was passed out.
async fn steps(
    socket: &UnixListener,
    child: &mut Child,
) -> anyhow::Result<(MessageStream, Vec<OwnedFd>)> {
    let mut lines = tokio::select! {
        // In this order: one that has ended may have said why before.
        biased;
        lines = accept(socket, child.id()) => lines?,
        status = child.wait() => anyhow::bail!("the process inside ended: {}", status?),
    };
    loop {
        match lines.next().await.context("--sealed")? {
            Some(Inside::Unshared) => {
                let pid = child.id().context("the process inside has ended")?;
                map(pid).map_err(|error| refused(&Failure::new(Step::Map, &error)))?;
                lines.send(&GoOn {}).await?;
            }
            Some(Inside::Ready) => {
                let descriptors = lines.take_descriptors();
                return Ok((lines, descriptors));
            }
            Some(Inside::Failed(failure)) => return Err(refused(&failure)),
            None => anyhow::bail!("the process inside ended"),
        }
    }
}

/// The connection of the process `inside`. Anybody may connect to an abstract
/// name; all others are closed.
async fn accept(socket: &UnixListener, inside: Option<u32>) -> io::Result<MessageStream> {
    loop {
        let lines = MessageStream::from(socket.accept().await?.0);
        let pid = lines.peer()?.pid().and_then(|pid| u32::try_from(pid).ok());
        if pid.is_some() && pid == inside {
            return Ok(lines);
        }
    }
}

/// Maps user and group of the process `pid` to themselves, so that files belong
/// to whom they belonged (user_namespaces(7)).
///
/// The administrator gets all users that there are: with one alone it would have
/// no power over the files of others, nor could it become another user.
fn map(pid: u32) -> io::Result<()> {
    let of = |name: &str| format!("/proc/{pid}/{name}");
    let is_administrator = geteuid().is_root();
    if is_administrator
        && let (Ok(users), Ok(groups)) = (all("/proc/self/uid_map"), all("/proc/self/gid_map"))
        && fs::write(of("uid_map"), users).is_ok()
    {
        return fs::write(of("gid_map"), groups);
    }
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    fs::write(of("uid_map"), format!("{user} {user} 1\n"))?;
    // Without this nobody but the administrator may map a group.
    fs::write(of("setgroups"), "deny")?;
    fs::write(of("gid_map"), format!("{group} {group} 1\n"))
}

/// A map of all ids in the map at `path` to themselves. Its lines hold the first
/// id here, the first id outside, and how many there are.
fn all(path: &str) -> io::Result<String> {
    let text = fs::read_to_string(path)?;
    let line = |line: &str| {
        let mut numbers = line.split_whitespace();
        let (first, count) = (numbers.next()?, numbers.nth(1)?);
        Some(format!("{first} {first} {count}\n"))
    };
    Ok(text.lines().filter_map(line).collect())
}

fn refused(failure: &Failure) -> anyhow::Error {
    anyhow::anyhow!(refusal::explain(failure))
}

fn error_of(failure: &Failure) -> io::Error {
    match failure.error {
        Some(number) => io::Error::from_raw_os_error(number),
        None => io::Error::other(failure.text.clone()),
    }
}

impl Failure {
    fn new(step: Step, error: &io::Error) -> Self {
        Self {
            step,
            error: error.raw_os_error(),
            text: error.to_string(),
        }
    }
}
