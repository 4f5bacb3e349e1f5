//! Requests through io_uring: many of them with one system call, and none that waits for another one's thread.

use crate::bed::{Bed, DIORITE, bytes, has, is_root};
use crate::common::skip;
use crate::life::until;
use rustix::fs::{Mode, OFlags, open};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// Who has the switch of the fuse module: it is the whole host's.
static SWITCH: Mutex<()> = Mutex::new(());

/// Does this while the kernel has FUSE over io_uring. False: it has not.
pub(crate) fn with_rings(what: impl FnOnce()) -> bool {
    const PATH: &str = "/sys/module/fuse/parameters/enable_uring";
    let _mine = SWITCH.lock().unwrap_or_else(PoisonError::into_inner);
    let before = fs::read_to_string(PATH).unwrap_or_default();
    let is_on = before.trim() == "Y" || is_root() && fs::write(PATH, "Y").is_ok();
    if is_on {
        what();
        if before.trim() == "N" {
            fs::write(PATH, "N").unwrap();
        }
    }
    is_on
}

const NONE: &str = "this kernel has no FUSE over io_uring, or it is switched off";

/// The defect: each request was a system call of its own, and reads of 64 under way took half as much time again.
#[test]
fn many_requests_are_one_system_call() {
    const REQUESTS: u64 = 20_000;
    let Some(bed) = Bed::new(&[]) else { return };
    if !has("fio") {
        return;
    }
    let is_on = with_rings(|| {
        let mut keeper = Command::new(DIORITE)
            .args(bed.args(&["-f", "-v", "-o", "io_uring"]))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        until("it is mounted", || bed.is_mounted());
        let path = bed.path("file");
        fs::write(&path, vec![7; 4 << 20]).unwrap();
        let load = Command::new("fio")
            .args(["--name=x", "--ioengine=libaio", "--direct=1", "--bs=4096"])
            .args(["--rw=randread", "--iodepth=64", "--size=4m", "--thread"])
            .arg(format!("--number_ios={REQUESTS}"))
            .arg("--io_size=1g")
            .arg(format!("--filename={}", path.display()))
            .output()
            .unwrap();
        assert!(load.status.success(), "{load:?}");
        File::open(&path).unwrap().sync_all().unwrap();
        rustix::fs::statvfs(&bed.at).unwrap();
        bed.unmount();
        let mut told = String::new();
        let (mut out, mut err) = (keeper.stdout.take().unwrap(), keeper.stderr.take().unwrap());
        out.read_to_string(&mut told).unwrap();
        err.read_to_string(&mut told).unwrap();
        assert!(keeper.wait().unwrap().success(), "{told}");
        let count = |from: &str, to: &str| -> u64 {
            let (_, rest) = told.split_once(from).unwrap_or_else(|| panic!("{told}"));
            rest.split_once(to).unwrap().0.parse().unwrap()
        };
        let requests = count("through io_uring: ", ", with ");
        let calls = count(", with ", " system calls");
        assert!(requests >= REQUESTS, "{told}");
        assert!(calls <= requests / 2, "{told}");
        // Those that may wait: FSYNC and STATFS.
        assert!(count("system calls; ", " were lent") >= 2, "{told}");
        bed.check();
    });
    if !is_on {
        skip(NONE);
    }
}

/// What waits for a commit, for pages that others have locked, or for files that the kernel is about to forget, is lent to another thread.
#[test]
fn no_request_waits_for_the_thread_of_another() {
    let Some(bed) = Bed::new(&[]) else { return };
    let is_on = with_rings(|| {
        bed.mount(&["-o", "io_uring"]);
        std::thread::scope(|scope| {
            for of in 0..8 {
                let bed = &bed;
                scope.spawn(move || {
                    for n in 0..100 {
                        let path = bed.path(&format!("file-{of}-{}", n % 7));
                        fs::write(&path, [7; 5000]).unwrap();
                        let file = File::options().write(true).open(&path).unwrap();
                        file.sync_all().unwrap();
                        let moved = path.with_extension("moved");
                        fs::rename(&path, &moved).unwrap();
                        fs::hard_link(&moved, &path).unwrap();
                        drop(file);
                        rustix::fs::statvfs(&bed.at).unwrap();
                        assert_eq!(bytes(&path), [7; 5000]);
                        fs::remove_file(&moved).unwrap();
                    }
                });
            }
        });
        let path = bed.path("direct");
        fs::write(&path, vec![1; 1 << 20]).unwrap();
        let cached = File::open(&path).unwrap();
        let flags = OFlags::WRONLY | OFlags::DIRECT;
        let direct = File::from(open(&path, flags, Mode::empty()).unwrap());
        let mut data = diorite_block::Buf::try_zeroed(4096).unwrap();
        let mut read = [0; 4096];
        for n in 0..256_u64 {
            cached.read_exact_at(&mut read, n * 4096).unwrap();
            data.as_mut_slice().fill(n.to_le_bytes()[0]);
            direct.write_all_at(data.as_slice(), n * 4096).unwrap();
            cached.read_exact_at(&mut read, n * 4096).unwrap();
            assert!(read == *data.as_slice(), "block {n}");
        }
        drop((cached, direct));
        bed.end();
    });
    if !is_on {
        skip(NONE);
    }
}

/// The space of a removed file is there for the next one, though the kernel tells that it is closed by a request like others.
#[test]
fn what_was_removed_is_space_for_the_next_file() {
    let Some(bed) = Bed::new(&[]) else { return };
    let is_on = with_rings(|| {
        bed.mount(&["-o", "io_uring"]);
        let room = rustix::fs::statvfs(&bed.at).unwrap();
        let most = usize::try_from(room.f_bavail * room.f_frsize / 10 * 8).unwrap();
        let data = vec![7; most];
        for n in 0..5 {
            let path = bed.path("large");
            fs::write(&path, &data).unwrap_or_else(|e| panic!("round {n}: {e}"));
            fs::remove_file(&path).unwrap();
        }
        bed.end();
    });
    if !is_on {
        skip(NONE);
    }
}
