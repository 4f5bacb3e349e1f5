//! Names made and removed: linear and indexed directories, open files without a name, attributes, many links; e2fsck judges each
//! volume after it is closed.

use crate::common::kernel::mounted;
use crate::common::{fsck, image, python, run, scratch};
use diorite::dir::RenameFlags;
use diorite::{Error, File, OpenFlags, OpenOptions, Volume};
use diorite_block::Buf;
use diorite_format::FileType;
use diorite_format::inode::Rdev;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const NO_DEVICE: Rdev = Rdev { major: 0, minor: 0 };

const KINDS: [&[&str]; 5] = [
    &["-t", "ext4", "-b", "4096"],
    &["-t", "ext4", "-b", "1024"],
    &["-t", "ext4", "-b", "4096", "-O", "^has_journal"],
    &["-t", "ext3", "-b", "1024"],
    &["-t", "ext2", "-b", "1024"],
];

fn writable(image: &Path) -> Volume {
    Volume::open(image.to_str().unwrap(), &OpenOptions::writable()).unwrap()
}

fn make(dir: &Path, args: &[&str]) -> PathBuf {
    let tree = dir.join("tree");
    std::fs::create_dir_all(tree.join("sub")).unwrap();
    std::fs::write(tree.join("old"), vec![7; 300_000]).unwrap();
    std::fs::write(tree.join("sub/inner"), b"inner").unwrap();
    std::os::unix::fs::symlink("old", tree.join("link")).unwrap();
    std::os::unix::fs::symlink("x".repeat(100), tree.join("long")).unwrap();
    std::fs::hard_link(tree.join("old"), tree.join("sub/second")).unwrap();
    image(dir, "32M", args, &tree)
}

fn fill(file: &File, byte: u8, len: usize) {
    let mut buf = Buf::zeroed(len);
    buf.as_mut_slice().fill(byte);
    assert_eq!(file.write_buf(0, buf).1.unwrap(), len);
}

fn free_blocks(image: &Path) -> String {
    let text = run("dumpe2fs", &["-h", image.to_str().unwrap()]);
    let line = |what: &str| {
        text.lines()
            .find(|l| l.starts_with(what))
            .map(str::to_owned)
            .unwrap()
    };
    line("Free blocks:") + &line("Free inodes:")
}

/// What is made is found, by debugfs, too; what is removed leaves nothing behind.
#[test]
fn made_and_removed() {
    for args in KINDS {
        let dir = scratch();
        let image = make(dir.path(), args);
        let before = free_blocks(&image);
        let volume = writable(&image);
        let file = volume.create("/sub/new", 0o640).unwrap();
        assert!(matches!(
            volume.create("/sub/new", 0o640),
            Err(Error::Exists { .. })
        ));
        fill(&file, 0x5a, 65536);
        assert_eq!(file.metadata().mode, 0o100_640);
        drop(file);
        volume.close().unwrap();
        fsck(&image);
        let out = dir.path().join("out");
        let dump = format!("dump /sub/new {}", out.to_str().unwrap());
        run("debugfs", &["-R", &dump, image.to_str().unwrap()]);
        assert_eq!(std::fs::read(out).unwrap(), vec![0x5a; 65536]);

        let volume = writable(&image);
        volume.unlink("/sub/new").unwrap();
        assert!(matches!(
            volume.unlink("/sub/new"),
            Err(Error::NotFound { .. })
        ));
        assert!(matches!(
            volume.unlink("/sub"),
            Err(Error::IsADirectory { .. })
        ));
        volume.close().unwrap();
        fsck(&image);
        assert_eq!(free_blocks(&image), before);
    }
}

/// Removing one of several names leaves the others; symbolic links are removed with or without a block of their own.
#[test]
fn links() {
    for args in KINDS {
        let dir = scratch();
        let image = make(dir.path(), args);
        let volume = writable(&image);
        volume.unlink("/old").unwrap();
        let second = volume
            .open_path("/sub/second", OpenFlags::default())
            .unwrap();
        assert_eq!((second.size(), second.metadata().links), (300_000, 1));
        let mut bytes = vec![0; 300_000];
        second.read_bytes(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|b| *b == 7));
        for name in ["/link", "/long", "/sub/second"] {
            volume.unlink(name).unwrap();
        }
        drop(second);
        volume.close().unwrap();
        fsck(&image);
    }
}

