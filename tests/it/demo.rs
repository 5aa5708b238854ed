//! `politesse demo`: the lines that it prints work when pasted, and nothing of
//! it is left. All of it is ours.

use std::net::{Ipv4Addr, TcpListener};
use std::process::Stdio;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::kit::program::{finish, politesse};
use crate::kit::{run, soon};

/// The last line before the events.
const LAST: &str = "What the shop is asked for";

/// The demo, until it has printed its lines; those that are to be pasted.
async fn started(folder: &TempDir) -> (Child, Vec<String>) {
    let mut command = politesse(folder.path());
    command
        .arg("demo")
        .env("TMPDIR", folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut commands = Vec::new();
    while let Some(line) = soon("a line of the demo", lines.next_line()).await.unwrap() {
        if line.starts_with(LAST) {
            break;
        }
        if line.starts_with("  ") && !line.starts_with("  #") && !line.starts_with("    ") {
            commands.push(line.trim().to_owned());
        }
    }
    (child, commands)
}

async fn pasted(folder: &TempDir, line: &str) -> String {
    let mut shell = Command::new("sh");
    shell
        .args(["-c", line])
        .current_dir(folder.path())
        .env_remove("no_proxy")
        .env_remove("NO_PROXY");
    finish(shell, b"").await.stdout
}

async fn interrupt(mut child: Child) -> Option<i32> {
    let pid = child.id().unwrap().to_string();
    let mut kill = Command::new("kill");
    assert!(kill.args(["-INT", &pid]).status().await.unwrap().success());
    soon("end of the demo", child.wait()).await.unwrap().code()
}

#[test]
fn every_line_that_the_demo_prints_works_when_pasted() {
    run(async {
        let folder = TempDir::new().unwrap();
        let (child, lines) = started(&folder).await;
        assert_eq!(lines.len(), 6, "{lines:?}");
        let wanted = [
            "Line 3 of http://shop.test/robots.txt",
            "robots-directives: curl=(max-snippet;value=50;src=m noarchive;src=m);state=complete",
            "Line 7 of http://shop.test/robots.txt",
            "HungryBot",
            "Disallow: /basket",
            "0 mismatches, 0 missing",
        ];
        for (line, wanted) in lines.iter().zip(wanted) {
            let told = pasted(&folder, line).await;
            assert!(told.contains(wanted), "{line}: {told}");
        }
        assert_eq!(interrupt(child).await, Some(0));
        let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    });
}

#[test]
fn the_demo_takes_other_ports_where_the_usual_ones_are_taken() {
    run(async {
        // Taken by us, or by somebody else already.
        let _taken = [3128, 3129].map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)));
        let folder = TempDir::new().unwrap();
        let (child, lines) = started(&folder).await;
        assert!(!lines[0].contains(":3128"), "{lines:?}");
        let told = pasted(&folder, &lines[0]).await;
        assert!(told.contains("Line 3 of"), "{told}");
        assert_eq!(interrupt(child).await, Some(0));
    });
}

#[test]
fn a_command_joins_the_demo_whatever_ports_it_has() {
    run(async {
        let _taken = [3128, 3129].map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)));
        let folder = TempDir::new().unwrap();
        let (child, lines) = started(&folder).await;
        let list = lines.iter().find(|line| line.ends_with("audit list"));
        let joining = list.unwrap().replace(
            "audit list",
            "run -- curl -s --max-time 20 http://shop.test/basket 2>&1",
        );
        let told = pasted(&folder, &joining).await;
        assert!(told.contains("Line 3 of"), "{told}");
        assert!(told.contains("1 asked, 0 allowed, 1 refused"), "{told}");
        assert_eq!(interrupt(child).await, Some(0));
    });
}

#[test]
fn the_demo_takes_no_configuration() {
    run(async {
        let folder = TempDir::new().unwrap();
        let mut command = politesse(folder.path());
        command.args(["--config", "absent.toml", "demo"]);
        let outcome = finish(command, b"").await;
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(2), ""));
        assert!(outcome.stderr.contains("--config"), "{outcome:?}");
    });
}
