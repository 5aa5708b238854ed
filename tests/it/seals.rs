//! Signed heads of the record: `audit key`, `audit head`, and what `audit verify`
//! makes of them.

use std::fs;

use serde_json::Value;

use crate::kit::client::get;
use crate::kit::origin::Script;
use crate::kit::proxy::{Place, resolve};
use crate::kit::run;

/// Returns the folder of a proxy that refused a request, and has stopped.
async fn crawled() -> Place {
    let origin = Script::robots("User-agent: *\nDisallow: /private\n")
        .start()
        .await;
    let proxy = resolve("o.test", origin.address()).start().await;
    for path in ["/private", "/open"] {
        get(&proxy, &format!("http://o.test{path}")).await;
    }
    proxy.stop().await
}

/// Prints the key and the newest head to files in the folder of `place`, as an
/// operator would take them elsewhere. Returns their paths.
async fn exported(place: &Place) -> [String; 2] {
    let files = ["key", "head"].map(|name| place.path(name));
    for (name, file) in ["key", "head"].iter().zip(&files) {
        let printed = place.run(&["audit", name]).await;
        assert_eq!(printed.code, Some(0), "{printed:?}");
        fs::write(file, &printed.stdout).unwrap();
    }
    files.map(|file| file.to_str().unwrap().to_owned())
}

// Ours: docs/decisions/023-seals.md.
#[test]
fn a_record_is_proved_by_a_key_and_a_head_from_elsewhere() {
    run(async {
        let place = crawled().await;
        let [key, head] = exported(&place).await;
        let text = fs::read_to_string(&head).unwrap();
        let name = text.lines().next().unwrap();
        assert!(name.starts_with("politesse/"), "{text}");
        assert!(text.contains(&format!("\n\u{2014} {name} ")), "{text}");
        assert!(
            fs::read_to_string(&key)
                .unwrap()
                .starts_with(&format!("{name}+"))
        );
        let arguments = ["audit", "verify", "--key", &key, "--head", &head];
        let whole = place.run(&arguments).await;
        assert_eq!(whole.code, Some(0), "{whole:?}");
        let sealed = whole.stdout.lines().last().unwrap();
        assert!(sealed.starts_with("sealed: entries 1 to "), "{sealed}");
        let proved = "; signed by a key of --key; 1 of 1 exported heads hold";
        assert!(sealed.ends_with(proved), "{sealed}");
        // The key by itself, and sums for programs.
        let vkey = fs::read_to_string(&key).unwrap();
        let with_key = ["audit", "verify", "--json", "--key", vkey.trim()];
        let sums: Value = serde_json::from_str(&place.run(&with_key).await.stdout).unwrap();
        let size: u64 = text.lines().nth(1).unwrap().parse().unwrap();
        assert_eq!((&sums["sealed"], &sums["heads"]), (&size.into(), &1.into()));
        assert_eq!(sums["signer"], vkey.trim());
        // Cut below the head, with every trace of what was cut.
        let database = place.database();
        database
            .execute_batch(
                "DELETE FROM event WHERE seq = (SELECT max(seq) FROM event);
                 DELETE FROM sequence; DELETE FROM seal",
            )
            .unwrap();
        fs::remove_file(place.path("record")).unwrap();
        let cut = place.run(&arguments).await;
        assert_eq!(cut.code, Some(1), "{cut:?}");
        let said = format!("{head} (head of {size} entries): the record ends at");
        assert!(cut.stdout.contains(&said), "{cut:?}");
    });
}

#[test]
fn a_head_of_another_record_and_wrong_arguments_are_told() {
    run(async {
        let (place, other) = (crawled().await, crawled().await);
        let [other_key, other_head] = exported(&other).await;
        let found = place.run(&["audit", "verify", "--head", &other_head]).await;
        assert_eq!(found.code, Some(1), "{found:?}");
        assert!(
            found.stdout.contains("is that of another record"),
            "{found:?}"
        );
        let found = place.run(&["audit", "verify", "--key", &other_key]).await;
        assert_eq!(found.code, Some(1), "{found:?}");
        assert!(
            found
                .stdout
                .contains("is not signed by a key that --key names"),
            "{found:?}"
        );
        let [key, head] = exported(&place).await;
        for (arguments, said) in [
            (["--head", "/nowhere"], "cannot read /nowhere"),
            (["--head", &key], "it is no signed note"),
            (["--key", "/nowhere"], "is no key"),
            (["--key", &head], "is no key"),
        ] {
            let outcome = place
                .run(&[&["audit", "verify"], &arguments[..]].concat())
                .await;
            assert_eq!(outcome.code, Some(2), "{outcome:?}");
            assert!(outcome.stderr.contains(said), "{outcome:?}");
        }
        let narrow = ["audit", "verify", "--from", "1h", "--head", &head];
        let outcome = place.run(&narrow).await;
        assert_eq!(outcome.code, Some(2), "{outcome:?}");
        // A copy of the record without its key: the key of the newest head.
        fs::remove_file(place.path("seal.key")).unwrap();
        let printed = place.run(&["audit", "key"]).await;
        assert_eq!(printed.stdout, fs::read_to_string(&key).unwrap());
        assert!(printed.stderr.contains("newest head"), "{printed:?}");
        place.database().execute("DELETE FROM seal", []).unwrap();
        let none = place.run(&["audit", "head"]).await;
        assert_eq!((none.code, &*none.stdout), (Some(1), ""));
    });
}
