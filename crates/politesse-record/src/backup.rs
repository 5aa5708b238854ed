//! Backup of a record during operation, and its restoration.
//!
//! A backup is a database of its own: a snapshot of the record, which every command
//! that reads a record can read. A restored record never issues a number that the
//! lost record may already have issued: those numbers are noted as lost.
//!
//! Does not know what is in a row.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use rusqlite::TransactionBehavior;
use serde_json::json;

use super::columns::{count, signed};
use super::error::AuditError;
use super::events::{EventRow, ProcessEvent, ProcessEventKind};
use super::files::{beside, make_private};
use super::folder::{LockedFolder, folder_of};
use super::leaf::RecordId;
use super::opening::{Scrutiny, find_damage, find_defect, read_marker, set_aside};
use super::reader::AuditReader;
use super::record_id::{RecordMarker, read_id};
use super::schema::{self, open_error};
use super::sequence::{
    UNKNOWN_NUMBERS, check_complete, last_as_written, last_number, last_of_entries, resume,
    write_last,
};
use politesse_base::clock;

/// Result of a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backup {
    /// Id of the record.
    pub record: String,
    /// Highest number in it.
    pub last: u64,
    /// Length of the file.
    pub bytes: u64,
}

/// Result of a restoration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restoration {
    /// Id of the record.
    pub record: String,
    /// Highest number in the backup.
    pub last: u64,
    /// Highest number noted as lost; equals `last` if there are none.
    pub lost_until: u64,
}

/// Copies the record at `source` to `file`, which must not exist. A proxy may write
/// to the record meanwhile; the copy is a consistent snapshot.
///
/// # Errors
///
/// Those of opening the record, [`AuditError::Create`], and [`AuditError::Backup`].
pub fn back_up(source: &Path, file: &Path) -> Result<Backup, AuditError> {
    // The marker is read before the copy is made, because the copy may lack entries
    // that are committed later.
    let reader = AuditReader::open(source)?;
    if file.exists() {
        let error = io::Error::from(io::ErrorKind::AlreadyExists);
        return Err(AuditError::Create(file.to_owned(), error));
    }
    // Written under another name until it is complete, so that half a backup is
    // never taken for a whole one.
    let part = beside(file, ".part");
    let made = write_backup(&reader, &part).and_then(|backup| {
        let named = fs::rename(&part, file).and_then(|()| sync_folder_of(file));
        named.map_err(|error| AuditError::Create(file.to_owned(), error))?;
        Ok(backup)
    });
    if made.is_err() {
        // A partial file that cannot be removed is overwritten by the next backup.
        fs::remove_file(&part).unwrap_or_default();
    }
    made
}

fn write_backup(reader: &AuditReader, part: &Path) -> Result<Backup, AuditError> {
    let create_error = |error| AuditError::Create(part.to_owned(), error);
    let connection = &reader.connection;
    let database = Path::new(connection.path().unwrap_or_default());
    let file = make_private(part).map_err(create_error)?;
    let to = part.to_string_lossy();
    connection
        .execute("VACUUM INTO ?", [to])
        .map_err(|error| AuditError::Backup(part.to_owned(), error))?;
    file.sync_all().map_err(create_error)?;
    let copy = schema::open_to_read(part)?;
    // The copy has only what could be read of the record, so it must be checked.
    check_complete(&copy, reader.committed(), database)?;
    Ok(Backup {
        record: read_id(&copy)?.unwrap_or_default(),
        last: count(last_number(&copy)?.unwrap_or_default()),
        bytes: file.metadata().map_err(create_error)?.len(),
    })
}

/// Syncs the folder of `file`, which makes a new name durable.
fn sync_folder_of(file: &Path) -> io::Result<()> {
    File::open(folder_of(file))?.sync_all()
}

