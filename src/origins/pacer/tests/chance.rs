//! Whatever happens, by a fixed seed.

use super::kit::*;
use crate::rules::pace::terms::Profile;
use tokio::time::sleep;

/// Knuth's generator, so that a failure can be had again.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        let (factor, more) = (6_364_136_223_846_793_005, 1_442_695_040_888_963_407);
        self.0 = self.0.wrapping_mul(factor).wrapping_add(more);
        (self.0 >> 33) % end
    }
}

// The issue, "must hold": no two starts at a host closer than its delay,
// whatever arrivals, cancellations and changes.
#[tokio::test(start_paused = true)]
async fn no_two_starts_are_closer_than_the_delay_that_either_asks_for() {
    const DELAYS: [u64; 4] = [0, 1, 3, 10];
    let mut starts = 0;
    for seed in 0..40 {
        let mut chance = Chance(seed);
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
                    // Given back.
                    let get = Get::by("unused", None).within(seconds(0));
                    drop(origin.turn(get).await);
                }
                7 => {
                    let profiles = [Profile::Owned, Profile::Standard, Profile::Archive];
                    let index = usize::try_from(chance.below(3)).unwrap();
                    origin.pacer.adopt(profile(profiles[index]));
                }
                _ => sleep(seconds(chance.below(5))).await,
            }
        }
        sleep(seconds(2_000)).await;
        let (times, order) = (origin.times(), origin.order());
        starts += times.len();
        let delays: Vec<u128> = order.iter().map(|delay| delay.parse().unwrap()).collect();
        for (times, delays) in std::iter::zip(times.windows(2), delays.windows(2)) {
            let apart = 1000 * delays[0].max(delays[1]);
            assert!(
                apart <= times[1] - times[0],
                "{seed}: {times:?}, {delays:?}"
            );
        }
        let host = &origin.pacer.snapshot()[0];
        assert_eq!((host.in_flight, host.queued), (0, 0), "{seed}");
        assert_eq!(origin.pacer.desk.metrics.pace_queued.get(), 0);
    }
    assert!(400 < starts, "{starts}");
}
