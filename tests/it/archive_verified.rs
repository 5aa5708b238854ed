//! The archive verified: each node's record there is held to the checks of a record, and
//! then the heads over all of them. All ours; docs/archive.md.

use crate::kit::archive_fleet::{Fleet, NODES, lines};
use crate::kit::run;

/// Changes to the archive by somebody who knows SQL, each with a word of the finding.
const CHANGES: [[&str; 2]; 12] = [
    [
        "UPDATE decision SET wait_ms = wait_ms + 1 WHERE log = (SELECT log FROM node WHERE name = 'south') AND seq = (SELECT max(seq) FROM decision WHERE log = (SELECT log FROM node WHERE name = 'south'))",
        "not as it was written",
    ],
    [
        "UPDATE decision SET path = '/other' WHERE log = (SELECT log FROM node WHERE name = 'south') AND seq = (SELECT max(seq) FROM decision WHERE log = (SELECT log FROM node WHERE name = 'south'))",
        "",
    ],
    [
        "UPDATE ending SET bytes = bytes + 1 WHERE log = (SELECT log FROM node WHERE name = 'south') AND seq = (SELECT max(seq) FROM ending WHERE log = (SELECT log FROM node WHERE name = 'south'))",
        "not as it was written",
    ],
    [
        "UPDATE event SET detail = '{}' WHERE log = (SELECT log FROM node WHERE name = 'south') AND kind = 'started'",
        "not as it was written",
    ],
    [
        "UPDATE ruling SET rule = 'Disallow: /nothing' WHERE rule = 'Disallow: /no'",
        "the value has another digest",
    ],
    [
        "UPDATE body SET body = 'User-agent: *'",
        "the body has another digest",
    ],
    [
        "DELETE FROM decision WHERE log = (SELECT log FROM node WHERE name = 'south') AND seq = (SELECT max(seq) FROM decision WHERE log = (SELECT log FROM node WHERE name = 'south'))",
        "no such row",
    ],
    [
        "DELETE FROM event WHERE log = (SELECT log FROM node WHERE name = 'south') AND kind = 'stopped'",
        "no such row",
    ],
    [
        "DELETE FROM ending WHERE log = (SELECT log FROM node WHERE name = 'south'); DELETE FROM decision WHERE log = (SELECT log FROM node WHERE name = 'south'); DELETE FROM event WHERE log = (SELECT log FROM node WHERE name = 'south')",
        "no such rows",
    ],
    [
        "UPDATE seal SET note = replace(note, 'time 2', 'time 1') WHERE log = (SELECT log FROM node WHERE name = 'south')",
        "is not signed by its key",
    ],
    [
        "INSERT INTO decision SELECT log, last + 5, time_us, client, crawler, method, origin, path, ruling, reading, wait_ms, policy, snapshot, salt, leaf FROM decision JOIN node USING (log) WHERE log = (SELECT log FROM node WHERE name = 'south') LIMIT 1",
        "nobody shipped them",
    ],
    [
        "UPDATE fleet_head SET members = replace(members, ' ', '  ') WHERE n = (SELECT max(n) FROM fleet_head)",
        "fleet head",
    ],
];

/// Tables that are changed.
const CHANGED: [&str; 7] = [
    "decision",
    "ending",
    "event",
    "ruling",
    "body",
    "seal",
    "fleet_head",
];

#[test]
fn the_archive_verifies_as_each_of_its_nodes_does() {
    run(async {
        let fleet = Fleet::shipped().await;
        let verified = lines(&fleet.archive(&["verify", "--json"]).await);
        assert_eq!(verified.len(), NODES.len() + 1);
        for (node, found) in verified.iter().take(NODES.len()).enumerate() {
            let own = lines(&fleet.of_node(node, &["verify", "--json"]).await).remove(0);
            assert_eq!(found["node"], NODES[node]);
            // What only the node needs is not shipped.
            for name in [
                "findings",
                "decided",
                "form_only",
                "mismatches",
                "missing",
                "lost",
                "events",
                "heads",
                "sealed",
                "signer",
                "unrecorded",
            ] {
                assert_eq!(found[name], own[name], "{name}");
            }
            assert_eq!(found["mismatches"], 0);
            assert!(0 < found["sealed"].as_u64().unwrap(), "{found}");
        }
        let fleet_heads = &verified[NODES.len()];
        assert!(
            0 < fleet_heads["fleet_heads"].as_u64().unwrap(),
            "{fleet_heads}"
        );
        let one = lines(&fleet.archive(&["--node", "west", "verify", "--json"]).await);
        assert_eq!(one.len(), 1);
        assert_eq!(one[0]["node"], "west");
    });
}

