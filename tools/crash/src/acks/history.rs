//! What it is: what was asked of files, when, what was acknowledged, and with which promise. Input: the threads of a workload, with
//! places of the log. Output: what each sector of a file, its size and its time of change may be after a cut. The one rule: a write that
//! was promised to be durable, or acknowledged before a sync was asked for that has returned, is there; so in its sectors nothing that
//! was acknowledged before it was asked for. Limits: no request takes anything away but writes and ranges made zero.

use crate::stamp::{OF_APPEND, SECTOR, Stamp};
use diorite_format::Timestamp;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// What an acknowledgement promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Promise {
    /// Nothing yet.
    Nothing,
    /// That the data can be read (O_DSYNC, fdatasync).
    Data,
    /// The times too (O_SYNC, the flag S, fsync, sync).
    Times,
}

/// A time, in a form that can be kept.
pub type Time = (i64, u32);

/// See [`Time`].
#[must_use]
pub fn time(of: Timestamp) -> Time {
    (of.secs, of.nanos)
}

/// A file as the workload found it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Start {
    /// Where it is; none of those that the workload makes.
    pub path: Option<String>,
    /// Bytes.
    pub size: u64,
    /// Sectors that hold stamps; the others read as zeros.
    pub data: Vec<Range<u64>>,
}

/// A write.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Write {
    /// The file's number.
    pub file: u32,
    /// Its sectors. Of an append they are known when it has ended.
    pub sectors: Range<u64>,
    /// It goes to the end of the file.
    pub append: bool,
    /// It leaves zeros, no stamps.
    pub zeros: bool,
    /// What its acknowledgement promises.
    pub promise: Promise,
    /// When it was asked for: in the log, and by the volume's clock.
    pub asked: usize,
    /// See `asked`.
    pub time: Time,
    /// When it was acknowledged.
    pub acked: Option<usize>,
}

/// What is made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Of {
    /// A file.
    File(u32),
    /// The names in a directory.
    Dir(u32),
    /// All of it.
    Volume,
}

/// A sync.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sync {
    /// Of what.
    pub of: Of,
    /// What it promises.
    pub promise: Promise,
    /// When it was asked for.
    pub asked: usize,
    /// When it was acknowledged.
    pub acked: Option<usize>,
}

/// All of it. A write's number in stamps is its place here, counted from 1.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct History {
    /// The files; those that the workload makes come last.
    pub files: Vec<Start>,
    /// The writes.
    pub writes: Vec<Write>,
    /// The syncs.
    pub syncs: Vec<Sync>,
}

/// What a sector may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    /// Zeros.
    Zeros,
    /// This stamp.
    Stamp(Stamp),
}

/// What a file may be after a cut.
#[derive(Debug, Clone)]
pub struct May {
    /// Its size in bytes, at least.
    pub least: u64,
    /// And at most.
    pub most: u64,
    /// Its time of change, at least; and the write that says so.
    pub time: (Time, u32),
    /// What each sector may hold.
    pub sectors: Vec<Vec<Value>>,
    /// Sectors with a value that must be there: the write that was promised last, if one was.
    pub owed: Vec<Option<u32>>,
}

impl History {
    /// Was the write promised to be durable, before the cut, with at least this?
    #[must_use]
    pub fn is_durable(&self, write: &Write, promise: Promise, cut: usize) -> bool {
        let Some(acked) = write.acked.filter(|acked| *acked < cut) else {
            return false;
        };
        write.promise >= promise || self.is_synced(&[Of::File(write.file)], acked, promise, cut)
    }

    /// Was one of these, or the whole volume, synced after `acked` and before the cut?
    #[must_use]
    pub fn is_synced(&self, of: &[Of], acked: usize, promise: Promise, cut: usize) -> bool {
        self.syncs.iter().any(|sync| {
            let covers = of.contains(&sync.of) || sync.of == Of::Volume;
            let in_time = acked < sync.asked && sync.acked.is_some_and(|at| at < cut);
            covers && in_time && sync.promise >= promise
        })
    }

