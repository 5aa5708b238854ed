//! `audit --archive`: its answers about several nodes match the combined answers of
//! `audit` on each node's record. All ours; docs/archive.md.

use std::collections::BTreeMap;
use std::process::Stdio;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::ChildStdout;

use crate::kit::archive_fleet::{Fleet, NODES, sorted};
use crate::kit::client::get_as;
use crate::kit::program::politesse;
use crate::kit::{assert_contains, assert_members, soon};

/// Filters that mean the same for a record and for the archive.
const FILTERS: [&str; 27] = [
    "",
    "--host o.test",
    "--host O.Test.",
    "--host nobody.test",
    "--verdict disallow",
    "--verdict allow --host p.test",
    "--reason rule",
    "--effect reported",
    "--crawler onebot",
    "--crawler *",
    "--rule 'Disallow: /no'",
    "--rule disallow:/one --crawler OneBot",
    "--rule /no",
    "--url http://o.test/no/1",
    "--url http://o.test/*",
    "--url http://p.te*",
    "--search O.TEST/No",
    "--search %",
    "--status 403",
    "--class refused_by_site",
    "--status 2xx --method GET",
    "--method HEAD",
    "--client 127.0.0.1 --verdict allow",
    "--from 1h --host o.test",
    "--preference noindex",
    "--preference train-ai=n --host o.test",
    "--from 2020-01-01 --until 2020-01-02",
];

/// A filter that selects some of the rows, of each of these kinds.
const SOME_FILTERS: [&str; 4] = [
    "",
    "--verdict disallow",
    "--rule 'Disallow: /no'",
    "--url http://o.test/no/1",
];

