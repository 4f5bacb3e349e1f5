//! What it is: bytes as files of the host, for code that opens paths; and the judgement of what is made of them.
//! Input: bytes; a builder. Output: a file in memory with a path; nothing, if the image is whole. Invariants: an image that is made is one
//! in which the check finds nothing; errors are errors and no panics. Limit: images of at most [`MOST`] bytes are made.

use diorite::mkfs::MkfsOptions;
use diorite_block::{Device, MemDevice};
use diorite_check::{CheckOptions, check_device};
use diorite_image::{ImageBuilder, Plan, Rules, Size, Source};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of an image that is made: a sparse file of an archive may want any number.
const MOST: u64 = 256 << 20;

/// A file in memory.
pub struct Scratch {
    file: File,
}

impl Scratch {
    /// With these contents.
    pub fn new(bytes: &[u8]) -> Scratch {
        let mut file = File::from(memfd_create("fuzz", MemfdFlags::CLOEXEC).expect("a file in memory"));
        file.write_all(bytes).expect("memory");
        Scratch { file }
    }

    /// Where the process can open it.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }
}

/// Makes the sums of all headers of a tar archive right, which the fuzzer could not guess.
pub fn seal_tar(bytes: &mut [u8]) {
    for block in bytes.chunks_exact_mut(512).filter(|block| block[257..262] == *b"ustar") {
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    }
}

/// The files of a source: their number and bytes, or why there are none.
pub fn read(source: Source, spool: &Path) -> Result<(u64, u64, ImageBuilder), String> {
    let mut builder = ImageBuilder::new(MkfsOptions::new([1; 16], [2; 16], 1_700_000_000));
    builder.set_rules(Rules::default().spool_in(spool.to_owned()));
    builder.add(source).map_err(|e| e.to_string())?;
    Ok((builder.files(), builder.bytes(), builder))
}

/// Makes the image. Whatever it is made of, the check finds nothing in it.
pub fn make(builder: ImageBuilder) {
    let Ok(plan) = builder.plan(Size::Auto { headroom: 0 }) else { return };
    if plan.bytes() <= MOST {
        write(plan);
    }
}

fn write(plan: Plan) {
    let device: Arc<dyn Device> = Arc::new(MemDevice::new(plan.bytes()));
    if plan.write(&device, &|_| true).is_err() {
        return;
    }
    let open = diorite::OpenOptions::default().workers(1).metadata_cache(1 << 20).map_cache(1 << 20);
    let options = CheckOptions::default().threads(1).per_kind(5).open(open);
    let report = check_device(&device, &options, &|_| {}).expect("an image that was made");
    assert!(report.is_clean(), "{report:?}");
}
