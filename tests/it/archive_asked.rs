//! `audit --archive`: its answers about several nodes match the combined answers of
//! `audit` on each node's record. All ours; docs/archive.md.

use std::collections::BTreeMap;

use std::process::Stdio;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::ChildStdout;

use crate::kit::archive_fleet::{Fleet, NODES, lines, sorted};
use crate::kit::client::get_as;
use crate::kit::program::politesse;
use crate::kit::{assert_members, soon};

/// Filters that mean the same for a record and for the archive.
const FILTERS: [&[&str]; 27] = [
    &[],
    &["--host", "o.test"],
    &["--host", "O.Test."],
    &["--host", "nobody.test"],
    &["--verdict", "disallow"],
    &["--verdict", "allow", "--host", "p.test"],
    &["--reason", "rule"],
    &["--effect", "reported"],
    &["--crawler", "onebot"],
    &["--crawler", "*"],
    &["--rule", "Disallow: /no"],
    &["--rule", "disallow:/one", "--crawler", "OneBot"],
    &["--rule", "/no"],
    &["--url", "http://o.test/no/1"],
    &["--url", "http://o.test/*"],
    &["--url", "http://p.te*"],
    &["--search", "O.TEST/No"],
    &["--search", "%"],
    &["--status", "403"],
    &["--class", "refused_by_site"],
    &["--status", "2xx", "--method", "GET"],
    &["--method", "HEAD"],
    &["--client", "127.0.0.1", "--verdict", "allow"],
    &["--from", "1h", "--host", "o.test"],
    &["--preference", "noindex"],
    &["--preference", "train-ai=n", "--host", "o.test"],
    &["--from", "2020-01-01", "--until", "2020-01-02"],
];

/// Returns the rows that a command prints for each node's own record.
async fn rows_of_nodes(fleet: &Fleet, arguments: &[&str]) -> Vec<Value> {
    let mut rows = Vec::new();
    for node in 0..NODES.len() {
        rows.extend(lines(&fleet.of_node(node, arguments).await));
    }
    rows
}

/// Returns the rows that a command prints for each node's own record, with the node's
/// name added as the archive shows it.
async fn named_rows_of_nodes(fleet: &Fleet, arguments: &[&str]) -> Vec<Value> {
    let mut rows = Vec::new();
    for (node, name) in NODES.into_iter().enumerate() {
        for mut row in lines(&fleet.of_node(node, arguments).await) {
            row["node"] = json!(name);
            rows.push(row);
        }
    }
    rows
}

#[tokio::test]
async fn the_archive_lists_the_combined_rows_of_its_nodes_for_every_filter() {
    let fleet = Fleet::shipped().await;
    let mut counted = 0;
    for filter in FILTERS {
        let list = [&["list", "--json", "--limit", "0"][..], filter].concat();
        let mut own = named_rows_of_nodes(&fleet, &list).await;
        let rows = lines(&fleet.archive(&list).await);
        // Compare parsed times: the texts omit trailing zeros, and so sort differently.
        let times: Vec<Timestamp> = rows
            .iter()
            .map(|row| row["time"].as_str().unwrap().parse().unwrap())
            .collect();
        assert!(times.is_sorted_by(|one, next| one >= next), "{filter:?}");
        counted += rows.len();
        assert_eq!(sorted(rows), sorted(own.clone()), "{filter:?}");
        // Only one node.
        let south = [&list[..], &["--node", "south"]].concat();
        own.retain(|row| row["node"] == "south");
        assert_eq!(
            sorted(lines(&fleet.archive(&south).await)),
            sorted(own),
            "{filter:?}"
        );
        // An export lists the oldest first, and includes what each decision is based on.
        let export = [&["export", "--as", "jsonl"][..], filter].concat();
        let own = named_rows_of_nodes(&fleet, &export).await;
        let rows = lines(&fleet.archive(&export).await);
        assert_eq!(sorted(rows), sorted(own), "{filter:?}");
    }
    assert!(200 < counted, "{counted}");
}