/// An open file keeps working without a name, also in the queues of blocking calls, and is deleted with its last user.
#[test]
fn open_without_a_name() {
    for args in KINDS {
        let dir = scratch();
        let image = make(dir.path(), args);
        let before = free_blocks(&image);
        let volume = writable(&image);
        let files: Vec<File> = (0..5u8)
            .map(|n| {
                let file = volume.create(&format!("/open{n}"), 0o600).unwrap();
                fill(&file, n, 16384);
                file
            })
            .collect();
        for n in [2, 0, 4, 1, 3] {
            volume.unlink(&format!("/open{n}")).unwrap();
        }
        volume.sync().unwrap();
        for (n, file) in files.iter().enumerate() {
            let (buf, got) = file.read_buf(0, Buf::zeroed(16384));
            assert_eq!(got.unwrap(), 16384);
            assert!(buf.as_slice().iter().all(|b| usize::from(*b) == n));
            fill(file, 9, 32768);
        }
        // The files are closed in this order: from the middle of the orphan list, its newest, its oldest.
        let mut files: Vec<Option<File>> = files.into_iter().map(Some).collect();
        for n in [1, 3, 2, 4, 0] {
            files[n] = None;
            volume.sync().unwrap();
        }
        volume.close().unwrap();
        fsck(&image);
        assert_eq!(free_blocks(&image), before);
    }
}

/// A linear directory grows block by block; its names stay findable, and e2fsck accepts it.
#[test]
fn a_directory_grows() {
    for args in KINDS {
        let dir = scratch();
        let image = make(dir.path(), args);
        let volume = writable(&image);
        for n in 0..200 {
            volume.create(&format!("/sub/{n:0>40}"), 0o600).unwrap();
        }
        for n in (0..200).step_by(3) {
            volume.unlink(&format!("/sub/{n:0>40}")).unwrap();
        }
        for n in 0..200 {
            let found = volume.resolve(format!("/sub/{n:0>40}").as_bytes(), true);
            assert_eq!(found.is_ok(), n % 3 != 0);
        }
        volume.close().unwrap();
        fsck(&image);
    }
}

/// The owner of new files is the one in the options, or that of the handle that they are made through. A file without a name cannot
/// be opened by its number.
#[test]
fn owner_and_number() {
    let dir = scratch();
    let image = make(dir.path(), KINDS[0]);
    let options = OpenOptions::writable().owner((70_000, 5));
    let volume = Volume::open(image.to_str().unwrap(), &options).unwrap();
    let file = volume.create("mine", 0o644).unwrap();
    assert_eq!((file.metadata().uid, file.metadata().gid), (70_000, 5));
    let theirs = volume.with_owner(70_001, 6);
    let nameless = theirs.temporary("/", 0o600).unwrap();
    let made = [
        theirs.create("theirs", 0o644).unwrap().ino(),
        theirs.mkdir("their-own", 0o755).unwrap(),
    ];
    let whiteout = RenameFlags::default().whiteout(true);
    theirs.rename("mine", "moved", whiteout).unwrap();
    let left = volume.resolve(b"mine", false).unwrap();
    let opened = made.into_iter().chain([left]).map(|ino| {
        let file = volume.open_ino(ino, OpenFlags::default());
        file.unwrap().metadata()
    });
    for disk in opened.chain([nameless.metadata()]) {
        assert_eq!((disk.uid, disk.gid), (70_001, 6));
    }
    theirs
        .rename("moved", "mine", RenameFlags::default())
        .unwrap();
    drop((theirs, nameless));
    volume.unlink("mine").unwrap();
    let again = volume.open_ino(file.ino(), OpenFlags::default());
    assert!(matches!(again, Err(Error::NotInUse { .. })));
    for path in ["", "/", "a/", ".", "sub/.."] {
        assert!(matches!(volume.create(path, 0o644), Err(Error::Invalid(_))));
    }
    drop(file);
    volume.close().unwrap();
    fsck(&image);
}

