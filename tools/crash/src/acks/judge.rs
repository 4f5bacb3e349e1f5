//! What it is: the judge of a volume after a power cut.
//! Input: a volume, what was requested and acknowledged, the position of the cut. Output: findings, in words. Invariant: it knows
//! nothing of how the engine works. Limits: at most `MOST` findings about the sectors of a file are listed.

use super::history::{History, May, Promise, Value, time};
use super::names::{self, DIRS, Named, Shown, Slot, dir_path};
use crate::stamp::{Held, SECTOR, held};
use diorite::{Error, File, OpenFlags, Volume};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How many findings about a file's sectors are listed.
const MOST: usize = 4;

/// What was requested and acknowledged.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Told {
    /// The writes and syncs of files.
    pub history: History,
    /// The changes of names.
    pub named: Vec<Named>,
    /// The number of threads.
    pub threads: u32,
}

impl Told {
    /// The positions of acknowledgements that promise something.
    #[must_use]
    pub fn promises(&self) -> Vec<usize> {
        let named = self.named.iter().filter(|n| n.promised);
        let named = named.filter_map(|n| n.acked);
        self.history.promises().into_iter().chain(named).collect()
    }
}

/// The findings for a volume after a cut before event `cut`.
#[must_use]
pub fn judge(volume: &Volume, told: &Told, cut: usize) -> Vec<String> {
    let mut found = Vec::new();
    for (number, start) in (0..).zip(&told.history.files) {
        let Some(path) = &start.path else { continue };
        match volume.open_path(path, OpenFlags::default()) {
            Ok(file) => judge_file(&file, (number, path), told, cut, &mut found),
            Err(error) => found.push(format!("{path}: {error}")),
        }
    }
    if let Err(error) = judge_names(volume, told, cut, &mut found) {
        found.push(format!("names: {error}"));
    }
    found
}

/// Judges the names of all threads, and the files that they refer to.
fn judge_names(
    volume: &Volume,
    told: &Told,
    cut: usize,
    found: &mut Vec<String>,
) -> Result<(), Error> {
    let mut shown: BTreeMap<u32, Shown> = BTreeMap::new();
    for dir in 0..DIRS {
        let ino = volume.resolve(dir_path(dir).as_bytes(), true)?;
        for entry in volume.read_dir(ino)? {
            let entry = entry?;
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            if name == "." || name == ".." {
                continue;
            }
            let file = volume.open_ino(entry.ino, OpenFlags::default())?;
            let number = file_of(u32::from(file.metadata().mode));
            let Some(slot) = slot_of(dir, &name) else {
                found.push(format!("{}/{name}: nobody made it", dir_path(dir)));
                continue;
            };
            if number as usize >= told.history.files.len() {
                found.push(format!("{name}: stands for a file that nobody made"));
                continue;
            }
            shown.entry(slot.thread).or_default().insert(slot, number);
            judge_file(&file, (number, &slot.path()), told, cut, found);
        }
    }
    let all = (&told.history, &told.named[..]);
    let none = Shown::new();
    let of = |thread| shown.get(&thread).unwrap_or(&none);
    found.extend((0..told.threads).filter_map(|t| names::judge(all, t, of(t), cut)));
    Ok(())
}

fn slot_of(dir: u32, name: &str) -> Option<Slot> {
    let (thread, slot) = name.strip_prefix('t')?.split_once('-')?;
    Some(Slot {
        dir,
        thread: thread.parse().ok()?,
        slot: slot.parse().ok()?,
    })
}

/// The number of a file that a workload created: its permissions.
fn file_of(mode: u32) -> u32 {
    mode & 0o777
}

fn judge_file(
    file: &File,
    (number, path): (u32, &str),
    told: &Told,
    cut: usize,
    found: &mut Vec<String>,
) {
    let may = told.history.may(number, cut);
    let (size, changed) = (file.size(), time(file.metadata().mtime));
    if size < may.least || size > may.most {
        found.push(format!(
            "{path}: {size} bytes, where {} to {} may be",
            may.least, may.most
        ));
    }
    let (least, write) = may.time;
    if changed < least {
        let how = told.history.how(write, Promise::Times, cut);
        found.push(format!(
            "{path}: changed {changed:?}, before {least:?}: {how}"
        ));
    }
    let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
    match file.read_bytes(0, &mut bytes) {
        Ok(_) => {
            let wrong = sectors(path, &bytes, &may);
            let tell = |(owed, said)| match owed {
                Some(write) => format!("{said}; {}", told.history.how(write, Promise::Data, cut)),
                None => said,
            };
            found.extend(wrong.into_iter().map(tell).take(MOST));
        }
        Err(error) => found.push(format!("{path}: {error}")),
    }
}

/// The sectors that hold what they may not hold, each with the promised write if there is one.
fn sectors(path: &str, bytes: &[u8], may: &May) -> Vec<(Option<u32>, String)> {
    let all = bytes.chunks(SECTOR).zip(&may.sectors).zip(&may.owed);
    let wrong = all
        .enumerate()
        .filter_map(|(sector, ((bytes, values), owed))| {
            let held = held(bytes);
            let is = |value: &Value| match (value, held) {
                (Value::Zeros, Held::Zeros) => true,
                (Value::Stamp(stamp), Held::Stamp(held)) => *stamp == held,
                _ => false,
            };
            let said = || (*owed, format!("{path}, sector {sector}: {held:?}"));
            (!values.iter().any(is)).then(said)
        });
    wrong.collect()
}
