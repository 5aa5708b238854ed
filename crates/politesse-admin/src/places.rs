//! Places for connections to the admin listener: a connection is served only while it has
//! one of a limited number of places.
//!
//! A connection is *silent* until a complete request has arrived. If all places are taken,
//! the oldest silent connection loses its place to a new connection, so that silent
//! connections or slow bodies cannot lock monitoring out.
//!
//! Does not know what is requested.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Maximum number of connections served at a time. A further one takes the place of the
/// oldest connection without a complete request. If all have sent one, the further
/// connection is closed unless another ends within a few milliseconds.
pub const CONNECTIONS_MAX: usize = 64;
/// Longest wait of a connection beyond [`CONNECTIONS_MAX`] for another to end, while
/// all of them have sent a request.
const PLACE_TIMEOUT: Duration = Duration::from_millis(10);

/// Places of all connections.
#[derive(Debug)]
pub(super) struct AdminPlaces {
    /// One permit for each free place.
    free: Arc<Semaphore>,
    /// Places of silent connections.
    silent: Mutex<SilentPlaces>,
}

/// Places of silent connections, in order of arrival.
#[derive(Debug, Default)]
struct SilentPlaces {
    /// Places by the number of the connection; the oldest connection has the lowest.
    by_number: BTreeMap<u64, SilentPlace>,
    /// Number of the latest connection.
    last_number: u64,
}

/// Place of a silent connection.
#[derive(Debug)]
struct SilentPlace {
    /// Permit, which passes to the connection that takes the place.
    permit: OwnedSemaphorePermit,
    /// Cancelled when another connection takes the place.
    displaced: CancellationToken,
}

/// Place of one connection, released when dropped.
#[derive(Debug)]
pub(super) struct AdminPlace {
    places: Arc<AdminPlaces>,
    /// Number of the connection.
    number: u64,
    /// Cancelled when another connection takes the place.
    pub(super) displaced: CancellationToken,
    /// Set once a complete request has arrived; until then `silent` holds the place.
    permit: Mutex<Option<OwnedSemaphorePermit>>,
}

impl AdminPlaces {
    /// Makes [`CONNECTIONS_MAX`] free places.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            free: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            silent: Mutex::default(),
        })
    }

    /// Takes a place; `None` if none is free and no connection is silent, not even after
    /// [`PLACE_TIMEOUT`].
    pub(super) async fn take(self: &Arc<Self>) -> Option<AdminPlace> {
        let permit = match self.take_now() {
            Some(permit) => permit,
            None => {
                let freed = Arc::clone(&self.free).acquire_owned();
                timeout(PLACE_TIMEOUT, freed).await.ok()?.ok()?
            }
        };
        let displaced = CancellationToken::new();
        let silent_place = SilentPlace {
            permit,
            displaced: displaced.clone(),
        };
        let mut silent = self.silent();
        silent.last_number += 1;
        let number = silent.last_number;
        silent.by_number.insert(number, silent_place);
        Some(AdminPlace {
            places: Arc::clone(self),
            number,
            displaced,
            permit: Mutex::default(),
        })
    }

    /// Takes a free place, or the place of the oldest silent connection.
    fn take_now(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() {
            return Some(permit);
        }
        let (_, oldest) = self.silent().by_number.pop_first()?;
        // Its permit goes to the new connection at once, before its own task has ended.
        oldest.displaced.cancel();
        Some(oldest.permit)
    }

    fn silent(&self) -> MutexGuard<'_, SilentPlaces> {
        self.silent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AdminPlace {
    /// Marks the connection as no longer silent, because a complete request has arrived:
    /// no other connection can take its place any more.
    fn keep(&self) {
        if let Some(silent) = self.places.silent().by_number.remove(&self.number) {
            let mut permit = self.permit.lock().unwrap_or_else(PoisonError::into_inner);
            *permit = Some(silent.permit);
        }
    }
}

impl Drop for AdminPlace {
    fn drop(&mut self) {
        drop(self.places.silent().by_number.remove(&self.number));
    }
}

/// Request body that keeps the place of its connection once it has arrived completely.
#[derive(Debug)]
pub(super) struct ArrivingBody<B> {
    body: B,
    place: Arc<AdminPlace>,
}

impl<B: Body> ArrivingBody<B> {
    /// Watches `body` arrive; an empty body is complete at once.
    pub(super) fn new(body: B, place: Arc<AdminPlace>) -> Self {
        if body.is_end_stream() {
            place.keep();
        }
        Self { body, place }
    }
}

impl<B: Body + Unpin> Body for ArrivingBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if matches!(frame, Poll::Ready(None)) || self.body.is_end_stream() {
            self.place.keep();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
