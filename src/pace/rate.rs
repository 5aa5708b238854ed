//! The rates that operators write: so many requests a second, minute or hour.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

/// How many requests there may be in how long: `5/s`, `20/m`, `3/h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// At least 1.
    pub requests: u32,
    /// Longer than nothing.
    pub per: Duration,
}

/// The units a rate is written in.
const UNITS: [(&str, Duration); 3] = [
    ("s", Duration::from_secs(1)),
    ("m", Duration::from_secs(60)),
    ("h", Duration::from_secs(60 * 60)),
];

/// The text is no rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "not a rate such as 5/s, 20/m or 3/h, from 1 to {}",
    Rate::REQUESTS_MAX
)]
pub struct InvalidRate;

impl Rate {
    /// More than any proxy sends in a second.
    pub const REQUESTS_MAX: u32 = 1_000_000;

    /// The pause between two requests that keeps to it.
    #[must_use]
    pub fn pause(&self) -> Duration {
        self.per / self.requests.max(1)
    }
}

impl FromStr for Rate {
    type Err = InvalidRate;

    fn from_str(text: &str) -> Result<Self, InvalidRate> {
        let (requests, unit) = text.split_once('/').ok_or(InvalidRate)?;
        let (_, per) = UNITS
            .into_iter()
            .find(|(name, _)| *name == unit)
            .ok_or(InvalidRate)?;
        // `u32::from_str` takes a sign, which a rate has not.
        if !requests.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(InvalidRate);
        }
        match requests.parse() {
            Ok(requests @ 1..=Self::REQUESTS_MAX) => Ok(Self { requests, per }),
            _ => Err(InvalidRate),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match UNITS.iter().find(|(_, per)| *per == self.per) {
            Some((unit, _)) => write!(f, "{}/{unit}", self.requests),
            None => write!(f, "{}/{:?}", self.requests, self.per),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Contract, section 2: rates are written `5/s`.
    #[test]
    fn rates_have_a_number_and_a_unit() {
        for (text, requests, seconds) in [
            ("5/s", 5, 1),
            ("20/m", 20, 60),
            ("1000000/h", 1_000_000, 3600),
        ] {
            let rate: Rate = text.parse().unwrap();
            assert_eq!((rate.requests, rate.per.as_secs()), (requests, seconds));
            assert_eq!(rate.to_string(), text);
        }
        for text in [
            "",
            "5",
            "/s",
            "5/",
            "0/s",
            "-1/s",
            "+1/s",
            "1.5/s",
            "5/d",
            "5/S",
            "5 /s",
            "1000001/s",
            "nan/s",
        ] {
            assert_eq!(text.parse::<Rate>(), Err(InvalidRate), "{text}");
        }
    }

    // Ours.
    #[test]
    fn pause_is_the_time_for_one_request() {
        let rate: Rate = "20/m".parse().unwrap();
        assert_eq!(rate.pause(), Duration::from_secs(3));
    }
}
