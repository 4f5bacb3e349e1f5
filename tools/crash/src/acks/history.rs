//! What it is: what was requested of files, when it was requested and acknowledged, and with which promise.
//! Input: notes of a workload's threads, with positions in the log. Output: what each sector of a file, its size and its mtime may
//! be after a cut.
//! The rule: a write is there if its acknowledgement promised that it is durable, or if it was acknowledged before the request of a
//! sync that has returned. Then its sectors hold nothing that was acknowledged before that write was requested. A file that is only
//! appended to never has zeros inside its size. Limits: data is only replaced by writes and by ranges made zero.

use crate::stamp::{OF_APPEND, SECTOR, Stamp};
use diorite_format::Timestamp;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// What an acknowledgement promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Promise {
    /// Nothing yet: the write need not be durable.
    Nothing,
    /// The data can be read after a power cut (O_DSYNC, fdatasync).
    Data,
    /// The data and the times (O_SYNC, the flag S, fsync, sync).
    Times,
}

/// A time that can be serialised: seconds, nanoseconds.
pub type Time = (i64, u32);

/// Converts a timestamp to a [`Time`].
#[must_use]
pub fn time(of: Timestamp) -> Time {
    (of.secs, of.nanos)
}

/// A file as the workload finds it, or as it is created.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Start {
    /// The path; none for files that the workload creates.
    pub path: Option<String>,
    /// The size in bytes.
    pub size: u64,
    /// Sectors that hold stamps; the others read as zeros.
    pub data: Vec<Range<u64>>,
}

/// A write, or a range made zero.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Write {
    /// The file's number.
    pub file: u32,
    /// Its sectors. Those of an append are known when it has ended.
    pub sectors: Range<u64>,
    /// The write is an append.
    pub append: bool,
    /// The range becomes zeros, without stamps.
    pub zeros: bool,
    /// What its acknowledgement promises.
    pub promise: Promise,
    /// When it was requested: the position in the log.
    pub asked: usize,
    /// When it was requested: the volume's clock.
    pub time: Time,
    /// When it was acknowledged: the position in the log.
    pub acked: Option<usize>,
}

/// What a sync makes durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Of {
    /// A file.
    File(u32),
    /// The names in a directory.
    Dir(u32),
    /// The whole volume.
    Volume,
}

/// A sync.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sync {
    /// What is synced.
    pub of: Of,
    /// What it promises.
    pub promise: Promise,
    /// When it was requested: the position in the log.
    pub asked: usize,
    /// When it was acknowledged: the position in the log.
    pub acked: Option<usize>,
}

/// All writes and syncs of a workload. A write's number in stamps is its index in `writes` plus 1.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct History {
    /// The files; those that the workload creates come last.
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
    /// The least size in bytes.
    pub least: u64,
    /// The largest size in bytes.
    pub most: u64,
    /// The least mtime, and the number of the write that promises it.
    pub time: (Time, u32),
    /// What each sector may hold.
    pub sectors: Vec<Vec<Value>>,
    /// For each sector with a value that must be there: the last promised write.
    pub owed: Vec<Option<u32>>,
}

impl History {
    /// True if the write was promised, before the cut, to be durable with at least `promise`.
    #[must_use]
    pub fn is_durable(&self, write: &Write, promise: Promise, cut: usize) -> bool {
        let Some(acked) = write.acked.filter(|acked| *acked < cut) else {
            return false;
        };
        write.promise >= promise || self.is_synced(&[Of::File(write.file)], acked, promise, cut)
    }

    /// True if one of these, or the whole volume, was synced after `acked` and before the cut.
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

    /// How a write was promised before the cut, in words.
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

    /// The positions of acknowledgements that promise something.
    #[must_use]
    pub fn promises(&self) -> Vec<usize> {
        let writes = self.writes.iter();
        let writes = writes.filter(|w| w.promise > Promise::Nothing);
        let syncs = self.syncs.iter().filter_map(|s| s.acked);
        writes.filter_map(|w| w.acked).chain(syncs).collect()
    }
}

/// What a sector may hold, and the number of the promised write that was requested last.
fn values(
    (file, start): (u32, &Start),
    sector: u64,
    asked: &[(u32, &Write)],
    kept: &[(u32, &Write)],
) -> (Vec<Value>, Option<u32>) {
    let here = |(_, w): &&(u32, &Write)| w.sectors.contains(&sector);
    let kept: Vec<_> = kept.iter().filter(here).collect();
    // A promised write has replaced everything that was acknowledged before its request; the one requested last has replaced most.
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
        // The size moves over appends in order: behind the end that the file began with, it covers appended data only.
        let is_appended =
            sector * SECTOR as u64 >= start.size && asked.iter().all(|(_, w)| w.append);
        if has_data {
            values.push(Value::Stamp(stamp));
        } else if !is_appended {
            values.push(Value::Zeros);
        }
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
    /// What the write leaves in one of its sectors.
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
