//! What it is: what was requested of a volume whose size changes, and what was acknowledged.
//! Input: positions in the device's log. Output: the sizes and files that a cut at a position may leave. Invariant: what was acknowledged
//! before the cut is there; what was requested before it may be. Limit: contents of files that were not acknowledged are not judged.

use crate::rng::Rng;
use diorite::{Error, OpenFlags, Volume};
use serde::{Deserialize, Serialize};

/// A file with contents that its seed makes. Nobody changes it, but it may be removed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Written {
    /// Its path.
    pub path: String,
    /// The seed of its contents.
    pub seed: u64,
    /// Its bytes.
    pub len: usize,
    /// Where in the log it was acknowledged as durable.
    pub acked: usize,
    /// Where its removal was requested.
    pub removed: Option<usize>,
}

/// A size of the volume.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Size {
    /// The most bytes that it may have, and the least.
    pub bytes: (u64, u64),
    /// Whether files or the journal moved for it.
    pub moves: bool,
    /// Whether descriptors got another size, and not the volume.
    pub converts: bool,
    /// Where in the log it was requested, and acknowledged.
    pub asked: usize,
    /// See `asked`.
    pub acked: usize,
}

/// See the module.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Told {
    /// All files that were acknowledged.
    pub files: Vec<Written>,
    /// The sizes, the first one that of the image.
    pub sizes: Vec<Size>,
    /// Has the volume a journal?
    pub journal: bool,
}

impl Written {
    /// The contents.
    #[must_use]
    pub fn contents(&self) -> Vec<u8> {
        let mut rng = Rng::new(self.seed);
        let words = std::iter::from_fn(|| Some(rng.next().to_le_bytes()));
        words.flatten().take(self.len).collect()
    }

    fn must_be(&self, cut: usize) -> bool {
        self.acked <= cut && self.removed.is_none_or(|at| cut < at)
    }
}

impl Told {
    /// The sizes that a cut may leave.
    fn sizes(&self, cut: usize) -> &[Size] {
        let asked = self.sizes.partition_point(|size| size.asked <= cut);
        let acked = self.sizes.partition_point(|size| size.acked <= cut);
        &self.sizes[acked.saturating_sub(1)..asked.max(1)]
    }

    /// Whether blocks may have no user after the cut: the journal may have been moving.
    #[must_use]
    pub fn may_leak(&self, cut: usize) -> bool {
        let until = |size: &&Size| size.asked <= cut;
        self.sizes.iter().filter(until).any(|size| size.moves)
    }

    /// Whether descriptors were getting another size at the cut. The kernel and e2fsck may need a copy of the superblock then, which they
    /// do not find where groups are not as large as usual.
    #[must_use]
    pub fn converts(&self, cut: usize) -> bool {
        let around = |size: &&Size| size.asked <= cut && cut <= size.acked;
        self.sizes.iter().filter(around).any(|size| size.converts)
    }

    /// Adds what is wrong with a volume that a cut has left.
    pub fn judge(&self, volume: &Volume, cut: usize, who: &str, found: &mut Vec<String>) {
        let bytes = volume.superblock().geometry().volume_bytes();
        let sizes = self.sizes(cut);
        let fits = |size: &Size| (size.bytes.1..=size.bytes.0).contains(&bytes);
        if !sizes.iter().any(fits) {
            found.push(format!("{who}: it has {bytes} bytes, not one of {sizes:?}"));
        }
        for file in self.files.iter().filter(|file| file.must_be(cut)) {
            match read(volume, &file.path) {
                Ok(bytes) if bytes == file.contents() => {}
                Ok(bytes) => found.push(format!(
                    "{who}: {} has {} bytes, not its own {}",
                    file.path,
                    bytes.len(),
                    file.len
                )),
                Err(error) => found.push(format!("{who}: {}: {error}", file.path)),
            }
        }
    }
}

fn read(volume: &Volume, path: &str) -> Result<Vec<u8>, Error> {
    let file = volume.open_path(path, OpenFlags::default())?;
    let len = usize::try_from(file.size()).unwrap_or(usize::MAX);
    // A damaged size is not believed.
    let mut bytes = vec![0; len.min(1 << 24)];
    let read = file.read_bytes(0, &mut bytes)?;
    bytes.truncate(read);
    Ok(bytes)
}
