//! Opening a record for writing: the folder is locked, and what lies there is
//! compared with the marker before anything is changed.
//!
//! A database that has lost decisions is not opened: the proxy would go on as
//! if they had never been made. Whoever starts it says so with `--new-record`.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rusqlite::{Connection, ErrorCode};

use super::files::beside;
use super::folder::LockedFolder;
use super::marker::{RecordMarker, marker_path, name_of};
use super::schema::{self, last_seq};
use super::{AuditError, Options, permissions, record_row};
use crate::clock;

/// A record that is open for writing.
#[derive(Debug)]
pub(super) struct OpenRecord {
    pub(super) folder: LockedFolder,
    pub(super) connection: Connection,
    /// The marker of this record, as it was last written.
    pub(super) marker: RecordMarker,
}

/// A record that holds less than its marker says.
#[derive(Debug)]
pub struct Shortfall {
    folder: PathBuf,
    marker: RecordMarker,
    found: RecordDefect,
}

/// A database that is not the one that the marker was written for, or not all
/// of it.
#[derive(Debug, PartialEq, Eq)]
enum RecordDefect {
    /// There is no such file, or it is empty.
    Missing { database: String },
    /// It has another id, or none.
    Other { id: Option<String> },
    /// The last decisions are not there.
    Fewer { last: u64 },
    /// SQLite cannot read it, or finds it damaged.
    Damaged { cause: String },
}

impl fmt::Display for Shortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RecordMarker {
            record,
            database,
            last,
            ..
        } = &self.marker;
        write!(
            f,
            "the record in {} is not whole: {database} had at least {last} decisions (record \
             {record}), and now {}; restore its files, or start once with `politesse serve \
             --new-record`, which sets aside what is left and begins a new record",
            self.folder.display(),
            self.found
        )
    }
}

impl fmt::Display for RecordDefect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { database } => write!(f, "there is no {database}"),
            Self::Other { id: Some(id) } => write!(f, "it is another record ({id})"),
            Self::Other { id: None } => write!(f, "it is another record, without an id"),
            Self::Fewer { last } => write!(f, "it ends at {last}"),
            Self::Damaged { cause } => write!(f, "it is damaged ({cause})"),
        }
    }
}

/// Opens the record at `options.path` for writing, and makes it if there never
/// was one.
///
/// # Errors
///
/// [`AuditError::Locked`], [`AuditError::Writable`], [`AuditError::Inspect`],
/// [`AuditError::Marker`], [`AuditError::Incomplete`], and what making and opening the files can meet.
pub(super) fn open(options: &Options) -> Result<OpenRecord, AuditError> {
    let folder = LockedFolder::lock(&options.path)?;
    permissions::check(folder.path(), &folder.database)?;
    let kept = read_marker(&folder)?;
    let shortfall = match &kept {
        Some(marker) => find_shortfall(marker, &folder)?,
        None => None,
    };
    let before = match shortfall {
        Some(shortfall) if !options.new_record => {
            return Err(AuditError::Incomplete(Box::new(shortfall)));
        }
        Some(shortfall) => {
            set_aside(&folder.database, clock::now())?;
            Some(shortfall.marker)
        }
        None => None,
    };
    folder.make_database()?;
    let mut connection = schema::open(&folder.database)?;
    let failed = |source| AuditError::Open {
        path: folder.database.clone(),
        source,
    };
    let had_id = record_row::id(&connection).map_err(failed)?.is_some();
    let id = record_row::id_or_new(&mut connection, before.as_ref(), clock::now());
    let id = id.map_err(failed)?;
    if !had_id {
        tracing::info!(record = id, folder = %folder.path().display(), "a new record begins");
    } else if kept.is_none() {
        tracing::warn!(
            record = id,
            "{} is gone: what the database holds now is taken for the whole record",
            marker_path(folder.path()).display(),
        );
    }
    Ok(OpenRecord {
        marker: marker_for(id, kept, &folder),
        folder,
        connection,
    })
}

fn read_marker(folder: &LockedFolder) -> Result<Option<RecordMarker>, AuditError> {
    let path = marker_path(folder.path());
    RecordMarker::read(folder.path()).map_err(|source| {
        if source.kind() == io::ErrorKind::InvalidData {
            AuditError::Marker(path)
        } else {
            AuditError::Inspect { path, source }
        }
    })
}

/// The marker to go on with: `kept`, if it was written for the record `id`.
fn marker_for(id: String, kept: Option<RecordMarker>, folder: &LockedFolder) -> RecordMarker {
    match kept {
        Some(marker) if marker.record == id => RecordMarker {
            database: name_of(&folder.database),
            ..marker
        },
        _ => RecordMarker::new(id, &folder.database),
    }
}

/// What the database lacks of what `marker` says.
fn find_shortfall(
    marker: &RecordMarker,
    folder: &LockedFolder,
) -> Result<Option<Shortfall>, AuditError> {
    let found = match compare(marker, &folder.database) {
        Ok(found) => found,
        Err(AuditError::Open { source, .. } | AuditError::Read(source)) if is_damage(&source) => {
            let cause = source.to_string();
            Some(RecordDefect::Damaged { cause })
        }
        Err(error) => return Err(error),
    };
    Ok(found.map(|found| Shortfall {
        folder: folder.path().to_owned(),
        marker: marker.clone(),
        found,
    }))
}

fn compare(marker: &RecordMarker, database: &Path) -> Result<Option<RecordDefect>, AuditError> {
    let bytes = match std::fs::metadata(database) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        found => {
            let path = database.to_owned();
            found
                .map_err(|source| AuditError::Inspect { path, source })?
                .len()
        }
    };
    if bytes == 0 {
        let database = name_of(database);
        return Ok(Some(RecordDefect::Missing { database }));
    }
    // Read-only: what is found here is evidence until somebody has decided what
    // is to be done with it.
    let connection = schema::open_to_read(database)?;
    let id = record_row::id(&connection).map_err(AuditError::Read)?;
    if id.as_ref() != Some(&marker.record) {
        return Ok(Some(RecordDefect::Other { id }));
    }
    let last = last_seq(&connection).map_err(AuditError::Read)?;
    if last < marker.last {
        return Ok(Some(RecordDefect::Fewer { last }));
    }
    if bytes < marker.bytes {
        return check_pages(&connection).map_err(AuditError::Read);
    }
    Ok(None)
}

/// Looks at every page of a database that has become shorter: somebody may have
/// used VACUUM, or have put an old copy beside a newer WAL.
fn check_pages(connection: &Connection) -> rusqlite::Result<Option<RecordDefect>> {
    let sql = "PRAGMA quick_check(1)";
    let cause: String = connection.query_row(sql, [], |row| row.get(0))?;
    Ok((cause != "ok").then_some(RecordDefect::Damaged { cause }))
}

fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
    )
}

/// Renames what is left of the record, so that nothing of it is overwritten and
/// `audit.store` can name it to be read.
fn set_aside(database: &Path, now: Timestamp) -> Result<(), AuditError> {
    let time = now.strftime("%Y%m%dT%H%M%S.%6fZ");
    let aside = beside(database, format!(".before-{time}"));
    // The index is made anew by whoever opens the database.
    for suffix in ["-shm", "-wal", ""] {
        let (from, to) = (beside(database, suffix), beside(&aside, suffix));
        match std::fs::rename(&from, to) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            done => done.map_err(|source| AuditError::Create { path: from, source })?,
        }
    }
    tracing::warn!(to = %aside.display(), "what is left of the record was set aside");
    Ok(())
}
