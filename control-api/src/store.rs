// SPDX-License-Identifier: Apache-2.0
//! Records on disk: SQLite in WAL mode, written by one thread.
//!
//! Invariant: when [`Store::commit`] returns, all its rows or, on an error, none of them outlive the death of the
//! process at any moment. In WAL mode with `synchronous = NORMAL` a commit has been written to the log file, so
//! the kernel holds it whatever becomes of us, and recovery drops a torn tail by its checksums. Power is another
//! matter: [`Syncer`] flushes the log within [`SYNC_EVERY`] of a commit, so a power cut costs that much and no
//! acknowledgement waits for a disk.
//!
//! A lock file beside the store (`flock`, so it goes with the process) keeps a second Sluice out.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, params};

/// Time between the first unflushed commit and the flush.
const SYNC_EVERY: Duration = Duration::from_millis(50);
/// "SLUC", SQLite's `application_id` of our files.
const APPLICATION: i32 = 0x534C_5543;
/// Layout of the tables, SQLite's `user_version`.
const LAYOUT: i32 = 2;
/// The log is cut back to this after a large commit.
const WAL_BYTES: u32 = 64 * 1024 * 1024;
/// Pages of the log at which a commit itself copies it into the database. [`Syncer`] does so long before; this
/// only bounds the log where commits come without a pause, so that it would never find the end of it.
const WAL_PAGES: u32 = WAL_BYTES / 4096;
/// Page cache: the inner pages of a million records and the leaves in use. Negative: KiB.
const CACHE_KIB: i32 = -32 * 1024;

const TABLES: &str = "
    CREATE TABLE subscriber (id TEXT PRIMARY KEY, rev INTEGER NOT NULL, record TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE state (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
    INSERT INTO state VALUES ('revision', 0), ('seeded', 0);";

/// Since layout 2.
const PARENTS: &str = "
    CREATE TABLE IF NOT EXISTS parent (id TEXT PRIMARY KEY, rev INTEGER NOT NULL, record TEXT NOT NULL) WITHOUT ROWID;";

/// Why a store cannot be used: one sentence with its path.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file or its folder cannot be made or written.
    #[error(
        "store {path}: cannot be written: {reason}; let store.path name a folder that this user may write"
    )]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// Another process has it.
    #[error("store {path}: is in use by another process; stop it or give this one a path of its own")]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// Not a database, or a damaged one.
    #[error(
        "store {path}: is damaged or not a Sluice store ({reason}); restore a copy of it or move it away"
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Written by a later version.
    #[error("store {path}: has layout {found}, this version knows {LAYOUT}; use the Sluice that wrote it")]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its layout.
        found: i32,
    },
    /// Anything else SQLite reports.
    #[error("store {path}: {reason}")]
    Failed {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        reason: String,
    },
}

/// How [`Store::load`] goes through the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// By name, as they lie: nothing is to be sorted.
    Names,
    /// Oldest first.
    Revisions,
}

/// What a row holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    Subscribers,
    Parents,
}

/// A row to write (revision, text) or to erase.
pub(crate) struct Row<'a> {
    pub(crate) table: Table,
    pub(crate) id: &'a str,
    pub(crate) record: Option<(u64, &'a str)>,
}

/// The open store. Lives on the thread that writes.
pub struct Store {
    path: PathBuf,
    connection: Connection,
    syncer: Syncer,
    _lock: File,
}

