//! A machine with one processor: a single thread runs all tasks, so a task that blocks
//! would stop all others.

use tokio::process::Command;

use crate::kit::client::Crawler;
use crate::kit::origin::{Origin, Script};
use crate::kit::page::{Gate, Page};
use crate::kit::program::{finish, isolated};
use crate::kit::proxy::{Place, Proxy, resolve};

/// Returns a command that runs politesse on one processor with these arguments.
fn confined(place: &Place, arguments: &[&str]) -> Command {
    let mut command = isolated("taskset", place.folder());
    command.args(["-c", "0", env!("CARGO_BIN_EXE_politesse")]);
    command.args(arguments);
    command
}

async fn origin(gate: &Gate) -> Origin {
    Script::robots("User-agent: *\nDisallow: /private\n")
        .page("/slow", Page::text("slow").after(gate))
        .page("/page", Page::text("page"))
        .start()
        .await
}

// Ours: a request that waits for its origin does not stop others.
#[tokio::test]
async fn a_proxy_on_one_processor_serves_refuses_and_finishes() {
    let gate = Gate::shut();
    let origin = origin(&gate).await;
    let place = Place::with(&resolve("o.test", origin.address()));
    let command = confined(&place, &["serve"]);
    let mut proxy = Proxy::start(place, command).await;
    let mut slow = Crawler::plain(&proxy).await;
    slow.start_get("http://o.test/slow", "o.test").await;
    origin.arrival("/slow").await;
    let mut crawler = Crawler::plain(&proxy).await;
    for (path, status) in [("/page", 200), ("/private", 403), ("/page", 200)] {
        let url = format!("http://o.test{path}");
        let reply = crawler.get(&url, "o.test").await;
        assert_eq!(reply.status(), status, "{path}");
    }
    proxy.signal("TERM").await;
    gate.open(1);
    assert_eq!(slow.reply_to("GET").await.text(), "slow");
    assert_eq!(proxy.ended().await.code(), Some(0), "{}", proxy.log());
}

// Ours: `run` waits for its command while its proxy serves that command.
#[tokio::test]
async fn a_command_on_one_processor_runs_through_its_own_proxy() {
    let origin = origin(&Gate::shut()).await;
    let place = Place::with(&resolve("o.test", origin.address()));
    let run = ["run", "--", "curl", "-sS", "http://o.test/page"];
    let outcome = finish(confined(&place, &run), b"").await;
    outcome.assert_output(0, "page");
}
