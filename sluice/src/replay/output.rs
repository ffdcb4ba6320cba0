// SPDX-License-Identifier: Apache-2.0
//! A file that appears whole or not at all.
//!
//! Invariant: what stood under the name before is there, untouched, until all is written; only then it is replaced,
//! by renaming a file that was written beside it. What is no regular file (a pipe, a device) can be neither replaced
//! nor taken back: it is written to as it comes, and never removed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// See the module.
#[derive(Debug)]
pub(super) struct Output {
    file: BufWriter<File>,
    /// The file that is written, and whose place it takes.
    beside: Option<(PathBuf, PathBuf)>,
}

impl Output {
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let old = match fs::metadata(path) {
            Ok(old) if !old.is_file() => {
                let file = OpenOptions::new().write(true).open(path)?;
                return Ok(Self { file: BufWriter::new(file), beside: None });
            }
            Ok(old) => Some(old),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        if let Some(old) = &old
            && old.permissions().readonly()
        {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        // of a link, what it leads to is replaced
        let place = if old.is_some() { path.canonicalize()? } else { path.to_owned() };
        let Some(name) = place.file_name() else { return Err(io::ErrorKind::InvalidFilename.into()) };
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}.part", std::process::id()));
        let part = place.with_file_name(hidden);
        let file = OpenOptions::new().write(true).create_new(true).open(&part)?;
        let output = Self { file: BufWriter::new(file), beside: Some((part, place)) };
        if let Some(old) = old {
            output.file.get_ref().set_permissions(old.permissions())?;
        }
        Ok(output)
    }

    /// All is written: it may be seen.
    pub(super) fn commit(mut self) -> io::Result<()> {
        self.file.flush()?;
        if let Some((part, place)) = &self.beside {
            fs::rename(part, place)?;
        }
        self.beside = None;
        Ok(())
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some((part, _)) = &self.beside {
            // nobody reads the rest of it; where even that fails, the error at hand is the one to tell
            let _ = fs::remove_file(part);
        }
    }
}
