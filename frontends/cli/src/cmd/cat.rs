//! `diorite cat`: contents of files to standard output.
//!
//! Input: an image and paths. Output: bytes. Invariants: many requests are in flight, the bytes come in order; what could be
//! read before an error is printed before it. Limits: 32 MiB of buffers; holes are read as zeros without the device.

use crate::args::{CatArgs, Global};
use crate::image::{self, bytes};
use crate::output::Out;
use crate::report::{Reason, Report};
use diorite::{Completion, Error, File, Queue, Request, Volume};
use diorite_block::{Buf, BufPool};
use std::collections::VecDeque;
use std::process::ExitCode;

/// Bytes per request.
const CHUNK: usize = 256 << 10;
/// Requests in flight.
const DEPTH: usize = 128;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &CatArgs) -> ExitCode {
    let mut report = Report::new("cat", &args.img);
    let Some(volume) = image::open(&args.img, global, &mut report) else {
        return report.exit_code();
    };
    let mut reader = match Reader::new(&volume) {
        Ok(reader) => reader,
        Err(error) => {
            report.image(error);
            return report.exit_code();
        }
    };
    let mut out = Out::new();
    for path in args.paths.iter().map(|p| bytes(p)) {
        if let Err(reason) = one(&volume, &mut reader, path, &mut out) {
            report.file(path, reason);
        }
    }
    out.finish();
    report.exit_code()
}

fn one(volume: &Volume, reader: &mut Reader, path: &[u8], out: &mut Out) -> Result<(), Reason> {
    let file = image::find(volume, path, true)?;
    let inode = &*file.metadata();
    if inode.is_dir() {
        return Err(Reason::new("Is a directory"));
    }
    if !inode.is_file() {
        let word = crate::facts::type_word(inode.file_type);
        return Err(Reason::new(format!(
            "Not a regular file ({word}): it has no contents"
        )));
    }
    Ok(reader.copy(&file, out)?)
}

/// Reads files from front to back, far ahead.
struct Reader {
    queue: Queue,
    pool: BufPool,
    /// Bufs in the pool: as many as the longest file so far could use.
    bufs: usize,
    batch: VecDeque<Request>,
    done: Vec<Completion>,
    /// Finished chunks by their number modulo the depth, until it is their turn.
    early: Vec<Option<Completion>>,
}

impl Reader {
    fn new(volume: &Volume) -> Result<Reader, Error> {
        let depth = u32::try_from(DEPTH).expect("the depth is a small constant");
        Ok(Reader {
            queue: volume.queue(depth)?,
            pool: BufPool::new(CHUNK, 1),
            bufs: 1,
            batch: VecDeque::with_capacity(DEPTH),
            done: Vec::with_capacity(DEPTH),
            early: (0..DEPTH).map(|_| None).collect(),
        })
    }

    fn copy(&mut self, file: &File, out: &mut Out) -> Result<(), Error> {
        let id = self.queue.attach(file)?;
        let chunks = file.size().div_ceil(CHUNK as u64);
        let useful = usize::try_from(chunks).map_or(DEPTH, |n| n.min(DEPTH));
        if useful > self.bufs {
            (self.pool, self.bufs) = (BufPool::new(CHUNK, useful), useful);
        }
        let (mut asked, mut printed) = (0, 0);
        let mut failed = None;
        while printed < asked || asked < chunks && failed.is_none() {
            while asked < chunks && asked - printed < DEPTH as u64 && failed.is_none() {
                let Some(buf) = self.pool.get() else { break };
                self.batch
                    .push_back(Request::read(id, asked * CHUNK as u64, buf, asked));
                asked += 1;
            }
            self.queue.submit(&mut self.batch);
            self.queue.reap(&mut self.done, 1, None);
            for completion in self.done.drain(..) {
                let place = slot(completion.token);
                self.early[place] = Some(completion);
            }
            while let Some(next) = self.early[slot(printed)].take() {
                printed += 1;
                let buf = print(next, &mut failed, out);
                self.pool.put(buf);
            }
        }
        self.queue.detach(id);
        failed.map_or(Ok(()), Err)
    }
}

/// Where a chunk waits for its turn.
fn slot(chunk: u64) -> usize {
    usize::try_from(chunk % DEPTH as u64).expect("less than the depth")
}

/// Prints a chunk, unless one before it failed.
fn print(chunk: Completion, failed: &mut Option<Error>, out: &mut Out) -> Buf {
    match chunk.result {
        Ok(len) if failed.is_none() => out.bytes(&chunk.buf.as_slice()[..len]),
        Ok(_) => {}
        Err(error) => {
            failed.get_or_insert(error);
        }
    }
    chunk.buf
}
