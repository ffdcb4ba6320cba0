// SPDX-License-Identifier: Apache-2.0
//! Where the demo prints: blocks replace each other on a terminal and follow each other elsewhere.

use std::io::{self, IsTerminal as _, Write};

/// Standard output, or what stands in for it.
pub struct Screen {
    out: Box<dyn Write>,
    terminal: bool,
    /// Lines of the block that the next one replaces.
    drawn: usize,
    /// Whether the last line is empty.
    blank: bool,
}

impl Screen {
    /// Standard output.
    pub fn stdout() -> Self {
        let out = io::stdout();
        let terminal = out.is_terminal();
        Self { out: Box::new(out), terminal, drawn: 0, blank: true }
    }

    /// A line that stays.
    pub fn say(&mut self, line: &str) -> io::Result<()> {
        self.drawn = 0;
        self.blank = line.is_empty();
        writeln!(self.out, "{line}")?;
        self.out.flush()
    }

    /// An empty line where there is none.
    pub fn gap(&mut self) -> io::Result<()> {
        if self.blank { Ok(()) } else { self.say("") }
    }

    /// A block in the place of the last one, if nothing was said since.
    pub fn block(&mut self, lines: &[String]) -> io::Result<()> {
        if self.terminal && self.drawn > 0 {
            // up so many lines, then clear to the end of the screen
            write!(self.out, "\x1b[{}A\r\x1b[J", self.drawn)?;
        }
        for line in lines {
            writeln!(self.out, "{line}")?;
        }
        if !self.terminal {
            writeln!(self.out)?;
        }
        self.blank = !self.terminal;
        self.drawn = lines.len();
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn printed(terminal: bool) -> String {
        let paper = Paper::default();
        let mut screen = Screen { out: Box::new(paper.clone()), terminal, drawn: 0, blank: true };
        let block = |text: &str| [text.to_owned(), "-".to_owned()];
        screen.block(&block("a")).unwrap();
        screen.block(&block("b")).unwrap();
        screen.gap().unwrap();
        screen.gap().unwrap();
        screen.say("c").unwrap();
        screen.block(&block("d")).unwrap();
        String::from_utf8(paper.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn on_a_terminal_a_block_replaces_the_last_one_but_not_what_was_said() {
        assert_eq!(printed(true), "a\n-\n\x1b[2A\r\x1b[Jb\n-\n\nc\nd\n-\n");
    }

    #[test]
    fn elsewhere_blocks_follow_each_other() {
        assert_eq!(printed(false), "a\n-\n\nb\n-\n\nc\nd\n-\n\n");
    }
}
