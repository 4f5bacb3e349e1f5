//! Images that exist are changed: what is put in is there, what was there and is in the way is replaced, and e2fsck finds nothing.
#![allow(clippy::unwrap_used, missing_docs)]

use diorite::mkfs::MkfsOptions;
use diorite::{FileType, OpenOptions, SetAttr, Timestamp, Volume};
use diorite_image::{Editor, Error, Rules, Source};
use std::fs;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use xtask::run::{check, run};

fn made(dir: &Path) -> PathBuf {
    let image = dir.join("image");
    fs::File::create(&image).unwrap().set_len(32 << 20).unwrap();
    let args = format!("-q -F -t ext4 -b 1024 {}", image.display());
    run("mke2fs", &args.split(' ').collect::<Vec<_>>()).unwrap();
    image
}

fn open(image: &Path) -> Editor {
    Editor::open(image.to_str().unwrap()).unwrap()
}

fn put(editor: &Editor, from: &Path, to: &str) -> u64 {
    let source = Source::Directory(from.to_owned());
    editor
        .put(&source, to, Rules::default(), &|_| true)
        .unwrap()
}

fn kind(volume: &Volume, path: &str) -> Option<FileType> {
    let ino = volume.resolve(path, false).unwrap();
    volume.metadata(ino).unwrap().0.file_type
}

/// A tree with one of most kinds of files.
fn source(dir: &Path) -> PathBuf {
    let tree = dir.join("tree");
    fs::create_dir_all(tree.join("a/b")).unwrap();
    fs::write(tree.join("a/file"), b"contents").unwrap();
    fs::hard_link(tree.join("a/file"), tree.join("a/b/same")).unwrap();
    symlink("../a/file", tree.join("a/link")).unwrap();
    let sparse = fs::File::create(tree.join("sparse")).unwrap();
    sparse.set_len(10 << 20).unwrap();
    fs::write(tree.join("large"), vec![7; 3 << 20]).unwrap();
    run("mkfifo", &[tree.join("pipe").to_str().unwrap()]).unwrap();
    tree
}

#[test]
fn a_source_goes_into_an_image_that_exists() {
    let dir = tempfile::tempdir().unwrap();
    let (image, tree) = (made(dir.path()), source(dir.path()));
    let editor = open(&image);
    editor.make_dir("/srv/here", 0o750).unwrap();
    // What is in the way: a file, a directory with contents, a link; the last name of a file that other names keep.
    editor
        .write_file("/srv/here/a", 0o600, &mut &b"a file"[..])
        .unwrap();
    editor.make_dir("/srv/here/sparse/below", 0o755).unwrap();
    editor
        .write_file("/srv/here/sparse/below/x", 0o600, &mut &b"x"[..])
        .unwrap();
    editor
        .volume()
        .symlink("nowhere", "/srv/here/large")
        .unwrap();
    editor.make_dir("/srv/here/pipe", 0o755).unwrap();
    for _ in 0..2 {
        assert_eq!(put(&editor, &tree, "/srv/here"), 7);
    }
    let volume = editor.volume();
    assert_eq!(
        editor.read_file("/srv/here/a/file", 100).unwrap(),
        b"contents"
    );
    assert_eq!(
        editor.read_file("/srv/here/large", 4 << 20).unwrap(),
        vec![7; 3 << 20]
    );
    let (of_first, of_second) = ("/srv/here/a/file", "/srv/here/a/b/same");
    let first = volume.resolve(of_first, false).unwrap();
    assert_eq!(first, volume.resolve(of_second, false).unwrap());
    let (inode, _) = volume.metadata(first).unwrap();
    let host = fs::metadata(tree.join("a/file")).unwrap();
    assert_eq!(inode.links, 2);
    let mtime = std::os::unix::fs::MetadataExt::mtime(&host);
    assert_eq!(inode.mtime.secs, mtime);
    assert_eq!(kind(volume, "/srv/here/a/link"), Some(FileType::Symlink));
    assert_eq!(kind(volume, "/srv/here/pipe"), Some(FileType::Fifo));
    let ino = volume.resolve("/srv/here/sparse", false).unwrap();
    let (sparse, size) = volume.metadata(ino).unwrap();
    assert_eq!((sparse.blocks, size), (0, 10 << 20));
    editor.close().unwrap();
    check(&image).unwrap();
}

