//! Volumes inside files of volumes, and files whose blocks say where they belong.
//!
//! Input: a file, or a device. Output: an empty ext4 in it; files of written blocks. Invariants: every block of a file is written, so that
//! no layer below has to allocate; the file's number, the block's position and the number of the run that wrote it are in the block.
//! Limits: blocks of 4 KiB; the free space of what is made here is contiguous.

use super::super::super::bed::{Scratch, load_image, make_empty};
use super::super::super::failure::Failure;
use diorite::{Fallocate, File, LoopDevice, Volume};
use diorite_block::{Bio, Blocking, Buf, Device};
use std::sync::Arc;

/// Bytes of a block, and of a call of the buffered loads.
pub(super) const BLOCK: u64 = 4096;
const CHUNK: u64 = 1 << 20;

/// The device on a file.
pub(super) fn looped(file: &File) -> Arc<dyn Device> {
    Arc::new(LoopDevice::new(file.clone(), "loop".to_owned()))
}

/// Makes an empty ext4 on a device of zeros.
pub(super) fn format(device: &Arc<dyn Device>) -> Result<(), Failure> {
    let dir = Scratch::in_memory()?;
    let path = make_empty(&dir, device.geometry().size)?;
    let blocking = Blocking::new(device.clone());
    load_image(&path, |pos, bytes| {
        let mut buf = Buf::zeroed(bytes.len());
        buf.copy_in(0, bytes);
        let written = blocking.run(Bio::write(pos, buf, 0)).result;
        written.map_err(|e| Failure::failed(format!("cannot write an image at {pos}: {e}")))
    })
}

/// A new file of this length, all of it written zeros.
pub(super) fn zeros(volume: &Volume, path: &str, len: u64) -> Result<File, Failure> {
    let file = volume.create(path, 0o644)?;
    file.fallocate(Fallocate::Allocate { keep_size: false }, 0, len)?;
    file.fallocate(Fallocate::WriteZeroes { keep_size: false }, 0, len)?;
    Ok(file)
}

/// A new file whose blocks are marked.
pub(super) fn marked(volume: &Volume, path: &str, len: u64, mark: Mark) -> Result<File, Failure> {
    let file = zeros(volume, path, len)?;
    mark.fill(&file, len)?;
    Ok(file)
}

/// What the blocks of a file say besides their positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// The number of the file.
    pub(super) file: u64,
    /// The number of the run that wrote the block.
    pub(super) run: u64,
}

impl Mark {
    /// Writes all blocks of a file, directly.
    fn fill(self, file: &File, len: u64) -> Result<(), Failure> {
        for pos in (0..len).step_by(CHUNK as usize) {
            let mut buf = Buf::zeroed((len - pos).min(CHUNK) as usize);
            self.put(pos, buf.as_mut_slice());
            let asked = buf.len();
            match file.write_at(pos, buf).1? {
                done if done == asked => {}
                done => {
                    let what = format!("only {done} of {asked} bytes were written at {pos}");
                    return Err(Failure::failed(what));
                }
            }
        }
        Ok(())
    }

    fn words(self, pos: u64) -> [u8; 24] {
        let mut bytes = [0; 24];
        for (at, word) in [pos, self.file, self.run].into_iter().enumerate() {
            bytes[8 * at..][..8].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Marks whole blocks of which the first is at `pos`.
    pub(super) fn put(self, pos: u64, blocks: &mut [u8]) {
        let each = blocks.chunks_exact_mut(BLOCK as usize);
        for (at, block) in (pos..).step_by(BLOCK as usize).zip(each) {
            block[..24].copy_from_slice(&self.words(at));
        }
    }

    /// Checks that whole blocks are those at `pos`. The run that wrote them may be any that is not later.
    pub(super) fn check(self, pos: u64, blocks: &[u8]) -> Result<(), Failure> {
        self.check_runs(pos, blocks, 0)
    }

    /// Checks that whole blocks are those that this run wrote at `pos`.
    pub(super) fn check_written(self, pos: u64, blocks: &[u8]) -> Result<(), Failure> {
        self.check_runs(pos, blocks, self.run)
    }

    fn check_runs(self, pos: u64, blocks: &[u8], first: u64) -> Result<(), Failure> {
        let Mark { file, run } = self;
        let each = blocks.chunks_exact(BLOCK as usize);
        for (at, block) in (pos..).step_by(BLOCK as usize).zip(each) {
            let word = |n: usize| {
                let bytes = block[8 * n..][..8].try_into().expect("eight bytes");
                u64::from_le_bytes(bytes)
            };
            let found = (word(0), word(1), word(2));
            if found.0 != at || found.1 != file || !(first..=run).contains(&found.2) {
                let what = format!(
                    "wrong data at {at} of file {file}, wanted that of a run from {first} to {run}: the block is {} of file {}, run {}",
                    found.0, found.1, found.2
                );
                return Err(Failure::failed(what));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_from_elsewhere_is_noticed() {
        let mark = Mark { file: 3, run: 7 };
        let mut blocks = vec![0; 2 * BLOCK as usize];
        mark.put(BLOCK, &mut blocks);
        assert!(mark.check(BLOCK, &blocks).is_ok());
        assert!(mark.check_written(BLOCK, &blocks).is_ok());
        let later = Mark { run: 9, ..mark };
        assert!(later.check(BLOCK, &blocks).is_ok());
        assert!(later.check_written(BLOCK, &blocks).is_err());
        assert!(mark.check(2 * BLOCK, &blocks).is_err());
        assert!(Mark { file: 4, ..mark }.check(BLOCK, &blocks).is_err());
        assert!(Mark { run: 6, ..mark }.check(BLOCK, &blocks).is_err());
    }
}
