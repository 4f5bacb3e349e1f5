//! What it is: reads the image that a tool has repaired or mounted.
//! Input: its file, and the length of the disk. Output: as many bytes as the disk has.
//! Invariant: a file's length says nothing. e2fsck, which repairs an image whose blocks were lost, may write far behind its end,
//! where a disk would have refused: such a file says that it has terabytes.

use crate::error::{Result, at};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The first `bytes.len()` bytes of `image`, put into `bytes`. Blocks.
///
/// # Errors
/// The host; `image` is shorter.
pub(crate) fn read_into(image: &Path, bytes: &mut [u8]) -> Result<()> {
    let file = File::open(image).map_err(at(image))?;
    file.read_exact_at(bytes, 0).map_err(at(image))
}

/// The first `len` bytes of `image`. Blocks.
///
/// # Errors
/// Those of [`read_into`].
pub(crate) fn read(image: &Path, len: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    read_into(image, &mut bytes).map(|()| bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_terabytes_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("b");
        std::fs::write(&image, [7; 4096]).unwrap();
        let file = File::options().write(true).open(&image).unwrap();
        file.set_len(8 << 40).unwrap();
        assert_eq!(read(&image, 4096).unwrap(), [7; 4096]);
        file.set_len(100).unwrap();
        assert!(read(&image, 4096).is_err());
    }
}
