//! Sets the version that `politesse --version` prints. Optimized builds name the commit
//! that they were made from. Other builds do not, because each commit would then
//! require a rebuild.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let mut version = env!("CARGO_PKG_VERSION").to_owned();
    let is_optimised = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    // Without a repository here, git would name the commit of one in a parent folder.
    if is_optimised && Path::new(".git").exists() {
        if let Some(commit) = git(&["show", "--no-patch", "--format=%h %cs", "--abbrev=12"]) {
            version = format!("{version} ({commit})");
        }
        if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
            println!("cargo:rerun-if-changed={log}");
        }
    }
    println!("cargo:rustc-env=POLITESSE_VERSION={version}");
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