/// Replaces the incomplete record at `path` with the backup `file`. The remains of
/// the old record are set aside.
///
/// # Errors
///
/// [`AuditError::Locked`] while a proxy runs; [`AuditError::Restore`] if the record
/// is whole or the backup belongs to another record; and errors from creating
/// files.
pub fn restore(path: &Path, file: &Path) -> Result<Restoration, AuditError> {
    let refuse = |cause: String| AuditError::Restore {
        file: file.to_owned(),
        cause,
    };
    // Only the file itself is copied. A WAL beside it would be lost.
    let wal = beside(file, "-wal");
    if fs::metadata(&wal).is_ok_and(|wal| 0 < wal.len()) {
        return Err(refuse(format!(
            "{} has entries that are not in it yet: make a backup of it first, and restore that \
             (politesse --set audit.store=sqlite:FILE audit backup NEW)",
            wal.display()
        )));
    }
    let backup = schema::open_to_read(file).map_err(|error| {
        // `AuditError::Open` advises on repairing the record, but here the backup
        // is at fault.
        match matches!(error, AuditError::Open(..)) {
            true => refuse("it is not a backup of a record, or is damaged".to_owned()),
            false => error,
        }
    })?;
    if let Some(damage) = find_damage(&backup)? {
        return Err(refuse(format!("it is damaged ({damage})")));
    }
    let Some(id) = read_id(&backup)? else {
        return Err(refuse("it is not a backup of a record".to_owned()));
    };
    let Some(last) = last_as_written(&backup, RecordId::parse(&id))? else {
        return Err(refuse(
            "its highest number is not as it was written".to_owned(),
        ));
    };
    drop(backup);
    let folder = LockedFolder::lock(path)?;
    folder.check_permissions()?;
    let marker = read_marker(folder.path())?;
    let lost_until = match &marker {
        Some(marker) if marker.record != id => {
            let (here, folder) = (&marker.record, folder.path().display());
            return Err(refuse(format!(
                "it is of the record {id}, and {folder} has the record {here}"
            )));
        }
        Some(marker) if find_defect(marker, &folder.database, Scrutiny::EveryPage)?.is_none() => {
            return Err(refuse(format!(
                "the record in {} is whole, and would lose what was written since the backup",
                folder.path().display()
            )));
        }
        Some(marker) => last_told(marker, &folder.database),
        None if folder.database.exists() => {
            return Err(refuse(format!(
                "{} is there already: move it away first",
                folder.database.display()
            )));
        }
        // The record on the machine of the backup may have issued numbers since.
        None => last.saturating_add(UNKNOWN_NUMBERS),
    };
    set_aside(&folder.database, clock::now())?;
    put_in_place(file, &folder.database)?;
    take_over(&folder, id, lost_until)
}

/// Returns the highest number that an incomplete record may have issued.
fn last_told(marker: &RecordMarker, database: &Path) -> i64 {
    let unknown = signed(marker.last).saturating_add(UNKNOWN_NUMBERS);
    let Ok(connection) = schema::open_to_read(database) else {
        return unknown;
    };
    match last_as_written(&connection, RecordId::parse(&marker.record)) {
        // A database with higher numbers than the marker is newer than the marker.
        Ok(Some(found)) if signed(marker.last) <= found => found,
        Ok(Some(_)) => unknown,
        Ok(None) | Err(_) => {
            let told = |last: i64| last.saturating_add(UNKNOWN_NUMBERS).max(unknown);
            last_of_entries(&connection).map_or(unknown, told)
        }
    }
}

fn put_in_place(file: &Path, database: &Path) -> Result<(), AuditError> {
    let part = beside(database, ".part");
    let copy = || {
        let mut to = make_private(&part)?;
        io::copy(&mut File::open(file)?, &mut to)?;
        to.sync_all()?;
        fs::rename(&part, database)?;
        sync_folder_of(database)
    };
    copy().map_err(|error| AuditError::Create(database.to_owned(), error))
}

/// Notes the numbers up to `lost_until` as lost in the restored record, with an
/// event, and writes its marker.
fn take_over(
    folder: &LockedFolder,
    record: String,
    lost_until: i64,
) -> Result<Restoration, AuditError> {
    let database = &folder.database;
    let mut connection = schema::open(database)?;
    let mut note = || {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let id = RecordId::parse(&record);
        let last = last_number(&transaction)?.unwrap_or_default();
        let lost = resume(&transaction, id, lost_until, clock::now())?;
        let detail = json!({ "last": last, "lost_until": lost });
        let event = ProcessEvent::now(ProcessEventKind::Restored, detail);
        EventRow::of_process(count(lost + 1), &event, None).write(&transaction, id)?;
        write_last(&transaction, id, lost + 1)?;
        transaction.commit()?;
        Ok((last, lost))
    };
    let (last, lost) = note().map_err(open_error(database))?;
    // Closed before the marker is written: the marker must never claim more than
    // the database holds.
    connection
        .close()
        .map_err(|(_, error)| AuditError::Open(database.clone(), error))?;
    let written = fs::metadata(database).and_then(|found| {
        RecordMarker {
            last: count(lost + 1),
            bytes: found.len(),
            committed: count(lost + 1),
            ..RecordMarker::new(record.clone(), database)
        }
        .write(folder.path())
    });
    written
        .map(drop)
        .map_err(|error| AuditError::Create(folder.path().to_owned(), error))?;
    Ok(Restoration {
        record,
        last: count(last),
        lost_until: count(lost),
    })
}
