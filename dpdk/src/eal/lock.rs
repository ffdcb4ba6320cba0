// SPDX-License-Identifier: Apache-2.0
//! One instance a file prefix.
//!
//! With `--in-memory` EAL itself takes no lock, so two instances with one configuration would open the same devices.
//! The lock is a `flock` on a file of our own: the kernel drops it with the process, however that ends. Whoever holds it
//! removes the file at its end; so whoever gets a lock looks whether its file is still the one of that name.

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::host::Host;
use crate::error::EalError;

/// Held as long as the instance runs.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
    path: PathBuf,
}

/// The folder for locks: `/run/sluice` for root, for others below the user's runtime folder, or one of the user's
/// own among temporary files.
pub(crate) fn folder(host: &Host) -> PathBuf {
    let uid = host.uid();
    if uid == Some(0) {
        return PathBuf::from("/run/sluice");
    }
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| folder.is_dir());
    let shared = || std::env::temp_dir().join(format!("sluice-{}", uid.unwrap_or_default()));
    own.map_or_else(shared, |own| own.join("sluice"))
}

impl Lock {
    pub(crate) fn take(folder: &Path, prefix: &str) -> Result<Self, EalError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if prefix.is_empty() || prefix.starts_with('.') || !prefix.chars().all(plain) {
            return Err(EalError::Prefix { prefix: prefix.to_owned() });
        }
        let path = folder.join(format!("{prefix}.lock"));
        let failed = |source| EalError::Lock { path: path.display().to_string(), source };
        std::fs::create_dir_all(folder).map_err(failed)?;
        loop {
            let mut file = open(&path).map_err(failed)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    return Err(EalError::SecondInstance {
                        prefix: prefix.to_owned(),
                        pid: holder(&mut file),
                    });
                }
                Err(TryLockError::Error(source)) => return Err(failed(source)),
            }
            if is_at(&file, &path) {
                note(&mut file).map_err(failed)?;
                return Ok(Self { file, path });
            }
            // Its last holder removed it between our two steps: the next round makes a new one.
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // While the lock is held: see above.
        if is_at(&self.file, &self.path) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

/// Whether the file of that name is this one.
fn is_at(file: &File, path: &Path) -> bool {
    let same = |a: &Metadata, b: &Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    matches!((file.metadata(), std::fs::metadata(path)), (Ok(a), Ok(b)) if same(&a, &b))
}

/// Writes our process number into the lock file, for whoever meets it.
fn note(file: &mut File) -> std::io::Result<()> {
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    writeln!(file, "{}", std::process::id())
}

fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> PathBuf {
        std::env::temp_dir().join(format!("sluice-lock-{}", std::process::id()))
    }

    #[test]
    fn a_second_holder_is_refused_and_told_who_holds() {
        let folder = folder();
        let first = Lock::take(&folder, "twice").unwrap();
        let refused = Lock::take(&folder, "twice").unwrap_err().to_string();
        assert!(
            refused.contains(&format!("\"twice\" is running (process {})", std::process::id())),
            "{refused}"
        );
        drop(Lock::take(&folder, "other").unwrap());
        assert!(!folder.join("other.lock").exists(), "nothing is left behind");
        drop(first);
        drop(Lock::take(&folder, "twice").unwrap());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_lock_on_a_file_that_was_removed_meanwhile_does_not_count() {
        let folder = folder().join("removed");
        let first = Lock::take(&folder, "x").unwrap();
        std::fs::remove_file(folder.join("x.lock")).unwrap();
        // By hand only: then a second one starts, and the first one's end must not remove the second one's file.
        let _second = Lock::take(&folder, "x").unwrap();
        drop(first);
        assert!(matches!(Lock::take(&folder, "x"), Err(EalError::SecondInstance { .. })));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_prefix_cannot_leave_the_folder() {
        for prefix in ["", "..", ".hidden", "a/b", "../a", "a b"] {
            assert!(matches!(Lock::take(&folder(), prefix), Err(EalError::Prefix { .. })), "{prefix:?}");
        }
    }
}
