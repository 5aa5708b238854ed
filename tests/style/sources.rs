//! The source files of all crates, without their tests.

use std::fs;
use std::path::{Path, PathBuf};

use syn::{Attribute, Item};

/// A file compiled into a crate, not only into its tests.
pub(crate) struct SourceFile {
    /// Path from the top of the repository.
    pub(crate) path: String,
    /// Path of the module, the crate's name first: `politesse_pace::queue`.
    pub(crate) module: Vec<String>,
    /// Lines of the file, without the tests at its end.
    pub(crate) lines: Vec<String>,
    text: String,
}

impl SourceFile {
    /// Returns the items of the file, without those compiled for tests only.
    pub(crate) fn items(&self) -> Vec<Item> {
        production(syn::parse_file(&self.text).unwrap().items)
    }
}

/// Returns the root of the repository, which cargo sets for its tests.
pub(crate) fn top() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").unwrap().into()
}

/// Returns the source folder of each crate, and its name in imports.
fn crates(top: &Path) -> Vec<(PathBuf, String)> {
    let mut crates = vec![(top.join("src"), "politesse".to_owned())];
    for entry in fs::read_dir(top.join("crates")).unwrap() {
        let folder = entry.unwrap();
        let name = folder.file_name().into_string().unwrap().replace('-', "_");
        crates.push((folder.path().join("src"), name));
    }
    crates
}

/// Returns every source file of the workspace.
pub(crate) fn all() -> Vec<SourceFile> {
    let top = top();
    let mut files = Vec::new();
    for (folder, name) in crates(&top) {
        let mut folders = vec![folder.clone()];
        while let Some(folder_now) = folders.pop() {
            for entry in fs::read_dir(&folder_now).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() && !path.ends_with("tests") {
                    folders.push(path);
                } else if is_source(&path) {
                    files.push(read(&path, &folder, &name));
                }
            }
        }
    }
    assert!(files.len() > 100, "the sources were not found");
    files.sort_by(|one, other| one.path.cmp(&other.path));
    files
}

/// Fails with a list of the `wrong` places if there are more than `most`.
#[track_caller]
pub(crate) fn assert_few(wrong: &[String], most: usize) {
    assert!(
        wrong.len() <= most,
        "{} of at most {most}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Reports whether an attribute restricts an item to tests (`#[cfg(test)]`).
pub(crate) fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Ident>()
                .is_ok_and(|condition| condition == "test")
    })
}

fn is_source(path: &Path) -> bool {
    let is_for_tests = path.ends_with("tests.rs") || path.ends_with("testing.rs");
    path.extension().is_some_and(|extension| extension == "rs") && !is_for_tests
}

fn read(path: &Path, root: &Path, crate_name: &str) -> SourceFile {
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().map(str::to_owned);
    SourceFile {
        path: relative(path),
        module: module(path.strip_prefix(root).unwrap(), crate_name),
        lines: before_tests(lines.collect()),
        text,
    }
}

fn relative(path: &Path) -> String {
    path.strip_prefix(top()).unwrap().display().to_string()
}

fn module(file: &Path, crate_name: &str) -> Vec<String> {
    let names = file.with_extension("");
    let mut module = vec![crate_name.to_owned()];
    module.extend(names.iter().map(|name| name.to_str().unwrap().to_owned()));
    if module
        .last()
        .is_some_and(|name| ["mod", "lib", "main"].contains(&&**name))
    {
        module.pop();
    }
    module
}

/// Returns the lines before the test module at the end of a file, which begins with an
/// unindented `#[cfg(test)]`.
fn before_tests(mut lines: Vec<String>) -> Vec<String> {
    let tests = lines.windows(2).position(|pair| {
        pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ") && pair[1].ends_with('{')
    });
    lines.truncate(tests.unwrap_or(lines.len()));
    lines
}

fn production(items: Vec<Item>) -> Vec<Item> {
    items
        .into_iter()
        .filter(|item| match item {
            Item::Fn(item) => !is_for_tests(&item.attrs),
            Item::Impl(item) => !is_for_tests(&item.attrs),
            Item::Mod(item) => !is_for_tests(&item.attrs),
            Item::Struct(item) => !is_for_tests(&item.attrs),
            Item::Enum(item) => !is_for_tests(&item.attrs),
            Item::Use(item) => !is_for_tests(&item.attrs),
            _ => true,
        })
        .collect()
}