/// Groups rows by the values of `keys`, and sums their other values.
fn summed(rows: impl IntoIterator<Item = Value>, keys: &[&str]) -> Vec<Value> {
    let mut sums: BTreeMap<String, Value> = BTreeMap::new();
    for row in rows {
        let values: Vec<_> = keys.iter().map(|key| row[*key].to_string()).collect();
        match sums.entry(values.join("\n")) {
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(row);
            }
            std::collections::btree_map::Entry::Occupied(mut entry) => {
                let known = entry.get_mut().as_object_mut().unwrap();
                for (name, value) in row.as_object().unwrap() {
                    if !keys.contains(&name.as_str()) {
                        let sum = known[name].as_u64().unwrap() + value.as_u64().unwrap();
                        known[name] = json!(sum);
                    }
                }
            }
        }
    }
    sorted(sums.into_values().collect())
}

#[tokio::test]
async fn statistics_of_the_archive_are_the_sums_of_its_nodes() {
    let fleet = Fleet::shipped().await;
    for keys in [
        "host",
        "crawler,rule",
        "reason,hour",
        "url",
        "url,host,crawler",
        "preference,purpose",
        "host,purpose",
        "",
    ] {
        for filter in [FILTERS[0], FILTERS[4], FILTERS[10], FILTERS[13]] {
            let mut stats = vec!["stats", "--json", "--limit", "0"];
            if !keys.is_empty() {
                stats.extend(["--by", keys]);
            }
            stats.extend(filter);
            let own = rows_of_nodes(&fleet, &stats).await;
            let names: Vec<_> = keys.split(',').filter(|key| !key.is_empty()).collect();
            let rows = lines(&fleet.archive(&stats).await);
            assert!(!rows.is_empty());
            assert_eq!(sorted(rows), summed(own, &names), "{keys} {filter:?}");
        }
    }
    // With `--by node`, each row has the sums of one node.
    let by_node = ["stats", "--by", "node", "--json"];
    for row in lines(&fleet.archive(&by_node).await) {
        let node = NODES.iter().position(|name| row["node"] == *name).unwrap();
        let own = lines(&fleet.of_node(node, &["stats", "--json"]).await);
        let mut wanted = own[0].clone();
        wanted["node"] = row["node"].clone();
        assert_eq!(row, wanted);
    }
    fleet.of_node(0, &by_node).await.assert_code(2);
    let top_rules = ["top", "rules", "--json"];
    let top = lines(&fleet.archive(&top_rules).await);
    let own = rows_of_nodes(&fleet, &top_rules).await;
    assert_eq!(sorted(top), summed(own, &["rule"]));
}

#[tokio::test]
async fn a_decision_in_the_archive_is_named_by_node_and_number() {
    let fleet = Fleet::shipped().await;
    let seq = fleet.places[1].number(2).to_string();
    let mut own = lines(&fleet.of_node(1, &["show", &seq, "--json"]).await).remove(0);
    let name = format!("south/{seq}");
    let mut shown = lines(&fleet.archive(&["show", &name, "--json"]).await).remove(0);
    assert_eq!(shown["node"], "south");
    // The archive counts other decisions at all nodes, the record only its own.
    assert!(
        own["others"].as_u64() < shown["others"].as_u64(),
        "{own} {shown}"
    );
    own["node"] = json!("south");
    own["others"] = Value::Null;
    shown["others"] = Value::Null;
    // Only the node's record can prove that the row is as it was written.
    own["as_written"] = Value::Null;
    assert_eq!(shown, own);
    assert_eq!(shown["decided_again"], "same");
    let by_option = fleet
        .archive(&["--node", "south", "show", &seq, "--json"])
        .await;
    assert_eq!(lines(&by_option)[0]["node"], "south");
    // Without a node, a number is ambiguous.
    let alone = fleet.archive(&["show", &seq]).await.assert_code(2);
    assert!(alone.stderr.contains(&name), "{alone:?}");
    let missing = fleet.archive(&["show", "south/999999"]).await;
    assert_eq!(missing.code, Some(1), "{missing:?}");
    let nobody = fleet.archive(&["show", "east/1"]).await.assert_code(2);
    assert!(nobody.stderr.contains("north, south, west"), "{nobody:?}");
    fleet.of_node(0, &["show", "south/1"]).await.assert_code(2);
    let story = fleet.archive(&["show", "http://o.test/no/1"]).await;
    assert_eq!(story.code, Some(0), "{story:?}");
    assert!(story.stdout.contains("of node west"), "{story:?}");
    // The answer shows the rule of the newest decision with the lines around it.
    let why = ["why", "http://o.test/no/1", "--json"];
    let answer = lines(&fleet.archive(&why).await).remove(0);
    assert_eq!(answer["node"], "west");
    assert_eq!(answer["lines"][1]["text"], "Disallow: /no");
    // For a URL that was not requested, the answer says so, and what to ask instead.
    let unasked = fleet
        .archive(&["why", "http://o.test/no/more", "--json"])
        .await;
    assert_eq!(unasked.code, Some(1), "{unasked:?}");
    let answer = unasked.json_lines().remove(0);
    assert_eq!(answer["asked"], false, "{answer}");
    let said = fleet.archive(&["why", "http://o.test/no/more"]).await;
    assert!(said.stdout.contains("only a node can look up"), "{said:?}");
}

