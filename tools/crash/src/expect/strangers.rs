//! What it is: the judge of files that no history has: those that e2fsck put into lost+found.
//! Input: a recovered volume. Output: nothing, or the sector that was never written to the file.
//! Invariants: every name of the volume is visited; a file without a known name holds zeros and data that was written to one file,
//! or the filling byte of attributes and contents. Limit: only the stamps say which file that was.

use super::{Expect, contents};
use crate::names::FILLING;
use crate::stamp::{Held, SECTOR, held};
use diorite::{Error, OpenFlags, Volume};

impl Expect {
    pub(super) fn judge_strangers(&self, volume: &Volume, found: &mut Vec<String>) {
        let mut dirs = vec![String::new()];
        while let Some(dir) = dirs.pop() {
            match self.strangers_in(volume, &dir, found) {
                Ok(inner) => dirs.extend(inner),
                Err(error) => found.push(format!("{dir}/: {error}")),
            }
        }
    }

    /// Judges the files of a directory; returns its subdirectories.
    fn strangers_in(
        &self,
        volume: &Volume,
        dir: &str,
        found: &mut Vec<String>,
    ) -> Result<Vec<String>, Error> {
        let mut dirs = Vec::new();
        let top = if dir.is_empty() { "/" } else { dir };
        for entry in volume.read_dir(volume.resolve(top.as_bytes(), false)?)? {
            let entry = entry?;
            if entry.name == b"." || entry.name == b".." {
                continue;
            }
            let path = format!("{dir}/{}", String::from_utf8_lossy(&entry.name));
            let disk = volume.open_ino(entry.ino, OpenFlags::default())?.metadata();
            if disk.is_dir() {
                dirs.push(path);
            } else if disk.is_file() && !self.history.files.iter().any(|f| f.path == path) {
                let bytes = contents(volume, &path)?;
                if let Err(why) = judge(&bytes) {
                    found.push(format!("{path}, which nobody expects: {why}"));
                }
            }
        }
        Ok(dirs)
    }
}

fn judge(bytes: &[u8]) -> Result<(), String> {
    if bytes.iter().all(|byte| *byte == FILLING) {
        return Ok(());
    }
    let mut owner = None;
    for (sector, bytes) in bytes.chunks(SECTOR).enumerate() {
        let well = match held(bytes) {
            Held::Zeros => true,
            Held::Stamp(stamp) => *owner.get_or_insert(stamp.file) == stamp.file,
            Held::Stale | Held::Other => false,
        };
        if !well {
            return Err(format!("sector {sector} holds {:?}", held(bytes)));
        }
    }
    Ok(())
}
