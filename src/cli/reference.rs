//! Self-description of the program: manual pages, shell completions, and chapters of
//! the reference in the book.
//!
//! All are generated from the tables and the command line that the program itself uses.

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
    /// Shell to print completions for.
    shell: Shell,
}

/// Arguments of `man`.
#[derive(Debug, Args)]
pub(super) struct ManArguments {
    /// Folder to write one page per command into. It is created if it is missing.
    dir: Option<PathBuf>,
}

/// Chapters of the reference.
#[derive(Debug, Subcommand)]
pub(super) enum ReferenceCommand {
    /// Keys of the configuration.
    Keys,
    /// Metrics.
    Metrics,
}

/// Prints the completions of `command` for a shell.
pub(super) fn completions(
    arguments: &CompletionsArguments,
    mut command: Command,
) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "politesse", &mut script);
    print(&String::from_utf8(script)?)
}

/// Prints the manual page of `command`, or writes it and the pages of all subcommands
/// into a folder.
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
