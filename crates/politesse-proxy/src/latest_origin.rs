//! Cache of the origin of the latest request on a connection.
//!
//! Most requests on a connection are for the same origin as the previous one. Parsing a
//! name (A-labels, the many spellings of addresses) takes far longer than comparing its
//! text. Does not know which origins a request may name.

use std::sync::{Mutex, PoisonError};

use politesse_robots::origin::{InvalidTarget, Origin, Scheme};

/// The most recently parsed origin of a connection, with its source text.
#[derive(Debug, Default)]
pub struct LatestOrigin(Mutex<Option<WrittenOrigin>>);

/// Origin, and the text that it was parsed from.
#[derive(Debug)]
struct WrittenOrigin {
    /// Authority as the client wrote it.
    authority: Box<str>,
    origin: Origin,
}

impl LatestOrigin {
    /// Returns the origin of `scheme` at `authority`, like [`Origin::new`].
    ///
    /// # Errors
    ///
    /// The errors of [`Origin::new`].
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
    fn a_cached_origin_equals_a_newly_parsed_one() {
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
