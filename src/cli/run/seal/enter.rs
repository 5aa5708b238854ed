//! Process inside the seal: enters the namespaces, passes out a listener and the
//! counters, and becomes the command.
//!
//! It is single-threaded throughout, because a process with several threads cannot
//! enter a user namespace. Therefore it starts no runtime. Does not know the proxy.

use std::convert::Infallible;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use clap::Args;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::net::{bind, listen, socket_with};
use rustix::thread::UnshareFlags;
use serde::{Deserialize, Serialize};

use super::failure::SealFailure;
use super::loopback;
use crate::cli::output::Exit;
use crate::serve::control;

/// Name of the hidden command that becomes the user's command.
pub(crate) const ENTER: &str = "enter-seal";
/// Address of the proxy, as the command sees it. The network is new, so every port is
/// free.
pub(crate) const LISTEN: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 3128);
/// Connections that may wait to be accepted; the system allows fewer if
/// `net.core.somaxconn` is lower.
const BACKLOG: i32 = 4096;
/// Names of steps that can fail in several places.
pub(super) const MAP_USER: &str = "map the user into its namespace";
const LISTEN_INSIDE: &str = "listen in the network namespace";
const EXECUTE: &str = "start the command";

/// Message from the process inside to the one outside.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SealMessage {
    /// The namespaces exist, and the user must be mapped.
    Unshared,
    /// The listener and the counters are attached; the process waits to become the
    /// command.
    Ready,
    /// A step failed, and the process ends.
    Failed(SealFailure),
}

/// Message from the process outside: take the next step.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct GoOn {}

/// Arguments of the hidden command, which `run --sealed` starts.
#[derive(Debug, Args)]
pub(crate) struct EnterArguments {
    /// Abstract name of the socket of the waiting process outside.
    socket: OsString,
    /// Command to become, with its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<OsString>,
}

/// Enters the namespaces and becomes the command. Returns only if a step failed, after
/// reporting the failure to the process outside.
pub(crate) fn enter(arguments: &EnterArguments) -> anyhow::Result<Exit> {
    let name = arguments.socket.as_encoded_bytes();
    let outside = UnixStream::connect_addr(&UnixAddress::from_abstract_name(name)?)?;
    let Err(failure) = become_command(&arguments.command, &outside);
    send(&outside, &SealMessage::Failed(failure), &[])?;
    Ok(Exit::Not)
}

fn become_command(command: &[OsString], outside: &UnixStream) -> Result<Infallible, SealFailure> {
    let cannot = |step| move |error: io::Error| SealFailure::new(step, &error);
    unshare().map_err(cannot("make a user and a network namespace"))?;
    send(outside, &SealMessage::Unshared, &[]).map_err(cannot(MAP_USER))?;
    wait_for_go_on(outside).map_err(cannot(MAP_USER))?;
    loopback::bring_up().map_err(cannot("bring up loopback in the network namespace"))?;
    let listener = listener().map_err(cannot(LISTEN_INSIDE))?;
    let ipv4 = File::open("/proc/self/net/snmp")
        .map_err(cannot("read the counters of the network namespace"))?;
    let ipv6 = File::open("/proc/self/net/snmp6").ok();
    let mut passed = vec![listener.as_fd(), ipv4.as_fd()];
    passed.extend(ipv6.as_ref().map(|file| file.as_fd()));
    send(outside, &SealMessage::Ready, &passed).map_err(cannot(LISTEN_INSIDE))?;
    wait_for_go_on(outside).map_err(cannot(EXECUTE))?;
    let (program, arguments) = command
        .split_first()
        .ok_or_else(|| cannot(EXECUTE)(io::ErrorKind::InvalidInput.into()))?;
    // The standard library opens descriptors with close-on-exec, so those opened here
    // close when the command starts.
    let error = Command::new(program).args(arguments).exec();
    Err(cannot(EXECUTE)(error))
}

fn unshare() -> io::Result<()> {
    // The function is deprecated because unsharing descriptors in one thread affects
    // those of other threads. Here no descriptors are unshared, and there is no other
    // thread.
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

fn send(
    outside: &UnixStream,
    message: &SealMessage,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let line = control::line(message)?;
    if descriptors.is_empty() {
        (&*outside).write_all(&line)
    } else {
        control::send(outside, &line, descriptors)
    }
}

/// Waits until the process outside has done its part. If that failed, it has printed
/// the reason and closed the connection.
fn wait_for_go_on(outside: &UnixStream) -> io::Result<()> {
    let mut line = String::new();
    if BufReader::new(outside).read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}
