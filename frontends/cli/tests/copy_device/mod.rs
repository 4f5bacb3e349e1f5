//! `diorite copy` over every kind of device, judged by cmp, qemu-img, stat and e2fsck, and against a model.
//!
//! | file | what |
//! |---|---|
//! | `refused` | copies that would destroy their source, targets that cannot be one, locks |
//! | `failing` | devices that fail, full hosts, signals, a host without the newer calls |

mod failing;
mod refused;

use crate::common::{Ran, diorite, files, image, noise, run, scratch, skip};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use xtask::rng::{Rng, seed_or};

/// A sparse file of this size: data in some places, holes and written zeros between.
fn sparse(path: &Path, size: u64, dice: &mut Rng) {
    let file = File::create(path).unwrap();
    file.set_len(size).unwrap();
    for _ in 0..1 + dice.below(16) {
        let at = dice.below(size);
        let most = [700, 9000, 200_000, 1 << 20][dice.below(4) as usize];
        let len = (1 + dice.below(most)).min(size - at) as usize;
        let bytes = match dice.below(4) {
            0 => vec![0; len],
            n => noise(len, at + n),
        };
        file.write_all_at(&bytes, at).unwrap();
    }
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

fn copy(args: &[&str]) -> Ran {
    diorite(&[&["copy"], args].concat())
}

fn same(a: &Path, b: &Path, what: &str) {
    assert!(fs::read(a).unwrap() == fs::read(b).unwrap(), "{what}");
}

/// Bytes with space on the host.
fn space(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

/// Host to host, into an image, within the image, out again, each with the exact size; judged by cmp and qemu-img; holes are kept.
#[test]
fn bytes_arrive_on_every_kind_of_device() {
    let seed = seed_or("copies", 3);
    let mut dice = Rng::new(seed);
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    for round in 0..6 {
        let what = format!("DIORITE_SEED={seed}, round {round}");
        let size = [1, 511, 4096, 1_000_003, 12 << 20, (9 << 20) + 513][round];
        let img = image(
            dir.path(),
            "v.img",
            "96M",
            &["-t", "ext4", "-b", "1024"],
            None,
        );
        sparse(&at("a"), size, &mut dice);
        let inside = |name: &str| format!("{img}:/{name}");
        let steps = [
            (text(&at("a")), text(&at("b"))),
            (text(&at("b")), inside("x")),
            (inside("x"), inside("y")),
            (inside("y"), text(&at("c"))),
        ];
        for (from, to) in &steps {
            copy(&["--verify", from, to]).ok();
            diorite(&["compare", "-s", from, to]).ok();
        }
        for name in ["b", "c"] {
            same(&at("a"), &at(name), &what);
            run("cmp", &[at("a"), at(name)]);
            assert!(
                space(&at(name)) <= space(&at("a")) + 8192,
                "{what}: {name} is not sparse"
            );
        }
        if Command::new("qemu-img").arg("--version").output().is_ok() {
            run(
                "qemu-img",
                &[
                    "compare",
                    "-f",
                    "raw",
                    "-F",
                    "raw",
                    &text(&at("a")),
                    &text(&at("c")),
                ],
            );
        } else {
            skip("qemu-img is not installed");
        }
        run("e2fsck", &["-fn", &img]);
        let json = diorite(&["stat", "--json", &img, "/y"]).ok().text();
        let stat: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(stat["size"], size, "{what}");
        for name in ["a", "b", "c", "v.img"] {
            fs::remove_file(at(name)).unwrap();
        }
    }
}

/// A whole file system is the same one on the other side, also in a volume that is in a volume.
#[test]
fn a_file_system_is_copied_whole() {
    let dir = scratch();
    let tree = dir.path().join("tree");
    files(
        &tree,
        &[("a", b"one"), ("d/b", &noise(700_000, 5)), ("d/e/c", b"")],
    );
    let img = image(dir.path(), "inner", "24M", &["-t", "ext4"], Some(&tree));
    let middle = image(dir.path(), "middle", "64M", &["-t", "ext4"], None);
    let outer = image(dir.path(), "outer", "128M", &["-t", "ext4"], None);
    copy(&[&middle, &format!("{outer}:/m")]).ok();
    let deep = format!("{outer}:/m:/inner");
    copy(&["--verify", &img, &deep]).ok();
    let out = dir.path().join("out");
    copy(&[&deep, out.to_str().unwrap()]).ok();
    run("e2fsck", &["-fn", out.to_str().unwrap()]);
    assert_eq!(diorite(&["cat", &deep, "/a"]).ok().out, b"one");
    copy(&[&format!("{outer}:/m"), &format!("{outer}:/m2")]).ok();
    diorite(&["compare", &format!("{outer}:/m"), &format!("{outer}:/m2")]).ok();
    for image in [&outer, &middle, &img] {
        run("e2fsck", &["-fn", image]);
    }
}

/// An existing DST is overwritten from its beginning, zeros included; what is behind stays; sizes stay.
#[test]
fn what_exists_is_overwritten_and_nothing_else() {
    let seed = seed_or("copies", 3);
    let mut dice = Rng::new(seed + 1);
    let dir = scratch();
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    for (size, more) in [
        (4096, 0),
        (513, 1),
        (1, 9000),
        (3_000_001, 77),
        (2 << 20, 1 << 20),
        (70_000, 0),
    ] {
        for window in ["", "?sector=4096", "?offset=4K"] {
            sparse(&a, size, &mut dice);
            let offset = if window == "?offset=4K" { 4096 } else { 0 };
            let old = noise((offset + size + more) as usize, 77);
            fs::write(&b, &old).unwrap();
            let to = format!("{}{window}", text(&b));
            let done = copy(&["--verify", &text(&a), &to]);
            // A part of a file is of whole sectors.
            if done.code != Some(0) {
                assert!(
                    offset > 0 && done.err.contains("bytes, but"),
                    "{}",
                    done.err
                );
                assert!(fs::read(&b).unwrap() == old, "a refused copy wrote");
                continue;
            }
            let mut want = old;
            want[offset as usize..(offset + size) as usize].copy_from_slice(&fs::read(&a).unwrap());
            assert!(
                fs::read(&b).unwrap() == want,
                "DIORITE_SEED={seed}: {size}+{more}{window}"
            );
        }
    }
}

/// A file in an image that is too short is extended; one that is longer keeps its size and its end.
#[test]
fn files_in_images_are_extended_and_never_cut() {
    let dir = scratch();
    let img = image(
        dir.path(),
        "v.img",
        "32M",
        &["-t", "ext4", "-b", "4096"],
        None,
    );
    let (a, x) = (dir.path().join("a"), format!("{img}:/x"));
    let mut want = Vec::new();
    for (size, seed) in [(1000, 1), (70_001, 2), (50_123, 3), (70_500, 4)] {
        let bytes = noise(size, seed);
        fs::write(&a, &bytes).unwrap();
        copy(&["--verify", &text(&a), &x]).ok();
        want.resize(want.len().max(size), 0);
        want[..size].copy_from_slice(&bytes);
        assert!(diorite(&["cat", &img, "/x"]).ok().out == want, "{size}");
        run("e2fsck", &["-fn", &img]);
    }
}

/// The defect: blocks that are kept for maps were kept from a copy into a file of an image, too.
#[test]
fn a_file_in_an_image_takes_its_last_blocks() {
    let dir = scratch();
    let kind = ["-t", "ext2", "-b", "4096", "-m", "0", "-O", "extent"];
    let img = image(dir.path(), "v.img", "8M", &kind, None);
    let free = run("dumpe2fs", &["-h", &img]);
    let free = free.lines().find_map(|l| l.strip_prefix("Free blocks:"));
    let free: usize = free.unwrap().trim().parse().unwrap();
    let (a, x) = (dir.path().join("a"), format!("{img}:/x"));
    let bytes = noise((free - 8) * 4096, 5);
    fs::write(&a, &bytes).unwrap();
    copy(&["--verify", &text(&a), &x]).ok();
    assert!(diorite(&["cat", &img, "/x"]).ok().out == bytes);
    run("e2fsck", &["-fn", &img]);
}

/// Zeros in data become holes, in pieces of the size that was asked for; with 0 everything has space.
#[test]
fn zeros_become_holes_unless_told_otherwise() {
    let dir = scratch();
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    let mut bytes = vec![0; 4 << 20];
    bytes[..4096].fill(1);
    fs::write(&a, &bytes).unwrap();
    for (options, least, most) in [
        (&[][..], 4096, 64 << 10),
        (&["-S", "64K"], 4096, 128 << 10),
        (&["-S", "0"], 4 << 20, 5 << 20),
    ] {
        for exists in [false, true] {
            if exists {
                fs::write(&b, vec![9; 4 << 20]).unwrap();
            }
            copy(&[options, &[&text(&a), &text(&b)]].concat()).ok();
            same(&a, &b, "-S");
            assert!(
                (least..=most).contains(&space(&b)),
                "{options:?} {exists}: {}",
                space(&b)
            );
            fs::remove_file(&b).unwrap();
        }
    }
    // What was all hole has space afterwards.
    File::create(&a).unwrap().set_len(3 << 20).unwrap();
    copy(&["-S", "0", &text(&a), &text(&b)]).ok();
    assert!(space(&b) >= 3 << 20, "{}", space(&b));
}

/// Two ranges of one file that do not meet may be copied to each other.
#[test]
fn parts_of_one_disk_are_copied_to_each_other() {
    let dir = scratch();
    let disk = dir.path().join("disk");
    let bytes = noise(3 << 20, 6);
    fs::write(&disk, &bytes).unwrap();
    let part = |offset| format!("{}?offset={offset}&size=1M", text(&disk));
    copy(&["--verify", &part("0"), &part("2M")]).ok();
    let mut want = bytes.clone();
    want.copy_within(0..1 << 20, 2 << 20);
    assert!(fs::read(&disk).unwrap() == want);
}

#[test]
fn facts_are_json_and_modes_follow_the_umask() {
    let dir = scratch();
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    let file = File::create(&a).unwrap();
    file.set_len(1 << 20).unwrap();
    file.write_all_at(&[1; 4096], 8192).unwrap();
    let said = copy(&["--json", "--verify", &text(&a), &text(&b)])
        .ok()
        .text();
    let json: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (&json["size"], &json["data"]),
        (&(1 << 20).into(), &4096.into())
    );
    assert_eq!(
        (&json["created"], &json["verified"]),
        (&true.into(), &true.into())
    );
    // What this process creates has the same mode.
    let want = fs::metadata(&a).unwrap().mode();
    assert_eq!(fs::metadata(&b).unwrap().mode(), want);
    let verbose = copy(&["-v", &text(&a), &text(&b)]).ok().text();
    assert!(verbose.contains("1048576 bytes, 4096 of them"), "{verbose}");
    assert_eq!(copy(&[&text(&a), &text(&b)]).ok().text(), "");
    diorite(&["copy", &text(&a)]).failed(2, "");
}
