//! What a simulated disk with a volatile cache may lose, tracked while it runs.
//!
//! Input: writes and flushes when they are taken and when they end. Output: surviving images, one per seed. Invariants: those
//! of [`crate::record::cache`]; without native FUA a write with FUA is a flush, too. Limits: an image costs a copy of the
//! written data.

use super::options::SimOptions;
use crate::bio::{Bio, BioFlags, BioOp};
use crate::device::DeviceError;
use crate::mem::MemDevice;
use crate::mem::arena::Arena;
use crate::record::cache::{Cache, SECTOR};
use crate::record::log::Data;
use crate::rng::Rng;
use crate::sync::{DEVICE_SHARED, Mutex};

struct Log {
    cache: Cache,
    next_id: u64,
}

pub(super) struct CrashLog {
    volatile: bool,
    durable: Arena,
    log: Mutex<Log>,
}

impl CrashLog {
    pub(super) fn new(options: &SimOptions) -> Result<CrashLog, DeviceError> {
        let log = Log {
            cache: Cache::default(),
            next_id: 0,
        };
        Ok(CrashLog {
            volatile: options.volatile_cache,
            durable: Arena::new(options.size)?,
            log: Mutex::new(&DEVICE_SHARED, log),
        })
    }

    /// Loads bytes that count as durable.
    pub(super) fn load(&self, pos: u64, src: &[u8]) {
        self.durable.write(pos, src);
    }

    /// A bio was taken. Returns the mark for [`CrashLog::ended`]: a write's number, or a flush's horizon.
    pub(super) fn taken(&self, bio: &Bio) -> u64 {
        let mut log = self.log.lock();
        let Some(data) = Data::of(bio) else {
            return log.cache.horizon();
        };
        let id = log.next_id;
        log.next_id += 1;
        let BioFlags { fua, atomic, .. } = bio.flags;
        log.cache.taken(id, bio.pos, data, (fua, atomic));
        id
    }

    /// The bio has succeeded or failed.
    pub(super) fn ended(&self, bio: &Bio, mark: u64, fua: bool) {
        let mut log = self.log.lock();
        match bio.op {
            BioOp::Read => {}
            BioOp::Flush if bio.result.is_ok() => self.make_durable(&mut log, mark),
            BioOp::Flush => {}
            _ if bio.result.is_err() => log.cache.failed(mark),
            _ => {
                log.cache.ended(mark);
                let all = bio.flags.fua && !fua;
                if !self.volatile || all {
                    let horizon = log.cache.horizon();
                    self.make_durable(&mut log, horizon);
                }
            }
        }
    }

    /// Makes durable what ended before `horizon`.
    fn make_durable(&self, log: &mut Log, horizon: u64) {
        for write in log.cache.take_durable(horizon) {
            write.whole(|pos, bytes| self.durable.write(pos, bytes));
        }
    }

    /// The image after a power cut now.
    pub(super) fn image(&self, seed: u64) -> Result<MemDevice, DeviceError> {
        let log = self.log.lock();
        let image = MemDevice::copy_of(&self.durable)?;
        let mut rng = Rng::new(seed);
        for write in log.cache.not_durable() {
            write.by_chance(&mut rng, SECTOR, |pos, bytes| image.write_at(pos, bytes));
        }
        Ok(image)
    }
}