/// Names are bytes: 1 to 255 of any but NUL and slash, in linear and indexed directories.
#[test]
fn names_of_every_byte() {
    let names: Vec<Vec<u8>> = (1..=255u8)
        .filter(|byte| *byte != b'/' && *byte != b'.')
        .flat_map(|byte| {
            [
                vec![byte],
                vec![byte; 255],
                vec![byte, b'.', byte ^ 0x80 | 1],
            ]
        })
        .filter(|name| !name.contains(&b'/'))
        .collect();
    for args in KINDS {
        let dir = scratch();
        let image = make(dir.path(), args);
        let volume = writable(&image);
        let path = |name: &[u8]| [b"/sub/", name].concat();
        for name in &names {
            volume
                .mknod(&path(name), FileType::Fifo, 0o600, NO_DEVICE)
                .unwrap();
            let again = volume.mknod(&path(name), FileType::Fifo, 0o600, NO_DEVICE);
            assert!(matches!(again, Err(Error::Exists { .. })), "{name:?}");
        }
        let listed = |volume: &Volume| {
            let ino = volume.resolve(b"/sub", true).unwrap();
            let all = volume.read_dir(ino).unwrap().map(|e| e.unwrap().name);
            let mut all: Vec<Vec<u8>> = all.filter(|n| n != b"." && n != b"..").collect();
            all.retain(|n| n != b"inner" && n != b"second");
            all.sort();
            all
        };
        let mut expected = names.clone();
        expected.sort();
        assert_eq!(listed(&volume), expected);
        volume.close().unwrap();
        fsck(&image);
        mounted(&image, "ro", |at| {
            for name in &names {
                let path = at.join("sub").join(std::ffi::OsStr::from_bytes(name));
                assert!(std::fs::symlink_metadata(path).is_ok(), "{name:?}");
            }
        });
        let volume = writable(&image);
        for name in &names {
            volume.unlink(&path(name)).unwrap();
        }
        assert!(listed(&volume).is_empty());
        volume.close().unwrap();
        fsck(&image);
    }
}

/// A path leads where it does on the kernel's mount, or fails the same way. The defects: a slash or "." behind a file or a link was taken
/// for nothing, and a name that is too long for one that is missing.
#[test]
fn paths_lead_where_the_kernel_goes() {
    let dir = scratch();
    let tree = dir.path().join("tree");
    std::fs::create_dir_all(tree.join("d/sub")).unwrap();
    std::fs::write(tree.join("d/file"), b"x").unwrap();
    let long = "n".repeat(256);
    let links = [
        ("to file", "file"),
        ("to file as directory", "file/"),
        ("to dot of file", "file/."),
        ("to sub", "sub"),
        ("to sub slash", "sub/"),
        ("to up", "sub/.."),
        ("to nothing", "nothing"),
        ("to itself", "to itself"),
        ("to long", &long),
        ("to link", "to sub slash/../to file"),
    ];
    for (name, target) in links {
        std::os::unix::fs::symlink(target, tree.join("d").join(name)).unwrap();
    }
    let image = image(dir.path(), "8M", &["-t", "ext4"], &tree);
    let volume = Volume::open(image.to_str().unwrap(), &OpenOptions::default()).unwrap();
    let names = ["file", "sub", "nothing", &long].into_iter();
    let names = names.chain(links.iter().map(|(name, _)| *name));
    let ends = [
        "", "/", "/.", "/..", "/./", "/../d", "/x", "/x/y", "//", "/../file",
    ];
    let paths = names.flat_map(|name| ends.map(|end| format!("d/{name}{end}")));
    let paths: Vec<String> = paths
        .chain([".", "d/.", "./d//"].map(str::to_owned))
        .collect();
    let errno = |error: &Error| match error {
        Error::NotFound { .. } => "ENOENT",
        Error::NotADirectory { .. } => "ENOTDIR",
        Error::NameTooLong { .. } => "ENAMETOOLONG",
        Error::SymlinkLoop { .. } => "ELOOP",
        other => panic!("{other}"),
    };
    let ours = |path: &str, follow| match volume.resolve(path, follow) {
        Ok(ino) => ino.to_string(),
        Err(error) => errno(&error).to_owned(),
    };
    mounted(&image, "ro", |at| {
        let script = "import errno, os, sys\nfor line in open(0):\n for follow in (False, True):\n  \
            try: print(os.stat(line[:-1], follow_symlinks=follow).st_ino)\n  \
            except OSError as e: print(errno.errorcode[e.errno])";
        let theirs = python(script, &[], at, &(paths.join("\n") + "\n"));
        let asked = paths.iter().flat_map(|path| [(path, false), (path, true)]);
        let differ: Vec<String> = asked
            .zip(theirs.lines())
            .filter(|((path, follow), theirs)| ours(path, *follow) != **theirs)
            .map(|((path, follow), theirs)| {
                format!("{path}, {follow}: {} {theirs}", ours(path, follow))
            })
            .collect();
        assert_eq!(theirs.lines().count(), 2 * paths.len());
        assert!(differ.is_empty(), "{differ:#?}");
    });
}
