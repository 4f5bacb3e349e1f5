//! What a disk with a volatile cache may lose: the writes that are not durable yet, and the images that a power cut leaves.
//!
//! Input: writes and flushes as they are taken and as they end. Output: surviving images, one per seed. Invariants: what
//! ended before a flush was submitted is durable when the flush has ended; a write with FUA is durable when it has ended;
//! everything else may be there or not, sector by sector, in any combination. Limits: an image costs a copy of what was
//! written; a failed write leaves no trace.

use super::options::SimOptions;
use crate::bio::{Bio, BioOp};
use crate::device::DeviceError;
use crate::mem::MemDevice;
use crate::mem::arena::Arena;
use crate::rng::Rng;
use crate::sync::{DEVICE_SHARED, Mutex};
use std::collections::BTreeMap;

const SECTOR: usize = 512;

/// A write that is not durable, or not yet folded into what is.
struct Logged {
    pos: u64,
    data: Vec<u8>,
    /// Its place among the ended ones; none while it is in flight.
    ended: Option<u64>,
    /// It ended with FUA: nothing before it in its sectors can come back.
    durable: bool,
}

struct Log {
    writes: BTreeMap<u64, Logged>,
    next_id: u64,
    next_end: u64,
}

pub(super) struct CrashLog {
    volatile: bool,
    durable: Arena,
    log: Mutex<Log>,
}

impl CrashLog {
    pub(super) fn new(options: &SimOptions) -> Result<CrashLog, DeviceError> {
        let log = Log {
            writes: BTreeMap::new(),
            next_id: 0,
            next_end: 0,
        };
        Ok(CrashLog {
            volatile: options.volatile_cache,
            durable: Arena::new(options.size)?,
            log: Mutex::new(&DEVICE_SHARED, log),
        })
    }

    /// These bytes have always been there.
    pub(super) fn load(&self, pos: u64, src: &[u8]) {
        self.durable.write(pos, src);
    }

    /// A bio was taken. The mark goes with it to [`CrashLog::ended`]: a write's number, or a flush's horizon.
    pub(super) fn taken(&self, bio: &Bio) -> u64 {
        let mut log = self.log.lock();
        let data = match bio.op {
            BioOp::Read => return 0,
            BioOp::Flush => return log.next_end,
            BioOp::Write => bio.buf.parts().flatten().copied().collect(),
            BioOp::Discard | BioOp::WriteZeroes | BioOp::WriteZeroesUnmap => {
                vec![0; usize::try_from(bio.len).expect("the range lies inside memory")]
            }
        };
        let id = log.next_id;
        log.next_id += 1;
        let logged = Logged {
            pos: bio.pos,
            data,
            ended: None,
            durable: false,
        };
        log.writes.insert(id, logged);
        id
    }

    /// The bio has ended: done, or failed.
    pub(super) fn ended(&self, bio: &Bio, mark: u64, fua: bool) {
        let mut log = self.log.lock();
        match bio.op {
            BioOp::Read => {}
            BioOp::Flush if bio.result.is_ok() => self.settle(&mut log, mark),
            BioOp::Flush => {}
            _ if bio.result.is_err() => drop(log.writes.remove(&mark)),
            _ => {
                let end = log.next_end;
                log.next_end += 1;
                let write = log
                    .writes
                    .get_mut(&mark)
                    .expect("a write stays in the log until it has ended");
                write.ended = Some(end);
                write.durable = bio.flags.fua;
                let all = bio.flags.fua && !fua;
                if !self.volatile || all {
                    self.settle(&mut log, end + 1);
                }
            }
        }
    }

    /// Makes durable what ended before `horizon`.
    fn settle(&self, log: &mut Log, horizon: u64) {
        let mut settled: Vec<Logged> = Vec::new();
        log.writes.retain(|_, w| {
            let keep = w.ended.is_none_or(|e| e >= horizon);
            if !keep {
                settled.push(Logged {
                    data: std::mem::take(&mut w.data),
                    ..*w
                });
            }
            keep
        });
        settled.sort_by_key(|w| w.ended);
        for w in settled {
            self.durable.write(w.pos, &w.data);
        }
    }

    /// The image after a power cut now.
    pub(super) fn image(&self, seed: u64) -> Result<MemDevice, DeviceError> {
        let log = self.log.lock();
        let image = MemDevice::copy_of(&self.durable)?;
        let mut order: Vec<(&u64, &Logged)> = log.writes.iter().collect();
        // Ended ones in their order, then those in flight: a durable one thus covers all that came before it.
        order.sort_by_key(|(id, w)| (w.ended.unwrap_or(u64::MAX), **id));
        let mut rng = Rng::new(seed);
        for (_, w) in order {
            survive(&image, w, &mut rng);
        }
        Ok(image)
    }
}

/// Writes what is left of one write: all, nothing, or some of its sectors.
fn survive(image: &MemDevice, write: &Logged, rng: &mut Rng) {
    let luck = if write.durable { 0 } else { rng.below(4) };
    match luck {
        0 => image.write_at(write.pos, &write.data),
        1 => {}
        _ => {
            for (n, sector) in write.data.chunks(SECTOR).enumerate() {
                if rng.below(2) == 0 {
                    image.write_at(write.pos + (n * SECTOR) as u64, sector);
                }
            }
        }
    }
}