/// Returns the rows that a command prints for each node's own record, with the node's
/// name added as the archive shows it.
async fn named_rows_of_nodes(fleet: &Fleet, words: &str) -> Vec<Value> {
    let mut rows = Vec::new();
    for (node, name) in NODES.into_iter().enumerate() {
        for mut row in fleet.lines_of_node(node, words).await {
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
        let list = format!("list --json --limit 0 {filter}");
        let mut own = named_rows_of_nodes(&fleet, &list).await;
        let rows = fleet.archive_lines(&list).await;
        // Compare parsed times: the texts omit trailing zeros, and so sort differently.
        let times = rows.iter().map(|row| row["time"].as_str().unwrap().parse());
        let times: Vec<Timestamp> = times.collect::<Result<_, _>>().unwrap();
        assert!(times.is_sorted_by(|one, next| one >= next), "{filter:?}");
        counted += rows.len();
        assert_eq!(sorted(rows), sorted(own.clone()), "{filter:?}");
        // Only one node.
        let rows = fleet.archive_lines(&format!("{list} --node south")).await;
        own.retain(|row| row["node"] == "south");
        assert_eq!(sorted(rows), sorted(own), "{filter:?}");
        // An export lists the oldest first, and includes what each decision is based on.
        let export = format!("export --as jsonl {filter}");
        let own = named_rows_of_nodes(&fleet, &export).await;
        let rows = fleet.archive_lines(&export).await;
        assert_eq!(sorted(rows), sorted(own), "{filter:?}");
    }
    assert!(200 < counted, "{counted}");
}

/// Groups rows of all nodes by the values of `keys`, and sums their other values.
fn summed(rows: Vec<Value>, keys: &[&str]) -> Vec<Value> {
    let mut sums: BTreeMap<String, Value> = BTreeMap::new();
    for mut row in rows {
        row.as_object_mut().unwrap().remove("node");
        let values: Vec<_> = keys.iter().map(|key| row[*key].to_string()).collect();
        let place = values.join("\n");
        if let Some(sum) = sums.get(&place) {
            for (name, value) in row.as_object_mut().unwrap() {
                if !keys.contains(&name.as_str()) {
                    *value = json!(value.as_u64().unwrap() + sum[name].as_u64().unwrap());
                }
            }
        }
        sums.insert(place, row);
    }
    sorted(sums.into_values().collect())
}

#[tokio::test]
async fn statistics_of_the_archive_are_the_sums_of_its_nodes() {
    let fleet = Fleet::shipped().await;
    for by in [
        "--by host",
        "--by crawler,rule",
        "--by reason,hour",
        "--by url",
        "--by url,host,crawler",
        "--by preference,purpose",
        "--by host,purpose",
        "",
    ] {
        let keys: Vec<_> = by.split([' ', ',']).skip(1).collect();
        for filter in SOME_FILTERS {
            let stats = format!("stats --json --limit 0 {by} {filter}");
            let own = named_rows_of_nodes(&fleet, &stats).await;
            let rows = fleet.archive_lines(&stats).await;
            assert!(!rows.is_empty());
            assert_eq!(sorted(rows), summed(own, &keys), "{by} {filter}");
        }
    }
    // With `--by node`, each row has the sums of one node.
    for row in fleet.archive_lines("stats --by node --json").await {
        let node = NODES.iter().position(|name| row["node"] == *name).unwrap();
        let mut wanted = fleet.lines_of_node(node, "stats --json").await.remove(0);
        wanted["node"] = row["node"].clone();
        assert_eq!(row, wanted);
    }
    let place = &fleet.places[0];
    place.audit_code(2, "stats --by node --json").await;
    let top = fleet.archive_lines("top rules --json").await;
    let own = named_rows_of_nodes(&fleet, "top rules --json").await;
    assert_eq!(sorted(top), summed(own, &["rule"]));
}

#[tokio::test]
async fn a_decision_in_the_archive_is_named_by_node_and_number() {
    let fleet = Fleet::shipped().await;
    let seq = fleet.places[1].number(2).to_string();
    let show = format!("show {seq} --json");
    let mut own = fleet.lines_of_node(1, &show).await.remove(0);
    let shown = format!("show south/{seq} --json");
    let mut shown = fleet.archive_lines(&shown).await.remove(0);
    assert_eq!(shown["node"], "south");
    // The archive counts other decisions at all nodes, the record only its own.
    let others = [&own, &shown].map(|row| row["others"].as_u64());
    assert!(others[0] < others[1], "{own} {shown}");
    own["node"] = json!("south");
    own["others"] = Value::Null;
    shown["others"] = Value::Null;
    // Only the node's record can prove that the row is as it was written.
    own["as_written"] = Value::Null;
    assert_eq!(shown, own);
    assert_eq!(shown["decided_again"], "same");
    let by_option = fleet.archive_lines(&format!("--node south {show}")).await;
    assert_eq!(by_option[0]["node"], "south");
    // Without a node, a number is ambiguous.
    let alone = fleet.archive_code(2, &format!("show {seq}")).await;
    assert_contains(&alone.stderr, &format!("south/{seq}"));
    fleet.archive_code(1, "show south/999999").await;
    let nobody = fleet.archive_code(2, "show east/1").await;
    assert_contains(&nobody.stderr, "north, south, west");
    fleet.places[0].audit_code(2, "show south/1").await;
    let story = fleet.archive_code(0, "show http://o.test/no/1").await;
    assert_contains(&story.stdout, "of node west");
    // The answer shows the rule of the newest decision with the lines around it.
    let why = "why http://o.test/no/1 --json";
    let answer = fleet.archive_lines(why).await.remove(0);
    assert_eq!(answer["node"], "west");
    assert_eq!(answer["lines"][1]["text"], "Disallow: /no");
    // For a URL that was not requested, the answer says so, and what to ask instead.
    let why = "why http://o.test/no/more";
    let unasked = fleet.archive_code(1, &format!("{why} --json")).await;
    assert_eq!(unasked.json_lines()[0]["asked"], false, "{unasked:?}");
    let said = fleet.archive_code(1, why).await.stdout;
    assert_contains(&said, "only a node can look up");
}

#[tokio::test]
async fn tail_shows_decisions_of_all_nodes_as_they_arrive() {
    let mut fleet = Fleet::shipped().await;
    let tail = |node: &[&str]| {
        let mut command = politesse(fleet.places[0].folder());
        command.args(["audit", "--archive"]).args(node);
        command.args(["tail", "--verdict", "disallow", "--limit", "1", "--json"]);
        let mut tail = command.stdout(Stdio::piped()).spawn().unwrap();
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
    for (command, said) in [
        ("speed", "use the record of a node"),
        ("replay", "use the record of a node"),
        ("robots o.test", "use the record of a node"),
        ("bundle -o x.jsonl.gz", "use the record of a node"),
        ("report -o x.html", "use the record of a node"),
        ("verify", "each node's record does"),
        ("key", "each node's record does"),
        ("head", "each node's record does"),
    ] {
        let told = fleet.archive_code(2, command).await;
        assert!(told.stderr.contains(said), "{told:?}");
    }
    let place = &fleet.places[0];
    place.audit_code(2, "list --node south").await;
    let absent = "--archive=postgres://127.0.0.1:1/x?sslmode=disable list";
    let told = place.audit_code(1, absent).await;
    assert!(told.stderr.contains("cannot be reached"), "{told:?}");
}
