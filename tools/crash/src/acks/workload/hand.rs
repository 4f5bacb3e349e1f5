//! What it is: one thread of a workload. Input: a scene, a seed. Output: requests, noted. Invariants: most of what a thread writes
//! is in sectors of its own, in blocks that other threads write, too; a step ends before the next begins, but the requests of a
//! batch are in flight together. Limits: see [`super`].

use super::super::bed::LOG;
use super::super::history::{Of, Promise, Write};
use super::super::names::{DIRS, Shown, dir_path};
use super::Scene;
use crate::error::Result;
use crate::rng::Rng;
use crate::stamp::{OF_APPEND, SECTOR, fill};
use diorite::{
    Completion, Error, Fallocate, File, FileId, Op, OpenFlags, Queue, Request, RequestFlags,
};
use diorite_block::Buf;
use diorite_format::InodeFlags;
use std::collections::VecDeque;
use std::ops::Range;

/// Kinds of steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A write, direct or through the page cache, into data or into space that is not written yet.
    Write,
    /// A write whose acknowledgement promises that it is durable.
    Promised,
    /// A promised write to a sector that another write has just been requested for: its mapping may not be committed.
    Chase,
    Append,
    /// An fsync or fdatasync of any file, whoever wrote it.
    Sync,
    SyncVolume,
    SyncDir,
    Names,
    /// A range is made zero.
    Zero,
    /// Several requests on a queue.
    Batch,
    /// Sets the flag S on a file that others have open and attached.
    Flag,
    /// A write into a file that this thread has created, perhaps with an fsync.
    New,
    /// A read, mostly through the page cache.
    Read,
}

/// How often a step is of a kind, in a thread that does this kind at all.
const KINDS: [(Kind, u64); 13] = [
    (Kind::Write, 6),
    (Kind::Promised, 10),
    (Kind::Chase, 6),
    (Kind::Append, 4),
    (Kind::Sync, 8),
    (Kind::SyncVolume, 1),
    (Kind::SyncDir, 2),
    (Kind::Names, 4),
    (Kind::Zero, 1),
    (Kind::Batch, 4),
    (Kind::Flag, 1),
    (Kind::New, 3),
    (Kind::Read, 3),
];

/// The ways in which a file is opened.
const FLAVOURS: [OpenFlags; 3] = [
    OpenFlags::writable(),
    OpenFlags::writable().dsync(true),
    OpenFlags::writable().sync(true),
];

const DEPTH: u32 = 8;

/// How many of the last writes [`Kind::Chase`] chooses from.
const LATEST: usize = 4;

/// A file that may get the flag S, besides the file for appends.
const FLAGGED: u32 = 6;

/// One thread. See the module.
pub(super) struct Hand<'a> {
    pub(super) scene: &'a Scene<'a>,
    pub(super) thread: u32,
    pub(super) rng: Rng,
    /// The kinds of steps that the thread does, each with the sum of the frequencies up to it.
    likes: Vec<(Kind, u64)>,
    /// The files of the image: size in sectors, and a handle for each of [`FLAVOURS`].
    files: Vec<(u64, [File; 3])>,
    dirs: Vec<File>,
    queue: Queue,
    ids: Vec<FileId>,
    /// The names that it has created, and the files that it created last.
    pub(super) shown: Shown,
    pub(super) made: Vec<(u32, File)>,
}

/// What a queue's token refers to: the number of a write or of a sync.
enum Token {
    Write(u32),
    Sync(usize),
}

