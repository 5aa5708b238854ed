//! Descriptions of the program by itself: manual pages, completions of shells, and chapters
//! of the reference in the book.
//!
//! Each is made from the tables and the command line that the program goes by.

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Command, Subcommand};
use clap_complete::Shell;
use clap_mangen::Man;

use super::output::{Exit, print};
use crate::config;
use politesse_base::metrics;

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub(super) struct CompletionsArguments {
    /// The shell.
    shell: Shell,
}

/// Arguments of `man`.
#[derive(Debug, Args)]
pub(super) struct ManArguments {
    /// Writes a page for each command into this folder, which is made if it is missing.
    dir: Option<PathBuf>,
}

/// Chapters of the reference.
#[derive(Debug, Subcommand)]
pub(super) enum ReferenceCommand {
    /// The keys of the configuration.
    Keys,
    /// The metrics.
    Metrics,
}

/// Prints the completions that a shell has for `command`.
pub(super) fn completions(
    arguments: &CompletionsArguments,
    mut command: Command,
) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "politesse", &mut script);
    print(&String::from_utf8(script)?)
}

/// Prints the manual page of `command`, or writes those of its subcommands, too, into a
/// folder.
pub(super) fn man(arguments: &ManArguments, command: Command) -> anyhow::Result<Exit> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let Some(folder) = &arguments.dir else {
        let mut page = Vec::new();
        Man::new(command).render(&mut page)?;
        return print(&String::from_utf8(page)?);
    };
    fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(command, folder))
        .with_context(|| format!("cannot write manual pages to {}", folder.display()))?;
    Ok(Exit::Done)
}

/// Prints a chapter of the reference.
pub(super) fn reference(command: &ReferenceCommand) -> anyhow::Result<Exit> {
    match command {
        ReferenceCommand::Keys => print(&config::reference()),
        ReferenceCommand::Metrics => print(&metrics::reference()),
    }
}
