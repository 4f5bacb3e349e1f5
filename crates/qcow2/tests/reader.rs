//! Images with zstd and extended L2 entries, which are only read: judged by QEMU's own reading of them.
#![allow(clippy::unwrap_used)]

mod common;

use common::{SEED, at, buf, open, qemu};
use diorite_block::{Bio, BioOp, Blocking, Buf, Device, Stored};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use xtask::rng::{Rng, seed_or};

const SIZE: u64 = 3 << 20;

/// Kinds of images that only the reader knows.
const KINDS: [&str; 7] = [
    "compression_type=zstd",
    "compression_type=zstd,cluster_size=512",
    "compression_type=zstd,cluster_size=2M",
    "extended_l2=on,cluster_size=128k",
    "extended_l2=on,cluster_size=16k",
    "extended_l2=on,cluster_size=16k,compression_type=zstd",
    "extended_l2=on,cluster_size=2M,compression_type=zlib",
];

/// Runs commands of qemu-io on an image; false if it is not installed.
fn change(path: &str, commands: &[String]) -> bool {
    let mut tool = xtask::run::tool("qemu-io");
    tool.args(["-f", "qcow2"]);
    for command in commands {
        tool.args(["-c", command]);
    }
    let Ok(out) = tool.arg(path).output() else {
        xtask::skip::skipped("qemu-io is not installed");
        return false;
    };
    let said =
        String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    // Clusters that are there are not written compressed: that is said, and changes nothing.
    assert!(said.contains("wrote"), "{said}");
    true
}

/// Writes, zeros, compressed clusters and discards by chance.
fn changes(dice: &mut Rng, number: u64, cluster: u64) -> Vec<String> {
    let change = |_| {
        let start = dice.below(SIZE / 512) * 512;
        let most = 1 << dice.below(10);
        let len = ((1 + dice.below(most)) * 512).min(SIZE - start);
        let byte = 1 + dice.below(255);
        match dice.below(8) {
            0 | 1 => format!("write -z {start} {len}"),
            2 => format!("write -z -u {start} {len}"),
            3 => format!("discard {start} {len}"),
            4 => format!("write -c -P {byte} {} {cluster}", start / cluster * cluster).replace(
                &format!(" {cluster}"),
                &format!(" {}", cluster.min(SIZE - start / cluster * cluster)),
            ),
            _ => format!("write -P {byte} {start} {len}"),
        }
    };
    (0..number).map(change).collect()
}

fn cluster_of(options: &str) -> u64 {
    let word = options.split("cluster_size=").nth(1).unwrap_or("64k");
    let word = word.split(',').next().unwrap();
    match word {
        "512" => 512,
        "16k" => 16 << 10,
        "64k" => 64 << 10,
        "128k" => 128 << 10,
        _ => 2 << 20,
    }
}

/// A disk of which parts can be compressed, and parts not.
fn contents(dice: &mut Rng) -> Vec<u8> {
    let mut disk = vec![0; SIZE as usize];
    for piece in disk.chunks_mut(24 << 10) {
        match dice.below(4) {
            0 => {}
            1 => piece.fill(dice.below(256) as u8),
            2 => piece
                .iter_mut()
                .for_each(|byte| *byte = dice.below(256) as u8),
            _ => piece
                .iter_mut()
                .for_each(|byte| *byte = b'a' + dice.below(3) as u8),
        }
    }
    disk
}

/// Whether the device is what QEMU reads, in pieces of any size and in order, and what is said of the runs is true.
fn compare(path: &Path, params: &str, dice: &mut Rng) {
    let raw = path.with_extension("as-qemu-reads-it");
    let text = path.to_str().unwrap();
    qemu(&[
        "convert",
        "-f",
        "qcow2",
        "-O",
        "raw",
        text,
        raw.to_str().unwrap(),
    ])
    .unwrap();
    let model = fs::read(&raw).unwrap();
    let device = open(path, params, true).unwrap();
    assert_eq!(device.geometry().size, model.len() as u64);
    let blocking = Blocking::new(device.clone());
    let mut here = 0;
    while here < model.len() {
        let most = 1 << dice.below(12);
        let len = ((1 + dice.below(most) as usize) * 512).min(model.len() - here);
        let read = blocking.read(here as u64, Buf::zeroed(len)).unwrap();
        assert!(
            read.as_slice() == &model[here..here + len],
            "{text}: {here} {len}"
        );
        here += len;
    }
    let mut here = 0;
    for run in device.stored(0..model.len() as u64, usize::MAX).unwrap() {
        let is_zero = model[here..here + run.len as usize]
            .iter()
            .all(|byte| *byte == 0);
        assert!(
            run.stored == Stored::Data || is_zero,
            "{text}: {here} {run:?}"
        );
        here += run.len as usize;
    }
    assert_eq!(here, model.len());
}