impl<'a> Hand<'a> {
    pub(super) fn new(scene: &'a Scene<'a>, thread: u32, seed: u64) -> Result<Hand<'a>> {
        let mut rng = Rng::new(seed);
        let starts = scene.told().history.files.clone();
        let mut files = Vec::new();
        for start in &starts {
            let Some(path) = &start.path else { continue };
            let open = |flags| scene.volume.open_path(path, flags);
            let handles = [open(FLAVOURS[0])?, open(FLAVOURS[1])?, open(FLAVOURS[2])?];
            files.push((start.size / SECTOR as u64, handles));
        }
        let queue = scene.volume.queue(DEPTH)?;
        let ids = files.iter().map(|(_, handles)| queue.attach(&handles[0]));
        let ids = ids.collect::<std::result::Result<_, _>>()?;
        let dirs = (0..DIRS).map(|n| scene.volume.open_path(&dir_path(n), OpenFlags::default()));
        let dirs = dirs.collect::<std::result::Result<_, _>>()?;
        Ok(Hand {
            scene,
            thread,
            likes: likes(&mut rng),
            rng,
            files,
            dirs,
            queue,
            ids,
            shown: Shown::new(),
            made: Vec::new(),
        })
    }

    pub(super) fn work(mut self, steps: u32) -> Result<()> {
        for _ in 0..steps {
            match self.kind() {
                Kind::Write => self.write(0)?,
                Kind::Promised => {
                    let flavour = 1 + usize::from(self.rng.one_in(2));
                    self.write(flavour)?;
                }
                Kind::Chase => self.chase()?,
                Kind::Append => self.append()?,
                Kind::Sync => self.sync_file()?,
                Kind::SyncVolume => self.sync_volume()?,
                Kind::SyncDir => self.sync_dir()?,
                Kind::Names => self.change_names()?,
                Kind::Zero => self.zero()?,
                Kind::Batch => self.batch()?,
                Kind::Flag => self.set_flag()?,
                Kind::New => self.write_new()?,
                Kind::Read => self.read()?,
            }
        }
        Ok(())
    }

    fn kind(&mut self) -> Kind {
        let most = self.likes.last().map_or(1, |(_, sum)| *sum);
        let chosen = self.rng.below(most);
        let found = self.likes.iter().find(|(_, sum)| chosen < *sum);
        found.map_or(Kind::Promised, |(kind, _)| *kind)
    }

    /// The number of a file other than that for appends.
    fn file(&mut self) -> u32 {
        let all: Vec<u32> = (0..).take(self.files.len()).filter(|n| *n != LOG).collect();
        *self.rng.pick(&all)
    }

    /// Sectors of a file: one, a few, a block, several blocks.
    fn sectors(&mut self, file: u32) -> Range<u64> {
        let most = self.files[file as usize].0;
        let (count, step) = match self.rng.below(8) {
            0..=2 => (1, 1),
            3 => (1 + self.rng.below(7), 1),
            4..=6 => (8, 8),
            _ => (8 * (1 + self.rng.below(4)), 8),
        };
        let count = count.min(most);
        let first = self.rng.below((most - count) / step + 1) * step;
        if count > 2 || self.rng.one_in(4) {
            return first..first + count;
        }
        // Sectors of this thread's own, in a block that other threads write, too.
        let (threads, own) = (u64::from(self.scene.threads), u64::from(self.thread));
        let first = (first / (2 * threads) * 2 * threads + 2 * own).min(most - count);
        first..first + count
    }

    fn note(&mut self, file: u32, sectors: Range<u64>, promise: Promise) -> (u32, Buf) {
        let promise = match self.scene.is_sync(file) {
            true => Promise::Times,
            false => promise,
        };
        let (first, count) = (sectors.start, sectors.end - sectors.start);
        let append = first == OF_APPEND;
        let write = Write {
            file,
            sectors: if append { 0..count } else { sectors },
            append,
            zeros: false,
            promise,
            asked: 0,
            time: self.scene.now(),
            acked: None,
        };
        let number = self.scene.write(write);
        let mut buf = Buf::zeroed(usize::try_from(count).unwrap_or(0) * SECTOR);
        fill(buf.as_mut_slice(), file, first, number);
        (number, buf)
    }

    /// A write through a handle of this flavour, direct or through the page cache, or with these flags on the request.
    fn write(&mut self, flavour: usize) -> Result<()> {
        let file = self.file();
        let sectors = self.sectors(file);
        self.write_to(file, sectors, flavour)
    }

    fn chase(&mut self) -> Result<()> {
        let Some((file, sectors)) = self.latest() else {
            return self.write(1);
        };
        let first = sectors.start + self.rng.below(sectors.end - sectors.start);
        self.write_to(file, first..first + 1, 1)
    }

    /// The place of one of the last writes.
    fn latest(&mut self) -> Option<(u32, Range<u64>)> {
        let told = self.scene.told();
        let latest = told.history.writes.iter().rev().take(LATEST);
        let inside = |file: u32| file != LOG && (file as usize) < self.files.len();
        let latest = latest.filter(|w| inside(w.file));
        let latest: Vec<_> = latest.map(|w| (w.file, w.sectors.clone())).collect();
        drop(told);
        (!latest.is_empty()).then(|| self.rng.pick(&latest).clone())
    }

    fn write_to(&mut self, file: u32, sectors: Range<u64>, flavour: usize) -> Result<()> {
        let pos = sectors.start * SECTOR as u64;
        let (number, buf) = self.note(file, sectors, promise_of(flavour));
        let handles = &self.files[file as usize].1;
        let result = match self.rng.below(4) {
            0 => handles[flavour].write_buf(pos, buf).1,
            1 => write_whole(&handles[0], pos, buf, flags_of(flavour)),
            _ => write_cached(&handles[flavour], pos, &buf),
        };
        result?;
        self.scene.written(number, None);
        Ok(())
    }

    fn append(&mut self) -> Result<()> {
        let flavour = usize::try_from(self.rng.below(3)).unwrap_or(0);
        if self.rng.one_in(2) {
            return self.append_cached(flavour);
        }
        let id = self.ids[LOG as usize];
        let (number, request) = self.append_request(id, flavour);
        self.queue.submit(&mut VecDeque::from([request]));
        self.reap(&[Token::Write(number)])
    }

    fn append_cached(&mut self, flavour: usize) -> Result<()> {
        let count = 1 + self.rng.below(8);
        let (number, buf) = self.note(LOG, OF_APPEND..OF_APPEND + count, promise_of(flavour));
        let pos = self.files[LOG as usize].1[flavour].append_bytes(buf.as_slice())?;
        self.scene.written(number, Some(pos / SECTOR as u64));
        Ok(())
    }

    /// Reads a range through the page cache or directly. Clean pages lie in the way of direct writes; a direct read has dirty ones written
    /// back.
    fn read(&mut self) -> Result<()> {
        let file = self.file();
        let sectors = self.sectors(file);
        let (pos, count) = (sectors.start * SECTOR as u64, sectors.end - sectors.start);
        let mut buf = Buf::zeroed(usize::try_from(count).unwrap_or(0) * SECTOR);
        let handle = &self.files[file as usize].1[0];
        match self.rng.one_in(3) {
            true => handle.read_buf(pos, buf).1?,
            false => handle.read_bytes(pos, buf.as_mut_slice())?,
        };
        Ok(())
    }

    fn append_request(&mut self, id: FileId, flavour: usize) -> (u32, Request) {
        let count = 1 + self.rng.below(8);
        let (number, buf) = self.note(LOG, OF_APPEND..OF_APPEND + count, promise_of(flavour));
        let request = Request::append(id, buf, 0).with_flags(flags_of(flavour));
        (number, request)
    }

    fn sync_file(&mut self) -> Result<()> {
        let file = match self.rng.one_in(6) {
            true => LOG,
            false => self.file(),
        };
        let handle = self.files[file as usize].1[0].clone();
        self.sync_one(file, &handle)
    }

    pub(super) fn sync_one(&mut self, file: u32, handle: &File) -> Result<()> {
        let times = self.rng.one_in(2);
        let promise = if times { Promise::Times } else { Promise::Data };
        let number = self.scene.sync(Of::File(file), promise);
        if times {
            handle.sync()?;
        } else {
            handle.sync_data()?;
        }
        self.scene.synced(number);
        Ok(())
    }

    fn sync_volume(&mut self) -> Result<()> {
        let number = self.scene.sync(Of::Volume, Promise::Times);
        self.scene.volume.sync()?;
        self.scene.synced(number);
        Ok(())
    }

    fn sync_dir(&mut self) -> Result<()> {
        let dir = u32::try_from(self.rng.below(u64::from(DIRS))).unwrap_or(0);
        let number = self.scene.sync(Of::Dir(dir), Promise::Times);
        self.dirs[dir as usize].sync()?;
        self.scene.synced(number);
        Ok(())
    }

    fn zero(&mut self) -> Result<()> {
        let file = self.file();
        let sectors = self.sectors(file);
        let (pos, len) = (
            sectors.start * SECTOR as u64,
            (sectors.end - sectors.start) * SECTOR as u64,
        );
        let flavour = usize::try_from(self.rng.below(3)).unwrap_or(0);
        let promise = match self.scene.is_sync(file) {
            true => Promise::Times,
            false => Promise::Nothing,
        };
        let write = Write {
            file,
            sectors,
            append: false,
            zeros: true,
            promise,
            asked: 0,
            time: self.scene.now(),
            acked: None,
        };
        let keep_size = true;
        let mode = match flavour {
            0 => Fallocate::PunchHole,
            1 => Fallocate::ZeroRange { keep_size },
            _ => Fallocate::WriteZeroes { keep_size },
        };
        let number = self.scene.write(write);
        self.files[file as usize].1[0].fallocate(mode, pos, len)?;
        self.scene.written(number, None);
        Ok(())
    }

    /// Seldom: otherwise both files would have the flag soon.
    fn set_flag(&mut self) -> Result<()> {
        if !self.rng.one_in(3) {
            return self.sync_dir();
        }
        let file = *self.rng.pick(&[LOG, FLAGGED]);
        let handle = &self.files[file as usize].1[0];
        handle.set_flags(handle.metadata().flags.with(InodeFlags::SYNC))?;
        self.scene.note_sync(file);
        Ok(())
    }

    /// Requests that are in flight together: writes, appends and syncs of any flavour.
    fn batch(&mut self) -> Result<()> {
        let (mut batch, mut tokens) = (VecDeque::new(), Vec::new());
        for token in 0..2 + self.rng.below(5) {
            let flavour = usize::try_from(self.rng.below(4)).unwrap_or(0) % 3;
            let (meant, request) = match self.rng.below(6) {
                0 => self.sync_request(),
                1 => {
                    let (number, request) = self.append_request(self.ids[LOG as usize], flavour);
                    (Token::Write(number), request)
                }
                _ => {
                    let file = self.file();
                    let sectors = self.sectors(file);
                    let pos = sectors.start * SECTOR as u64;
                    let (number, buf) = self.note(file, sectors, promise_of(flavour));
                    let request = Request::write(self.ids[file as usize], pos, buf, 0);
                    (Token::Write(number), request.with_flags(flags_of(flavour)))
                }
            };
            tokens.push(meant);
            batch.push_back(Request { token, ..request });
        }
        while !batch.is_empty() {
            self.queue.submit(&mut batch);
        }
        self.reap(&tokens)
    }

    fn sync_request(&mut self) -> (Token, Request) {
        let file = self.file();
        let data_only = self.rng.one_in(2);
        let promise = if data_only {
            Promise::Data
        } else {
            Promise::Times
        };
        let number = self.scene.sync(Of::File(file), promise);
        let request = Request::sync(self.ids[file as usize], data_only, 0);
        (Token::Sync(number), request)
    }

    /// Waits for everything that the queue has in flight.
    fn reap(&mut self, tokens: &[Token]) -> Result<()> {
        let mut done: Vec<Completion> = Vec::new();
        while self.queue.in_use() > 0 {
            self.queue.reap(&mut done, 1, None);
            for completion in done.drain(..) {
                completion.result?;
                let token = usize::try_from(completion.token).unwrap_or(0);
                match tokens[token] {
                    Token::Write(number) => {
                        let appended = completion.op == Op::Append;
                        let first = completion.pos / SECTOR as u64;
                        self.scene.written(number, appended.then_some(first));
                    }
                    Token::Sync(number) => self.scene.synced(number),
                }
            }
        }
        Ok(())
    }

    /// A write at the end of a file that this thread has created.
    fn write_new(&mut self) -> Result<()> {
        let Some((number, file)) = self.made.last().cloned() else {
            return self.change_names();
        };
        let first = file.size() / SECTOR as u64;
        let sectors = first..first + 1 + self.rng.below(6);
        let flavour = usize::try_from(self.rng.below(3)).unwrap_or(0);
        let (write, buf) = self.note(number, sectors, promise_of(flavour));
        let pos = first * SECTOR as u64;
        match flavour == 0 && self.rng.one_in(2) {
            true => write_cached(&file, pos, &buf)?,
            false => file.call(Op::Write, pos, buf, flags_of(flavour)).1?,
        };
        self.scene.written(write, None);
        if self.rng.one_in(2) {
            self.sync_one(number, &file)?;
        }
        Ok(())
    }
}