#[test]
fn single_changes_do_what_they_say() {
    let dir = tempfile::tempdir().unwrap();
    let image = made(dir.path());
    let editor = open(&image);
    editor.make_dir("a/b/c", 0o700).unwrap();
    editor.make_dir("/a/b/c/", 0o700).unwrap();
    assert_eq!(
        editor
            .write_file("a/b/c/file", 0o644, &mut &b"one"[..])
            .unwrap(),
        3
    );
    assert_eq!(
        editor
            .write_file("/a/b/c/file", 0o644, &mut &b"three"[..])
            .unwrap(),
        5
    );
    assert_eq!(editor.read_file("/a/b/c/file", 5).unwrap(), b"three");
    let said = editor.read_file("/a/b/c/file", 4).unwrap_err().to_string();
    assert!(said.contains("has 5 bytes"), "{said}");
    let said = editor
        .make_dir("/a/b/c/file/d", 0o755)
        .unwrap_err()
        .to_string();
    assert!(said.contains("is no directory"), "{said}");
    let time = Timestamp { secs: 77, nanos: 5 };
    let set = SetAttr::default().permissions(0o4711).uid(3).mtime(time);
    editor.set("/a/b/c/file", &set).unwrap();
    editor.rename("/a/b/c/file", "/moved").unwrap();
    let ino = editor.volume().resolve("/moved", false).unwrap();
    let (inode, _) = editor.volume().metadata(ino).unwrap();
    assert_eq!(
        (inode.mode & 0o7777, inode.uid, inode.mtime),
        (0o4711, 3, time)
    );
    editor.remove("/a").unwrap();
    assert!(editor.volume().resolve("/a", false).is_err());
    let said = editor.remove("/a").unwrap_err().to_string();
    assert!(said.contains("/a"), "{said}");
    for no_name in ["/", "", "/srv/..", "..", "/./."] {
        assert!(editor.remove(no_name).is_err(), "{no_name}");
    }
    assert!(editor.volume().resolve("/moved", false).is_ok());
    editor.close().unwrap();
    check(&image).unwrap();
}

#[test]
fn a_transaction_is_there_as_a_whole_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let image = made(dir.path());
    let write = |editor: &Editor| -> Result<(), Error> {
        editor.make_dir("/new", 0o755)?;
        editor.write_file("/new/file", 0o644, &mut &b"new"[..])?;
        Ok(())
    };
    let mut editor = open(&image);
    let failed = editor.transaction(|editor| {
        write(editor)?;
        editor.remove("/not there")
    });
    assert_eq!(failed.unwrap_err().kind(), std::io::ErrorKind::NotFound);
    check(&image).unwrap();
    // The editor is of use.
    assert!(editor.volume().resolve("/new", false).is_err());
    editor.transaction(write).unwrap();
    drop(editor);
    let editor = open(&image);
    assert_eq!(editor.read_file("/new/file", 3).unwrap(), b"new");
    editor.close().unwrap();
    check(&image).unwrap();
}

#[test]
fn it_ends_where_it_is_told_to_and_what_is_there_stays() {
    let dir = tempfile::tempdir().unwrap();
    let (image, tree) = (made(dir.path()), source(dir.path()));
    let editor = open(&image);
    let source = Source::Directory(tree);
    let ended = editor.put(&source, "/", Rules::default(), &|bytes| bytes <= 1 << 20);
    assert!(ended.unwrap_err().to_string().contains("ended"));
    // No file is there in part.
    assert!(editor.volume().resolve("/large", false).is_err());
    let grown = editor.grow(40 << 20);
    assert!(grown.is_err(), "the device has 32 MiB");
    editor.close().unwrap();
    check(&image).unwrap();
}

