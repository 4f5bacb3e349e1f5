//! What it is: a state in which something was found, kept so that it can be judged again.
//! Input: the images before any recovery, what was requested and acknowledged, the position of the cut. Output: a directory with
//! `disk-N.img`, `acks.json` and `found.txt`. Invariant: nothing else is needed to judge the state again.

use super::bed::Place;
use super::fsck::Scratch;
use super::judge::Told;
use super::recover::Bench;
use super::state::judge_state;
use crate::error::{Result, at, notes};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Everything that a judge must know of a state besides its images.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Kept {
    /// The arrangement of volume and journal.
    pub place: Place,
    /// The origin of the state in words.
    pub origin: String,
    /// What was requested and acknowledged.
    pub told: Told,
    /// The position of the cut in the log.
    pub cut: usize,
}

const STATE: &str = "acks.json";

fn image(dir: &Path, number: usize) -> PathBuf {
    dir.join(format!("disk-{number}.img"))
}

impl Kept {
    /// Keeps the state in `dir`.
    ///
    /// # Errors
    /// The host has no room.
    pub fn store(&self, dir: &Path, images: &[Vec<u8>], found: &[String]) -> Result<()> {
        std::fs::create_dir_all(dir).map_err(at(dir))?;
        let put = |path: PathBuf, bytes: &[u8]| std::fs::write(&path, bytes).map_err(at(&path));
        for (number, bytes) in images.iter().enumerate() {
            put(image(dir, number), bytes)?;
        }
        let json = serde_json::to_vec(self).map_err(notes("a state"))?;
        put(dir.join(STATE), &json)?;
        put(dir.join("found.txt"), found.join("\n").as_bytes())
    }
}

/// True if a state of this kind is kept in `dir`.
#[must_use]
pub fn is_kept(dir: &Path) -> bool {
    dir.join(STATE).is_file()
}

/// Judges a kept state again; returns its origin and the new findings.
///
/// # Errors
/// The directory does not hold a state.
pub fn repeat(dir: &Path) -> Result<(String, Vec<String>)> {
    let state = dir.join(STATE);
    let json = std::fs::read(&state).map_err(at(&state))?;
    let kept: Kept = serde_json::from_slice(&json).map_err(notes("a kept state"))?;
    let disks = 1 + usize::from(kept.place.apart);
    let images = (0..disks).map(|n| std::fs::read(image(dir, n)).map_err(at(&image(dir, n))));
    let images = images.collect::<Result<Vec<_>>>()?;
    let bench = Bench::new(&images)?;
    let told = (&kept.told, kept.cut);
    let fsck = Scratch::new()?;
    let found = judge_state((&bench, Some(&fsck)), kept.place, &images, told);
    Ok((kept.origin, found))
}
