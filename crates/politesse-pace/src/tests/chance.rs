//! Random sequences of events, from fixed seeds.

use std::num::NonZeroU32;
use std::time::Duration;

use super::kit::*;
use crate::options::Options;
use crate::policy::{PaceLimits, Profile};
use tokio::time::sleep;

/// Knuth's generator, so that a failure can be reproduced.
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn of(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        let (factor, more) = (6_364_136_223_846_793_005, 1_442_695_040_888_963_407);
        self.0 = self.0.wrapping_mul(factor).wrapping_add(more);
        (self.0 >> 33) % end
    }
}

// Ours: whatever the arrivals and cancellations, under ceilings over several hosts every
// request starts in the end, and none too early.
#[tokio::test(start_paused = true)]
async fn every_request_under_ceilings_starts_and_none_too_early() {
    const HOSTS: [&str; 4] = [
        "a.one.example",
        "b.one.example",
        "two.example",
        "three.example",
    ];
    for seed in 0..40 {
        let mut chance = Chance::of(seed);
        let origin = Origin::new(Options {
            crawler: ceilings(2, "20/s"),
            domain: ceilings(3, "10/s"),
            total: ceilings(4, "15/s"),
            ..profile(Profile::Standard)
        });
        let mut requests = Vec::new();
        for _ in 0..120 {
            let mut below = |end| usize::try_from(chance.below(end)).unwrap();
            match below(10) {
                0..7 => {
                    let crawler = ["x", "y", "z"][below(3)];
                    let asked = asked(2).filter(|_| below(4) == 0);
                    let get = Get {
                        host: HOSTS[below(4)],
                        ..Get::by(crawler, asked.as_ref())
                    };
                    let takes = Duration::from_millis(50 * below(6) as u64);
                    requests.push(origin.get(get.taking(takes)).await);
                }
                7 if !requests.is_empty() => {
                    let index = below(requests.len() as u64);
                    requests.remove(index).abort();
                }
                8 => {
                    let scheduler = std::sync::Arc::clone(&origin.scheduler);
                    let client = origin.client(0);
                    let name = host(HOSTS[below(4)]);
                    let robots = async move {
                        let turn = scheduler.robots_turn(&name, &client).await;
                        turn.unwrap().record_status(200, None);
                        Ok(())
                    };
                    requests.push(tokio::spawn(robots));
                }
                _ => sleep(Duration::from_millis(30 * below(10) as u64)).await,
            }
        }
        for request in requests {
            assert!(request.await.unwrap().is_ok(), "{seed}");
        }
        let times = origin.times();
        let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(gaps.clone().all(|gap| 65 <= gap), "{seed}: {times:?}");
        assert!(
            origin
                .scheduler
                .snapshot()
                .iter()
                .all(|host| host.in_flight + host.queued == 0)
        );
        assert_eq!(origin.scheduler.context.metrics.pace_queued.get(), 0);
    }
}

pub(super) fn ceilings(in_flight: u32, rate: &str) -> PaceLimits {
    PaceLimits {
        in_flight: NonZeroU32::new(in_flight),
        rate: rate.parse().ok(),
    }
}

// Ours: no start at a host comes sooner after the previous one than its delay, whatever
// the arrivals, cancellations and changes.
#[tokio::test(start_paused = true)]
async fn no_request_starts_sooner_after_another_than_its_delay() {
    const DELAYS: [u64; 4] = [0, 1, 3, 10];
    let mut starts = 0;
    for seed in 0..40 {
        let mut chance = Chance::of(seed);
        let origin = Origin::new(profile(Profile::Owned));
        let mut requests = Vec::new();
        for _ in 0..80 {
            match chance.below(10) {
                0..5 => {
                    let delay = DELAYS[usize::try_from(chance.below(4)).unwrap()];
                    let asked = asked(delay).filter(|_| 0 < delay);
                    let get = Get::by(&delay.to_string(), asked.as_ref());
                    let get = get.taking(seconds(chance.below(4)));
                    requests.push(origin.get(get.within(seconds(chance.below(90)))).await);
                }
                5 if !requests.is_empty() => {
                    let index = chance.below(requests.len().try_into().unwrap());
                    requests.remove(index.try_into().unwrap()).abort();
                }
                6 => {
                    // Given back unused.
                    let get = Get::by("unused", None).within(seconds(0));
                    drop(origin.turn(get).await);
                }
                7 => {
                    let profiles = [Profile::Owned, Profile::Standard, Profile::Archive];
                    let index = usize::try_from(chance.below(3)).unwrap();
                    origin.scheduler.set_options(profile(profiles[index]));
                }
                _ => sleep(seconds(chance.below(5))).await,
            }
        }
        sleep(seconds(2_000)).await;
        let (times, order) = (origin.times(), origin.order());
        starts += times.len();
        let delays: Vec<u128> = order.iter().map(|delay| delay.parse().unwrap()).collect();
        for (index, (time, delay)) in std::iter::zip(&times, &delays).enumerate() {
            // Of two starts at the same time, the second needs no delay. The log may list
            // them in either order.
            let before = times[..index].iter().rfind(|before| *before < time);
            let gap = before.map_or(u128::MAX, |before| time - before);
            assert!(1000 * delay <= gap, "{seed}: {times:?}, {delays:?}");
            let same = (0..times.len()).filter(|other| times[*other] == *time);
            let delayed = same.filter(|other| 0 < delays[*other]);
            assert!(delayed.count() <= 1, "{seed}: {times:?}, {delays:?}");
        }
        let host = &origin.scheduler.snapshot()[0];
        assert_eq!((host.in_flight, host.queued), (0, 0), "{seed}");
        assert_eq!(origin.scheduler.context.metrics.pace_queued.get(), 0);
    }
    assert!(400 < starts, "{starts}");
}
