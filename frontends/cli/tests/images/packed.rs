//! Images that are compressed, or Android sparse images, and block maps: other tools read what is written, and what they write is read.

use super::path;
use crate::common::{Ran, diorite, image, noise, run, scratch, skip, tree};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const NAMES: [&str; 3] = ["x.gz", "x.zst", "x.simg"];

fn copy(options: &[&str], from: &Path, to: &Path) -> Ran {
    // Without progress, which a slow machine is shown.
    diorite(&[&["copy", "-q"], options, &[path(from), path(to)]].concat())
}

/// Data, zeros as data, words that repeat, holes.
fn layout(at: &Path, end: u64) {
    let mut bytes = noise(100_000, 5);
    bytes.resize(200_000, 0);
    bytes.extend(b"\xde\xad\xbe\xef".repeat(20_000));
    bytes.extend(noise(3_000_000, 6));
    fs::write(at, &bytes).unwrap();
    let file = fs::File::options().write(true).open(at).unwrap();
    file.set_len(end).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"the end", end - 7).unwrap();
}

/// The blocks that a block map has.
fn mapped(map: &str) -> BTreeSet<u64> {
    let mut blocks = BTreeSet::new();
    for line in map.lines().filter(|line| line.contains("<Range")) {
        let range = line.split_once("\">").unwrap().1.split_once('<').unwrap().0;
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        blocks.extend(first.trim().parse::<u64>().unwrap()..=last.trim().parse().unwrap());
    }
    blocks
}

/// A device full of 0xa5 after the blocks of a map were written to it.
fn flashed(image: &Path, map: &Path, to: &Path) {
    let bytes = fs::read(image).unwrap();
    let mut device = vec![0xa5; bytes.len()];
    for block in mapped(&fs::read_to_string(map).unwrap()) {
        let at = block as usize * 4096..(block as usize * 4096 + 4096).min(bytes.len());
        device[at.clone()].copy_from_slice(&bytes[at]);
    }
    fs::write(to, device).unwrap();
}

/// The defect: zeros that a file system needs were left out of block maps, so that a device kept its old bytes there: in files of zeros,
/// in tables and bitmaps.
#[test]
fn a_map_has_the_zeros_that_are_needed() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("source")).unwrap();
    fs::write(at("source/zeros"), vec![0; 1 << 20]).unwrap();
    fs::write(at("source/some"), noise(200_000, 3)).unwrap();
    let source = at("source");
    // Sums of descriptors say which tables are zeroed; without them all of them have to be.
    for features in ["^metadata_csum,^uninit_bg", "metadata_csum"] {
        let import = |name: &str| {
            let (map, img) = (at("map"), at(name));
            let options = ["--size", "8M", "-O", features, "--bmap", path(&map)];
            diorite(
                &[
                    &["import", "-q"],
                    &options[..],
                    &[path(&source), path(&img)],
                ]
                .concat(),
            )
            .ok();
        };
        let judge = |what: &str, image: &str, offset: usize| {
            flashed(&at(image), &at("map"), &at("device"));
            let device = fs::read(at("device")).unwrap();
            fs::write(at("one"), &device[offset..offset + (8 << 20)]).unwrap();
            diorite(&["check", path(&at("one"))]).ok();
            run("e2fsck", &["-fn", path(&at("one"))]);
            diorite(&["get", "-q", path(&at("one")), "/zeros", path(&at("back"))]).ok();
            assert!(fs::read(at("back")).unwrap() == vec![0; 1 << 20], "{what}");
            // All inodes are used, so that all tables are read.
            let whole = fs::read(at("img")).unwrap();
            let used = mapped(&fs::read_to_string(at("map")).unwrap()).len();
            assert!(
                used < 24 << 8,
                "{what}: {used} blocks of {}",
                whole.len() >> 12
            );
            fs::remove_file(at("back")).unwrap();
        };
        import("img");
        judge("import", "img", 0);
        import("x.zst");
        judge("import, packed", "img", 0);
        if features == "metadata_csum" {
            continue;
        }
        let map = at("map");
        let bmap = ["--bmap", path(&map)];
        copy(&bmap, &at("img"), &at("copy")).ok();
        judge("copy", "copy", 0);
        copy(&[&["-S", "0"][..], &bmap].concat(), &at("img"), &at("all")).ok();
        judge("copy -S 0", "all", 0);
        copy(&bmap, &at("x.zst"), &at("y.zst")).ok();
        judge("copy of a stream", "img", 0);
        diorite(&["disk", "-q", path(&at("disk")), path(&at("img")), "2M"]).ok();
        copy(&bmap, &at("disk"), &at("z.zst")).ok();
        judge("a partition", "disk", 1 << 20);
    }
}

