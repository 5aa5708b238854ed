//! The documents: every command in them runs, every configuration is valid, and every
//! link has a target. All of it is ours.
//!
//! Blocks of `sh` and `console` are run in the folder of a `politesse demo`, one for each
//! document. In a `console` block, a line that begins with `$ ` is a command, and the
//! lines below it are its output, in which `…` stands for any text. A comment on the line
//! above a block changes its treatment:
//!
//! - `<!-- full: reason -->`: only `tests/full.sh` runs it.
//! - `<!-- not run: reason -->`: it is never run.
//! - `<!-- file: name -->`: it is written to a file for the blocks below it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::kit::checkout::root;
use crate::kit::demo::Demo;
use crate::kit::program::{Outcome, finish, isolated, run_in};
use crate::kit::{run, run_within};

/// Documents outside the folders that are searched.
const SINGLE: [&str; 5] = [
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
];
const FOLDERS: [&str; 5] = ["benches", "crates", "docs", "fuzz", "tests"];
/// Folders without documents of ours.
const SKIPPED: [&str; 5] = ["target", "corpus", "artifacts", "seeds", "node_modules"];
/// Languages of blocks that are not commands.
const NO_COMMANDS: [&str; 10] = [
    "html", "ini", "js", "json", "python", "rust", "sql", "text", "toml", "yaml",
];

/// Parent proxy of each demo, where nothing listens, so that a browser's own background
/// requests fail.
const DEAD_PARENT: &str = "http://127.0.0.1:1";

/// Start of the warning that a proxy with a parent logs, which no document shows.
const PARENT_WARNING: &str = "WARN upstream.parent resolves the names of origins";

/// Meaning of the comment above a block.
#[derive(Debug, PartialEq, Eq)]
enum Mark {
    Absent,
    Full,
    NotRun,
    File(String),
    Unknown(String),
}

impl Mark {
    fn parse(line: &str) -> Self {
        let comment = line
            .strip_prefix("<!-- ")
            .and_then(|line| line.strip_suffix(" -->"));
        match comment.map(|comment| comment.split_once(": ").unwrap_or((comment, ""))) {
            None => Self::Absent,
            Some(("full", reason)) if !reason.is_empty() => Self::Full,
            Some(("not run", reason)) if !reason.is_empty() => Self::NotRun,
            Some(("file", name)) if !name.is_empty() => Self::File(name.to_owned()),
            Some(_) => Self::Unknown(line.to_owned()),
        }
    }
}

/// A fenced block of a document.
struct Block {
    document: PathBuf,
    line: usize,
    language: String,
    mark: Mark,
    text: String,
}

impl Block {
    fn is_commands(&self) -> bool {
        matches!(&*self.language, "sh" | "console")
    }

    fn place(&self) -> String {
        format!("{}:{}", self.document.display(), self.line)
    }

    /// Returns the commands, each with the output shown for it, if any.
    fn commands(&self) -> Vec<(String, Option<String>)> {
        if self.language == "sh" {
            return vec![(self.text.clone(), None)];
        }
        let mut commands: Vec<(String, Option<String>)> = Vec::new();
        for line in self.text.lines() {
            if let Some(command) = line.strip_prefix("$ ") {
                commands.push((command.to_owned(), None));
            } else if let Some((_, output)) = commands.last_mut() {
                let output = output.get_or_insert_default();
                writeln!(output, "{line}").unwrap();
            }
        }
        commands
    }
}

/// Returns the files in `folders` whose names end in `extension`, relative to the
/// repository. Some of the folders may be absent.
fn files(folders: &[&str], extension: &str) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = folders.iter().map(PathBuf::from).collect();
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(root().join(&folder));
        for entry in entries.into_iter().flatten().map(Result::unwrap) {
            let path = folder.join(entry.file_name());
            if !entry.path().is_dir() {
                let is_wanted = path.extension().is_some_and(|end| end == extension);
                found.extend(is_wanted.then_some(path));
            } else if !SKIPPED.iter().any(|skipped| path.ends_with(skipped)) {
                folders.push(path);
            }
        }
    }
    found
}

/// Returns the paths of all documents, relative to the repository.
fn documents() -> Vec<PathBuf> {
    let single = SINGLE.iter().map(PathBuf::from);
    let mut found: Vec<_> = single.chain(files(&FOLDERS, "md")).collect();
    found.retain(|path| root().join(path).exists());
    found.sort();
    found
}

fn read(document: &Path) -> String {
    std::fs::read_to_string(root().join(document)).unwrap()
}

