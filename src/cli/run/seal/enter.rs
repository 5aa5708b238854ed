//! The process inside: it takes its namespaces, passes out a listener and the
//! counters, and becomes the command.
//!
//! It has one thread from beginning to end: a process with two cannot enter a
//! user namespace. So it is decided upon before any runtime is started.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use clap::Args;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::net::{bind, listen, socket_with};
use rustix::thread::UnshareFlags;

use super::{Failure, Inside, LISTEN, Step, loopback};
use crate::cli::Exit;
use crate::serve::control::messages;

/// Connections that may wait to be accepted; the system takes fewer if its own
/// bound (`net.core.somaxconn`) is lower.
const BACKLOG: i32 = 4096;

/// Not for people: `run --sealed` starts it.
#[derive(Debug, Args)]
pub(in crate::cli) struct Enter {
    /// The abstract name of the socket of the process that waits outside.
    socket: OsString,
    /// The command and its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<OsString>,
}

/// A step that failed, with the system's error.
struct Failed(Step, io::Error);

/// Enters the namespaces and becomes the command. Returns if it could not, after
/// the process outside was told why.
pub(in crate::cli) fn enter(enter: &Enter) -> anyhow::Result<Exit> {
    let name = enter.socket.as_encoded_bytes();
    let outside = UnixStream::connect_addr(&UnixAddress::from_abstract_name(name)?)?;
    let Err(Failed(step, error)) = become_command(enter, &outside);
    let failure = Failure {
        step,
        error: error.raw_os_error(),
        text: error.to_string(),
    };
    say(&outside, &Inside::Failed(failure), &[])?;
    Ok(Exit::Not)
}

fn become_command(enter: &Enter, outside: &UnixStream) -> Result<std::convert::Infallible, Failed> {
    let at = |step| move |error: io::Error| Failed(step, error);
    unshare().map_err(at(Step::Unshare))?;
    say(outside, &Inside::Unshared, &[]).map_err(at(Step::Map))?;
    wait_for_go_on(outside).map_err(at(Step::Map))?;
    loopback::bring_up().map_err(at(Step::Loopback))?;
    let listener = listener().map_err(at(Step::Listen))?;
    let ipv4 = File::open("/proc/self/net/snmp").map_err(at(Step::Count))?;
    let ipv6 = File::open("/proc/self/net/snmp6").ok();
    let mut passed = vec![listener.as_fd(), ipv4.as_fd()];
    passed.extend(ipv6.as_ref().map(|file| file.as_fd()));
    say(outside, &Inside::Ready, &passed).map_err(at(Step::Listen))?;
    wait_for_go_on(outside).map_err(at(Step::Execute))?;
    let (program, arguments) = enter
        .command
        .split_first()
        .ok_or_else(|| Failed(Step::Execute, io::ErrorKind::InvalidInput.into()))?;
    // All that was opened here closes as the command begins: the standard
    // library opens everything so.
    Err(Failed(
        Step::Execute,
        Command::new(program).args(arguments).exec(),
    ))
}

fn unshare() -> io::Result<()> {
    // The function is deprecated because a thread that unshares its descriptors
    // loses those of other threads. Descriptors are not unshared here, and there
    // is no other thread.
    #[expect(
        deprecated,
        reason = "the successor is unsafe for a flag that is not used"
    )]
    rustix::thread::unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNET)?;
    Ok(())
}

fn listener() -> io::Result<OwnedFd> {
    let socket = socket_with(
        AddressFamily::INET,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    bind(&socket, &SocketAddr::from(LISTEN))?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

fn say(
    outside: &UnixStream,
    message: &Inside,
    descriptors: &[std::os::fd::BorrowedFd<'_>],
) -> io::Result<()> {
    let line = messages::line(message)?;
    if descriptors.is_empty() {
        (&*outside).write_all(&line)
    } else {
        messages::send(outside, &line, descriptors)
    }
}

/// Waits until the process outside has done its part. It closes if it cannot,
/// and has said why.
fn wait_for_go_on(outside: &UnixStream) -> io::Result<()> {
    let mut line = String::new();
    if BufReader::new(outside).read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}