/// The defect: what was put below a directory with a default list kept the list that it got there, so somebody else could read it. `cp -a`,
/// `tar --acls` and `diorite put` give files the lists that they had.
#[test]
fn what_is_put_in_has_its_own_access_control_lists_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (image, tree) = (made(dir.path()), source(dir.path()));
    let editor = open(&image);
    // The owner, user 55, the group, the mask, others: tag, permissions, number.
    let list = [
        (1u16, 7u16, u32::MAX),
        (2, 7, 55),
        (4, 7, u32::MAX),
        (16, 7, u32::MAX),
        (32, 0, u32::MAX),
    ];
    let entry = |(tag, permissions, id): (u16, u16, u32)| {
        [
            &tag.to_le_bytes()[..],
            &permissions.to_le_bytes(),
            &id.to_le_bytes(),
        ]
        .concat()
    };
    let list = [vec![2, 0, 0, 0], list.map(entry).concat()].concat();
    let here = editor.make_dir("/here", 0o755).unwrap();
    let volume = editor.volume();
    let name = b"system.posix_acl_default";
    volume.set_xattr(here, name, &list).unwrap();
    fs::set_permissions(tree.join("a/file"), fs::Permissions::from_mode(0o640)).unwrap();
    for _ in 0..2 {
        put(&editor, &tree, "/here");
    }
    for path in ["/here/a", "/here/a/b", "/here/a/file", "/here/pipe"] {
        let ino = volume.resolve(path, false).unwrap();
        assert!(volume.xattrs(ino).unwrap().is_empty(), "{path}");
    }
    let ino = volume.resolve("/here/a/file", false).unwrap();
    assert_eq!(volume.metadata(ino).unwrap().0.mode & 0o777, 0o640);
    // A directory that was there keeps what it has.
    assert_eq!(volume.xattrs(here).unwrap().len(), 1);
    editor.close().unwrap();
    check(&image).unwrap();
}

/// The defect: "/nope: /nope: no such file or directory".
#[test]
fn an_error_names_its_path_once() {
    let dir = tempfile::tempdir().unwrap();
    let image = made(dir.path());
    let editor = open(&image);
    let told = [
        editor.read_file("/nope", 1).map(|_| ()),
        editor
            .put(
                &Source::Directory(dir.path().to_owned()),
                "/nope",
                Rules::default(),
                &|_| true,
            )
            .map(|_| ()),
        editor.set("/nope", &SetAttr::default()),
    ];
    for error in told {
        assert_eq!(
            error.unwrap_err().to_string(),
            "/nope: no such file or directory"
        );
    }
    editor.close().unwrap();
}

/// An image with 16 MiB of headroom had inodes for five more files.
#[test]
fn headroom_takes_many_small_files() {
    let dir = tempfile::tempdir().unwrap();
    let img = dir.path().join("img").to_str().unwrap().to_owned();
    let options = diorite::mkfs::MkfsOptions::new([1; 16], [2; 16], 1_700_000_000);
    let plan = diorite_image::ImageBuilder::new(options)
        .plan(diorite_image::Size::Auto { headroom: 16 << 20 })
        .unwrap();
    std::fs::File::create(&img)
        .unwrap()
        .set_len(plan.bytes())
        .unwrap();
    let locator = diorite::Locator::parse(&img).unwrap();
    let device = diorite::open_device(&locator, &diorite::OpenOptions::writable()).unwrap();
    let made = plan.write(&device, &|_| true).unwrap();
    drop(device);
    assert!(made.available_blocks * u64::from(made.block_size) >= 16 << 20);
    let editor = Editor::open(&img).unwrap();
    for n in 0..1000 {
        editor
            .write_file(&format!("/f{n}"), 0o644, &mut &b"x"[..])
            .unwrap();
    }
    editor.close().unwrap();
}

