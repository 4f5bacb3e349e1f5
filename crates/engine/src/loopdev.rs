//! The loop device: a file in a volume as a device for another volume.
//!
//! Input: bios. Output: the same bios, ended, by way of requests on a queue of the volume below. Invariants: it has no thread
//! of its own; submit and reap go straight down; a full queue below leaves bios in the submitter's list; flush is a sync of
//! the file, FUA an O_DSYNC write of it; who did not ask not to wait is not told to (rule L6). Limits: reads, writes and flush; one level per volume in a stack.

use crate::error::Error;
use crate::file::{File, OpenFlags};
use crate::mount::OpenOptions;
use crate::queue::{Completion, FileId, Op, Queue, Request, RequestFlags};
use crate::volume::{Volume, VolumeShared};
use diorite_block::device::DeviceErrorKind;
use diorite_block::sync::{DEVICE_SUBMIT, Mutex};
use diorite_block::{
    Bio, BioError, BioErrorKind, BioFlags, BioList, BioOp, Device, DeviceError, DeviceQueue,
    DeviceReport, Geometry, Locator, QueueOptions, locator,
};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Opens what a locator names, through any number of volumes.
pub(crate) fn open_device(
    locator: &Locator,
    options: &OpenOptions,
    buffered: bool,
) -> Result<Arc<dyn Device>, Error> {
    let Locator::Inside { outer, path } = locator else {
        let (read_only, io_engine, force) = (!options.write, options.io_engine, options.force);
        return Ok(locator::open(
            locator,
            &locator::OpenOptions {
                read_only,
                io_engine,
                buffered,
                force,
                grow_to: None,
            },
        )?);
    };
    // A named journal is that of the top volume only; without this a journal inside a volume that lacks one would look for itself.
    let below = OpenOptions {
        journal: None,
        ..options.clone()
    };
    let volume = Volume::open(&outer.to_string(), &below)?;
    let file = volume.open_path(
        path,
        OpenFlags {
            write: options.write,
            ..OpenFlags::default()
        },
    )?;
    if !file.metadata().is_file() {
        let what = format!("{locator}: {path} is no regular file");
        return Err(DeviceError::new(DeviceErrorKind::Unsupported, what).into());
    }
    Ok(Arc::new(LoopDevice {
        file,
        name: locator.to_string(),
        _volume: Some(volume),
    }))
}

/// A file as a device. Send and Sync; not for use after a fork; dropping it closes the file.
#[derive(Debug)]
pub struct LoopDevice {
    file: File,
    name: String,
    /// The volume, where it was opened for this device: it is settled when the device goes, and does not keep the devices below until
    /// its next commit.
    _volume: Option<Volume>,
}

impl LoopDevice {
    /// A device on `file`, named for messages. It is read-only if the file is.
    #[must_use]
    pub fn new(file: File, name: String) -> LoopDevice {
        LoopDevice {
            file,
            name,
            _volume: None,
        }
    }

    fn volume(&self) -> &Arc<VolumeShared> {
        &self.file.inode().volume
    }
}

impl Device for LoopDevice {
    fn geometry(&self) -> Geometry {
        let below = self.volume().device.geometry();
        // The last partial sector counts: it reads as its bytes and zeros (rule L2).
        let size = self.file.size().next_multiple_of(u64::from(below.logical));
        let read_only = self.file.check_writable().is_err();
        Geometry {
            size,
            read_only,
            discard: false,
            write_zeroes: false,
            max_transfer: below.max_transfer.min(1 << 30),
            ..below
        }
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn report(&self) -> DeviceReport {
        let below = self.volume().device.report();
        let (engine, direct) = ("loop".to_owned(), below.direct);
        DeviceReport {
            engine,
            direct,
            below: Some(Box::new(below)),
            ..DeviceReport::default()
        }
    }

    fn level(&self) -> u8 {
        self.volume().level
    }

    fn open_queue(&self, options: QueueOptions) -> Result<Box<dyn DeviceQueue>, DeviceError> {
        let failed =
            |e: Error| DeviceError::new(DeviceErrorKind::Io, format!("{}: {e}", self.name));
        let queue = Queue::open_under(self.volume(), options).map_err(failed)?;
        let file = queue.attach(&self.file).map_err(failed)?;
        let level = self.volume().level;
        let lists = Mutex::at_level(&DEVICE_SUBMIT, level + 1, Lists::default());
        Ok(Box::new(LoopQueue {
            queue,
            file,
            geometry: self.geometry(),
            lists,
        }))
    }
}

#[derive(Debug)]
struct LoopQueue {
    queue: Queue,
    file: FileId,
    geometry: Geometry,
    lists: Mutex<Lists>,
}

/// Requests on their way down and completions on their way up, kept so that none is allocated per bio.
#[derive(Debug, Default)]
struct Lists {
    requests: VecDeque<Request>,
    completions: Vec<Completion>,
    /// Bios that were refused before they became requests.
    refused: Vec<Bio>,
    /// Tokens of requests that may be told to wait: they asked not to.
    nowait: HashSet<u64>,
    /// Tokens of requests that were told to wait although they had not asked, and are done again.
    again: HashSet<u64>,
}

impl DeviceQueue for LoopQueue {
    fn submit(&self, bios: &mut BioList) {
        let mut lists = self.lists.lock();
        let room = self.queue.free().saturating_sub(lists.requests.len());
        let room = room.min(bios.len());
        for mut bio in bios.drain(..room) {
            match self.geometry.check(&bio).and_then(|()| op_of(bio.op)) {
                Ok(op) => {
                    if bio.flags.nowait {
                        lists.nowait.insert(bio.token);
                    }
                    lists.requests.push_back(self.request(op, bio));
                }
                Err(error) => {
                    bio.result = Err(error);
                    lists.refused.push(bio);
                }
            }
        }
        self.queue.submit(&mut lists.requests);
    }