/// The defect: zeros that were stored in an image became holes of the disk, and a block map of the disk left them out.
#[test]
fn a_disk_stores_what_its_images_store() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    // Not a file system that is known, such as one of an ESP.
    let mut bytes = noise(70_000, 4);
    bytes.resize(1 << 20, 0);
    fs::write(at("part"), &bytes).unwrap();
    let file = fs::File::options().write(true).open(at("part")).unwrap();
    file.set_len(4 << 20).unwrap();
    diorite(&["disk", "-q", path(&at("disk")), path(&at("part"))]).ok();
    copy(&["--bmap", path(&at("map"))], &at("disk"), &at("x.gz")).ok();
    let blocks = mapped(&fs::read_to_string(at("map")).unwrap());
    let part = 256..256 + 1024;
    assert!((256..256 + 256).all(|block| blocks.contains(&block)));
    assert_eq!(blocks.range(part).count(), 256, "holes stay holes");
}

/// Whether a tool is there; if not, that is said.
pub(super) fn has(tool: &str) -> bool {
    let is_there = xtask::run::tool(tool)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok();
    if !is_there {
        skip(format!("{tool} is not installed"));
    }
    is_there
}

#[test]
fn what_is_packed_is_unpacked_again() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    for (end, names) in [
        (40 << 20, &NAMES[..]),
        (40_000_001, &NAMES[..2]),
        (40_000_000, &NAMES[..2]),
    ] {
        layout(&at("raw"), end);
        let raw = fs::read(at("raw")).unwrap();
        for name in names {
            copy(&["--verify"], &at("raw"), &at(name)).ok();
            assert!(fs::metadata(at(name)).unwrap().len() < 6 << 20, "{name}");
            copy(&[], &at(name), &at("again")).ok();
            assert!(fs::read(at("again")).unwrap() == raw, "{name} {end}");
            let stored = |name: &str| fs::metadata(at(name)).unwrap().blocks();
            assert!(stored("again") <= stored("raw"), "{name}: zeros are holes");
            fs::remove_file(at("again")).unwrap();
            copy(&["-S", "0"], &at(name), &at("again")).ok();
            assert!(stored("again") * 512 >= end, "{name}: it has space");
            assert!(fs::read(at("again")).unwrap() == raw, "{name} {end}");
            // What exists is written in place, after a scratch file; the same with --verify.
            for options in [&[][..], &["--verify"]] {
                fs::write(at("again"), vec![7; end as usize + 512]).unwrap();
                copy(options, &at(name), &at("again")).ok();
                let again = fs::read(at("again")).unwrap();
                assert!(
                    again[..end as usize] == raw[..] && again[end as usize..] == [7; 512],
                    "{name}"
                );
            }
            fs::remove_file(at("again")).unwrap();
        }
    }
    // From one packed form to another, and as it is.
    copy(&[], &at("x.zst"), &at("y.gz")).ok();
    copy(&["-O", "zst"], &at("y.gz"), &at("y")).ok();
    copy(&["-f", "zst"], &at("y"), &at("again")).ok();
    assert!(fs::read(at("again")).unwrap() == fs::read(at("raw")).unwrap());
    copy(&["-f", "raw", "-O", "raw"], &at("x.zst"), &at("same.zst")).ok();
    assert!(fs::read(at("same.zst")).unwrap() == fs::read(at("x.zst")).unwrap());
}

