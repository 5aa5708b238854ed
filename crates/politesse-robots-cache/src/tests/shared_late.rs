//! One fetch per fleet, even with a late store, suspended nodes, and slow origins.
//!
//! All ours (docs/decisions/031-shared-robots.md). The turns of these nodes do not depend
//! on each other, as if the lease of the host was lost.

use super::kit::*;
use super::shared::{nobody, pair};
use super::shared_shelf::{TIMEOUT, TIMES, Trouble, wait_until};
use super::*;

fn elapsed_ms(began: tokio::time::Instant) -> u128 {
    clock::instant().duration_since(began).as_millis()
}

#[tokio::test(start_paused = true)]
async fn a_node_waits_for_the_node_that_fetches() {
    // Longer than a claim lasts without renewal.
    let first = Script::default().at(ROBOTS, [after(20 * SECOND, text(""))]);
    let (second, began) = (nobody(), clock::instant());
    let pair = pair([&first, &second]);
    let [one, other] = &pair.caches;
    let late = async {
        wait_until(began, 1).await;
        ask(other).await
    };
    let (fetched, taken) = tokio::join!(ask(one), late);
    assert_eq!(taken.fetched_at, fetched.fetched_at);
    // As soon as the answer is there, and without a turn or claim left over.
    assert!(elapsed_ms(began) <= 20_100, "{}", elapsed_ms(began));
    wait_until(began, 21).await;
    assert_eq!((second.turns_held(), pair.shelf.claims()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn two_nodes_that_start_together_make_one_request() {
    let reply = || after(SECOND, text(""));
    let scripts = [0, 1].map(|_| Script::default().at(ROBOTS, [reply()]));
    let pair = pair([&scripts[0], &scripts[1]]);
    let [one, other] = &pair.caches;
    let (fetched, taken) = tokio::join!(ask(one), ask(other));
    assert_eq!(taken.fetched_at, fetched.fetched_at);
    assert_eq!(scripts[0].asked().len() + scripts[1].asked().len(), 1);
}

// Ours: in the meantime the turn at the first host is free.
#[tokio::test(start_paused = true)]
async fn two_nodes_that_start_together_follow_a_redirect_once() {
    let away = "http://b.test/robots.txt";
    let scripts = [0, 1].map(|_| {
        let script = Script::default().at(ROBOTS, [to(away)]);
        script.at(away, [after(5 * SECOND, text(""))])
    });
    let pair = pair([&scripts[0], &scripts[1]]);
    let [one, other] = &pair.caches;
    let (fetched, taken) = tokio::join!(ask(one), ask(other));
    assert_eq!(taken.hops, fetched.hops);
    let asked = [&scripts[0].asked()[..], &scripts[1].asked()].concat();
    assert_eq!(asked, [ROBOTS, away]);
}

#[tokio::test(start_paused = true)]
async fn a_late_store_is_asked_again() {
    // The check before the turn, the claim, and the check with the claim.
    for calls in 1..4 {
        let first = Script::default().at(ROBOTS, [text("")]);
        let pair = pair([&first, &nobody()]);
        let [one, other] = &pair.caches;
        let fetched = ask(one).await;
        pair.links[1].has(Trouble::Unanswered(calls));
        assert_eq!(ask(other).await.fetched_at, fetched.fetched_at, "{calls}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_shared_with_a_late_store() {
    let first = Script::default().at(ROBOTS, [text("")]);
    let pair = pair([&first, &nobody()]);
    let [one, other] = &pair.caches;
    first.stalls(SECOND);
    let begin_trouble = async {
        tokio::time::sleep(SECOND / 2).await;
        pair.links[0].has(Trouble::Late);
        tokio::time::sleep(SECOND).await;
        pair.links[0].has(Trouble::None);
    };
    let late = async {
        // The answer has arrived, but is not in the store yet.
        tokio::time::sleep(SECOND + TIMEOUT).await;
        ask(other).await
    };
    let (fetched, taken, ()) = tokio::join!(ask(one), late, begin_trouble);
    assert_eq!(taken.fetched_at, fetched.fetched_at);
}

// Ours: a claim belongs to this node even if the answer to it is lost.
#[tokio::test(start_paused = true)]
async fn a_claim_is_made_again_if_its_answer_is_lost() {
    let first = Script::default().at(ROBOTS, [text("")]);
    let pair = pair([&first, &nobody()]);
    let began = clock::instant();
    // The check, then the claim.
    pair.links[0].has(Trouble::Unanswered(2));
    assert!(ask(&pair.caches[0]).await.file().is_some());
    assert!(elapsed_ms(began) <= 500, "{}", elapsed_ms(began));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_lost_its_claim_checks_the_store_before_it_fetches() {
    let (first, second) = (nobody(), Script::default().at(ROBOTS, [text("")]));
    let pair = pair([&first, &second]);
    let [one, other] = &pair.caches;
    let began = clock::instant();
    // The node is suspended with its claim, just before the request.
    first.stalls(TIMES.claim + 2 * SECOND);
    let standing = async {
        tokio::time::sleep(SECOND).await;
        pair.links[0].has(Trouble::Late);
        wait_until(began, 10).await;
        pair.links[0].has(Trouble::None);
    };
    let late = async {
        wait_until(began, 2).await;
        let fetched = ask(other).await;
        // Not before the claim has expired.
        assert!(8_000 <= elapsed_ms(began), "{}", elapsed_ms(began));
        fetched
    };
    let (taken, fetched, ()) = tokio::join!(ask(one), late, standing);
    assert_eq!(taken.fetched_at, fetched.fetched_at);
    assert_eq!(second.asked().len(), 1);
}

// Ours: the node continues alone; its claim existed only in the store.
#[tokio::test(start_paused = true)]
async fn a_node_that_loses_the_store_fetches_without_its_claim() {
    let (first, second) = (Script::default().at(ROBOTS, [text("")]), nobody());
    let pair = pair([&first, &second]);
    first.stalls(TIMES.claim + 2 * SECOND);
    let lost = async {
        tokio::time::sleep(SECOND).await;
        pair.links[0].has(Trouble::Lost);
    };
    let (taken, ()) = tokio::join!(ask(&pair.caches[0]), lost);
    assert!(taken.file().is_some(), "{taken:?}");
}

#[tokio::test(start_paused = true)]
async fn the_claim_of_a_killed_node_delays_others_until_it_expires() {
    let first = Script::default().at(ROBOTS, [Reply::Never]);
    let second = Script::default().at(ROBOTS, [text("")]);
    let pair = pair([&first, &second]);
    let [one, other] = &pair.caches;
    let began = clock::instant();
    assert!(timeout(SECOND, ask(one)).await.is_err());
    // Its renewals no longer arrive.
    pair.links[0].has(Trouble::Lost);
    assert!(ask(other).await.file().is_some());
    let took = elapsed_ms(began);
    assert!((8_000..=8_200).contains(&took), "{took}");
}

// Ours: another node may reach the origin, and need not wait.
#[tokio::test(start_paused = true)]
async fn a_failure_gives_the_claim_back() {
    let first = Script::default().at(ROBOTS, [after(SECOND, status(503))]);
    let second = Script::default().at(ROBOTS, [text("")]);
    let pair = pair([&first, &second]);
    let [one, other] = &pair.caches;
    let began = clock::instant();
    let (failed, fetched) = tokio::join!(ask(one), ask(other));
    assert!(cause(&failed).is_some() && fetched.file().is_some());
    assert!(elapsed_ms(began) <= 1_200, "{}", elapsed_ms(began));
}

#[tokio::test(start_paused = true)]
async fn a_node_without_a_store_fetches_at_once() {
    let script = Script::default().at(ROBOTS, [text("")]);
    let pair = pair([&script, &nobody()]);
    pair.links[0].has(Trouble::Lost);
    let began = clock::instant();
    assert!(ask(&pair.caches[0]).await.file().is_some());
    assert_eq!(elapsed_ms(began), 0);
}

// Ours: an unresponsive store must not stop the crawl.
#[tokio::test(start_paused = true)]
async fn a_node_continues_without_a_store_that_stays_late() {
    let script = Script::default().at(ROBOTS, [text("")]);
    let pair = pair([&script, &nobody()]);
    pair.links[0].has(Trouble::Late);
    let began = clock::instant();
    assert!(ask(&pair.caches[0]).await.file().is_some());
    // Two checks and a claim, each with its full patience.
    let most = 3 * (TIMES.patience + TIMEOUT + SECOND / 20);
    let took = elapsed_ms(began);
    assert!(took <= most.as_millis(), "{took}");
}

// Ours: requests that wait for another node wait as long as for a fetch.
#[tokio::test(start_paused = true)]
async fn the_wait_for_another_node_is_limited() {
    let first = Script::default().at(ROBOTS, [after(29 * SECOND, to("http://b.test/robots.txt"))]);
    let first = first.at("http://b.test/robots.txt", [Reply::Never]);
    let second = nobody();
    let pair = pair([&first, &second]);
    let [one, other] = &pair.caches;
    // The time of the first node counts from its turn at each host.
    first.paced(10 * SECOND, 10 * SECOND);
    let began = clock::instant();
    let asking = ask(one);
    let late = async {
        wait_until(began, 11).await;
        let waiting = ask(other).await;
        (waiting, elapsed_ms(began))
    };
    let (_, (busy, took)) = tokio::join!(asking, late);
    assert_eq!(cause(&busy), Some(Cause::Busy));
    assert!((41_000..42_000).contains(&took), "{took}");
}