    fn reap(&self, out: &mut BioList) -> usize {
        let mut lists = self.lists.lock();
        let before = out.len();
        let Lists {
            requests,
            completions,
            refused,
            nowait,
            again,
        } = &mut *lists;
        self.queue.reap(completions, 0, None);
        out.extend(refused.drain(..));
        for done in completions.drain(..) {
            let may_be_told = !nowait.is_empty() && nowait.remove(&done.token);
            let told = matches!(done.result, Err(Error::WouldBlock(_)));
            if told && !may_be_told && again.insert(done.token) {
                requests.push_back(self.again(done));
                continue;
            }
            if !again.is_empty() {
                again.remove(&done.token);
            }
            out.push_back(ended(done));
        }
        if !requests.is_empty() {
            self.queue.submit(requests);
        }
        out.len() - before
    }

    fn wait(&self, min: u32, timeout: Option<Duration>) {
        if self.lists.lock().refused.is_empty() {
            self.queue.wait(min as usize, timeout);
        }
    }

    fn in_flight(&self) -> u32 {
        let lists = self.lists.lock();
        let waiting = lists.refused.len() + lists.requests.len();
        drop(lists);
        u32::try_from(self.queue.in_use() + waiting).unwrap_or(u32::MAX)
    }

    fn signal_waker(&self) {
        self.queue.signal_waker();
    }
}

impl LoopQueue {
    fn request(&self, op: Op, bio: Bio) -> Request {
        let flags = RequestFlags {
            nowait: bio.flags.nowait,
            dsync: bio.flags.fua,
            sync: false,
        };
        Request {
            op,
            file: self.file,
            pos: bio.pos,
            buf: bio.buf,
            token: bio.token,
            flags,
        }
    }

    /// Rule L6: what would have waited is done once more, and may. Nobody kept whether it was to be durable: it is.
    fn again(&self, done: Completion) -> Request {
        let flags = RequestFlags {
            dsync: done.op == Op::Write,
            ..RequestFlags::default()
        };
        Request {
            op: done.op,
            file: self.file,
            pos: done.pos,
            buf: done.buf,
            token: done.token,
            flags,
        }
    }
}

fn op_of(op: BioOp) -> Result<Op, BioError> {
    match op {
        BioOp::Read => Ok(Op::Read),
        BioOp::Write => Ok(Op::Write),
        BioOp::Flush => Ok(Op::DataSync),
        BioOp::Discard | BioOp::WriteZeroes | BioOp::WriteZeroesUnmap => {
            Err(BioError::new(BioErrorKind::Unsupported))
        }
    }
}

fn ended(done: Completion) -> Bio {
    let (pos, len, token) = (done.pos, done.buf.len() as u64, done.token);
    let (op, result) = match done.op {
        Op::Read => (BioOp::Read, Ok(())),
        Op::Write | Op::Append => (BioOp::Write, Ok(())),
        Op::Sync | Op::DataSync => (BioOp::Flush, Ok(())),
    };
    let mut bio = Bio {
        buf: done.buf,
        pos,
        len,
        token,
        op,
        flags: BioFlags::default(),
        result,
    };
    match done.result {
        Err(error) => bio.result = Err(bio_error(&error)),
        // Rule L2: the rest of the last sector is zeros; a read wholly past the end has failed.
        Ok(count) if op == BioOp::Read && count < bio.buf.len() => {
            bio.buf.zero(count..bio.buf.len());
            bio.result = if count == 0 {
                Err(BioError::new(BioErrorKind::Io))
            } else {
                Ok(())
            };
        }
        Ok(_) => {}
    }
    bio
}

fn bio_error(error: &Error) -> BioError {
    match error.root() {
        Error::Device { error, .. } => *error,
        Error::WouldBlock(_) => BioError::new(BioErrorKind::WouldBlock),
        Error::NoSpace { .. } | Error::DeviceFull(_) => BioError::new(BioErrorKind::NoSpace),
        Error::Unaligned { .. } | Error::Invalid(_) | Error::TooBig { .. } => {
            BioError::new(BioErrorKind::Invalid)
        }
        Error::NotYet(_) => BioError::new(BioErrorKind::Unsupported),
        Error::ReadOnly(_) | Error::Aborted(_) | Error::NotPermitted { .. } => {
            BioError::new(BioErrorKind::ReadOnly)
        }
        Error::ShutDown => BioError::new(BioErrorKind::Gone),
        _ => BioError::new(BioErrorKind::Io),
    }
}
