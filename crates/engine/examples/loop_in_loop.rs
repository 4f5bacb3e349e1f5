//! Three nested volumes in one process: a volume on a loop device on a file in a volume on a loop device on a file in a volume.
//!
//!     cargo run --release -p diorite --example loop_in_loop -- outer.img /middle.img /inner.img /file
//!
//! Input: an image, the path of an image in it, the path of an image in that one, the path of a file. Output: that file's bytes on
//! standard output. Invariant: a read of the innermost file is a read of the outermost device; nothing is copied out, and no layer
//! caches data. Limits: see `diorite::loopdev`. The locator `outer.img!/middle.img!/inner.img` opens the same volume in one step.

use diorite::{Error, LoopDevice, OpenFlags, OpenOptions, Volume};
use std::io::Write;
use std::sync::Arc;

/// Opens the volume that is in a file of another volume.
fn inside(outer: &Volume, path: &str) -> Result<Volume, Error> {
    let file = outer.open_path(path, OpenFlags::default())?;
    let device = LoopDevice::new(file, path.to_owned());
    Volume::open_device(Arc::new(device), &OpenOptions::default())
}

/// Returns the bytes of the file `path` in the image `inner` in the image `middle` in the image `outer`.
pub fn read(outer: &str, middle: &str, inner: &str, path: &str) -> Result<Vec<u8>, Error> {
    let outer = Volume::open(outer, &OpenOptions::default())?;
    let middle = inside(&outer, middle)?;
    let inner = inside(&middle, inner)?;
    let file = inner.open_path(path, OpenFlags::default())?;
    let mut bytes = vec![0; usize::try_from(file.size()).expect("it fits into memory")];
    file.read_bytes(0, &mut bytes)?;
    Ok(bytes)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [outer, middle, inner, path] = &words[..] else {
        return Err("usage: loop_in_loop OUTER MIDDLE INNER PATH".into());
    };
    std::io::stdout().write_all(&read(outer, middle, inner, path)?)?;
    Ok(())
}
