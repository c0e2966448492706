//! Each firing becomes one line on standard output, and counts as handled only when it is there.
//!
//! One thread writes, so that a reader who is slow holds up no other work, and it writes whatever
//! is waiting at once. After the first failure nothing more is written, since half a line may be
//! there already: every firing from then on is answered with "again later", and we stop
//! (docs/decisions/0030).

use std::fs::File;
use std::io::{self, Write};

use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use punctual_adapters_system::SystemClock;
use punctual_domain::MessageEnvelope;
use punctual_ports::{Answer, ClockPort, MessageHandler};
use tokio::sync::{mpsc, oneshot};

use super::output_stall::OutputStall;
use super::stop::{Reason, Stop};
use crate::display::reason;
use crate::stdout::{self, Blocking, Kind};

/// Maximum number of lines in one write, and in the queue.
const BATCH: usize = 256;

/// Maximum size of an atomic write to a pipe: POSIX guarantees 512, Linux and macOS have these.
const ATOMIC_IN_A_PIPE: usize = if cfg!(target_os = "linux") { 4096 } else { 512 };

/// Maximum size of a write to anything else.
const CHUNK: usize = 64 * 1024;

struct Line {
    bytes: Vec<u8>,
    written: oneshot::Sender<Result<(), String>>,
}

/// Maximum time that a line waits for a reader beside calls, whose events are published with it.
const BESIDE_CALLS: Duration = Duration::from_secs(1);

/// Hands firings to the thread that writes them.
pub(super) struct FiringLines {
    queue: mpsc::Sender<Line>,
    /// `None`: no events of calls wait behind it, so a reader may take any time.
    limit: Option<(SystemClock, Duration)>,
}

/// The other end, which is not started yet.
pub(super) struct Unwritten(mpsc::Receiver<Line>);

impl Unwritten {
    /// Starts to write.
    ///
    /// # Errors
    /// If standard output cannot be written, or there is no thread to write it.
    pub(super) fn start(
        self,
        (mut file, kind): (File, Kind),
        stop: Stop,
        is_durable: bool,
        stall: OutputStall,
    ) -> io::Result<()> {
        if kind == Kind::File && stdout::is_cut(&file) {
            // The previous writer was killed within a line. Ours must not be part of it.
            file.write_all(b"\n")?;
        }
        if kind == Kind::Nowhere {
            tracing::warn!("standard output is closed or /dev/null: firings are discarded");
        }
        let lines = self.0;
        let writer = Writer {
            chunk_limit: if kind == Kind::Pipe {
                ATOMIC_IN_A_PIPE
            } else {
                CHUNK
            },
            // A mark that survives a power failure must not outlive the line that it stands for.
            syncs: is_durable && kind == Kind::File,
            file,
            stall,
            broken: None,
        };
        std::thread::Builder::new()
            .name("firing-lines".to_owned())
            .spawn(move || writer.run(lines, &stop))?;
        Ok(())
    }
}

impl FiringLines {
    /// Both ends.
    pub(super) fn new() -> (Self, Unwritten) {
        let (queue, lines) = mpsc::channel(BATCH);
        (Self { queue, limit: None }, Unwritten(lines))
    }

    /// The same beside calls, whose events a reader who does not read must not hold up.
    pub(super) fn beside_calls(self, clock: SystemClock) -> Self {
        Self {
            limit: Some((clock, BESIDE_CALLS)),
            ..self
        }
    }

    /// Waits until a line is there, or for as long as may be waited.
    async fn write_in_time(&self, envelope: &MessageEnvelope) -> Result<(), String> {
        let Some((clock, limit)) = &self.limit else {
            return self.write(envelope).await;
        };
        tokio::select! {
            biased;
            written = self.write(envelope) => written,
            // It may be written later all the same, and comes twice then.
            () = clock.sleep_for(*limit) => Err("standard output is not being read".to_owned()),
        }
    }

    async fn write(&self, envelope: &MessageEnvelope) -> Result<(), String> {
        let mut bytes = envelope.to_json().map_err(|error| error.to_string())?;
        bytes.push(b'\n');
        let (written, answer) = oneshot::channel();
        let stopped = || "the writer of standard output has stopped".to_owned();
        let line = Line { bytes, written };
        self.queue.send(line).await.map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }
}