/// Defects: an error was only text, so a program could not tell "not found" from "no space"; paths had to be UTF-8; files that a program
/// has in memory had to be written somewhere first.
#[test]
fn a_program_builds_and_asks() {
    use std::error::Error as _;
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("memory.img");
    let mut builder =
        diorite_image::ImageBuilder::new(MkfsOptions::new([1; 16], [2; 16], 1_700_000_000));
    builder
        .add_file(b"/etc/host\xffname", 0o600, b"host\n")
        .unwrap();
    builder
        .add_file(b"etc/host\xffname", 0o600, vec![7; 100_000])
        .unwrap();
    builder.add_file("/empty", 0o644, "").unwrap();
    builder.add_dir("/etc", 0o700).unwrap();
    builder.add_symlink("/link", "etc").unwrap();
    let error = builder.add_file("/../out", 0o644, "x").unwrap_err();
    assert_eq!(
        (error.kind(), error.place()),
        (std::io::ErrorKind::InvalidData, Some("/../out"))
    );
    let plan = builder
        .plan(diorite_image::Size::Auto { headroom: 0 })
        .unwrap();
    std::fs::File::create(&image)
        .unwrap()
        .set_len(plan.bytes())
        .unwrap();
    let locator = diorite::Locator::parse(image.to_str().unwrap()).unwrap();
    let device = diorite::open_device(&locator, &OpenOptions::writable()).unwrap();
    plan.write(&device, &|_| true).unwrap();
    drop(device);
    check(&image).unwrap();
    let editor = open(&image);
    let volume = editor.volume();
    assert_eq!(volume.read(b"/link/host\xffname").unwrap(), [7; 100_000]);
    assert_eq!(volume.read("/empty").unwrap(), b"");
    assert_eq!(volume.metadata("/etc").unwrap().0.mode & 0o7777, 0o700);
    assert_eq!(
        editor
            .read_file(b"/etc/host\xffname", 1 << 20)
            .unwrap()
            .len(),
        100_000
    );
    let error = editor.read_file("/not there", 10).unwrap_err();
    assert_eq!(
        (error.kind(), error.place()),
        (std::io::ErrorKind::NotFound, Some("/not there"))
    );
    assert!(error.source().is_some() && error.engine().is_some());
    // What was short can be asked for.
    let full = loop {
        if let Err(full) = editor.write_file("/fill", 0o644, &mut std::io::repeat(1).take(1 << 30))
        {
            break full;
        }
    };
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    assert!(
        matches!(
            full.engine(),
            Some(diorite::Error::NoSpace { asked: 1.., .. })
        ),
        "{full:?}"
    );
    // A directory whose name is no text is a source, and the top of an archive.
    volume.mkdir(b"/\xfe", 0o755).unwrap();
    editor
        .write_file(b"/\xfe/inside", 0o644, &mut &b"x"[..])
        .unwrap();
    let mut archive = Vec::new();
    let done = diorite_image::export::to_tar(volume, b"/\xfe", &mut archive, &|_| true).unwrap();
    assert_eq!((done.files, done.bytes), (2, 1));
    editor.sync().unwrap();
    let source = Source::Volume {
        locator: format!("{}?ro", image.display()),
        path: b"/\xfe".into(),
    };
    let mut copy =
        diorite_image::ImageBuilder::new(MkfsOptions::new([1; 16], [2; 16], 1_700_000_000));
    copy.add(source).unwrap();
    assert_eq!((copy.files(), copy.bytes()), (1, 1));
    // Through std::io and back.
    let through = std::io::Error::from(diorite::Error::NotFound { path: "x".into() });
    assert!(matches!(
        diorite::Error::from(through),
        diorite::Error::NotFound { .. }
    ));
    let host = || -> Result<fs::File, diorite::Error> { Ok(fs::File::open("/nonexistent")?) };
    assert_eq!(host().unwrap_err().kind(), std::io::ErrorKind::NotFound);
    drop(editor.close());
    check(&image).unwrap();
}
