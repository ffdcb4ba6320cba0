// SPDX-License-Identifier: Apache-2.0
//! A program in a real terminal of 80 by 24: `script` (util-linux) gives it one, and what it paints is kept as a screen.

use std::io::{Read as _, Write as _};
use std::num::NonZero;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::machine::wait_for;

/// Lines and columns.
const ROWS: NonZero<u16> = NonZero::new(24).expect("not zero");
const COLUMNS: NonZero<u16> = NonZero::new(80).expect("not zero");

/// The terminal and what runs in it, ended when dropped.
pub struct Pty {
    child: Child,
    keys: ChildStdin,
    screen: Arc<Mutex<vt100::Parser>>,
}

impl Pty {
    /// Runs a line of shell.
    pub fn run(line: &str) -> Result<Self> {
        let line = format!("stty rows {ROWS} cols {COLUMNS}; {line}");
        let mut child = Command::new("script")
            .args(["-q", "-e", "-c", &line, "/dev/null"])
            .env("TERM", "xterm-256color")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("`script` cannot be started; install util-linux")?;
        let keys = child.stdin.take().context("no standard input")?;
        let mut output = child.stdout.take().context("no standard output")?;
        let screen = Arc::new(Mutex::new(vt100::Parser::new(ROWS, COLUMNS, 0)));
        let painter = Arc::clone(&screen);
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut piece) {
                let mut screen = painter.lock().unwrap_or_else(PoisonError::into_inner);
                screen.process(piece.get(..count).unwrap_or_default());
            }
        });
        Ok(Self { child, keys, screen })
    }

    fn with<T>(&self, look: impl FnOnce(&vt100::Screen) -> T) -> T {
        look(self.screen.lock().unwrap_or_else(PoisonError::into_inner).screen())
    }

    /// What is on the screen.
    pub fn text(&self) -> String {
        self.with(vt100::Screen::contents)
    }

    /// Whether a full-screen program holds the terminal: the other screen, or the cursor hidden.
    pub fn held(&self) -> bool {
        self.with(|screen| screen.alternate_screen() || screen.hide_cursor())
    }

    /// Presses keys.
    pub fn press(&mut self, keys: &str) -> Result<()> {
        self.keys.write_all(keys.as_bytes())?;
        Ok(self.keys.flush()?)
    }

    /// Waits until the screen is as wanted; whether it came to be.
    pub fn shows(&self, limit: Duration, wanted: impl Fn(&str) -> bool) -> bool {
        wait_for(limit, || wanted(&self.text()))
    }

    /// Waits for its end; whether it came.
    pub fn ended(&mut self, limit: Duration) -> bool {
        wait_for(limit, || matches!(self.child.try_wait(), Ok(Some(_))))
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
