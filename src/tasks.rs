//! Tasks that are waited for at the end, and that let each other run.

use std::future::Future;
use std::task::{Context, Poll};

use hyper::rt::Executor;
use tokio_util::task::TaskTracker;

/// The executor given to hyper, so that the tasks it starts for its
/// connections are tracked like our own.
#[derive(Debug, Clone, Default)]
pub struct Tasks(pub TaskTracker);

impl<F> Executor<F> for Tasks
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}

/// How much a task reads in one turn: thousands of the smallest frames, and
/// little enough for a few milliseconds of parsing.
const TURN_BYTES: usize = 128 * 1024;

/// The turn of a task that reads from a peer.
///
/// What comes in is parsed until nothing is left. A peer that sends faster than
/// it is parsed (a chunk size of endless zeros, interim responses, frames that
/// say nothing) would keep its thread to itself.
#[derive(Debug, Clone, Default)]
pub struct Turn {
    taken: usize,
}

impl Turn {
    /// Ready while the turn lasts; at its end the task is woken again behind
    /// the others.
    pub fn poll_go_on(&mut self, cx: &Context<'_>) -> Poll<()> {
        if self.taken < TURN_BYTES {
            return Poll::Ready(());
        }
        self.taken = 0;
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Notes what one read came to.
    pub fn note<E>(&mut self, read: &Poll<Result<(), E>>, bytes: usize) {
        // Who waits has let the others run.
        self.taken = if read.is_pending() {
            0
        } else {
            self.taken.saturating_add(bytes)
        };
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::future::poll_fn;
    use std::io::Write as _;
    use std::net::{SocketAddr, TcpListener};
    use std::pin::Pin;
    use std::time::Duration;

    use tokio::io::{AsyncRead, ReadBuf};

    use super::TURN_BYTES;

    /// What the peer sends in all.
    const SENT: usize = 8 << 20;

    /// A peer that sends as fast as it can.
    fn flooding() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(&vec![b'0'; SENT]).unwrap();
        });
        address
    }

    /// The most that was read from a flood between two waits, by a reader that
    /// goes on for as long as there is something.
    pub(crate) async fn most_in_one_turn<S: AsyncRead + Unpin>(
        of: impl FnOnce(tokio::net::TcpStream) -> S,
    ) -> usize {
        let stream = tokio::net::TcpStream::connect(flooding()).await.unwrap();
        let mut stream = of(stream);
        let (mut all, mut most) = (0, 0);
        while all < SENT {
            // So that there is more than one turn's worth.
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
                std::task::Poll::Ready(())
            })
            .await;
            all += taken;
            most = most.max(taken);
        }
        most
    }

    /// One read more may come before the end is noticed.
    pub(crate) const MOST: usize = TURN_BYTES + 16 * 1024;
}
