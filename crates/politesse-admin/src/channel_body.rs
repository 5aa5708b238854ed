//! Response bodies that are made while they are sent: exports and the live view.
//!
//! The producer sends parts through a bounded channel, and so runs no faster than its
//! client reads. Does not know what is sent.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use hyper::body::Frame;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Maximum number of parts that wait for the client.
const PARTS_WAITING_MAX: usize = 4;

/// Part of a body. An error ends the body, so that the client sees that it is
/// incomplete.
pub(super) type BodyPart = io::Result<Bytes>;

/// Body whose parts arrive through a channel.
#[derive(Debug)]
struct ChannelBody(mpsc::Receiver<BodyPart>);

/// Makes a body and the sender for its parts. The sender is closed once the client has
/// disconnected.
pub(super) fn channel_body() -> BodyChannel {
    let (parts, receiver) = mpsc::channel(PARTS_WAITING_MAX);
    BodyChannel {
        parts,
        body: Body::new(ChannelBody(receiver)),
    }
}

/// Body, and the sender for its parts.
pub(super) struct BodyChannel {
    /// Sender for the parts of the body. Dropping it ends the body.
    pub(super) parts: mpsc::Sender<BodyPart>,
    /// The body.
    pub(super) body: Body,
}

impl hyper::body::Body for ChannelBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let part = self.0.poll_recv(context);
        part.map(|part| part.map(|part| part.map(Frame::data)))
    }
}

/// Mark of a request that allows its response to take longer. `serve` adds one to each
/// request.
#[derive(Debug, Clone, Default)]
pub(super) struct LongAnswer(CancellationToken);

impl LongAnswer {
    /// Allows the response to take longer.
    pub(super) fn allow(&self) {
        self.0.cancel();
    }

    /// Waits for `usual`, and then for `long` if the response may take longer.
    pub(super) async fn expired(&self, usual: Duration, long: Duration) {
        tokio::time::sleep(usual).await;
        if self.0.is_cancelled() {
            tokio::time::sleep(long).await;
        }
    }
}
