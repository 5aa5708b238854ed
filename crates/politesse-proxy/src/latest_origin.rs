//! Origin of the latest request of a connection.
//!
//! Most requests of a connection are for the origin of the one before. Reading a
//! name (A-labels, addresses in all their spellings) takes many times as long as
//! comparing its text. Does not know what a request may ask for.

use std::sync::{Mutex, PoisonError};

use politesse_robots::origin::{InvalidTarget, Origin, Scheme};

/// Origin that was read last on one connection, with the text that it was read from.
#[derive(Debug, Default)]
pub struct LatestOrigin(Mutex<Option<WrittenOrigin>>);

#[derive(Debug)]
struct WrittenOrigin {
    authority: Box<str>,
    origin: Origin,
}

impl LatestOrigin {
    /// Returns the origin of `scheme` at `authority`, as [`Origin::new`] does.
    ///
    /// # Errors
    ///
    /// Those of [`Origin::new`].
    pub fn read(&self, scheme: Scheme, authority: &str) -> Result<Origin, InvalidTarget> {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let same = latest
            .as_ref()
            .filter(|latest| latest.origin.scheme() == scheme && *latest.authority == *authority);
        if let Some(same) = same {
            return Ok(same.origin.clone());
        }
        let origin = Origin::new(scheme, authority)?;
        *latest = Some(WrittenOrigin {
            authority: authority.into(),
            origin: origin.clone(),
        });
        Ok(origin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours.
    #[test]
    fn an_origin_is_the_one_that_would_be_read_anew() {
        let latest = LatestOrigin::default();
        let authorities = [
            (Scheme::Http, "a.test"),
            (Scheme::Https, "a.test"),
            (Scheme::Https, "a.test:443"),
            (Scheme::Https, "a.test:8443"),
            (Scheme::Https, "A.test"),
            (Scheme::Https, "x@a.test"),
            (Scheme::Https, "a.test:443"),
        ];
        for (scheme, authority) in authorities {
            for _ in 0..2 {
                let expected = Origin::new(scheme, authority);
                assert_eq!(latest.read(scheme, authority), expected, "{authority}");
            }
        }
    }
}