fn refused(path: &Path, params: &str, read_only: bool) -> String {
    open(path, params, read_only)
        .map(|_| ())
        .expect_err("it is refused")
        .to_string()
}

/// Compressed, plain and zeroed clusters and subclusters in one file.
#[test]
fn every_kind_is_read_as_qemu_reads_it() {
    let dir = tempfile::tempdir().unwrap();
    let ((raw, raw_text), (path, text)) = (at(&dir, "raw"), at(&dir, "disk"));
    let mut dice = Rng::new(seed_or("reader", SEED));
    for options in KINDS {
        fs::write(&raw, contents(&mut dice)).unwrap();
        let convert = [
            "convert", "-c", "-f", "raw", "-O", "qcow2", "-o", options, &raw_text, &text,
        ];
        if qemu(&convert).is_none() {
            return;
        }
        compare(&path, "", &mut dice);
        for _ in 0..3 {
            if !change(&text, &changes(&mut dice, 30, cluster_of(options))) {
                return;
            }
            compare(&path, "", &mut dice);
        }
        let why = refused(&path, "", false);
        assert!(
            why.contains("only read") && why.contains("diorite copy"),
            "{options}: {why}"
        );
    }
}

/// Chains of all kinds over each other, and over a raw file that ends in a part of a sector; then a plain one that is written.
#[test]
fn chains_are_read_and_written_upon() {
    let dir = tempfile::tempdir().unwrap();
    let (base, base_text) = at(&dir, "base");
    let mut dice = Rng::new(seed_or("reader", SEED));
    let mut disk = contents(&mut dice);
    disk.truncate(disk.len() / 2 + 77);
    fs::write(&base, disk).unwrap();
    let (mut below, mut format) = (base_text, "raw");
    for (n, options) in KINDS.iter().chain(["cluster_size=4k"].iter()).enumerate() {
        let (path, text) = at(&dir, &format!("layer-{n}"));
        let size = SIZE.to_string();
        let create = [
            "create", "-q", "-f", "qcow2", "-o", options, "-b", &below, "-F", format, &text, &size,
        ];
        if qemu(&create).is_none() || !change(&text, &changes(&mut dice, 12, cluster_of(options))) {
            return;
        }
        compare(&path, "&backing", &mut dice);
        (below, format) = (text, "qcow2");
    }
    for options in ["cluster_size=64k", "cluster_size=512"] {
        let ((path, text), (raw, raw_text)) = (at(&dir, "written"), at(&dir, "model"));
        let _ = fs::remove_file(&path);
        qemu(&[
            "create", "-q", "-f", "qcow2", "-o", options, "-b", &below, "-F", "qcow2", &text,
        ])
        .unwrap();
        qemu(&["convert", "-f", "qcow2", "-O", "raw", &text, &raw_text]).unwrap();
        let mut model = fs::read(&raw).unwrap();
        let device = open(&path, "&backing", false).unwrap();
        let blocking = Blocking::new(device.clone());
        for _ in 0..80 {
            let start = dice.below(SIZE / 512) * 512;
            let len = ((1 + dice.below(200)) * 512).min(SIZE - start);
            let range = start as usize..(start + len) as usize;
            match dice.below(3) {
                0 => {
                    let read = blocking.read(start, Buf::zeroed(len as usize)).unwrap();
                    assert!(read.as_slice() == &model[range], "{start} {len}");
                }
                1 => {
                    let bio = Bio::range(BioOp::WriteZeroes, start, len, 0);
                    blocking.run(bio).result.unwrap();
                    model[range].fill(0);
                }
                _ => {
                    let bio = Bio::write(start, buf(len as usize, 9), 0);
                    blocking.run(bio).result.unwrap();
                    model[range].fill(9);
                }
            }
        }
        drop((blocking, device));
        fs::write(&raw, &model).unwrap();
        qemu(&["check", "-q", "-f", "qcow2", &text]);
        qemu(&[
            "compare", "-q", "-f", "raw", "-F", "qcow2", &raw_text, &text,
        ]);
    }
}

/// Makes an image with such a name of a backing file; false if there is no tool.
fn with_backing(path: &Path, options: &str, name: &OsStr, format: &str) -> bool {
    let mut tool = xtask::run::tool("qemu-img");
    tool.args([
        "create", "-q", "-u", "-f", "qcow2", "-o", options, "-F", format, "-b",
    ]);
    let Ok(out) = tool.arg(name).arg(path).arg("1M").output() else {
        xtask::skip::skipped("qemu-img is not installed");
        return false;
    };
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    true
}

