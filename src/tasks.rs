//! Executor for the tasks that hyper starts, so that a stop waits for them, and
//! the budget of bytes that a task reads before it lets others run.
//!
//! Both sides of the proxy use them: connections of clients, and to origins.
//! Does not know what a task does.

use std::future::Future;
use std::io;
use std::task::{Context, Poll};

use hyper::rt::Executor;
use tokio::io::ReadBuf;
use tokio_util::task::TaskTracker;

/// Executor that is given to hyper: the tasks that hyper starts for its
/// connections join those that a stop waits for.
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

/// Bytes that a task reads before others run. That many take some milliseconds
/// to parse even if they are thousands of the smallest frames.
const BUDGET_BYTES: usize = 128 * 1024;

/// Budget of a task that reads from a peer.
///
/// hyper parses input until there is no more. A peer that sends faster than its
/// input is parsed (a chunk size of endless zeros, interim responses, empty
/// frames) would keep a thread to itself.
#[derive(Debug, Clone, Default)]
pub struct ReadBudget {
    used: usize,
}

impl ReadBudget {
    /// Reads by `read`, if some of the budget is left, and takes the bytes from
    /// it. A read that waits for input renews the budget.
    ///
    /// Pending if the budget is used up. The task then has a new one, and is
    /// woken at once: it goes on after the tasks that are ready now.
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
        read: impl FnOnce(&mut Context<'_>, &mut ReadBuf<'_>) -> Poll<io::Result<()>>,
    ) -> Poll<io::Result<()>> {
        if BUDGET_BYTES <= self.used {
            self.used = 0;
            // Nothing else would wake the task, because its input has come already.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let polled = read(cx, buffer);
        let bytes = buffer.filled().len() - before;
        // While the task waits for input, the others run anyway.
        self.used = if polled.is_pending() {
            0
        } else {
            self.used.saturating_add(bytes)
        };
        polled
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

    use super::BUDGET_BYTES;

    /// Bytes that the peer sends in all.
    const SENT: usize = 8 << 20;

    /// Returns a peer that sends as fast as it can.
    fn flooding() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(&vec![b'0'; SENT]).unwrap();
        });
        address
    }

    /// Returns the most that was read from a flood between two waits, by a
    /// reader that goes on for as long as there is input.
    pub(crate) async fn most_in_one_turn<S: AsyncRead + Unpin>(
        of: impl FnOnce(tokio::net::TcpStream) -> S,
    ) -> usize {
        let stream = tokio::net::TcpStream::connect(flooding()).await.unwrap();
        let mut stream = of(stream);
        let (mut all, mut most) = (0, 0);
        while all < SENT {
            // Time for more than one budget to arrive.
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

    /// Most bytes of one turn: the budget, and the one read that goes beyond it.
    pub(crate) const MOST: usize = BUDGET_BYTES + 16 * 1024;
}
