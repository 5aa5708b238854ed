//! Cost of the dashboard: the time that its pages take with a long record, and the cost
//! of live views and wrong tokens to forwarded requests.
//!
//! `cargo bench --bench dashboard`, or with `ROWS=5000000` for a long record.
//! `-- record FOLDER` only makes the record, `-- pages FOLDER` measures the pages on
//! the record in that folder, and `-- load` measures live views and wrong tokens.

#![expect(clippy::print_stdout, reason = "its output is its result")]

mod load;
mod pages;
mod proxy;
mod record;

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use anyhow::Context as _;
use tokio::task::LocalSet;

/// Allocator of the program.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Decisions of the record, unless `ROWS` says otherwise.
const ROWS: usize = 300_000;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let rows = std::env::var("ROWS").ok();
    let rows = rows.map_or(Ok(ROWS), |rows| rows.parse())?;
    // Cargo adds `--bench`.
    let mut arguments = std::env::args().skip(1).filter(|word| word != "--bench");
    let part = arguments.next();
    let named = arguments.next().map(PathBuf::from);
    let temporary = tempfile::tempdir()?;
    let folder = named.unwrap_or_else(|| temporary.path().join("record"));
    // The record refuses a folder that other users may write to.
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)?;
    let folder = fs::canonicalize(folder).context("the folder")?;
    let wants = |wanted| part.as_deref().is_none_or(|part| part == wanted);
    if wants("record") {
        // One thread records in order of time, as a proxy does within seconds.
        let recording = record::make(&folder, rows);
        LocalSet::new().run_until(recording).await?;
    }
    if wants("pages") {
        pages::measure(&folder)?;
    }
    if wants("load") {
        load::measure().await?;
    }
    Ok(())
}