/// A file is opened and judged once, however many lead to it; a name that leads back is no loop.
#[test]
fn a_chain_is_resolved_once() {
    const DEEP: usize = 64;
    let dir = tempfile::tempdir().unwrap();
    let path = |n: usize| dir.path().join(format!("layer-{n}"));
    for n in (0..=DEEP + 1).rev() {
        let below = path(n + 1);
        let made = match n > DEEP {
            true => qemu(&[
                "create",
                "-q",
                "-f",
                "qcow2",
                "-o",
                KINDS[0],
                path(n).to_str().unwrap(),
                "1M",
            ])
            .is_some(),
            false => with_backing(&path(n), KINDS[0], below.as_os_str(), "qcow2"),
        };
        if !made {
            return;
        }
    }
    let open_files = || fs::read_dir("/proc/self/fd").unwrap().count();
    let before = open_files();
    let device = open(&path(1), "&backing", true).unwrap();
    let more = open_files() - before;
    // Each is open to be read and to be locked; other tests may open files meanwhile.
    assert!(more <= 4 * DEEP, "{more} files are open");
    let read = Blocking::new(device).read(0, Buf::zeroed(512)).unwrap();
    assert!(read.as_slice() == [0; 512]);
    let why = refused(&path(0), "&backing", true);
    assert!(why.contains("more than 64 deep"), "{why}");
    assert!(with_backing(
        &path(3),
        KINDS[0],
        path(2).as_os_str(),
        "qcow2"
    ));
    let why = refused(&path(2), "&backing", true);
    assert!(why.contains("in a circle"), "{why}");
    // Who opened them has them, whatever takes their names.
    let device = open(&path(DEEP), "&backing", true).unwrap();
    fs::rename(path(0), path(DEEP + 1)).unwrap();
    let read = Blocking::new(device).read(0, Buf::zeroed(512)).unwrap();
    assert!(read.as_slice() == [0; 512]);
    // It is raw, and the image says something else.
    fs::write(path(DEEP + 1), [7; 4096]).unwrap();
    let why = refused(&path(DEEP), "&backing", true);
    assert!(
        why.contains("no qcow2 image, and") && why.contains("rebase -u -F raw"),
        "{why}"
    );
}

#[test]
fn names_are_bytes_and_files() {
    let dir = tempfile::tempdir().unwrap();
    let (path, _) = at(&dir, "disk");
    let name = OsStr::from_bytes(b"b\xff'\"\\n ame");
    fs::write(dir.path().join(name), vec![7; 1 << 20]).unwrap();
    for options in ["cluster_size=64k", KINDS[0], KINDS[3]] {
        let _ = fs::remove_file(&path);
        if !with_backing(&path, options, name, "raw") {
            return;
        }
        let read = |read_only: bool| {
            let device = open(&path, "&backing", read_only).unwrap();
            Blocking::new(device)
                .read(512 << 10, Buf::zeroed(512))
                .unwrap()
        };
        assert!(read(true).as_slice() == [7; 512], "{options}");
        let why = refused(&path, "&backing", false);
        assert!(why.contains("only read"), "{why}");
        for form in [
            "json:{\"driver\":\"file\",\"filename\":\"x\"}",
            "nbd:localhost:10809",
            "nbd://localhost/x",
            "host_device:/dev/null",
        ] {
            let _ = fs::remove_file(&path);
            assert!(with_backing(&path, options, OsStr::new(form), "raw"));
            let why = refused(&path, "&backing", true);
            let word = format!("in the form \"{}:\"", form.split(':').next().unwrap());
            assert!(
                why.contains(&word) && why.contains("qemu-img rebase"),
                "{why}"
            );
        }
    }
}

