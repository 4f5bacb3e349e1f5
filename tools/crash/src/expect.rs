//! What it is: what a state's files may hold, and the judge of what they do hold.
//! Input: an [`Expect`] and a volume. Output: findings, in words.
//! Invariant: every sector of every file is read and must be one of the values that it may hold.
//! Limit: a few findings of a file are told, the others counted.

use crate::stamp::{Held, SECTOR, Stamp, held};
use diorite::{OpenFlags, Volume};
use serde::{Deserialize, Serialize};

/// Findings that are told of one file.
const TOLD: usize = 4;

/// What a sector may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Value {
    /// The stamp of the action with this number; 0 is what the file began with.
    Write(u32),
}

/// What one file may hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileExpect {
    /// Its path in the image.
    pub path: String,
    /// Its size in bytes.
    pub size: u64,
    /// For each sector what it may hold.
    pub sectors: Vec<Vec<Value>>,
}

/// What all files of a state may hold. A file's place in the list is its number in the stamps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expect {
    /// See there.
    pub files: Vec<FileExpect>,
}

impl Expect {
    /// Compares with what the volume's files hold.
    pub fn judge(&self, volume: &Volume, found: &mut Vec<String>) {
        for (number, file) in (0..).zip(&self.files) {
            match contents(volume, &file.path) {
                Ok(bytes) => file.judge(number, &bytes, found),
                Err(error) => found.push(format!("{}: {error}", file.path)),
            }
        }
    }
}

fn contents(volume: &Volume, path: &str) -> Result<Vec<u8>, diorite::Error> {
    let file = volume.open_path(path, OpenFlags::default())?;
    let mut bytes = vec![0; file.size() as usize];
    file.read_bytes(0, &mut bytes)?;
    Ok(bytes)
}

impl FileExpect {
    fn judge(&self, number: u32, bytes: &[u8], found: &mut Vec<String>) {
        let path = &self.path;
        if bytes.len() as u64 != self.size {
            found.push(format!("{path}: {} bytes, not {}", bytes.len(), self.size));
            return;
        }
        let sectors = (0u64..).zip(bytes.chunks(SECTOR)).zip(&self.sectors);
        let mut wrong = 0;
        for ((sector, bytes), may_hold) in sectors {
            let held = held(bytes);
            if may_hold.iter().any(|v| v.is(number, sector, held)) {
                continue;
            }
            wrong += 1;
            if wrong <= TOLD {
                found.push(format!(
                    "{path}: sector {sector} holds {}; it may hold {may_hold:?}",
                    tell(number, sector, held)
                ));
            }
        }
        if wrong > TOLD {
            found.push(format!("{path}: {wrong} sectors in all"));
        }
    }
}

impl Value {
    fn is(self, file: u32, sector: u64, held: Held) -> bool {
        let Value::Write(write) = self;
        held == Held::Stamp(Stamp {
            file,
            sector,
            write,
        })
    }
}

fn tell(file: u32, sector: u64, held: Held) -> String {
    match held {
        Held::Stamp(s) if (s.file, s.sector) == (file, sector) => format!("write {}", s.write),
        Held::Stamp(s) => format!(
            "a sector of somebody else: file {}, sector {}, write {}",
            s.file, s.sector, s.write
        ),
        Held::Zeros => "zeros".into(),
        Held::Stale => "STALE bytes, which were never written to any file".into(),
        Held::Other => "bytes that nobody wrote, or half a write".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stamp::{STALE, fill};

    fn findings(bytes: &[u8]) -> Vec<String> {
        let file = FileExpect {
            path: "/f".into(),
            size: 1600,
            sectors: vec![vec![Value::Write(0), Value::Write(2)]; 4],
        };
        let mut found = Vec::new();
        file.judge(7, bytes, &mut found);
        found
    }

    #[test]
    fn each_kind_of_wrong_sector_is_named() {
        let mut bytes = [0; 1600];
        fill(&mut bytes, 7, 0, 2);
        fill(&mut bytes[512..1024], 7, 1, 0);
        assert_eq!(findings(&bytes), [""; 0]);
        assert!(findings(&bytes[..1599])[0].contains("1599 bytes"));
        let mut wrong = bytes;
        fill(&mut wrong[..512], 7, 0, 1);
        wrong[512..1024].fill(STALE);
        wrong[1024..1536].copy_from_slice(&bytes[..512]);
        wrong[1590] = 1;
        let found = findings(&wrong);
        let words = ["write 1;", "STALE", "sector 0, write 2", "half a write"];
        assert_eq!(found.len(), 4);
        for (found, word) in found.iter().zip(words) {
            assert!(found.contains(word), "{found}");
        }
    }
}