/// An atomic write, or a plain one where the file or the range cannot have that.
fn write_whole(
    file: &File,
    pos: u64,
    buf: Buf,
    flags: RequestFlags,
) -> std::result::Result<usize, Error> {
    let (buf, done) = file.call(Op::WriteAtomic, pos, buf, flags);
    match done {
        Err(Error::Invalid(_) | Error::NotSupported(_)) => file.call(Op::Write, pos, buf, flags).1,
        done => done,
    }
}

/// A write through the page cache.
fn write_cached(file: &File, pos: u64, buf: &Buf) -> std::result::Result<usize, Error> {
    let written = file.write_bytes(pos, buf.as_slice())?;
    match written == buf.len() {
        true => Ok(written),
        false => Err(Error::Invalid(format!(
            "only {written} of {} bytes were written",
            buf.len()
        ))),
    }
}

/// Each thread does each kind with a probability of two thirds.
fn likes(rng: &mut Rng) -> Vec<(Kind, u64)> {
    let mut sum = 0;
    let mut likes = Vec::new();
    for (kind, often) in KINDS {
        if !rng.one_in(3) {
            sum += often * (1 + rng.below(3));
            likes.push((kind, sum));
        }
    }
    likes
}

fn promise_of(flavour: usize) -> Promise {
    [Promise::Nothing, Promise::Data, Promise::Times][flavour]
}

fn flags_of(flavour: usize) -> RequestFlags {
    RequestFlags::none().dsync(flavour == 1).sync(flavour == 2)
}