/// Standard input, a partition, and a file in an image are sources; a file in an image is a target.
#[test]
fn any_source_and_target() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    layout(&at("raw"), 8 << 20);
    let raw = fs::read(at("raw")).unwrap();
    copy(&[], &at("raw"), &at("x.zst")).ok();
    let from_stdin = |options: &[&str], file: &Path, to: &Path| {
        let done = Command::new(env!("CARGO_BIN_EXE_diorite"))
            .args([&["copy"], options, &["-", path(to)]].concat())
            .stdin(fs::File::open(file).unwrap())
            .output()
            .unwrap();
        assert!(done.status.success(), "{done:?}");
    };
    from_stdin(&["-f", "zst"], &at("x.zst"), &at("one"));
    from_stdin(&[], &at("raw"), &at("two"));
    assert!(fs::read(at("one")).unwrap() == raw && fs::read(at("two")).unwrap() == raw);
    diorite(&["disk", "-q", path(&at("disk")), path(&at("raw")), "20M"]).ok();
    let part = |number: u32| format!("{}?part={number}", path(&at("disk")));
    copy(&[], Path::new(&part(1)), &at("part.gz")).ok();
    copy(&[], &at("part.gz"), &at("three")).ok();
    assert!(fs::read(at("three")).unwrap() == raw);
    diorite(&["mkfs", "-q", &part(2)]).ok();
    let inner = format!("{}:/inner", part(2));
    copy(&[], &at("x.zst"), Path::new(&inner)).ok();
    diorite(&["compare", "-s", &inner, path(&at("raw"))]).ok();
    diorite(&["put", &part(2), path(&at("x.zst")), "/x.zst"]).ok();
    copy(
        &[],
        Path::new(&format!("{}:/x.zst", part(2))),
        Path::new(&part(1)),
    )
    .ok();
    diorite(&["compare", "-s", &part(1), path(&at("raw"))]).ok();
}

#[test]
fn the_usual_tools_agree() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    layout(&at("raw"), 20 << 20);
    let raw = fs::read(at("raw")).unwrap();
    for (tool, name, unpacked) in [("gzip", "x.gz", "x"), ("zstd", "y.zst", "y")] {
        if has(tool) {
            copy(&[], &at("raw"), &at(name)).ok();
            run(tool, &["-d", "-k", "-q", path(&at(name))]);
            assert!(fs::read(at(unpacked)).unwrap() == raw, "{tool}");
            fs::remove_file(at(name)).unwrap();
            run(tool, &["-k", "-q", path(&at(unpacked))]);
            copy(&[], &at(name), &at("again")).ok();
            assert!(fs::read(at("again")).unwrap() == raw, "{tool}");
            fs::remove_file(at("again")).unwrap();
        }
    }
    if has("simg2img") && has("img2simg") {
        copy(&[], &at("raw"), &at("z.simg")).ok();
        run("simg2img", &[path(&at("z.simg")), path(&at("z"))]);
        assert!(fs::read(at("z")).unwrap() == raw);
        for block in ["4096", "65536", "1024"] {
            run("img2simg", &[path(&at("raw")), path(&at("t.simg")), block]);
            copy(&[], &at("t.simg"), &at("again")).ok();
            assert!(fs::read(at("again")).unwrap() == raw, "{block}");
            fs::remove_file(at("again")).unwrap();
        }
        // Sizes that are no multiple of 4096.
        fs::write(at("odd"), noise(512 * 33, 3)).unwrap();
        copy(&[], &at("odd"), &at("odd.simg")).ok();
        run("simg2img", &[path(&at("odd.simg")), path(&at("o"))]);
        assert!(fs::read(at("o")).unwrap() == fs::read(at("odd")).unwrap());
    }
}

