//! The recipes of docs/book/src/howto/builders.md, with the builders that are installed: they find no mke2fs but ours.

use super::{clean, path};
use crate::common::{diorite, files, is_root, run, scratch, skip};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// A directory with the names that we answer to, in front of PATH; the builder's output, or none if it is not installed.
fn built(dir: &Path, builder: &str, args: &[&str]) -> Option<()> {
    let bin = dir.join("bin");
    fs::create_dir(&bin).unwrap();
    for name in ["mke2fs", "mkfs.ext4", "tune2fs", "resize2fs"] {
        symlink(env!("CARGO_BIN_EXE_diorite"), bin.join(name)).unwrap();
    }
    let check = format!(
        "#!/bin/sh\nfor last; do :; done\nexec {} check \"$last\"\n",
        env!("CARGO_BIN_EXE_diorite")
    );
    files(
        dir,
        &[
            ("bin/e2fsck", check.as_bytes()),
            ("root/etc/hostname", b"here\n"),
        ],
    );
    fs::set_permissions(bin.join("e2fsck"), fs::Permissions::from_mode(0o755)).unwrap();
    let paths = format!(
        "{}:{}",
        path(&bin),
        std::env::var("PATH").unwrap_or_default()
    );
    let ran = xtask::run::tool(builder)
        .args(args)
        .env("PATH", paths)
        .current_dir(dir)
        .output();
    let Ok(ran) = ran else {
        skip(format!("{builder} is not installed"));
        return None;
    };
    assert!(ran.status.success(), "{ran:?}");
    Some(())
}

/// The recipe of a document: the block behind a heading that begins with these words.
fn recipe(heading: &str, first: &str) -> String {
    let text = include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/book/src/howto/builders.md"
    ));
    let (_, section) = text.split_once(&format!("## {heading}\n")).unwrap();
    let mut blocks = section.split("```").skip(1).step_by(2);
    let block = blocks.find(|block| block.contains(first)).unwrap();
    block.split_once('\n').unwrap().1.to_owned()
}

fn look(dir: &Path) {
    let part = format!("{}?part=1", path(&dir.join("disk.img")));
    assert_eq!(
        diorite(&["cat", &part, "/etc/hostname"]).ok().text(),
        "here\n"
    );
    diorite(&["copy", "-q", &part, path(&dir.join("one"))]).ok();
    clean(&dir.join("one"));
}

#[test]
fn genimage_makes_a_disk() {
    let dir = scratch();
    let config = recipe("genimage", "image root.ext4");
    fs::write(dir.path().join("disk.cfg"), config).unwrap();
    let args = "--config disk.cfg --rootpath root --inputpath in --outputpath . --tmppath tmp";
    fs::create_dir(dir.path().join("in")).unwrap();
    let args: Vec<&str> = args.split(' ').collect();
    if built(dir.path(), "genimage", &args).is_some() {
        look(dir.path());
        assert_eq!(
            run("e2label", &[dir.path().join("root.ext4")]).trim(),
            "root"
        );
    }
}

#[test]
fn systemd_repart_makes_a_disk() {
    if !is_root() || !Path::new("/dev/loop-control").exists() {
        return skip("systemd-repart mounts what it fills, which needs root and loop devices");
    }
    let dir = scratch();
    let config = recipe("systemd-repart", "[Partition]");
    files(dir.path(), &[("defs/10-root.conf", config.as_bytes())]);
    let root = format!("--root={}", path(&dir.path().join("root")));
    let args = [
        "--empty=create",
        "--size=128M",
        "--definitions=defs",
        &root,
        "--dry-run=no",
        "disk.img",
    ];
    if built(dir.path(), "systemd-repart", &args).is_some() {
        look(dir.path());
    }
}
