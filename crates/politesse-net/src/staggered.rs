//! Staggered attempts: each starts before the previous one has failed.
//!
//! RFC 8305, section 5. Does not know what is attempted.

use std::pin::Pin;
use std::time::Duration;

use tokio::time::timeout;

/// Attempts in progress, and the first success among them.
type FirstSuccess<'a, R, E> = Pin<Box<dyn Future<Output = Option<Result<R, E>>> + Send + 'a>>;

/// Attempts each of `items` in order: `apart` after the previous one, or as soon as that
/// has failed. The first success ends all other attempts. If all fail, the result is the
/// failure of the first item. `None` if there are no items.
// Boxed, because the future contains itself.
pub(super) fn first_success<'a, T, R, E, F>(
    items: &'a [T],
    apart: Duration,
    attempt: &'a (impl Fn(T) -> F + Sync),
) -> FirstSuccess<'a, R, E>
where
    T: Copy + Send + Sync,
    F: Future<Output = Result<R, E>> + Send,
    R: Send + 'a,
    E: Send + 'a,
{
    Box::pin(async move {
        let (&item, rest) = items.split_first()?;
        // Boxed, because it is polled along with the others.
        let mut first = Box::pin(attempt(item));
        if rest.is_empty() {
            return Some(first.await);
        }
        let mut rest = first_success(rest, apart, attempt);
        match timeout(apart, first.as_mut()).await {
            Ok(Ok(success)) => return Some(Ok(success)),
            Ok(Err(failure)) => return or(rest.await, failure),
            Err(_) => {}
        }
        tokio::select! {
            ended = first.as_mut() => match ended {
                Ok(success) => Some(Ok(success)),
                Err(failure) => or(rest.await, failure),
            },
            ended = rest.as_mut() => match ended {
                Some(Ok(success)) => Some(Ok(success)),
                Some(Err(_)) | None => Some(first.await),
            },
        }
    })
}

/// Returns the success of the other attempts, or else the failure of the first.
fn or<R, E>(rest: Option<Result<R, E>>, failure: E) -> Option<Result<R, E>> {
    let success = rest.and_then(Result::ok);
    Some(success.ok_or(failure))
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Mutex;

    use tokio::time::sleep;

    use super::*;
    use politesse_base::clock;

    const APART: Duration = Duration::from_millis(250);

    /// Makes attempts whose items are durations in milliseconds. An even one succeeds
    /// with its number and an odd one fails; 0 never ends. Also returns the start time of
    /// each attempt.
    async fn attempts(items: &[u64]) -> (Option<Result<u64, u64>>, Vec<u128>) {
        let (start, begun) = (clock::instant(), Mutex::new(Vec::new()));
        let attempt = |item: u64| {
            let since = clock::instant().duration_since(start);
            begun.lock().unwrap().push(since.as_millis());
            async move {
                match item {
                    0 => pending().await,
                    _ => sleep(Duration::from_millis(item)).await,
                }
                if item.is_multiple_of(2) {
                    Ok(item)
                } else {
                    Err(item)
                }
            }
        };
        let ended = first_success(items, APART, &attempt).await;
        (ended, begun.into_inner().unwrap())
    }

    // RFC 8305, section 5: an attempt starts when its delay is over or the previous one
    // has failed, and the first success ends all others.
    #[tokio::test(start_paused = true)]
    async fn the_next_attempt_begins_after_its_delay_or_a_failure() {
        for (items, ended, begun) in [
            (&[][..], None, &[][..]),
            (&[10], Some(Ok(10)), &[0]),
            (&[10, 20], Some(Ok(10)), &[0]),
            (&[11, 20], Some(Ok(20)), &[0, 11]),
            (&[0, 20], Some(Ok(20)), &[0, 250]),
            (&[0, 0, 0, 20], Some(Ok(20)), &[0, 250, 500, 750]),
            (&[400, 800], Some(Ok(400)), &[0, 250]),
            (&[400, 20], Some(Ok(20)), &[0, 250]),
            (&[401, 800], Some(Ok(800)), &[0, 250]),
            (&[401, 21, 31], Some(Err(401)), &[0, 250, 271]),
        ] {
            assert_eq!(attempts(items).await, (ended, begun.to_vec()), "{items:?}");
        }
    }
}
