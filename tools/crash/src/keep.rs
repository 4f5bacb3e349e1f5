//! What it is: a state in which something was found, kept so that it can be judged again.
//! Input: the image before any recovery, what it may hold, what was found. Output: a directory with `state.img`, `state.json` and
//! `found.txt`. Invariant: nothing else is needed to judge the state again.

use crate::bed::Mode;
use crate::check::{Also, Judge, Verdict};
use crate::error::{Result, at, notes};
use crate::expect::Expect;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Everything that a judge must know of a state besides its image.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Kept {
    /// The journal mode of the volume.
    pub mode: Mode,
    /// The origin of the state in words: seed, round, position in the log, which writes survived.
    pub origin: String,
    /// What its files may hold.
    pub expect: Expect,
}

impl Kept {
    /// Keeps the state in `parent/name`.
    ///
    /// # Errors
    /// The host has no room.
    pub fn store(
        &self,
        parent: &Path,
        name: &str,
        image: &[u8],
        found: &[String],
    ) -> Result<PathBuf> {
        let dir = parent.join(name);
        std::fs::create_dir_all(&dir).map_err(at(&dir))?;
        let put = |name: &str, bytes: &[u8]| {
            let path = dir.join(name);
            std::fs::write(&path, bytes).map_err(at(&path))
        };
        let json = serde_json::to_vec(self).map_err(notes("a state"))?;
        put("state.img", image)?;
        put("state.json", &json)?;
        put("found.txt", found.join("\n").as_bytes())?;
        Ok(dir)
    }
}

/// Judges a kept state again; returns its origin and the new verdict.
///
/// # Errors
/// The directory does not hold a state, or a tool is missing.
pub fn repeat(dir: &Path, also: Also) -> Result<(String, Verdict)> {
    let (image, state) = (dir.join("state.img"), dir.join("state.json"));
    let image = std::fs::read(&image).map_err(at(&image))?;
    let state = std::fs::read(&state).map_err(at(&state))?;
    let kept: Kept = serde_json::from_slice(&state).map_err(notes("a kept state"))?;
    let verdict = Judge::new(image.len())?.judge(kept.mode, &image, &kept.expect, also)?;
    Ok((kept.origin, verdict))
}