/// bmaptool writes an image by our map, which it checks; and its own map of the source has no range that ours has not.
#[test]
fn bmaptool_takes_the_map() {
    if !has("bmaptool") {
        return;
    }
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    let source = dir.path().join("source");
    tree(&source);
    let img = PathBuf::from(image(
        dir.path(),
        "img",
        "20M",
        &["-b", "1024"],
        Some(&source),
    ));
    layout(&at("raw"), 9_000_001);
    for from in [&img, &at("raw")] {
        let bytes = fs::read(from).unwrap();
        for name in ["x.gz", "x"] {
            copy(&["--bmap", path(&at("map"))], from, &at(name)).ok();
            fs::File::create(at("device")).unwrap();
            run(
                "bmaptool",
                &[
                    "-q",
                    "copy",
                    "--bmap",
                    path(&at("map")),
                    path(&at(name)),
                    path(&at("device")),
                ],
            );
            assert!(fs::read(at("device")).unwrap() == bytes, "{name}");
            let ours = fs::read_to_string(at("map")).unwrap();
            let theirs = at("theirs");
            run(
                "bmaptool",
                &["-q", "create", "-o", path(&theirs), path(from)],
            );
            let (ours, theirs) = (mapped(&ours), mapped(&fs::read_to_string(theirs).unwrap()));
            match from == &img {
                true => assert!(theirs.is_subset(&ours), "{:?}", theirs.difference(&ours)),
                // No file system is on it.
                false => assert_eq!(ours, theirs),
            }
            fs::remove_file(at(name)).unwrap();
        }
        // The sum of the map itself is looked at, so it is right.
        copy(&["--bmap", path(&at("map"))], from, &at("x")).ok();
        let other = fs::read_to_string(at("map"))
            .unwrap()
            .replace("<BlockSize> 4096", "<BlockSize> 8192");
        fs::write(at("map"), other).unwrap();
        let judged = Command::new("bmaptool")
            .args([
                "-q",
                "copy",
                "--bmap",
                path(&at("map")),
                path(&at("x")),
                path(&at("device")),
            ])
            .output()
            .unwrap();
        assert!(!judged.status.success());
        fs::remove_file(at("x")).unwrap();
    }
}

#[test]
fn imports_are_packed() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    let source = dir.path().join("source");
    tree(&source);
    let import = |name: &str, options: &[&str]| {
        let mut args = vec!["import", "--json", "--seed", "s"];
        args.extend(options);
        args.extend([path(&source)]);
        let to = at(name);
        args.push(path(&to));
        let done = Command::new(env!("CARGO_BIN_EXE_diorite"))
            .args(&args)
            .env("SOURCE_DATE_EPOCH", "1700000000")
            .output()
            .unwrap();
        assert!(done.status.success(), "{done:?}");
        let said: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
        let file = run("sha256sum", &["-b", path(&to)]);
        assert_eq!(
            Some(said["sha256"].as_str().unwrap()),
            file.split(' ').next(),
            "{name}"
        );
        said["image_sha256"].as_str().unwrap().to_owned()
    };
    let sum = import("raw", &["--bmap", path(&at("raw.bmap"))]);
    let raw = fs::read(at("raw")).unwrap();
    for (name, options) in [
        ("x.gz", &[][..]),
        ("x.zst", &["--bmap", path(&at("x.bmap"))]),
        ("x.simg", &[]),
        ("y", &["--format", "zst"]),
    ] {
        assert_eq!(import(name, options), sum, "{name}");
        let packed: &[&str] = if name == "y" { &["-f", "zst"] } else { &[] };
        copy(packed, &at(name), &at("again")).ok();
        assert!(fs::read(at("again")).unwrap() == raw, "{name}");
        fs::remove_file(at("again")).unwrap();
    }
    let map = |name: &str| fs::read_to_string(at(name)).unwrap();
    assert_eq!(map("raw.bmap"), map("x.bmap"));
    let left: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(left.len(), 8, "{left:?}");
}

