//! Room in new images: what is promised with --size auto+SIZE can be used by ordinary users, and images can be made larger by resize2fs.

use super::{clean, number, path};
use crate::common::{Mount, diorite, run, scratch};
use std::fs::{self, File};
use std::path::Path;

fn many(dir: &Path, count: usize, contents: &str) {
    fs::create_dir_all(dir).unwrap();
    for n in 0..count {
        fs::write(dir.join(n.to_string()), contents).unwrap();
    }
}

fn df(img: &Path, key: &str) -> u64 {
    number(&diorite(&["df", "--json", path(img)]).ok().text(), key)
}

/// Of 512 MiB of headroom all could be used, but for no more than some sixty files: there were inodes for what was packed only.
#[test]
fn headroom_has_inodes_in_the_usual_proportion() {
    let dir = scratch();
    let (source, img) = (dir.path().join("source"), dir.path().join("img"));
    many(&source, 3, "x");
    for (options, per_inode) in [
        (&[][..], 16 << 10),
        (&["-T", "news"], 4096),
        (&["-T", "largefile"], 1 << 20),
    ] {
        let mut words = vec!["import", "-q", "--size", "auto+64M"];
        words.extend(options);
        words.extend([path(&source), path(&img)]);
        diorite(&words).ok();
        clean(&img);
        let free = df(&img, "inodes") - df(&img, "inodes_used");
        let wanted = (64 << 20) / per_inode;
        assert!(
            (wanted..wanted + 200).contains(&free),
            "{options:?}: {free}"
        );
        assert!(df(&img, "available") >= 64 << 20, "{options:?}");
    }
    // As many as the files need where nothing is to stay free, and as many as were asked for.
    for (options, most) in [(&["--size", "auto"][..], 100), (&["-N", "5000"], 5100)] {
        let words = [&["import", "-q"], options, &[path(&source), path(&img)]].concat();
        diorite(&words).ok();
        assert!(df(&img, "inodes") <= most, "{options:?}");
    }
    let more = dir.path().join("more");
    many(&more, 200, "x");
    diorite(&[
        "import",
        "-q",
        "--size",
        "auto+8M",
        path(&source),
        path(&img),
    ])
    .ok();
    diorite(&["put", "-q", path(&img), path(&more), "/"]).ok();
    clean(&img);
}

/// Headroom in percent was that of the bytes of the files, so small files got none; and what root alone may use was counted.
#[test]
fn headroom_in_percent_is_of_the_space_taken() {
    let dir = scratch();
    let (source, img) = (dir.path().join("source"), dir.path().join("img"));
    for part in 0..10 {
        many(&source.join(part.to_string()), 300, "x");
    }
    for (size, percent) in [("auto+10%", 10), ("auto+100%", 100)] {
        diorite(&["import", "-q", "--size", size, path(&source), path(&img)]).ok();
        clean(&img);
        let (available, used) = (df(&img, "available"), df(&img, "used"));
        let wanted = used * percent / 100;
        assert!(
            (wanted..wanted + (1 << 20)).contains(&available),
            "{size}: {available} of {wanted}"
        );
        assert!(df(&img, "inodes") > 3012 + wanted / (16 << 10), "{size}");
    }
}