#[test]
fn heads_and_keys_that_were_kept_elsewhere_are_compared() {
    run(async {
        let fleet = Fleet::shipped().await;
        let place = &fleet.places[0];
        let mut heads = fleet.archive(&["head"]).await.stdout;
        assert!(heads.starts_with("politesse/fleet\n3\n"), "{heads}");
        for node in NODES {
            let head = fleet.archive(&["--node", node, "head"]).await;
            assert_eq!(head.code, Some(0), "{head:?}");
            heads.push_str(&head.stdout);
        }
        let mut keys = String::new();
        for node in 0..NODES.len() {
            keys.push_str(&fleet.of_node(node, &["key"]).await.stdout);
        }
        std::fs::write(place.path("heads.txt"), &heads).unwrap();
        std::fs::write(place.path("keys.txt"), &keys).unwrap();
        let verify = [
            "verify",
            "--json",
            "--head",
            "heads.txt",
            "--key",
            "keys.txt",
        ];
        let found = lines(&fleet.archive(&verify).await);
        for node in &found[..NODES.len()] {
            assert_eq!(node["exported_heads"], 1, "{node}");
        }
        assert_eq!(found[NODES.len()]["exported_fleet_heads"], 1);
        // A fleet head that is there no more was cut off.
        fleet
            .postgres
            .sql("DELETE FROM fleet_head WHERE n = (SELECT max(n) FROM fleet_head)")
            .await;
        let cut = fleet.archive(&verify).await;
        assert_eq!(cut.code, Some(1), "{cut:?}");
        assert!(cut.stdout.contains("is not in the archive"), "{cut:?}");
        // A key that is none of theirs.
        let other = fleet.archive(&["--node", "west", "key"]).await;
        assert_eq!(other.code, Some(2), "{other:?}");
        std::fs::write(place.path("keys.txt"), keys.lines().next().unwrap()).unwrap();
        let foreign = fleet.archive(&["verify", "--key", "keys.txt"]).await;
        assert_eq!(foreign.code, Some(1), "{foreign:?}");
        assert!(foreign.stdout.contains("--key"), "{foreign:?}");
    });
}

#[test]
fn whatever_somebody_changes_in_the_archive_is_found_there_and_not_at_the_nodes() {
    run(async {
        let fleet = Fleet::shipped().await;
        for table in CHANGED {
            let keep = format!("CREATE TABLE kept_{table} AS SELECT * FROM {table}");
            fleet.postgres.sql(&keep).await;
        }
        for [change, word] in CHANGES {
            fleet.postgres.sql(change).await;
            let found = fleet.archive(&["verify"]).await;
            assert_eq!(found.code, Some(1), "{change}: {found:?}");
            assert!(found.stdout.contains(word), "{change}: {found:?}");
            // Back to what it was.
            for table in CHANGED {
                let columns = "SELECT string_agg(column_name, ', ' ORDER BY ordinal_position)
                               FROM information_schema.columns WHERE table_name = ";
                let columns = fleet
                    .postgres
                    .sql(&format!("{columns}'{table}'"))
                    .await
                    .concat();
                let overriding = match table {
                    "ruling" | "fleet_head" => "OVERRIDING SYSTEM VALUE",
                    _ => "",
                };
                let back = format!(
                    "DELETE FROM {table}; INSERT INTO {table} ({columns}) {overriding} \
                     SELECT {columns} FROM kept_{table}"
                );
                fleet.postgres.sql(&back).await;
            }
        }
        let whole = fleet.archive(&["verify"]).await;
        assert_eq!(whole.code, Some(0), "{whole:?}");
        for node in 0..NODES.len() {
            let own = fleet.of_node(node, &["verify"]).await;
            assert_eq!(own.code, Some(0), "{own:?}");
        }
    });
}

#[test]
fn a_record_that_is_fetched_is_that_of_its_node() {
    run(async {
        let fleet = Fleet::shipped().await;
        let several = fleet.archive(&["fetch", "-o", "again"]).await;
        assert_eq!(several.code, Some(2), "{several:?}");
        let fetch = ["--node", "south", "fetch", "-o", "again"];
        let fetched = fleet.archive(&fetch).await;
        assert_eq!(fetched.code, Some(0), "{fetched:?}");
        let place = &fleet.places[0];
        let files = std::fs::read_dir(place.path("again")).unwrap();
        let names: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
        assert_eq!(names, ["audit.db"]);
        let again = fleet.archive(&fetch).await;
        assert_eq!(again.code, Some(2), "{again:?}");
        let store = "audit.store=\"sqlite:again/audit.db\"";
        for command in [
            &["list", "--json", "--limit", "0"][..],
            &["events", "--json", "--limit", "0"],
            &["stats", "--by", "host,rule", "--json"],
            &["speed", "--json"],
            &["export", "--as", "jsonl"],
            &["head"],
        ] {
            let own = fleet.of_node(1, command).await;
            let arguments = [&["--set", store, "audit"][..], command].concat();
            let other = place.run(&arguments).await;
            assert_eq!(other.code, own.code, "{command:?}: {other:?}");
            assert_eq!(other.stdout, own.stdout, "{command:?}");
        }
        let verify = ["--set", store, "audit", "verify", "--json"];
        let verified = lines(&place.run(&verify).await).remove(0);
        assert_eq!(verified["mismatches"], 0, "{verified}");
        let bundle = ["--set", store, "audit", "bundle", "-o", "again.jsonl.gz"];
        let bundle = place.run(&bundle).await;
        assert_eq!(bundle.code, Some(0), "{bundle:?}");
    });
}