/// Streams that end early, or go on with something else, are errors: no new file, and no changed byte.
#[test]
fn broken_streams_change_nothing() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    layout(&at("raw"), 4 << 20);
    fs::write(at("there"), vec![7; 4 << 20]).unwrap();
    for name in NAMES {
        copy(&[], &at("raw"), &at(name)).ok();
        let whole = fs::read(at(name)).unwrap();
        let mut broken = whole.clone();
        broken.truncate(whole.len() - 9);
        fs::write(at(name), broken).unwrap();
        for to in ["new", "there"] {
            copy(&[], &at(name), &at(to)).failed(1, "cannot be copied");
        }
        assert!(!at("new").exists(), "{name}");
        assert!(fs::read(at("there")).unwrap() == [7; 4 << 20], "{name}");
    }
    fs::write(at("text.gz"), "no gzip").unwrap();
    copy(&[], &at("text.gz"), &at("new")).failed(1, "cannot be copied");
    copy(&[], &at("raw"), &at("x.gz")).ok();
    fs::write(at("small"), [7; 4096]).unwrap();
    copy(&[], &at("x.gz"), &at("small")).failed(1, "nothing was changed");
    assert!(fs::read(at("small")).unwrap() == [7; 4096]);
}

/// A header, and chunks of kind, blocks, length and body.
fn sparse(header: [u32; 4], chunks: &[(u16, u32, u32, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![0x3a, 0xff, 0x26, 0xed, 1, 0, 0, 0, 28, 0, 12, 0];
    bytes.extend(header.map(u32::to_le_bytes).concat());
    for (kind, blocks, total, body) in chunks {
        bytes.extend(kind.to_le_bytes());
        bytes.extend([0, 0]);
        bytes.extend([*blocks, *total].map(u32::to_le_bytes).concat());
        bytes.extend(*body);
    }
    bytes
}

#[test]
fn sparse_images_that_lie() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    let (raw, fill, none, sum) = (0xcac1, 0xcac2, 0xcac3, 0xcac4);
    const NINES: u32 = 0xb932dc9a;
    const ALL: u32 = 0x47e92566;
    let block = vec![9; 4096];
    let long = u32::MAX;
    let good = sparse(
        [4096, 5, 5, 0],
        &[
            (raw, 1, 4108, &block),
            // Of a block of nines, as zlib.crc32 has it.
            (sum, 0, 16, &NINES.to_le_bytes()),
            (fill, 1, 16, b"abcd"),
            (none, 3, 12, &[]),
            (sum, 0, 16, &ALL.to_le_bytes()),
        ],
    );
    fs::write(at("x.simg"), &good).unwrap();
    copy(&[], &at("x.simg"), &at("good")).ok();
    let want = [&block[..], &b"abcd".repeat(1024), &[0; 3 * 4096]].concat();
    assert!(fs::read(at("good")).unwrap() == want);
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    let cases = [
        (with(0, 0), "its magic number"),
        (with(4, 2), "version 2"),
        // A byte of the block, and one of the last sum.
        (with(100, 8), "the sum of its blocks"),
        (
            with(good.len() - 1, !ALL.to_le_bytes()[3]),
            "the sum of its blocks",
        ),
        (with(8, 27), "headers of 27 and 12"),
        (with(10, 11), "headers of 28 and 11"),
        (good[..20].to_vec(), "ends in its header"),
        (good[..35].to_vec(), "ends in the header of a chunk"),
        (good[..99].to_vec(), "ends in a chunk of data"),
        (sparse([0, 5, 0, 0], &[]), "blocks of 0 bytes"),
        (sparse([4097, 5, 0, 0], &[]), "blocks of 4097 bytes"),
        (
            sparse([4096, 5, 0, 0], &[]),
            "are 0 blocks, and its header says 5",
        ),
        (
            sparse([4096, 5, long, 0], &[]),
            "ends in the header of a chunk",
        ),
        (
            sparse([4096, 5, 1, 0], &[(raw, 5, 12, &[])]),
            "is said to have 12 bytes",
        ),
        (
            sparse([4096, 5, 1, 0], &[(raw, long, long, &[])]),
            "is said to have",
        ),
        (
            sparse([4096, 5, 1, 0], &[(none, 6, 12, &[])]),
            "more than the 5 blocks",
        ),
        (
            sparse([4096, 5, 1, 0], &[(fill, long, 16, b"abcd")]),
            "more than the 5 blocks",
        ),
        (
            sparse([4096, 5, 1, 0], &[(0xcac5, 5, 12, &[])]),
            "unknown kind 0xcac5",
        ),
        // The host has no files of 2^64 bytes.
        (
            sparse([0xffff_fffc, long, 1, 0], &[(none, long, 12, &[])]),
            "cannot be copied",
        ),
    ];
    for (bytes, why) in cases {
        fs::write(at("x.simg"), bytes).unwrap();
        copy(&[], &at("x.simg"), &at("new")).failed(1, why);
        assert!(!at("new").exists(), "{why}");
    }
    // Bits that are others: an error or a file as large as the header says, and no panic.
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    eprintln!("seed {seed:#x}");
    for _ in 0..60 {
        let mut bytes = good.clone();
        for _ in 0..2 {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(99);
            let places: Vec<usize> = (0..40).chain(4136..good.len()).collect();
            bytes[places[(seed >> 33) as usize % places.len()]] = (seed >> 20) as u8;
        }
        fs::write(at("x.simg"), &bytes).unwrap();
        let ran = copy(&[], &at("x.simg"), &at("new"));
        assert!(matches!(ran.code, Some(0 | 1)), "{}", ran.err);
        let _ = fs::remove_file(at("new"));
    }
}

#[test]
fn what_cannot_be_packed() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    let img = image(dir.path(), "img", "8M", &[], None);
    fs::write(at("odd"), [1; 1000]).unwrap();
    copy(&[], &at("odd"), &at("x.simg")).failed(1, "no multiple of 512");
    assert!(!at("x.simg").exists());
    let inside = format!("{img}:/x.gz");
    copy(&[], &at("odd"), Path::new(&inside)).failed(1, "--format raw");
    copy(&["-O", "raw"], &at("odd"), Path::new(&inside)).ok();
    copy(&["-O", "gz"], &at("odd"), Path::new("mem:8M")).failed(1, "--format raw");
    copy(&["-O", "gz"], &at("odd"), &at("odd")).failed(1, "SRC is DST");
    copy(&["-f", "gz"], Path::new(&inside), Path::new(&img)).failed(1, "SRC is DST, or is in it");
    copy(&["-n"], &at("odd"), &at("none.gz")).failed(1, "No such file");
    copy(&["-O", "bz2"], &at("odd"), &at("x")).failed(1, "bz2 is read, but not written");
    copy(&[], &at("odd"), Path::new("/nowhere/x.gz")).failed(1, "/nowhere/x.gz");
    fs::write(at("there.gz"), "before").unwrap();
    copy(&[], &at("odd"), &at("there.gz")).ok();
    copy(&[], &at("there.gz"), &at("again")).ok();
    assert!(fs::read(at("again")).unwrap() == [1; 1000]);
}

/// A block map on standard output, which would be a file called `-`; and one that cannot be written when the image has its name: the
/// message says that the image is complete.
#[test]
fn a_block_map_that_has_no_place() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    let img = image(dir.path(), "img", "8M", &["-t", "ext4"], None);
    let words = ["copy", "-q", "--bmap", "-", "img", "copy"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_diorite"));
    let ran = command
        .args(words)
        .current_dir(dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(1), "{said}");
    assert!(said.contains("standard output is no place"), "{said}");
    assert!(!at("-").exists() && !at("copy").exists());
    let long = at(&"m".repeat(300));
    for name in ["copy", "copy.gz"] {
        let copy = at(name);
        let ran = diorite(&["copy", "-q", "--bmap", path(&long), &img, path(&copy)]);
        ran.failed(1, "the image is complete, but without a block map");
        assert!(copy.exists(), "{name}");
    }
}
