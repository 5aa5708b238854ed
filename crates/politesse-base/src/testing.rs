//! Helpers for unit tests of the crates that depend on this one: a wall clock that tests
//! can pause and set, and a peer that floods a reader. Not part of the program.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test may panic, and this reads the clocks"
)]

use std::cell::Cell;
use std::future::poll_fn;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::Poll;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::tasks::BUDGET_BYTES;

/// Moment from which the wall clock follows tokio's clock; set by [`follow_tokio`].
static START: OnceLock<(Timestamp, Instant)> = OnceLock::new();

thread_local! {
    /// Shift of the wall clock for the test on this thread.
    static WALL_SHIFT: Cell<SignedDuration> = const { Cell::new(SignedDuration::ZERO) };
}

/// Makes the wall clock of this process follow tokio's, which tests can pause and advance.
///
/// Without a call, the process uses the system's clock. So a program that was built
/// together with the tests is not affected.
#[expect(
    clippy::disallowed_methods,
    reason = "both clocks are read at one moment"
)]
pub fn follow_tokio() {
    START.get_or_init(|| (Timestamp::now(), Instant::now()));
}

/// Moves the wall clock of the test on this thread forward or back.
pub fn set_wall_by(shift: SignedDuration) {
    follow_tokio();
    WALL_SHIFT.set(WALL_SHIFT.get() + shift);
}

/// Reads the wall clock that follows tokio's; `None` if no test has requested it.
pub(crate) fn wall_clock() -> Option<Timestamp> {
    let (began, at) = *START.get()?;
    let now = Instant::now();
    let moved = match now.checked_duration_since(at) {
        Some(passed) => began.checked_add(passed),
        None => began.checked_sub(at.duration_since(now)),
    };
    Some(moved.unwrap_or(began) + WALL_SHIFT.get())
}

/// Maximum number of bytes read in one turn: the budget, and one read that exceeds it.
pub const TURN_BYTES_MAX: usize = BUDGET_BYTES + 16 * 1024;

/// Total number of bytes in a flood.
const FLOOD_BYTES: usize = 8 << 20;

/// Starts a peer that sends as fast as it can, and returns its address.
fn flooding() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&vec![b'0'; FLOOD_BYTES]).unwrap();
    });
    address
}

/// Returns the largest number of bytes read from a flood between two waits, by a reader
/// that reads as long as there is input.
///
/// # Panics
///
/// If loopback cannot be used.
pub async fn most_in_one_turn<S: AsyncRead + Unpin>(of: impl FnOnce(TcpStream) -> S) -> usize {
    let stream = TcpStream::connect(flooding()).await.unwrap();
    let mut stream = of(stream);
    let (mut all, mut most) = (0, 0);
    while all < FLOOD_BYTES {
        // Enough time for more than one budget to arrive.
        tokio::time::sleep(Duration::from_millis(5)).await;
        let mut taken = 0;
        poll_fn(|cx| {
            let mut bytes = [0; 16 * 1024];
            let mut buffer = ReadBuf::new(&mut bytes);
            while Pin::new(&mut stream).poll_read(cx, &mut buffer).is_ready()
                && !buffer.filled().is_empty()
            {
                taken += buffer.filled().len();
                buffer.clear();
            }
            Poll::Ready(())
        })
        .await;
        all += taken;
        most = most.max(taken);
    }
    most
}
