//! The child process that makes the calls which `cost` counts for each operation: names, small files, fsync.
//!
//! Input: the image of [`super::operations`], an operation, a count. Output: one JSON object with the acquisitions of locks by class; the
//! rest is counted by callgrind. Invariants: one thread makes all calls; the prepared state is durable before the first measured call, and
//! nothing commits by time, so the counts are the same in every run. Limits: started only by that experiment.

use super::super::args::{Child, ChildOptions};
use super::super::bed;
use super::super::failure::Failure;
use super::super::load::Rng;
use super::super::locks;
use super::super::report::{Print, write_out};
use super::operations::name_in;
use diorite::dir::RenameFlags;
use diorite::{Buf, File, OpenFlags, OpenOptions, Volume};
use diorite_block::MemDevice;
use std::sync::Arc;
use std::time::Duration;

/// Files of one directory, and the bytes of a small file.
const PER_DIR: u64 = 1000;
const SMALL: [u8; 8192] = [7; 8192];
/// Blocks of the file that is overwritten and synced.
const BLOCKS: u64 = 1024;
const BLOCK: u64 = 4096;
/// The limit of the metadata cache, so that all metadata stays in memory.
const WARM: usize = 1 << 30;

/// The volume of an image, in memory. It commits only where the journal needs room, or when it is told to.
pub(super) fn volume_of(options: &ChildOptions) -> Result<Volume, Failure> {
    let size = std::fs::metadata(&options.image)
        .map_err(|e| Failure::host("the image", e))?
        .len();
    let device = MemDevice::try_new(size)?;
    bed::load_image(&options.image, |pos, bytes| {
        device.write_at(pos, bytes);
        Ok(())
    })?;
    let open = OpenOptions::writable()
        .commit_interval(Duration::from_secs(3600))
        .metadata_cache(WARM);
    Ok(Volume::open_device(Arc::new(device), &open)?)
}

pub(super) fn run(options: &ChildOptions, out: Print) -> Result<(), Failure> {
    let volume = volume_of(options)?;
    let count = options.count;
    match options.what {
        Child::Create | Child::Rename | Child::Unlink => names(&volume, options.what, count, out),
        Child::LookupFew => look_up(&volume, super::operations::FEW, count, out),
        Child::LookupMany => look_up(&volume, super::operations::MANY, count, out),
        Child::SmallFile => {
            let paths = paths(&volume, "s", count)?;
            counted(count, out, &mut |n| {
                let file = volume.create(&paths[index(n)], 0o644)?;
                file.write_bytes(0, &SMALL)?;
                Ok(())
            })
        }
        _ => {
            let file = overwritten(&volume)?;
            counted(count, out, &mut |n| {
                let (_, written) = file.write_buf(n % BLOCKS * BLOCK, Buf::zeroed(4096));
                written?;
                Ok(file.sync()?)
            })
        }
    }
}

/// A position in a list of paths.
fn index(n: u64) -> usize {
    usize::try_from(n).expect("paths fit in memory")
}

/// Calls and prints how many locks of each class they took.
fn counted(
    count: u64,
    out: Print,
    call: &mut dyn FnMut(u64) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let before = locks::snapshot();
    measured_calls(count, call)?;
    print_locks(&locks::since(&before), out)
}

/// Prints how many locks of each class were taken.
pub(super) fn print_locks(taken: &[locks::ClassStats], out: Print) -> Result<(), Failure> {
    let each = taken.iter().map(|(name, stats)| {
        let acquired = serde_json::Value::from(stats.acquired);
        ((*name).to_owned(), acquired)
    });
    let object = serde_json::Value::Object(each.collect());
    write_out(out, format_args!("{object}\n"))
}

/// Callgrind counts in here.
#[inline(never)]
fn measured_calls(
    count: u64,
    call: &mut dyn FnMut(u64) -> Result<(), Failure>,
) -> Result<(), Failure> {
    (0..count).try_for_each(call)
}

/// Paths of files in directories that are made here.
fn paths(volume: &Volume, letter: &str, count: u64) -> Result<Vec<String>, Failure> {
    for dir in 0..count.div_ceil(PER_DIR) {
        volume.mkdir(&format!("/{letter}{dir:02}"), 0o755)?;
    }
    let path = |n| format!("/{letter}{:02}/file-{n:06}", n / PER_DIR);
    Ok((0..count).map(path).collect())
}

fn names(volume: &Volume, what: Child, count: u64, out: Print) -> Result<(), Failure> {
    let (first, second) = (paths(volume, "a", count)?, paths(volume, "b", count)?);
    let mut create = |n| Ok(volume.create(&first[index(n)], 0o644).map(drop)?);
    if what == Child::Create {
        volume.sync()?;
        return counted(count, out, &mut create);
    }
    (0..count).try_for_each(create)?;
    volume.sync()?;
    match what {
        Child::Rename => counted(count, out, &mut |n| {
            let (from, to) = (&first[index(n)], &second[index(n)]);
            Ok(volume.rename(from, to, RenameFlags::default())?)
        }),
        _ => counted(count, out, &mut |n| Ok(volume.unlink(&first[index(n)])?)),
    }
}

/// Random lookups; every path is used once before, so that all metadata is in memory.
fn look_up(
    volume: &Volume,
    (dir, names): (&str, u64),
    count: u64,
    out: Print,
) -> Result<(), Failure> {
    let mut rng = Rng::new(1);
    let paths: Vec<_> = (0..count).map(|_| name_in(dir, rng.below(names))).collect();
    let resolve = |n| Ok(volume.resolve(&paths[index(n)], true).map(drop)?);
    (0..count).try_for_each(resolve)?;
    let mut resolve = resolve;
    counted(count, out, &mut resolve)
}

fn overwritten(volume: &Volume) -> Result<File, Failure> {
    volume.create(bed::FILE, 0o644).map(drop)?;
    let flags = OpenFlags::writable();
    let file = volume.open_path(bed::FILE, flags)?;
    for n in 0..BLOCKS {
        let (_, written) = file.write_buf(n * BLOCK, Buf::zeroed(4096));
        written?;
    }
    volume.sync()?;
    Ok(file)
}
