//! What a server writes, line by line: how its start and its end are noticed without a clock.

use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// After this long without a word, a server is taken to hang.
const PATIENCE: Duration = Duration::from_secs(30);

/// How many lines are kept to be shown when something went wrong.
const KEPT: usize = 30;

/// A server's log. Its reader goes on until the server ends, so that the pipe is never full.
#[derive(Debug)]
pub(crate) struct Log {
    lines: Receiver<String>,
    reader: Option<JoinHandle<()>>,
    last: Vec<String>,
}

/// Why what was waited for did not come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Silence {
    /// The server has closed its log: it has ended.
    Ended,
    /// It said nothing for too long.
    Hangs,
}

impl Log {
    pub(crate) fn of(source: impl Read + Send + 'static) -> Self {
        let (sender, lines) = channel();
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(source).split(b'\n') {
                let Ok(line) = line else { return };
                // Nobody may be listening any more, and the pipe has to be emptied all the same.
                let _ = sender.send(String::from_utf8_lossy(&line).into_owned());
            }
        });
        Self {
            lines,
            reader: Some(reader),
            last: Vec::new(),
        }
    }

    /// Waits for a line with these words.
    pub(crate) fn wait_for(&mut self, words: &str) -> Result<(), Silence> {
        while !self.next()?.contains(words) {}
        Ok(())
    }

    /// Waits until the server has closed its log; `false` if it went silent without doing so.
    pub(crate) fn wait_for_end(&mut self) -> bool {
        loop {
            match self.next() {
                Ok(_) => {}
                Err(Silence::Ended) => {
                    if let Some(reader) = self.reader.take() {
                        reader.join().unwrap();
                    }
                    return true;
                }
                Err(Silence::Hangs) => return false,
            }
        }
    }

    /// The last lines read.
    pub(crate) fn tail(&self) -> String {
        self.last.join("\n")
    }

    fn next(&mut self) -> Result<&str, Silence> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => {
                if self.last.len() == KEPT {
                    self.last.remove(0);
                }
                self.last.push(line);
                Ok(self.last.last().unwrap())
            }
            Err(RecvTimeoutError::Disconnected) => Err(Silence::Ended),
            Err(RecvTimeoutError::Timeout) => Err(Silence::Hangs),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_by_its_words_and_the_end_is_told_from_silence() {
        let mut log = Log::of("one\ntwo is here\nthree\n".as_bytes());
        assert_eq!(log.wait_for("two"), Ok(()));
        assert_eq!(log.wait_for("four"), Err(Silence::Ended));
        assert_eq!(log.tail(), "one\ntwo is here\nthree");
        assert!(log.wait_for_end());
    }

    #[test]
    fn only_the_last_lines_are_kept() {
        let text = (0..100)
            .map(|n| format!("line {n}"))
            .collect::<Vec<_>>()
            .join("\n");
        let mut log = Log::of(std::io::Cursor::new(text));
        assert!(log.wait_for_end());
        assert_eq!(log.tail().lines().count(), KEPT);
        assert!(log.tail().ends_with("line 99"));
    }
}