#[async_trait]
impl MessageHandler for FiringLines {
    async fn handle(&self, batch: Vec<MessageEnvelope>) -> Vec<Answer> {
        let written = join_all(batch.iter().map(|one| self.write_in_time(one))).await;
        let answer = |written| match written {
            Ok(()) => Answer::Done,
            Err(reason) => Answer::RetryLater { reason },
        };
        written.into_iter().map(answer).collect()
    }
}

struct Writer {
    file: File,
    stall: OutputStall,
    chunk_limit: usize,
    syncs: bool,
    broken: Option<String>,
}

impl Writer {
    fn run(mut self, mut lines: mpsc::Receiver<Line>, stop: &Stop) {
        let mut batch = Vec::with_capacity(BATCH);
        while lines.blocking_recv_many(&mut batch, BATCH) > 0 {
            let written = self.write(&batch);
            if let Some(reason) = &self.broken {
                stop.request(Reason::Failed(format!(
                    "firings cannot be written to standard output any more ({reason}): the timers that were not written stay scheduled and fire after the next start"
                )));
            }
            for (n, line) in batch.drain(..).enumerate() {
                let answer = match &self.broken {
                    Some(reason) if n >= written => Err(reason.clone()),
                    _ => Ok(()),
                };
                // The handler may have been dropped; the line is written all the same.
                let _ = line.written.send(answer);
            }
        }
    }

    /// Writes lines, and returns how many of them are there for certain.
    fn write(&mut self, batch: &[Line]) -> usize {
        if self.broken.is_some() {
            return 0;
        }
        let lines: Vec<&[u8]> = batch.iter().map(|line| line.bytes.as_slice()).collect();
        let mut out = self.stall.watched(Blocking(&self.file));
        let (written, mut result) = write_lines(&mut out, &lines, self.chunk_limit);
        if result.is_ok() && self.syncs {
            result = self.file.sync_data();
        }
        match result {
            Ok(()) => written,
            Err(error) => {
                self.broken = Some(reason(&error));
                if self.syncs { 0 } else { written }
            }
        }
    }
}

/// Writes complete lines, as many at once as fit in a chunk; a longer line goes by itself. Returns
/// how many were written.
fn write_lines(
    out: &mut impl Write,
    lines: &[&[u8]],
    chunk_limit: usize,
) -> (usize, io::Result<()>) {
    let mut chunk = Vec::new();
    let mut written = 0;
    while written < lines.len() {
        chunk.clear();
        let mut end = written;
        while let Some(line) = lines.get(end) {
            if !chunk.is_empty() && chunk.len() + line.len() > chunk_limit {
                break;
            }
            chunk.extend_from_slice(line);
            end += 1;
        }
        if let Err(error) = out.write_all(&chunk) {
            return (written, Err(error));
        }
        written = end;
    }
    (written, Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accepts a number of writes, keeps them, and then fails.
    struct Takes(usize, Vec<Vec<u8>>);

    impl Write for Takes {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.0 == 0 {
                return Err(io::Error::from(io::ErrorKind::BrokenPipe));
            }
            self.0 -= 1;
            self.1.push(bytes.to_vec());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_are_never_divided_between_writes() {
        let mut out = Takes(9, vec![]);
        let lines: [&[u8]; 5] = [b"aa\n", b"bb\n", b"ccccccccc\n", b"d\n", b"e\n"];
        let (written, result) = write_lines(&mut out, &lines, 6);
        assert!(result.is_ok());
        assert_eq!(written, 5);
        let writes: [&[u8]; 3] = [b"aa\nbb\n", b"ccccccccc\n", b"d\ne\n"];
        assert_eq!(out.1, writes);
    }

    #[test]
    fn only_what_was_written_before_the_failure_counts() {
        let lines: [&[u8]; 3] = [b"aa\n", b"bb\n", b"cc\n"];
        let (written, result) = write_lines(&mut Takes(1, vec![]), &lines, 6);
        assert_eq!(written, 2);
        assert!(result.is_err());
    }
}
