//! What cannot move is refused by name, and then nothing was changed.

use super::world::{Kind, bytes_of, device, made, open};
use super::{TREES, limit, move_all};
use crate::alloc::Reach;
use crate::error::Error;
use crate::relocate::Limit;
use crate::{OpenFlags, Volume};
use diorite_format::{FsBlock, GroupNo, Ino};

const SMALL: Kind = Kind {
    size: "32M",
    args: TREES[0].args,
    is_flat: false,
};

/// Asks for an evacuation that is refused; returns why. The device has the bytes that it had before.
fn refused(bytes: &[u8], ask: impl FnOnce(&Volume) -> Limit) -> Error {
    let device = device(bytes);
    let volume = open(device.clone());
    let limit = ask(&volume);
    let error = move_all(&volume, &limit).unwrap_err();
    assert!(bytes_of(&device) == bytes, "{error}");
    // The limit has ended.
    let alloc = volume.inner().alloc().unwrap();
    assert_eq!(alloc.now_free().0, alloc.free_blocks(), "{error}");
    let last = volume.superblock().geometry().blocks_count() - 1;
    let goal = FsBlock::new(last);
    let run = alloc.claim(volume.inner(), goal, 1, Reach::All).unwrap();
    alloc.unclaim(volume.inner(), run).unwrap();
    volume.close().unwrap();
    error
}

fn groups(volume: &Volume, count: u32) -> Limit {
    let sb = volume.superblock();
    Limit::behind(
        sb.group_first_block(GroupNo::new(count)).get(),
        count * sb.geometry().inodes_per_group(),
    )
}

/// The output of a tool that changes an image.
fn changed(bytes: &[u8], program: &str, args: &[&str]) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    std::fs::write(&path, bytes).unwrap();
    let out = xtask::run::tool(program)
        .args(args)
        .arg(&path)
        .output()
        .unwrap();
    assert!(out.status.success(), "{program}: {out:?}");
    std::fs::read(&path).unwrap()
}

#[test]
fn a_limit_that_is_no_part_of_the_volume_is_refused() {
    let bytes = made(SMALL);
    for (blocks, inodes) in [(0, 0), (1 << 40, 2048), (16385, 2048), (16385, 0)] {
        let error = refused(&bytes, |_| Limit::behind(blocks, inodes));
        assert!(matches!(error, Error::Invalid(_)), "{error}");
    }
}

#[test]
fn structures_of_a_group_that_stays_are_not_cut_off() {
    let bytes = made(SMALL);
    let error = refused(&bytes, |volume| {
        let whole = groups(volume, 4);
        let first = whole.region.runs().next().unwrap().start;
        Limit::behind(first + 9, whole.inodes / 4 * 5)
    });
    let said = error.to_string();
    assert!(
        matches!(error, Error::Refused(_)) && said.contains("of group 4, which stays"),
        "{said}"
    );
}

#[test]
fn a_list_of_bad_blocks_stays() {
    let dir = tempfile::tempdir().unwrap();
    let list = dir.path().join("bad");
    std::fs::write(&list, "30000\n").unwrap();
    let bytes = changed(
        &made(SMALL),
        "e2fsck",
        &["-fy", "-l", list.to_str().unwrap()],
    );
    let error = refused(&bytes, |volume| groups(volume, 4));
    assert!(error.to_string().contains("bad blocks"), "{error}");
}

#[test]
fn blocks_in_use_that_nobody_owns_are_found() {
    let mut bytes = made(SMALL);
    // debugfs takes the image before the request.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    std::fs::write(&path, &bytes).unwrap();
    let out = xtask::run::tool("debugfs")
        .args(["-w", "-R", "setb 30000", path.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(out.status.success());
    bytes = std::fs::read(&path).unwrap();
    let device = device(&bytes);
    let volume = open(device);
    let limit = groups(&volume, 4);
    let error = move_all(&volume, &limit).unwrap_err();
    assert!(matches!(error, Error::Damaged(_)), "{error}");
}

#[test]
fn a_lack_of_space_is_told_before_anything_moves() {
    let device = device(&made(SMALL));
    let volume = open(device.clone());
    let file = volume.create("/large", 0o600).unwrap();
    file.write_bytes(0, &vec![1; 9 << 20]).unwrap();
    drop(file);
    volume.close().unwrap();
    let bytes = bytes_of(&device);
    let error = refused(&bytes, |volume| groups(volume, 1));
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
}

#[test]
fn a_file_in_use_is_in_the_way() {
    let volume = open(device(&made(SMALL)));
    let file = volume.open_ino(Ino::ROOT, OpenFlags::default()).unwrap();
    let error = move_all(&volume, &limit(&volume, true)).unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    drop(file);
    move_all(&volume, &limit(&volume, true)).unwrap();
}
