//! The engine of fio over the library: fio writes and verifies through it in all of its modes, and e2fsck judges the image.
//!
//! Input: the fio of the host, its headers (`scripts/fio-engine`). Output: what fio says. Limits: without fio, a compiler or the network
//! it is skipped, with the reason.

use super::common::{self, Library, run};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use xtask::skip::skipped;

struct Bed {
    library: Library,
    engine: PathBuf,
    dir: tempfile::TempDir,
}

impl Bed {
    /// None, with a line that says why, if the engine cannot be built here.
    fn new() -> Option<Bed> {
        let library = Library::new();
        let engine = library.dir().join("fio-diorite.so");
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut build = Command::new(root.join("scripts/fio-engine"));
        build.arg(&engine).arg(library.dir());
        let built = build.output().expect("bash runs it");
        let said = String::from_utf8_lossy(&built.stderr).into_owned();
        match built.status.code() {
            Some(0) => {}
            Some(77) => {
                skipped(said.trim().to_owned());
                return None;
            }
            _ => panic!("scripts/fio-engine: {}\n{said}", built.status),
        }
        let dir = tempfile::tempdir_in(common::scratch()).expect("a scratch folder");
        let bed = Bed {
            library,
            engine,
            dir,
        };
        let image = bed.image();
        let size = std::fs::File::create(&image).and_then(|file| file.set_len(256 << 20));
        size.expect("an image");
        run(
            Command::new("mke2fs")
                .args(["-q", "-F", "-t", "ext4"])
                .arg(&image),
            "mke2fs",
        );
        Some(bed)
    }

    fn image(&self) -> PathBuf {
        self.dir.path().join("disk.img")
    }

    fn fio(&self, options: &[&str]) -> Output {
        let engine = format!("--ioengine=external:{}", self.engine.display());
        let mut fio = Command::new("timeout");
        fio.args([
            "300",
            "fio",
            &engine,
            "--direct=1",
            "--name=job",
            "--minimal",
        ]);
        fio.args(options)
            .current_dir(self.dir.path())
            .env("LD_LIBRARY_PATH", self.library.dir());
        fio.output().expect("timeout is of coreutils")
    }

    #[track_caller]
    fn succeeds(&self, options: &[&str]) {
        let ran = self.fio(options);
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(
            ran.status.success(),
            "fio {options:?}: {}\n{said}",
            ran.status
        );
        assert!(!said.contains("diorite:"), "fio {options:?}: {said}");
    }

    #[track_caller]
    fn fails(&self, options: &[&str], with: &str) {
        let ran = self.fio(options);
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(!ran.status.success(), "fio {options:?} succeeds");
        assert!(said.contains(with), "fio {options:?}: {said}");
    }

    fn judge(&self) {
        run(
            Command::new("e2fsck").arg("-fn").arg(self.image()),
            "e2fsck",
        );
    }
}

#[test]
fn fio_verifies_what_it_wrote_in_every_mode() {
    let Some(bed) = Bed::new() else { return };
    let image = "--image=disk.img";
    let small = ["--thread", "--iodepth=16", "--bs=4k", "--size=8m"];
    for mode in ["write", "randwrite", "rw", "randrw"] {
        let (mode, file) = (format!("--rw={mode}"), format!("--filename=/{mode}"));
        for more in [
            &["--end_fsync=1"][..],
            &["--fsync=16", "--iodepth_batch=8", "--registered=1"],
            &[
                "--fdatasync=8",
                "--numjobs=2",
                "--offset_increment=8m",
                "--bs=2k",
            ],
        ] {
            let all = [image, &mode, &file, "--verify=crc32c", "--verify_fatal=1"];
            bed.succeeds(&[&all[..], &small, more].concat());
        }
    }
    for mode in ["read", "randread", "trim", "randtrim", "trimwrite"] {
        let mode = format!("--rw={mode}");
        bed.succeeds(&[&[image, &mode, "--filename=/randrw"][..], &small].concat());
    }
    // The image and the file in one name; several files; durable writes one at a time.
    bed.succeeds(&[&["--rw=write", r"--filename=disk.img\:/one"][..], &small].concat());
    bed.succeeds(&[&["--rw=write", image, "--filename=/a:/b:/c"][..], &small].concat());
    bed.succeeds(&[
        image,
        "--thread",
        "--rw=randwrite",
        "--sync=dsync",
        "--filename=/s",
        "--size=256k",
    ]);
    bed.judge();
}

#[test]
fn fio_says_what_cannot_be() {
    let Some(bed) = Bed::new() else { return };
    let image = "--image=disk.img";
    let random = ["--rw=randwrite", "--bs=4k", "--size=4m", "--iodepth=4"];
    let named = [&random[..], &[image, "--filename=/f"]].concat();
    bed.succeeds(&[&named[..], &["--thread"]].concat());
    // Two processes cannot write one image, but read it.
    let twice = ["--numjobs=2", "--time_based", "--runtime=2"];
    bed.fails(&[&named[..], &twice].concat(), "--thread");
    bed.succeeds(&[
        "--rw=randread",
        "--size=4m",
        "--numjobs=2",
        image,
        "--filename=/f",
    ]);
    bed.fails(
        &[&random[..], &["--thread", "--filename=disk.img"]].concat(),
        "LOCATOR",
    );
    let missing = [
        "--rw=read",
        "--size=4m",
        "--thread",
        image,
        "--filename=/missing",
    ];
    bed.fails(&missing, "no such file");
    let full = [
        "--rw=write",
        "--bs=64k",
        "--size=400m",
        "--thread",
        image,
        "--filename=/full",
    ];
    bed.fails(&full, "no space left");
    let odd = [
        "--rw=write",
        "--bs=100",
        "--size=4m",
        "--thread",
        image,
        "--filename=/odd",
    ];
    bed.fails(&odd, "multiple");
    bed.judge();
}
