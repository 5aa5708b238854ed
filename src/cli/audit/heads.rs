//! `audit key` and `audit head`, and the files that keep keys and heads apart from the
//! record.

use std::io::{self, Write};
use std::path::Path;

use crate::cli::output::{Exit, Usage, print};
use politesse_record::note::{NoteKey, SignedNote};
use politesse_record::reader::AuditReader;
use politesse_record::seal_check::OutsideHead;
use politesse_record::seal_key::{key_path, read_key};
use politesse_record::{AuditError, Options, SealKeyError};

/// Prints the public key from its file, or from the newest head if there is no file, as
/// in a copy of the record.
pub(super) fn print_key(reader: &AuditReader, options: &Options) -> anyhow::Result<Exit> {
    let name = reader.record_name()?;
    let real = options.path.canonicalize()?;
    let folder = real.parent().unwrap_or(Path::new("."));
    let path = key_path(options.seal.key.as_deref(), folder);
    match read_key(&path, &name) {
        Ok(signer) => print(&format!("{}\n", signer.key())),
        Err(AuditError::SealKey(path, SealKeyError::File(error))) => {
            let Some(seal) = reader.tree().newest_seal()? else {
                return Err(AuditError::SealKey(path, SealKeyError::File(error)).into());
            };
            let mut stderr = io::stderr().lock();
            let path = path.display();
            writeln!(
                stderr,
                "politesse: {path} cannot be read ({error}): this key is the newest head's"
            )?;
            print(&format!("{}\n", seal.vkey))
        }
        Err(error) => Err(error.into()),
    }
}

/// Prints the newest head.
pub(super) fn print_head(reader: &AuditReader) -> anyhow::Result<Exit> {
    if let Some(seal) = reader.tree().newest_seal()? {
        return print(&seal.note);
    }
    let mut stderr = io::stderr().lock();
    writeln!(
        stderr,
        "politesse: the record has no head yet: one is made after audit.seal_entries, after \
         audit.seal_interval, and when the proxy stops"
    )?;
    Ok(Exit::Not)
}

/// Reads a key, or a file with one key per line. Lines that begin with `#` are
/// comments.
pub(super) fn public_keys(text: &str) -> anyhow::Result<Vec<NoteKey>> {
    let wrong = match text.parse() {
        Ok(key) => return Ok(vec![key]),
        Err(wrong) => wrong,
    };
    // A key contains two plus signs, and most file names contain none.
    let Ok(file) = std::fs::read_to_string(text) else {
        let text = format!("{wrong}; and there is no readable file of that name");
        return Err(Usage::Arguments(text).into());
    };
    let is_key = |line: &&str| !line.is_empty() && !line.starts_with('#');
    let lines = file.lines().map(str::trim).filter(is_key);
    let keys: Result<Vec<NoteKey>, _> = lines.map(str::parse).collect();
    match keys {
        Ok(keys) if !keys.is_empty() => Ok(keys),
        Ok(_) => Err(Usage::Arguments(format!("{text} has no key")).into()),
        Err(wrong) => Err(Usage::Arguments(format!("{text}: {wrong}")).into()),
    }
}

/// Reads the consecutive heads in a file.
pub(super) fn outside_heads(path: &Path) -> anyhow::Result<Vec<OutsideHead>> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|source| Usage::File {
        path: path.to_owned(),
        source,
    })?;
    let notes: Result<Vec<SignedNote>, _> = SignedNote::split(&text).map(str::parse).collect();
    let unread = |wrong: &str| Usage::Arguments(format!("{name}: {wrong}"));
    let notes = notes.map_err(|wrong| unread(&wrong.to_string()))?;
    if notes.is_empty() {
        return Err(unread("there is no head in it").into());
    }
    let named = |note| OutsideHead {
        name: name.clone(),
        note,
    };
    Ok(notes.into_iter().map(named).collect())
}
