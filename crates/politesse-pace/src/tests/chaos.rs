//! Everything that can happen to a waiting request, combined at random from fixed seeds.

use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::chance::{Chance, ceilings};
use super::kit::*;
use crate::options::{Options, QueueLimits};
use crate::policy::{PaceLimits, Profile};
use crate::{Destination, Embedding, RobotsFetch, Scheduler, TurnOwner, TurnRequest, UrlNumber};
use politesse_base::clients::directory::ClientDirectory;

const HOSTS: [&str; 6] = [
    "a.one.example",
    "b.one.example",
    "c.one.example",
    "two.example",
    "three.example",
    "four.example",
];

impl Chance {
    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        let end = all.len().try_into().unwrap();
        all[usize::try_from(self.below(end)).unwrap()]
    }

    fn ceilings(&mut self) -> PaceLimits {
        let rate = self.one_of(&["", "3/s", "10/s", "20/s"]);
        ceilings(self.one_of(&[0, 1, 2, 5]), rate)
    }

    fn options(&mut self) -> Options {
        let count = |count| NonZeroUsize::new(count).unwrap();
        let profiles = [Profile::Owned, Profile::Standard, Profile::Archive];
        Options {
            crawler: self.ceilings(),
            domain: self.ceilings(),
            address: self.ceilings(),
            total: self.ceilings(),
            max_turn: seconds(2 + self.below(4)),
            queue: QueueLimits {
                origin: count(6),
                crawler: count(20),
                total: count(40),
            },
            ..profile(self.one_of(&profiles))
        }
    }

    fn page(&mut self, scheduler: &Arc<Scheduler>, clients: &ClientDirectory) -> JoinHandle<()> {
        let name = host(self.one_of(&HOSTS));
        let crawler = self.one_of(&["x", "y", "z", "w"]);
        let asked = asked(1 + self.below(3)).filter(|_| self.below(5) == 0);
        let half = Duration::from_millis(self.one_of(&[0, 25, 150, 500, 4000]));
        let longest = seconds(self.one_of(&[0, 1, 5, 60, 3600]));
        let status = if self.below(25) == 0 { 429 } else { 200 };
        let is_given_back = self.below(10) == 0;
        let address = [None, Some(IpAddr::from([127, 0, 0, 1]))];
        let address = self.one_of(&address);
        let scheduler = Arc::clone(scheduler);
        let page = Embedding {
            url: UrlNumber::of(&"http://one.example/".parse().unwrap()),
            referrer: None,
            destination: Destination::Page,
        };
        let file = Embedding {
            destination: Destination::File,
            ..page
        };
        let embedding = self.one_of(&[None, Some(page), Some(file), Some(file)]);
        let client = self.one_of(&[1, 2, 3]);
        let owner = TurnOwner {
            client: clients.at(IpAddr::V4(Ipv4Addr::from_bits(client))),
            crawler: Some(crawler.into()),
        };
        tokio::spawn(async move {
            let mut request = TurnRequest {
                host: &name,
                owner: &owner,
                address,
                pace_records: asked,
                max_wait: longest,
                robots_fetched_at: None,
                robots_fetch: RobotsFetch::NotNeeded,
                arrival: None,
                embedding,
            };
            let Ok(mut turn) = scheduler.turn(request.clone()).await else {
                return;
            };
            if is_given_back {
                request.arrival = turn.arrival();
                drop(turn);
                let Ok(again) = scheduler.turn(request).await else {
                    return;
                };
                turn = again;
            }
            turn.mark_sent();
            sleep(half).await;
            turn.record_status(status, Some(seconds(2)));
            if let Some(embedding) = embedding {
                turn.give_page(&owner, &embedding);
            }
            sleep(half).await;
        })
    }

    fn robots(&mut self, scheduler: &Arc<Scheduler>, clients: &ClientDirectory) -> JoinHandle<()> {
        let client = self.one_of(&[1, 2, 3]);
        let client = clients.at(IpAddr::V4(Ipv4Addr::from_bits(client)));
        let name = host(self.one_of(&HOSTS));
        let takes = Duration::from_millis(self.below(3000));
        let scheduler = Arc::clone(scheduler);
        tokio::spawn(async move {
            if let Some(turn) = scheduler.robots_turn(&name, &client).await {
                turn.mark_sent();
                sleep(takes).await;
                turn.record_status(200, None);
            }
        })
    }
}

// Ours: no wake-up storm, and cancellation gives the turn back. No request waits for
// ever, no driver spins, and no state is left over.
#[tokio::test(start_paused = true)]
async fn random_events_leave_no_state_behind() {
    for seed in 0..250 {
        let mut chance = Chance::of(seed);
        let scheduler = Arc::new(scheduler(chance.options()));
        let clients = ClientDirectory::default();
        let mut requests = Vec::new();
        for _ in 0..200 {
            match chance.below(16) {
                0..9 => requests.push(chance.page(&scheduler, &clients)),
                9..11 if !requests.is_empty() => {
                    let index = chance.below(requests.len().try_into().unwrap());
                    requests[usize::try_from(index).unwrap()].abort();
                }
                11 => requests.push(chance.robots(&scheduler, &clients)),
                12 => scheduler.set_options(chance.options()),
                13 if chance.below(10) == 0 => scheduler.sweep(),
                _ => sleep(Duration::from_millis(chance.below(800))).await,
            }
            if chance.below(2) == 0 {
                settle().await;
            }
        }
        if seed % 7 == 0 {
            scheduler.close();
        }
        for request in requests {
            let ended = timeout(seconds(4000), request).await;
            assert!(ended.is_ok(), "{seed}: {:#?}", scheduler.snapshot());
        }
        settle().await;
        nothing_is_left(&scheduler, seed);
    }
}

fn nothing_is_left(scheduler: &Scheduler, seed: u64) {
    let metrics = &scheduler.context.metrics;
    let counted = (metrics.pace_queued.get(), metrics.pace_in_flight.get());
    assert_eq!(counted, (0, 0), "{seed}");
    let woken = metrics.pace_wakeups.get();
    assert!(woken < 2_000, "{seed}: {woken}");
    let hosts = scheduler.snapshot();
    let busy = hosts.iter().filter(|host| 0 < host.in_flight + host.queued);
    assert_eq!(busy.count(), 0, "{seed}");
    let active = scheduler.context.active.load();
    assert_eq!(active.ceilings.len(true), 0, "{seed}");
}
