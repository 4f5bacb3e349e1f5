//! Old blocks of atomic writes, and the reserve: when they can be used again, in either order of the two events; who gets what is free.

use super::super::{Alloc, MARK_CREDITS, Owner, Reach, Run};
use super::Image;
use crate::error::{Error, Wait};
use crate::inode::Fs;
use diorite_format::FsBlock;

/// Blocks that are used on disk.
fn used(fs: &Fs, alloc: &Alloc, want: u32) -> Run {
    let run = alloc.claim(fs, FsBlock::new(0), want, Reach::All).unwrap();
    let marked = fs
        .begin(2 * MARK_CREDITS)
        .unwrap()
        .with(|handle| alloc.mark_used(handle, run));
    marked.unwrap();
    fs.commit_running().unwrap();
    run
}

fn swap_out(fs: &Fs, alloc: &Alloc, owner: Owner, run: Run) {
    let old = (run.start, run.len);
    let freed = fs
        .begin(2 * MARK_CREDITS)
        .unwrap()
        .with(|handle| alloc.free_swapped(handle, owner, &[old]));
    freed.unwrap();
}

fn sum(runs: &[Run]) -> u64 {
    runs.iter().map(|run| u64::from(run.len)).sum()
}

/// Rule G17: not before the commit, and not before requests in flight have ended.
#[test]
fn old_blocks_wait_for_the_commit_and_for_requests() {
    for kind in ["1k", "bigalloc"] {
        let image = Image::of(kind);
        let volume = image.open();
        let (fs, alloc) = (volume.inner(), volume.inner().alloc().unwrap());
        let (file, other) = (alloc.new_owner(), alloc.new_owner());
        let free = alloc.usable_blocks(Reach::All);
        let run = used(fs, alloc, 8);
        let left = free - u64::from(run.len);
        for commit_first in [true, false] {
            swap_out(fs, alloc, file, run);
            assert_eq!(alloc.usable_blocks(Reach::All), left);
            let commit = || fs.commit_running().unwrap();
            let ended = || alloc.note_unknown(&fs.sb, file);
            match commit_first {
                true => commit(),
                false => ended(),
            }
            assert_eq!(alloc.usable_blocks(Reach::All), left, "{commit_first}");
            // Another file's requests do not count.
            alloc.note_unknown(&fs.sb, other);
            match commit_first {
                true => ended(),
                false => commit(),
            }
            assert_eq!(alloc.usable_blocks(Reach::All), free, "{commit_first}");
            assert_eq!(alloc.spoken_for(), 0);
            let again = used(fs, alloc, run.len);
            assert_eq!(again.len, run.len);
            if again != run {
                swap_out(fs, alloc, file, again);
                alloc.note_unknown(&fs.sb, file);
                fs.commit_running().unwrap();
                break;
            }
        }
    }
}

/// A commit is of no use for who needs space if it frees nothing but what requests in flight may know, or what the reserve takes.
#[test]
fn what_a_commit_does_not_give_is_not_waited_for() {
    let image = Image::of("1k");
    let volume = image.open();
    let (fs, alloc) = (volume.inner(), volume.inner().alloc().unwrap());
    let (file, run) = (alloc.new_owner(), used(fs, alloc, 8));
    let again = used(fs, alloc, 8);
    alloc.keep_spare(&fs.sb, fs.reach);
    let claim = || alloc.claim(fs, FsBlock::new(0), 1024, Reach::All);
    let mut all = Vec::new();
    let full = loop {
        match claim() {
            Ok(run) => all.push(run),
            Err(error) => break error,
        }
    };
    assert!(matches!(full, Error::NoSpace { .. }), "{full}");
    swap_out(fs, alloc, file, run);
    let one = || alloc.claim(fs, FsBlock::new(0), 1, Reach::All);
    let known = one();
    assert!(matches!(known, Err(Error::NoSpace { .. })), "{known:?}");
    assert_eq!(alloc.spoken_for(), sum(&all) + u64::from(run.len));
    alloc.note_unknown(&fs.sb, file);
    let unknown = one();
    let commit = Error::WouldBlock(Wait::Commit);
    assert_eq!(unknown.unwrap_err().to_string(), commit.to_string());
    fs.commit_running().unwrap();
    all.push(one().unwrap());
    all.push(alloc.claim(fs, FsBlock::new(0), 7, Reach::All).unwrap());
    // What the reserve is short of.
    let anew = alloc.claim_anew(fs, (FsBlock::new(0), 16), fs.reach, true);
    swap_out(fs, alloc, file, again);
    alloc.note_unknown(&fs.sb, file);
    let short = one();
    assert!(matches!(short, Err(Error::NoSpace { .. })), "{short:?}");
    all.push(anew.unwrap().unwrap());
    fs.commit_running().unwrap();
    let rest = all.into_iter();
    rest.for_each(|run| alloc.unclaim(fs, run).unwrap());
    assert_eq!(alloc.spoken_for(), 0);
    volume.close().unwrap();
    image.fsck();
}

/// What becomes free fills the reserve first, so nobody else gets it on a full volume.
#[test]
fn the_reserve_is_filled_first() {
    let image = Image::of("1k");
    let volume = image.open();
    let (fs, alloc) = (volume.inner(), volume.inner().alloc().unwrap());
    alloc.keep_spare(&fs.sb, fs.reach);
    let mut all = Vec::new();
    let full = loop {
        match alloc.claim(fs, FsBlock::new(0), 1024, Reach::All) {
            Ok(run) => all.push(run),
            Err(error) => break error,
        }
    };
    assert!(matches!(full, Error::NoSpace { .. }), "{full}");
    let anew = |want| alloc.claim_anew(fs, (FsBlock::new(0), want), fs.reach, true);
    let first = anew(16).unwrap().unwrap();
    let mut spare = vec![first];
    while let Ok(run) = anew(64) {
        spare.push(run.unwrap());
    }
    // 1/64 of 48 MiB.
    assert_eq!(spare.iter().map(|run| run.len).sum::<u32>(), 768);
    alloc.unclaim(fs, first).unwrap();
    let others = alloc.claim(fs, FsBlock::new(0), 1, Reach::All);
    assert!(matches!(others, Err(Error::NoSpace { .. })));
    let again = anew(first.len).unwrap().unwrap();
    let rest = all
        .into_iter()
        .chain(spare.into_iter().skip(1))
        .chain([again]);
    rest.for_each(|run| alloc.unclaim(fs, run).unwrap());
    assert_eq!(alloc.spoken_for(), 0);
    volume.close().unwrap();
    image.fsck();
}