/// What is missing - blocks or inodes - is said once, with a way out; each file that did not fit is named.
#[test]
fn a_lack_of_space_says_of_what() {
    let dir = scratch();
    let (source, img) = (dir.path().join("source"), dir.path().join("img"));
    many(&source, 100, "x");
    diorite(&["mkfs", "-q", "-N", "64", path(&img), "8M"]).ok();
    let ran = diorite(&["put", "-q", path(&img), path(&source), "/"]);
    let lines: Vec<&str> = ran.err.lines().collect();
    assert!(lines.len() > 30, "{}", ran.err);
    assert!(
        lines[0].ends_with(
            ": No space left on device: all 64 inodes are in use; 'diorite grow' adds inodes with further groups of blocks"
        ),
        "{}",
        lines[0]
    );
    assert!(
        lines[1].ends_with("No space left on device"),
        "{}",
        lines[1]
    );
    // Nor does any size do where the number of inodes is said.
    for size in ["auto", "auto+64M", "auto+10%"] {
        let words = ["import", "-q", "--size", size, "-N", "32"];
        diorite(&[&words[..], &[path(&source), path(&img)]].concat()).failed(
            1,
            "inodes are missing for the files, since 32 were asked for",
        );
    }
    let large = dir.path().join("large");
    fs::write(&large, vec![1; 12 << 20]).unwrap();
    diorite(&["mkfs", "-q", path(&img), "8M"]).ok();
    let ran = diorite(&["put", "-q", path(&img), path(&large), "/"]);
    ran.failed(1, "No space left on device: ");
    assert!(ran.err.contains("blocks were asked for"), "{}", ran.err);
    assert!(
        ran.err.contains("'diorite grow' makes it larger"),
        "{}",
        ran.err
    );
}

/// Makes an image that has the file `2` larger, by resize2fs, and has the kernel mount it.
fn larger_and_mounted(img: &Path) {
    File::options()
        .write(true)
        .open(img)
        .unwrap()
        .set_len(20 << 30)
        .unwrap();
    run("resize2fs", &[path(img)]);
    clean(img);
    let at = img.with_extension("mounted");
    fs::create_dir_all(&at).unwrap();
    if let Some(mount) = Mount::new(path(img), &at, "loop") {
        assert_eq!(fs::read(at.join("2")).unwrap(), b"contents", "{img:?}");
        drop(mount);
    }
}

/// Where the journal has a place of its own, or is on another device, the orphan file was the first thing behind the inode tables.
#[test]
fn resize2fs_leaves_the_orphan_file_where_the_journal_is_not_before_it() {
    let dir = scratch();
    let (source, img) = (dir.path().join("source"), dir.path().join("img"));
    many(&source, 3, "contents");
    let features = "orphan_file,^resize_inode";
    let mut words = vec!["mkfs", "-q", "-F", "-t", "ext4", "-O", features, "-b"];
    words.extend(["4096", "-d", path(&source)]);
    for size in ["48M", "200M", "600M"] {
        let journal = ["-J", "size=4,location=20M", path(&img), size];
        diorite(&[&words[..], &journal].concat()).ok();
        larger_and_mounted(&img);
        fs::remove_file(&img).unwrap();
    }
    let journal = dir.path().join("journal");
    let size = "16M";
    let args = format!("mkfs -q -O journal_dev -b 4096 {} {size}", path(&journal));
    diorite(&args.split(' ').collect::<Vec<_>>()).ok();
    let tried = xtask::run::tool("losetup")
        .args(["-f", "--show", path(&journal)])
        .output();
    let device = match tried {
        Ok(tried) if tried.status.success() => String::from_utf8(tried.stdout).unwrap(),
        _ => return xtask::skip::skipped("no loop device for an external journal"),
    };
    let device = device.trim();
    let on_device = format!("device={device}");
    let made = diorite(&[&words[..], &["-J", &on_device, path(&img), "48M"]].concat());
    let grown = std::panic::catch_unwind(|| {
        made.ok();
        larger_and_mounted(&img);
    });
    run("losetup", &["-d", device]);
    grown.unwrap();
}

/// The orphan file lay before the journal. resize2fs moves what is there when descriptors need room, and leaves the checksums of that file
/// as they were: the kernel refused such a volume.
#[test]
fn resize2fs_makes_images_larger_that_the_kernel_mounts() {
    let dir = scratch();
    let source = dir.path().join("source");
    many(&source, 3, "contents");
    for mib in [8, 12, 16, 24, 32, 48, 64, 96, 128, 200, 300, 600] {
        let img = dir.path().join("img");
        let size = format!("{mib}M");
        match mib % 16 {
            0 => diorite(&["import", "-q", "--size", &size, path(&source), path(&img)]).ok(),
            _ => diorite(&["mkfs", "-q", "-d", path(&source), path(&img), &size]).ok(),
        };
        larger_and_mounted(&img);
        fs::remove_file(&img).unwrap();
    }
}