#[tokio::test]
async fn tail_shows_decisions_of_all_nodes_as_they_arrive() {
    let mut fleet = Fleet::shipped().await;
    let tail = |arguments: &[&str]| {
        let mut command = politesse(fleet.places[0].folder());
        command.args(["audit", "--archive"]).args(arguments);
        command.args(["tail", "--verdict", "disallow", "--limit", "1", "--json"]);
        let mut tail = command
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let shown = BufReader::new(tail.stdout.take().unwrap()).lines();
        (tail, shown)
    };
    let (_all, mut all) = tail(&[]);
    let (_one, mut one) = tail(&["--node", "north"]);
    let next = async |shown: &mut Lines<BufReader<ChildStdout>>| -> Value {
        let line = soon("decision", shown.next_line()).await;
        serde_json::from_str(&line.unwrap().unwrap()).unwrap()
    };
    // Each first shows the newest earlier decision; once it does, it follows the archive.
    assert_eq!(next(&mut all).await["node"], "west");
    assert_eq!(next(&mut one).await["node"], "north");
    let south = fleet.places.remove(1).start().await;
    get_as(&south, "TwoBot", "http://o.test/yes").await;
    get_as(&south, "TwoBot", "http://o.test/no/from-south").await;
    let shown = next(&mut all).await;
    let expected = json!({"node": "south", "url": "http://o.test/no/from-south"});
    assert_members(&shown, &expected);
    let north = fleet.places.remove(0).start().await;
    get_as(&north, "TwoBot", "http://o.test/no/from-north").await;
    for shown in [&mut all, &mut one] {
        let shown = next(shown).await;
        assert_eq!(shown["url"], "http://o.test/no/from-north");
    }
}

#[tokio::test]
async fn a_query_the_archive_cannot_answer_gets_an_alternative() {
    let fleet = Fleet::shipped().await;
    for command in [
        &["speed"][..],
        &["replay"],
        &["robots", "o.test"],
        &["bundle", "-o", "x.jsonl.gz"],
        &["report", "-o", "x.html"],
    ] {
        let told = fleet.archive(command).await.assert_code(2);
        assert!(told.stderr.contains("use the record of a node"), "{told:?}");
    }
    for command in ["verify", "key", "head"] {
        let told = fleet.archive(&[command]).await.assert_code(2);
        assert!(told.stderr.contains("each node's record does"), "{told:?}");
    }
    let told = fleet.of_node(0, &["list", "--node", "south"]).await;
    assert_eq!(told.code, Some(2), "{told:?}");
    let away = [
        "audit",
        "--archive=postgres://127.0.0.1:1/x?sslmode=disable",
        "list",
    ];
    let told = fleet.places[0].run_code(1, &away).await;
    assert!(told.stderr.contains("cannot be reached"), "{told:?}");
}
