//! `politesse demo`: the commands that it prints work when pasted into a shell, and it
//! leaves no files. Every test here is ours.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use tempfile::TempDir;

use crate::kit::demo::{Demo, shell};
use crate::kit::program::{finish, politesse};
use crate::kit::{assert_contains, assert_contains_each, until};

async fn run_line(folder: &Path, line: &str) -> String {
    finish(shell(folder, line), b"").await.stdout
}

#[tokio::test]
async fn every_line_that_the_demo_prints_works_when_pasted() {
    let mut demo = Demo::start(&[]).await;
    let folder = demo.parent.path().to_owned();
    assert_eq!(demo.lines.len(), 7, "{:?}", demo.lines);
    let wanted = [
        "Line 3 of http://shop.test/robots.txt",
        "robots-directives: curl=(max-snippet;value=50;src=m noarchive;src=m);state=complete",
        "Line 7 of http://shop.test/robots.txt",
        "HungryBot",
        "Disallow: /basket",
        "0 mismatches, 0 missing",
        "/login?once=",
    ];
    for (line, wanted) in demo.lines.iter().zip(wanted) {
        let told = run_line(&folder, line).await;
        assert!(told.contains(wanted), "{line}: {told}");
    }
    // The demo prints each decision as it is made, one line each.
    for decided in [
        "http://shop.test/basket  (line 3: Disallow: /basket)",
        "https://shop.test/lamp",
        "http://shop.test/lamp  (line 7: Disallow: /)",
    ] {
        demo.line_with(decided).await;
    }
    let (code, folder) = demo.interrupt().await;
    assert_eq!(code, Some(0));
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn the_demo_falls_back_to_free_ports_where_a_command_joins_it() {
    // The demo of another test may hold the ports for a while.
    let port = async |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok();
    let _taken = (
        until("port 3128", async || port(3128).await).await,
        until("port 3129", async || port(3129).await).await,
    );
    let demo = Demo::start(&[]).await;
    assert!(!demo.lines[0].contains(":3128"), "{:?}", demo.lines);
    let told = run_line(demo.parent.path(), &demo.lines[0]).await;
    assert_contains(&told, "Line 3 of");
    let list = demo.lines.iter().find(|line| line.ends_with("audit list"));
    let run = "run -- curl -s --max-time 20 http://shop.test/basket 2>&1";
    let joining = list.unwrap().replace("audit list", run);
    let told = run_line(demo.parent.path(), &joining).await;
    assert_contains_each(&told, &["Line 3 of", "1 asked, 0 allowed, 1 refused"]);
    assert_eq!(demo.interrupt().await.0, Some(0));
}

#[tokio::test]
async fn the_demo_rejects_a_configuration_file() {
    let folder = TempDir::new().unwrap();
    let mut command = politesse(folder.path());
    command.args(["--config", "absent.toml", "demo"]);
    let outcome = finish(command, b"").await;
    outcome.assert_output(2, "");
    assert_contains(&outcome.stderr, "--config");
}