    /// What a file may be after the cut.
    #[must_use]
    pub fn may(&self, file: u32, cut: usize) -> May {
        let start = &self.files[file as usize];
        let asked: Vec<(u32, &Write)> = (1..)
            .zip(&self.writes)
            .filter(|(_, w)| w.file == file && w.asked < cut)
            .collect();
        let durable = |w: &Write| self.is_durable(w, Promise::Data, cut);
        let kept: Vec<(u32, &Write)> = asked.iter().copied().filter(|(_, w)| durable(w)).collect();
        let ends = |writes: &[(u32, &Write)]| {
            let growing = writes.iter().filter(|(_, w)| !w.zeros);
            let ends = growing.map(|(_, w)| w.sectors.end * SECTOR as u64);
            ends.max().unwrap_or(0).max(start.size)
        };
        let most = ends(&asked);
        let timed = asked.iter();
        let timed = timed.filter(|(_, w)| self.is_durable(w, Promise::Times, cut));
        let mut may = May {
            least: ends(&kept),
            most,
            time: timed
                .map(|(number, w)| (w.time, *number))
                .max()
                .unwrap_or_default(),
            sectors: Vec::new(),
            owed: Vec::new(),
        };
        for sector in 0..most.div_ceil(SECTOR as u64) {
            let (values, owed) = values((file, start), sector, &asked, &kept);
            may.sectors.push(values);
            may.owed.push(owed);
        }
        may
    }

    /// How a write came to be promised before the cut, in words.
    #[must_use]
    pub fn how(&self, number: u32, least: Promise, cut: usize) -> String {
        let write = &self.writes[number as usize - 1];
        let (asked, acked) = (write.asked, write.acked.unwrap_or(usize::MAX));
        let own = format!("write {number} ({asked}..{acked})");
        if write.promise >= least {
            return format!("{own} was promised by itself ({:?})", write.promise);
        }
        let covers = |s: &&Sync| s.of == Of::File(write.file) || s.of == Of::Volume;
        let in_time = |s: &&Sync| acked < s.asked && s.acked.is_some_and(|at| at < cut);
        let mut syncs = self.syncs.iter().filter(|s| s.promise >= least);
        let sync = syncs.find(|s| covers(s) && in_time(s));
        sync.map_or(own.clone(), |sync| {
            let acked = sync.acked.unwrap_or(usize::MAX);
            let (of, promise) = (sync.of, sync.promise);
            format!(
                "{own} was promised by a sync of {of:?} ({promise:?}, {}..{acked})",
                sync.asked
            )
        })
    }

    /// The places of acknowledgements that promise something.
    #[must_use]
    pub fn promises(&self) -> Vec<usize> {
        let writes = self.writes.iter();
        let writes = writes.filter(|w| w.promise > Promise::Nothing);
        let syncs = self.syncs.iter().filter_map(|s| s.acked);
        writes.filter_map(|w| w.acked).chain(syncs).collect()
    }
}

/// What a sector may hold, and the promised write that was asked for last.
fn values(
    (file, start): (u32, &Start),
    sector: u64,
    asked: &[(u32, &Write)],
    kept: &[(u32, &Write)],
) -> (Vec<Value>, Option<u32>) {
    let here = |(_, w): &&(u32, &Write)| w.sectors.contains(&sector);
    let kept: Vec<_> = kept.iter().filter(here).collect();
    // The later a promised write was asked for, the more it has replaced.
    let last = kept.iter().max_by_key(|(_, w)| w.asked);
    let replaced = last.map(|(_, w)| w.asked);
    let mut values = Vec::new();
    if replaced.is_none() {
        let write = 0;
        let stamp = Stamp {
            file,
            sector,
            write,
        };
        let has_data = start.data.iter().any(|d| d.contains(&sector));
        values.push(if has_data {
            Value::Stamp(stamp)
        } else {
            Value::Zeros
        });
    }
    for (number, write) in asked.iter().filter(here) {
        let acked = write.acked.unwrap_or(usize::MAX);
        if replaced.is_some_and(|asked| acked < asked) {
            continue;
        }
        values.push(write.value(*number, sector));
    }
    (values, last.map(|(number, _)| *number))
}

impl Write {
    /// What it leaves in one of its sectors.
    #[must_use]
    pub fn value(&self, number: u32, sector: u64) -> Value {
        if self.zeros {
            return Value::Zeros;
        }
        let sector = match self.append {
            true => OF_APPEND | (sector - self.sectors.start),
            false => sector,
        };
        Value::Stamp(Stamp {
            file: self.file,
            sector,
            write: number,
        })
    }
}

#[cfg(test)]
mod tests;