impl Store {
    /// Opens the store and makes it if it is missing.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let emptied = path.metadata().is_ok_and(|file| file.len() == 0) && lock_path(path).exists();
        let lock = lock(path)?;
        if emptied {
            tracing::warn!(store = %path.display(), "the store was used before and is empty: it begins anew, without records");
        }
        let connection = connect(path).map_err(|error| explain(path, &error))?;
        prepare(path, &connection)?;
        sync_folder(path);
        let syncer = Syncer::start(path)?;
        Ok(Self { path: path.to_owned(), connection, syncer, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the configuration's records went in once.
    pub(crate) fn seeded(&self) -> Result<bool, StoreError> {
        Ok(self.state("seeded")? != 0)
    }

    /// The last revision given out.
    pub(crate) fn revision(&self) -> Result<u64, StoreError> {
        Ok(u64::try_from(self.state("revision")?).unwrap_or(0))
    }

    fn state(&self, name: &str) -> Result<i64, StoreError> {
        self.connection
            .query_row("SELECT value FROM state WHERE name = ?1", [name], |row| row.get(0))
            .map_err(|error| explain(&self.path, &error))
    }

    /// How many records it holds.
    pub(crate) fn records(&self) -> Result<u64, StoreError> {
        let count =
            self.connection.query_row("SELECT count(*) FROM subscriber", [], |row| row.get::<_, i64>(0));
        Ok(u64::try_from(count.map_err(|error| explain(&self.path, &error))?).unwrap_or(0))
    }

    /// Hands each record (name, revision, text) to `each`.
    pub(crate) fn load(
        &self,
        order: Order,
        each: impl FnMut(&str, u64, &str) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let query = match order {
            Order::Names => "SELECT id, rev, record FROM subscriber ORDER BY id",
            Order::Revisions => "SELECT id, rev, record FROM subscriber ORDER BY rev, id",
        };
        self.read(query, each)
    }

    /// The same of aggregates, by name.
    pub(crate) fn load_parents(
        &self,
        each: impl FnMut(&str, u64, &str) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.read("SELECT id, rev, record FROM parent ORDER BY id", each)
    }

    fn read(
        &self,
        query: &str,
        mut each: impl FnMut(&str, u64, &str) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let explain = |error| explain(&self.path, &error);
        let mut select = self.connection.prepare(query).map_err(explain)?;
        let mut rows = select.query([]).map_err(explain)?;
        while let Some(row) = rows.next().map_err(explain)? {
            let id = row.get_ref(0).and_then(|value| Ok(value.as_str()?)).map_err(explain)?;
            let rev: i64 = row.get(1).map_err(explain)?;
            let record = row.get_ref(2).and_then(|value| Ok(value.as_str()?)).map_err(explain)?;
            each(id, u64::try_from(rev).unwrap_or(0), record)?;
        }
        Ok(())
    }

    /// Writes all rows or none, with the revision reached.
    pub(crate) fn commit<'a>(
        &mut self,
        rows: impl Iterator<Item = Row<'a>>,
        revision: u64,
    ) -> Result<(), StoreError> {
        self.transaction(|transaction| {
            let mut write =
                transaction.prepare_cached("INSERT OR REPLACE INTO subscriber VALUES (?1, ?2, ?3)")?;
            let mut erase = transaction.prepare_cached("DELETE FROM subscriber WHERE id = ?1")?;
            let mut write_parent =
                transaction.prepare_cached("INSERT OR REPLACE INTO parent VALUES (?1, ?2, ?3)")?;
            let mut erase_parent = transaction.prepare_cached("DELETE FROM parent WHERE id = ?1")?;
            for Row { table, id, record } in rows {
                let (write, erase) = match table {
                    Table::Subscribers => (&mut write, &mut erase),
                    Table::Parents => (&mut write_parent, &mut erase_parent),
                };
                match record {
                    Some((rev, record)) => write.execute(params![id, signed(rev), record])?,
                    None => erase.execute([id])?,
                };
            }
            set_state(transaction, "revision", signed(revision))
        })
    }

    /// Notes that the configuration's records are in.
    pub(crate) fn mark_seeded(&mut self) -> Result<(), StoreError> {
        self.transaction(|transaction| set_state(transaction, "seeded", 1))
    }

    fn transaction(
        &mut self,
        work: impl FnOnce(&rusqlite::Transaction<'_>) -> rusqlite::Result<()>,
    ) -> Result<(), StoreError> {
        let attempt = self
            .connection
            .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
            .and_then(|transaction| {
                work(&transaction)?;
                transaction.commit()
            });
        attempt.map_err(|error| explain(&self.path, &error))?;
        self.syncer.dirty();
        Ok(())
    }
}

fn set_state(transaction: &rusqlite::Transaction<'_>, name: &str, value: i64) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("UPDATE state SET value = ?2 WHERE name = ?1")?
        .execute(params![name, value])
        .map(drop)
}

/// SQLite has signed integers only; a revision never comes near their end.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Makes the folder and takes the lock file.
fn lock(path: &Path) -> Result<File, StoreError> {
    let unwritable =
        |error: std::io::Error| StoreError::Unwritable { path: path.to_owned(), reason: error.to_string() };
    if path.is_dir() {
        return Err(StoreError::Unwritable { path: path.to_owned(), reason: "it is a folder".to_owned() });
    }
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder).map_err(unwritable)?;
    }
    let file = File::options().create(true).truncate(false).write(true).open(lock_path(path));
    let file = file.map_err(unwritable)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::Locked { path: path.to_owned() }),
        Err(TryLockError::Error(error)) => Err(unwritable(error)),
    }
}

/// What is locked: it stays beside the store once it was opened.
fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

