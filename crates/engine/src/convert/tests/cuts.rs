//! Power cuts during conversions.
//!
//! Input: seeds, which are printed. Output: none. Invariant: what survives a cut is, after recovery by diorite or by e2fsck, a file system
//! with the same files, of the old form or of the new one. Limits: a sample of cuts; writes are torn between sectors.

use super::*;
use crate::testing::Rng;
use crate::{OpenOptions, Volume};
use diorite_block::RecordDevice;
use diorite_block::record::{PowerCuts, plan};

/// What e2fsck may say of a file system after a cut that diorite has recovered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    /// Nothing.
    Sound,
    /// Something that it mends without a loss.
    Mended,
}

/// The image as e2fsck -fy leaves it.
fn repaired(dir: &Path, what: &str, bytes: &[u8]) -> Vec<u8> {
    let path = dir.join("repaired");
    fs::write(&path, bytes).unwrap();
    let out = xtask::run::tool("e2fsck")
        .args(["-fy", path.to_str().unwrap()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(matches!(out.status.code(), Some(0 | 1)), "{what}: {said}");
    fs::read(&path).unwrap()
}

/// The image as opening and closing for writing leaves it; none if it may not be opened for writing.
fn recovered(what: &str, bytes: &[u8]) -> Option<Vec<u8>> {
    let below = device(bytes);
    let options = OpenOptions::writable();
    match Volume::open_device(below.clone(), &options) {
        Ok(volume) => volume.close().unwrap(),
        Err(crate::Error::Format(error)) if !error.to_string().contains("checksum") => return None,
        Err(error) => panic!("{what}: {error}"),
    }
    Some(bytes_of(&below))
}

/// The features that stay as they are while a volume is in use, its UUID, and the size of its inodes.
fn form(bytes: &[u8]) -> (Features, [u8; 16], u32) {
    let sb = superblock(bytes);
    let mut features = *sb.features();
    features.incompat = features.incompat.without(Incompat::RECOVER);
    (features, *sb.uuid(), sb.geometry().inode_size())
}

/// Cuts a conversion in `states` places.
fn cut(kind: &str, change: &Conversion, states: usize, after: After) {
    cut_image((kind, made(kind)), change, states, after);
}

/// Cuts a conversion of an image.
fn cut_image((kind, before): (&str, Vec<u8>), change: &Conversion, states: usize, after: After) {
    let files = contents(&before);
    let recorder = RecordDevice::with_volatile_cache(device(&before));
    let device: Arc<dyn Device> = Arc::new(recorder.clone());
    let clock = OpenOptions::default().clock;
    convert(&device, change, &clock, &mut |_| {}).unwrap();
    drop(device);
    let log = recorder.log();
    let mut rng = Rng::from_env("convert cuts");
    let dir = tempfile::tempdir().unwrap();
    let new = converted(&before, change).unwrap();
    let forms = [form(&before), form(&new)];
    let mut seen = [0; 2];
    let mut cuts = PowerCuts::new(before, &log);
    for cut in plan(&log, states, rng.next(), 512) {
        let bytes = cuts.with_image(cut, <[u8]>::to_vec);
        let what = format!("{kind}: {cut:?}");
        let whole = repaired(dir.path(), &what, &bytes);
        sound(dir.path(), &what, &whole);
        same(&what, &whole, &files);
        let is = forms.iter().position(|one| *one == form(&whole));
        if after == After::Sound {
            seen[is.unwrap_or_else(|| panic!("{what}: neither old nor new"))] += 1;
        }
        let Some(own) = recovered(&what, &bytes) else {
            continue;
        };
        if after == After::Sound {
            sound(dir.path(), &what, &own);
        }
        same(&what, &own, &files);
    }
    eprintln!("{kind}: {states} cuts, {seen:?} of the old and of the new form");
    assert!(
        after == After::Mended || seen.iter().all(|n| *n > 0),
        "{seen:?}"
    );
}

#[test]
fn a_new_uuid_is_there_or_not() {
    cut("-t ext4 -O orphan_file -J size=2", &uuid(), 9, After::Sound);
}

/// Values in inodes of their own, to which entries in inodes and in blocks refer, have checksums of the old UUID or of the new one.
#[test]
fn values_in_inodes_have_old_checksums_or_new_ones() {
    let kind = "-t ext4 -O ea_inode -J size=2";
    let below = device(&made(kind));
    let volume = Volume::open_device(below.clone(), &OpenOptions::writable()).unwrap();
    let file = volume.lookup(crate::Ino::ROOT, b"file").unwrap().unwrap();
    for len in [9000, 60, 700, 5000] {
        let name = format!("user.of{len}");
        volume.set_xattr(file, &name, &vec![7; len]).unwrap();
    }
    volume.close().unwrap();
    let bytes = bytes_of(&below);
    let at = |bytes: &[u8]| {
        let volume = Volume::open_device(device(bytes), &OpenOptions::default()).unwrap();
        let file = volume.lookup(crate::Ino::ROOT, b"file").unwrap().unwrap();
        volume.xattrs(file).unwrap()
    };
    let after = converted(&bytes, &uuid()).unwrap();
    assert_eq!(at(&bytes), at(&after));
    cut_image((kind, bytes), &uuid(), 9, After::Sound);
}

#[test]
fn checksums_are_there_or_not() {
    cut("-t ext4 -J size=2", &clear(ro(SUMS)), 8, After::Sound);
    cut(
        "-t ext4 -O ^metadata_csum -J size=2",
        &set(ro(SUMS)),
        8,
        After::Sound,
    );
}

/// The journal has no room: the log is in free space, and the inode of the journal leads to it.
#[test]
fn a_log_in_free_space_keeps_all_files() {
    cut(
        "-t ext4 -O orphan_file -J size=1 -i 1024 -N 9000",
        &uuid(),
        9,
        After::Mended,
    );
}

/// There is no journal: the superblock leads to the log.
#[test]
fn a_log_without_a_journal_keeps_all_files() {
    cut("-t ext4 -O ^has_journal", &uuid(), 9, After::Mended);
}

#[test]
fn journals_come_and_go() {
    cut(
        "-t ext4",
        &clear(compat(Compat::HAS_JOURNAL)),
        8,
        After::Mended,
    );
    cut("-t ext4 -O ^has_journal", &journal(), 8, After::Mended);
}

#[test]
fn larger_inodes_are_there_or_not() {
    cut("-t ext4 -J size=2", &inode_size(512), 8, After::Sound);
}

#[test]
fn own_files_are_there_or_not() {
    let more = Conversion {
        set: Features {
            compat: Compat::ORPHAN_FILE,
            ro_compat: QUOTA,
            // Without mmp, for which e2fsck waits.
            ..Features::default()
        },
        clear: compat(Compat::RESIZE_INODE),
        ..Conversion::default()
    };
    cut("-t ext4 -J size=2", &more, 8, After::Sound);
}