/// What neither the library nor the reader does, and nothing is changed before it is refused.
#[test]
fn what_is_not_read_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let ((path, text), (_, data)) = (at(&dir, "disk"), at(&dir, "data"));
    let options = format!("extended_l2=on,data_file={data}");
    if qemu(&["create", "-q", "-f", "qcow2", "-o", &options, &text, "1M"]).is_none() {
        return;
    }
    let why = refused(&path, "&backing", true);
    assert!(
        why.contains("has its data in the file") && why.contains("convert"),
        "{why}"
    );
    let (over, _) = at(&dir, "over");
    assert!(with_backing(
        &over,
        "cluster_size=64k",
        path.as_os_str(),
        "qcow2"
    ));
    for read_only in [true, false] {
        let why = refused(&over, "&backing", read_only);
        assert!(
            why.contains("has its data in the file") && why.contains(&text),
            "{why}"
        );
    }
    // Marked as dirty: what is refused for writing is not repaired first.
    let mark = |path: &Path| {
        let file = fs::File::options()
            .read(true)
            .write(true)
            .open(path)
            .unwrap();
        let mut features = [0];
        file.read_exact_at(&mut features, 79).unwrap();
        file.write_all_at(&[features[0] | 1], 79).unwrap();
        fs::read(path).unwrap()
    };
    qemu(&["create", "-q", "-f", "qcow2", "-o", KINDS[0], &text, "1M"]).unwrap();
    assert!(with_backing(
        &over,
        "cluster_size=64k",
        OsStr::new("no such file"),
        "raw"
    ));
    for (path, word) in [(&path, "only read"), (&over, "no such file")] {
        let marked = mark(path);
        let why = refused(path, "&backing", false);
        assert!(why.contains(word), "{why}");
        assert!(fs::read(path).unwrap() == marked, "it was changed: {why}");
    }
    drop(open(&path, "", true).unwrap());
    // The byte and the feature have to agree.
    qemu(&["create", "-q", "-f", "qcow2", "-o", KINDS[0], &text, "1M"]).unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    for (byte, word) in [(0, "is on"), (2, "type 2")] {
        file.write_all_at(&[byte], 104).unwrap();
        let why = refused(&path, "", true);
        assert!(why.contains("compression") && why.contains(word), "{why}");
    }
    file.write_all_at(&[1], 104).unwrap();
    file.write_all_at(&[0], 79).unwrap();
    let why = refused(&path, "", true);
    assert!(why.contains("is off"), "{why}");
}

/// A cluster that was unpacked is kept: what reads on in it needs the file no more.
#[test]
fn a_cluster_is_unpacked_once() {
    let dir = tempfile::tempdir().unwrap();
    let ((raw, raw_text), (path, text)) = (at(&dir, "raw"), at(&dir, "disk"));
    fs::write(&raw, [5; 131_072]).unwrap();
    let convert = [
        "convert", "-c", "-f", "raw", "-O", "qcow2", "-o", KINDS[0], &raw_text, &text,
    ];
    if qemu(&convert).is_none() {
        return;
    }
    let blocking = Blocking::new(open(&path, "", true).unwrap());
    let read = |at: u64| blocking.read(at, Buf::zeroed(512));
    assert!(read(0).unwrap().as_slice() == [5; 512]);
    let len = fs::metadata(&path).unwrap().len();
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(&vec![0xff; len as usize], 0).unwrap();
    for at in (512..65536).step_by(512) {
        assert!(read(at).unwrap().as_slice() == [5; 512], "{at}");
    }
    let error = read(65536).expect_err("the other one is gone");
    assert!(error.to_string().contains("input/output"), "{error}");
}

/// Headers and tables with other bytes: everything ends, and a panic would end this test.
#[test]
fn what_is_damaged_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let ((raw, raw_text), (path, text)) = (at(&dir, "raw"), at(&dir, "disk"));
    let mut dice = Rng::new(seed_or("reader", SEED));
    fs::write(&raw, &contents(&mut dice)[..1 << 20]).unwrap();
    let use_it = |device: Arc<dyn Device>| {
        let size = device.geometry().size;
        let _ = device.stored(0..size, 1000);
        let blocking = Blocking::new(device);
        for at in (0..size.min(4 << 20)).step_by(64 << 10) {
            let _ = blocking.read(at, Buf::zeroed((64 << 10).min((size - at) as usize)));
        }
    };
    for options in KINDS {
        let convert = [
            "convert", "-c", "-f", "raw", "-O", "qcow2", "-o", options, &raw_text, &text,
        ];
        if qemu(&convert).is_none() {
            return;
        }
        let whole = fs::read(&path).unwrap();
        let tables: Vec<usize> = (0..whole.len() / 8)
            .map(|n| n * 8)
            .filter(|at| *at < 112 || whole[*at] & 0xc0 != 0)
            .collect();
        for _ in 0..60 {
            let mut bytes = whole.clone();
            for _ in 0..1 + dice.below(3) {
                let place = match dice.below(3) {
                    0 => dice.below(112) as usize,
                    1 => tables[dice.below(tables.len() as u64) as usize] + dice.below(8) as usize,
                    _ => dice.below(bytes.len() as u64) as usize,
                };
                bytes[place] ^= 1 << dice.below(8);
            }
            if dice.below(4) == 0 {
                bytes.truncate(dice.below(bytes.len() as u64) as usize);
            }
            fs::write(&path, &bytes).unwrap();
            if let Ok(device) = open(&path, "", true) {
                use_it(device);
            }
        }
    }
}