/// The name of a new file is only on disk once its folder is.
fn sync_folder(path: &Path) {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let synced = File::open(folder.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all());
    if let Err(error) = synced {
        tracing::warn!(store = %path.display(), %error, "the store's folder could not be flushed");
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_EXRESCODE;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(Duration::from_secs(2))?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "cache_size", CACHE_KIB)?;
    connection.pragma_update_and_check(None, "wal_autocheckpoint", WAL_PAGES, |_| Ok(()))?;
    connection.pragma_update_and_check(None, "journal_size_limit", WAL_BYTES, |_| Ok(()))?;
    Ok(connection)
}

/// Checks whose file it is and lays out an empty one.
fn prepare(path: &Path, connection: &Connection) -> Result<(), StoreError> {
    let explain = |error| explain(path, &error);
    let pragma = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    let (application, layout) =
        (pragma("application_id").map_err(explain)?, pragma("user_version").map_err(explain)?);
    let tables: i32 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(explain)?;
    if tables > 0 && application != APPLICATION {
        return Err(StoreError::Corrupt {
            path: path.to_owned(),
            reason: "it is a database of another program".to_owned(),
        });
    }
    if layout > LAYOUT {
        return Err(StoreError::Newer { path: path.to_owned(), found: layout });
    }
    let create = if tables == 0 { TABLES } else { "" };
    // Also written where nothing changes, so that a store that cannot be written is found now.
    connection
        .execute_batch(&format!(
            "BEGIN IMMEDIATE; {create} {PARENTS} PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {LAYOUT}; COMMIT;"
        ))
        .map_err(explain)
}

/// SQLite's error as a sentence for an operator.
fn explain(path: &Path, error: &rusqlite::Error) -> StoreError {
    let path = path.to_owned();
    let reason = error.to_string();
    // what SQLite reads without complaint, but is not what was written
    let garbled = matches!(
        error,
        rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::Utf8Error(..)
    );
    match error.sqlite_error_code() {
        _ if garbled => StoreError::Corrupt { path, reason },
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Locked { path },
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => StoreError::Corrupt { path, reason },
        Some(
            ErrorCode::ReadOnly
            | ErrorCode::CannotOpen
            | ErrorCode::PermissionDenied
            | ErrorCode::DiskFull
            | ErrorCode::SystemIoFailure,
        ) => StoreError::Unwritable { path, reason },
        _ => StoreError::Failed { path, reason },
    }
}

/// Flushes the log a little after each commit, from a thread and a connection of its own.
struct Syncer {
    shared: Arc<(Mutex<SyncState>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct SyncState {
    dirty: bool,
    stop: bool,
}

impl Syncer {
    fn start(path: &Path) -> Result<Self, StoreError> {
        let connection = connect(path).map_err(|error| explain(path, &error))?;
        let shared = Arc::new((Mutex::new(SyncState::default()), Condvar::new()));
        let (theirs, name) = (Arc::clone(&shared), path.to_owned());
        let thread = std::thread::Builder::new()
            .name("sluice-sync".to_owned())
            .spawn(move || sync_loop(&connection, &theirs, &name))
            .map_err(|error| StoreError::Failed { path: path.to_owned(), reason: error.to_string() })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// There is something to flush. Only the first to say so wakes the thread: it flushes what comes until then.
    fn dirty(&self) {
        let (state, bell) = &*self.shared;
        if !std::mem::replace(&mut state.lock().unwrap_or_else(PoisonError::into_inner).dirty, true) {
            bell.notify_one();
        }
    }

    fn stop(&self) {
        let (state, bell) = &*self.shared;
        state.lock().unwrap_or_else(PoisonError::into_inner).stop = true;
        bell.notify_one();
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.stop();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the store's flushing thread had panicked");
        }
    }
}

/// A passive checkpoint flushes the log, copies it into the database and flushes that; writers go on meanwhile.
fn sync_loop(connection: &Connection, shared: &(Mutex<SyncState>, Condvar), path: &Path) {
    let (state, bell) = shared;
    loop {
        let guard = state.lock().unwrap_or_else(PoisonError::into_inner);
        let guard = bell
            .wait_while(guard, |state| !state.dirty && !state.stop)
            .unwrap_or_else(PoisonError::into_inner);
        let (mut guard, _) = bell
            .wait_timeout_while(guard, SYNC_EVERY, |state| !state.stop)
            .unwrap_or_else(PoisonError::into_inner);
        let (dirty, stop) = (std::mem::take(&mut guard.dirty), guard.stop);
        drop(guard);
        if dirty {
            let flushed = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
            if let Err(error) = flushed {
                tracing::warn!(store = %path.display(), %error, "the store's log could not be flushed");
            }
        }
        if stop {
            return;
        }
    }
}