fn blocks(document: &Path) -> Vec<Block> {
    let text = read(document);
    let mut blocks = Vec::new();
    let mut above = "";
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let inside = lines.by_ref().take_while(|(_, line)| *line != "```");
            blocks.push(Block {
                document: document.to_owned(),
                line: number + 1,
                language: language.to_owned(),
                mark: Mark::parse(above),
                text: inside.map(|(_, line)| format!("{line}\n")).collect(),
            });
        }
        above = line;
    }
    blocks
}

fn all_blocks() -> Vec<Block> {
    let documents = documents();
    assert!(5 < documents.len(), "{documents:?}");
    documents.iter().flat_map(|path| blocks(path)).collect()
}

fn assert_none(faults: &[String]) {
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// Reports whether `text` matches `pattern`, in which `…` stands for any text. Whitespace
/// at the ends of lines does not count.
fn fits(pattern: &str, text: &str) -> bool {
    // A `…` on a line of its own also matches no line at all.
    let pattern = trimmed(pattern).replace("\n…\n", "\n…");
    let text = trimmed(text);
    let Some((first, others)) = pattern.split_once('…') else {
        return pattern == text;
    };
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let (middle, last) = others.rsplit_once('…').unwrap_or(("", others));
    for piece in middle.split('…') {
        let Some((_, behind)) = rest.split_once(piece) else {
            return false;
        };
        rest = behind;
    }
    rest.ends_with(last)
}

/// Returns the lines, each between two line ends, without trailing whitespace.
fn trimmed(text: &str) -> String {
    let lines = text.trim_end().lines();
    let lines: String = lines.map(|line| format!("{}\n", line.trim_end())).collect();
    format!("\n{lines}")
}

/// A demo, with its folder and addresses.
struct Session {
    demo: Demo,
    folder: PathBuf,
    programs: TempDir,
    proxy: String,
    admin: String,
}

/// Links the packages that `npm install` would install beside the scripts of the
/// documents.
fn install_packages(folder: &Path) {
    let modules = folder.join("node_modules");
    std::fs::create_dir(&modules).unwrap();
    for (name, place) in [
        ("politesse", "contrib/npm"),
        ("playwright", "target/node/node_modules/playwright-core"),
        ("@crawlee", "target/node-clients/node_modules/@crawlee"),
    ] {
        std::os::unix::fs::symlink(root().join(place), modules.join(name)).unwrap();
    }
}

impl Session {
    async fn start() -> Self {
        let demo = Demo::start(&["--set", &format!("upstream.parent={DEAD_PARENT}")]).await;
        let folder = demo.folder();
        install_packages(&folder);
        let instance = std::fs::read(folder.join("data/instance")).unwrap();
        let instance: Value = serde_json::from_slice(&instance).unwrap();
        let programs = TempDir::new().unwrap();
        let program = env!("CARGO_BIN_EXE_politesse");
        std::os::unix::fs::symlink(program, programs.path().join("politesse")).unwrap();
        Self {
            demo,
            folder,
            programs,
            proxy: instance["listen"][0].as_str().unwrap().to_owned(),
            admin: instance["admin"].as_str().unwrap().to_owned(),
        }
    }

    /// Replaces the addresses and the folder in a document's text by those of this demo.
    fn filled(&self, text: &str) -> String {
        text.replace("127.0.0.1:3128", &self.proxy)
            .replace("127.0.0.1:3129", &self.admin)
            .replace("/tmp/politesse-demo-…", &self.folder.display().to_string())
    }

    async fn shell(&self, script: &str) -> Outcome {
        let mut command = isolated("sh", &self.folder);
        let path = std::env::var("PATH").unwrap_or_default();
        let environment = root().join("target/venv/bin");
        let programs =
            [self.programs.path(), &environment].map(|folder| folder.display().to_string());
        crate::clients::with_package(&mut command);
        command
            .env("PATH", format!("{}:{path}", programs.join(":")))
            .env("POLITESSE_UPSTREAM__PARENT", DEAD_PARENT)
            .args(["-euc", script]);
        finish(command, b"").await
    }

    /// Runs a command of a block, and returns a description of its failure.
    async fn fault(&self, command: &str, output: Option<&str>) -> Option<String> {
        let script = format!("exec 2>&1\n{}", self.filled(command));
        // A row gets its status only when the response has ended, which no event
        // announces. So commands that read the record are retried for a while.
        let mut tries_left = if command.contains(" audit ") { 250 } else { 1 };
        loop {
            let mut outcome = self.shell(&script).await;
            let lines = outcome.stdout.split_inclusive('\n');
            outcome.stdout = lines
                .filter(|line| !line.contains(PARENT_WARNING))
                .collect();
            let is_as_shown = match output {
                Some(output) => fits(&self.filled(output), &outcome.stdout),
                None => outcome.code == Some(0),
            };
            tries_left -= 1;
            if is_as_shown {
                return None;
            }
            if tries_left == 0 {
                return Some(format!("{command}\n  {outcome:?}"));
            }
            // Polls without `until`, which would panic: the faults are reported together.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn faults(&self, block: &Block) -> Vec<String> {
        let mut faults = Vec::new();
        for (command, output) in block.commands() {
            let fault = self.fault(&command, output.as_deref()).await;
            faults.extend(fault.map(|fault| format!("{}: {fault}", block.place())));
        }
        faults
    }
}

/// Runs the unmarked blocks of each document, and the blocks with the mark `marked`.
async fn assert_commands_run(marked: &Mark) {
    let mut faults = Vec::new();
    for document in documents() {
        let blocks = blocks(&document);
        let is_run =
            |block: &Block| block.is_commands() && [&Mark::Absent, marked].contains(&&block.mark);
        if !blocks.iter().any(is_run) {
            continue;
        }
        let session = Session::start().await;
        for block in &blocks {
            if let Mark::File(name) = &block.mark {
                std::fs::write(session.folder.join(name), &block.text).unwrap();
            } else if is_run(block) {
                faults.extend(session.faults(block).await);
            }
        }
        assert_eq!(session.demo.interrupt().await.0, Some(0));
    }
    assert_none(&faults);
}

#[test]
fn commands_in_documents_print_what_the_document_shows() {
    run(assert_commands_run(&Mark::Absent));
}

#[test]
#[ignore = "tests/full.sh: namespaces"]
fn commands_marked_full_print_what_the_document_shows() {
    run_within(Duration::from_secs(600), assert_commands_run(&Mark::Full));
}

#[test]
fn each_block_of_a_document_is_run_or_says_why_not() {
    let mut faults = Vec::new();
    for block in all_blocks() {
        let is_known = block.is_commands() || NO_COMMANDS.contains(&&*block.language);
        if !is_known {
            let language = &block.language;
            faults.push(format!("{}: unknown language {language:?}", block.place()));
        }
        let is_marked_well = match &block.mark {
            Mark::Absent => true,
            Mark::Full | Mark::NotRun => block.is_commands(),
            Mark::File(_) => !block.is_commands(),
            Mark::Unknown(_) => false,
        };
        if !is_marked_well {
            faults.push(format!("{}: {:?}", block.place(), block.mark));
        }
        if !block.is_commands() && block.text.lines().any(|line| line.starts_with("$ ")) {
            faults.push(format!("{}: a command that is never run", block.place()));
        }
    }
    assert_none(&faults);
}

#[tokio::test]
async fn each_configuration_in_a_document_is_valid() {
    let mut faults = Vec::new();
    let configurations = all_blocks()
        .into_iter()
        .filter(|block| block.language == "toml" && block.document.starts_with("docs"));
    for block in configurations {
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join("politesse.toml"), &block.text).unwrap();
        let outcome = run_in(folder.path(), &["config", "check"]).await;
        if outcome.code != Some(0) && !lacks_files_alone(&outcome) {
            faults.push(format!("{}: {outcome:?}", block.place()));
        }
    }
    assert_none(&faults);
}

/// Reports whether `outcome` fails only because files are missing: readers bring their
/// own.
fn lacks_files_alone(outcome: &Outcome) -> bool {
    let mut lines = outcome.stderr.lines();
    outcome.code == Some(2)
        && lines.all(|line| line.ends_with("No such file or directory (os error 2)"))
}

/// Returns the link targets in a document, outside its blocks.
fn links(text: &str) -> Vec<String> {
    let mut in_block = false;
    let mut links = Vec::new();
    for line in text.lines() {
        in_block ^= line.starts_with("```");
        if in_block {
            continue;
        }
        for piece in line.split("](").skip(1) {
            let target = piece.split(')').next().unwrap_or_default();
            links.push(target.to_owned());
        }
    }
    links
}

/// Returns the anchors of a document's headings, formed as GitHub and mdBook do.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let heading = line.trim_start_matches('#').trim().to_lowercase();
            let letters = heading
                .chars()
                .filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
            letters.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

#[test]
fn each_link_in_a_document_has_a_target() {
    let mut faults = Vec::new();
    for document in documents() {
        let folder = document.parent().unwrap();
        for link in links(&read(&document)) {
            if link.starts_with("http://") || link.starts_with("https://") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if path.is_empty() {
                document.clone()
            } else {
                folder.join(path)
            };
            let path = root().join(&target).canonicalize();
            // Chapters may only link inside `docs`: other files are not part of the book.
            let is_there = path.is_ok_and(|path| {
                !document.starts_with("docs")
                    || path.starts_with(root().join("docs").canonicalize().unwrap())
            });
            if !is_there
                || (!anchor.is_empty() && !anchors(&read(&target)).contains(&anchor.into()))
            {
                faults.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert_none(&faults);
}

/// Describes the files in `folders` that the text at `path` names, but that do not exist.
fn missing_files(path: &Path, folders: &[&str]) -> Vec<String> {
    let text = read(path);
    let is_part = |c: char| c.is_alphanumeric() || "/._-".contains(c);
    let words = text.split(|c: char| !is_part(c));
    words
        .map(|word| word.trim_end_matches(['.', '/', '-']))
        .filter(|word| folders.iter().any(|folder| word.starts_with(folder)))
        .filter(|file| !root().join(file).exists())
        .map(|file| format!("{}: {file}", path.display()))
        .collect()
}

#[test]
fn each_file_that_a_document_names_exists() {
    const OURS: [&str; 3] = ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md"];
    let is_ours =
        |path: &Path| path.starts_with("docs") || OURS.iter().any(|name| path == Path::new(name));
    let mut faults = Vec::new();
    for document in documents().iter().filter(|path| is_ours(path)) {
        let folders = ["src/", "tests/", "crates/", "benches/"];
        faults.extend(missing_files(document, &folders));
    }
    assert_none(&faults);
}

#[test]
fn each_document_that_a_comment_cites_exists() {
    let mut faults = Vec::new();
    for path in files(&["src", "crates", "tests", "benches", "examples"], "rs") {
        faults.extend(missing_files(&path, &["docs/"]));
    }
    assert_none(&faults);
}

#[test]
fn each_type_in_the_chains_of_the_architecture_is_defined() {
    let text: String = files(&["src", "crates"], "rs")
        .iter()
        .map(|path| read(path))
        .collect();
    let map = read(Path::new("ARCHITECTURE.md"));
    let (_, chains) = map.split_once("\n## Chains of types\n").unwrap();
    let chains = chains.split("\n## ").next().unwrap();
    let types: Vec<&str> = chains.split('`').skip(1).step_by(2).collect();
    assert!(10 < types.len(), "{types:?}");
    let is_defined = |name: &str| {
        ["struct", "enum"].iter().any(|kind| {
            let definition = format!("{kind} {name}");
            let behind = text.split(&definition).skip(1);
            let mut next = behind.filter_map(|rest| rest.chars().next());
            next.any(|letter| !letter.is_alphanumeric())
        })
    };
    let missing = types.into_iter().filter(|name| !is_defined(name));
    assert_none(&missing.map(str::to_owned).collect::<Vec<_>>());
}

/// Returns the first cells of the table below a heading, without backquotes.
fn first_cells(text: &str, heading: &str) -> Vec<String> {
    let (_, section) = text.split_once(&format!("\n## {heading}\n")).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| row.split('`').nth(1).unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn the_reference_lists_all_verdicts_reasons_and_effects() {
    let folder = TempDir::new().unwrap();
    let help = run_in(folder.path(), &["audit", "list", "--help"]).await;
    let reference = read(Path::new("docs/reference/reasons.md"));
    for (option, heading) in [
        ("--verdict", "Verdicts"),
        ("--reason", "Reasons"),
        ("--effect", "Effects"),
    ] {
        let (_, about) = help.stdout.split_once(option).unwrap();
        let (_, values) = about.split_once("[possible values: ").unwrap();
        let (values, _) = values.split_once(']').unwrap();
        let values: Vec<&str> = values.split(',').map(str::trim).collect();
        assert_eq!(first_cells(&reference, heading), values, "{option}");
    }
}

#[test]
fn each_chapter_is_in_the_summary() {
    let summary = links(&read(Path::new("docs/SUMMARY.md")));
    let mut missing = documents();
    missing.retain(|document| {
        let chapter = document.strip_prefix("docs").map(Path::to_string_lossy);
        chapter.is_ok_and(|name| name != "SUMMARY.md" && !summary.contains(&name.into_owned()))
    });
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn an_ellipsis_stands_for_any_text() {
    let text = "a 1\nb 2\nc 3\n";
    for pattern in [
        "a 1\nb 2\nc 3",
        "a …\n…",
        "…\nc 3",
        "a 1\n…\nb 2\n…",
        "…b …3",
    ] {
        assert!(fits(pattern, text), "{pattern}");
    }
    for pattern in ["a 1", "b 2\n…", "a …\nd", "…\nb 2", "a 1\n…\nd\n…"] {
        assert!(!fits(pattern, text), "{pattern}");
    }
}
