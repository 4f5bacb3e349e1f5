//! How mounts begin and end.

use crate::bed::{Bed, DIORITE, bytes, diorite, has, is_root, may_mount, said, texts, within};
use crate::common::{scratch, skip};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileExt, symlink};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use xtask::run;

pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn synced(bed: &Bed, name: &str, data: &[u8]) {
    let file = File::create(bed.path(name)).unwrap();
    file.write_all_at(data, 0).unwrap();
    file.sync_all().unwrap();
    File::open(&bed.at).unwrap().sync_all().unwrap();
}

#[test]
fn an_unmounted_image_is_free_and_mounts_again() {
    let Some(bed) = Bed::new(&[]) else { return };
    for n in 0..12 {
        bed.mount(&[]);
        fs::write(bed.path(&format!("{n}")), format!("{n}")).unwrap();
        match n % 2 {
            0 => bed.unmount(),
            // The next mount waits for the server.
            _ if is_root() => drop(said("umount", &[bed.at.to_str().unwrap()])),
            _ => drop(said("fusermount3", &["-u", bed.at.to_str().unwrap()])),
        }
        if n % 2 == 0 {
            bed.check();
        }
    }
    bed.mount(&[]);
    for n in 0..12 {
        assert_eq!(
            bytes(&bed.path(&format!("{n}"))),
            format!("{n}").into_bytes()
        );
    }
    bed.end();
}

/// The pid file and the ready descriptor come when the mount can be used; SIGTERM makes everything durable and unmounts.
#[test]
fn a_signal_ends_it() {
    let Some(bed) = Bed::new(&[]) else { return };
    let pid_file = bed.image.with_extension("pid");
    bed.mount(&["--pid-file", pid_file.to_str().unwrap()]);
    let pid: i32 = fs::read_to_string(&pid_file)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    fs::write(bed.path("file"), vec![9; 100_000]).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
    until("it ends", || bed.processes().is_empty());
    assert!(!bed.is_mounted() && !pid_file.exists());
    bed.check();
    bed.mount(&[]);
    assert!(bytes(&bed.path("file")) == vec![9; 100_000]);
    bed.end();
}

/// A mount that is in use is detached.
#[test]
fn a_signal_ends_it_although_it_is_in_use() {
    let Some(bed) = Bed::new(&[]) else { return };
    let mut keeper = Command::new(DIORITE)
        .args(bed.args(&["-f", "-v"]))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    until("it is mounted", || {
        bed.path("lost+found").exists() || bed.is_mounted()
    });
    let held = File::create(bed.path("held")).unwrap();
    held.write_all_at(b"kept", 0).unwrap();
    kill_process(Pid::from_child(&keeper), Signal::INT).unwrap();
    assert!(keeper.wait().unwrap().success());
    assert!(!bed.is_mounted());
    assert!(held.sync_all().is_err());
    drop(held);
    bed.check();
    bed.mount(&[]);
    assert_eq!(bytes(&bed.path("held")), b"kept");
    bed.end();
}

/// A signal that both processes get, as from a terminal or a service manager, loses nothing of a mount that is in use.
#[test]
fn a_signal_to_all_of_its_processes_loses_nothing() {
    let Some(bed) = Bed::new(&[]) else { return };
    bed.mount(&[]);
    fs::create_dir(bed.path("dir")).unwrap();
    fs::write(bed.path("dir/file"), vec![9; 3_000_000]).unwrap();
    let held = File::open(bed.path("dir")).unwrap();
    let processes = bed.processes();
    assert_eq!(processes.len(), 3);
    for signal in [Signal::INT, Signal::TERM] {
        for pid in &processes {
            let keeper = bed.keepers().contains(pid);
            // The keeper gets one: a second one means that it has waited long enough.
            if !keeper || signal == Signal::INT {
                let _gone = kill_process(Pid::from_raw(*pid).unwrap(), signal);
            }
        }
    }
    until("it ends", || bed.processes().is_empty());
    drop(held);
    bed.mount(&[]);
    assert!(bytes(&bed.path("dir/file")) == vec![9; 3_000_000]);
    bed.end();
}

/// Success of umount means that everything is durable, whatever the mount's source is called, and from wherever it is unmounted.
#[test]
fn an_unmount_waits_for_the_end() {
    let Some(bed) = Bed::new(&[]) else { return };
    for options in ["fsname=a name,rw", "rw"] {
        let image = bed.image.file_name().unwrap().to_str().unwrap();
        let dir = bed.image.parent().unwrap();
        let at = bed.at.to_str().unwrap();
        let mounted = Command::new(DIORITE)
            .current_dir(dir)
            .args(["mount", "-o", options, image, at])
            .status();
        assert!(mounted.unwrap().success());
        for n in 0..300 {
            fs::write(bed.path(&format!("file-{n}")), vec![3; 20_000]).unwrap();
        }
        bed.unmount();
        bed.check();
    }
}

/// An unmount that comes while the keeper has no time is told of the end all the same. It was not, if the mount was gone before the keeper
/// had accepted whoever asked: then the keeper seemed to have been killed.
#[test]
fn an_unmount_is_answered_by_a_keeper_that_is_late() {
    let Some(bed) = Bed::new(&[]) else { return };
    for _ in 0..5 {
        bed.mount(&[]);
        let keeper = Pid::from_raw(bed.keepers()[0]).unwrap();
        kill_process(keeper, Signal::STOP).unwrap();
        let unmount = Command::new(DIORITE)
            .args(["umount", bed.at.to_str().unwrap()])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let began = Instant::now();
        while bed.is_mounted() && began.elapsed() < Duration::from_millis(200) {
            std::thread::sleep(Duration::from_millis(10));
        }
        kill_process(keeper, Signal::CONT).unwrap();
        let done = unmount.wait_with_output().unwrap();
        assert!(done.status.success(), "{}", texts(&done).1);
        bed.check();
    }
}

/// A keeper that is late leaves alone what is mounted at its place by then. The defect: the next mount may have the same device's numbers,
/// and was unmounted.
#[test]
fn a_keeper_that_is_late_leaves_the_next_mount_alone() {
    let Some(bed) = Bed::new(&[]) else { return };
    let continued = |pid| kill_process(Pid::from_raw(pid).unwrap(), Signal::CONT).unwrap();
    bed.mount(&[]);
    fs::write(bed.path("file"), "there").unwrap();
    let keeper = bed.keepers()[0];
    kill_process(Pid::from_raw(keeper).unwrap(), Signal::STOP).unwrap();
    let (umount, words) = match is_root() {
        true => ("umount", &[][..]),
        false => ("fusermount3", &["-u"][..]),
    };
    let words = [words, &[bed.at.to_str().unwrap()]].concat();
    until("it is unmounted", || {
        within(umount, &words).status.success()
    });
    let done = diorite(&bed.args(&[]));
    continued(keeper);
    assert!(done.status.success(), "{}", texts(&done).1);
    until("the keeper ends", || !bed.keepers().contains(&keeper));
    assert_eq!(bytes(&bed.path("file")), b"there");
    bed.end();
}

/// A mount whose host has no further threads for it goes on. The defect: each of its threads waited for what another one had to receive,
/// and nobody could end that.
#[test]
fn a_mount_without_further_threads_does_not_hang() {
    const SCRIPT: &str = r#"
import mmap, os, sys, threading
def seek(n):
    fd = os.open('%s/%d' % (sys.argv[1], n), os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 1 << 22)
    memory = mmap.mmap(fd, 1 << 22)
    for _ in range(20):
        for at in range(0, 1 << 22, 1 << 16):
            memory[at] = 1
        os.lseek(fd, 0, os.SEEK_DATA)
        os.lseek(fd, 0, os.SEEK_HOLE)
        os.ftruncate(fd, 0)
        os.ftruncate(fd, 1 << 22)
threads = [threading.Thread(target=seek, args=(n,)) for n in range(6)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"#;
    for threads in ["max_threads=1", "max_threads=3"] {
        let Some(bed) = Bed::new(&[]) else { return };
        if !has("python3") {
            return;
        }
        bed.mount(&["-o", threads]);
        let server = Pid::from_raw(bed.processes_with("--server")[0]).unwrap();
        let one = Rlimit {
            current: Some(1),
            maximum: Some(1),
        };
        if prlimit(Some(server), Resource::Nproc, one).is_err() {
            return skip("this user may not limit the server");
        }
        // Without a pipe: a process that waits for the mount for ever would keep it open.
        let done = Command::new("timeout")
            .args(["--signal=KILL", "60", "python3", "-c", SCRIPT])
            .arg(&bed.at)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        assert!(done.unwrap().success(), "{threads}");
        bed.end();
    }
}

/// A mount at rest does not keep the processors awake.
#[test]
fn a_mount_at_rest_asks_for_no_latency() {
    /// What the kernel has where nobody asks for one, in microseconds.
    const ANY: i32 = 2_000_000_000;
    let asked = || {
        let mut latency = [0; 4];
        let device = File::open("/dev/cpu_dma_latency");
        let read = device.and_then(|mut device| device.read_exact(&mut latency));
        read.map(|()| i32::from_ne_bytes(latency))
    };
    if asked().is_err() {
        return skip("/dev/cpu_dma_latency is not there for this user");
    }
    let Some(bed) = Bed::new(&[]) else { return };
    if asked().unwrap() != ANY {
        return skip("somebody else asks for a latency");
    }
    bed.mount(&[]);
    until("a new mount rests", || asked().unwrap() == ANY);
    // With one processor it is never asked for.
    for _ in 0..200 {
        for _ in 0..500 {
            rustix::fs::statvfs(&bed.at).unwrap();
        }
        if asked().unwrap() == 0 {
            break;
        }
    }
    until("a mount rests behind requests", || asked().unwrap() == ANY);
    bed.end();
}

/// What is mounted by others is left alone.
#[test]
fn mounts_of_others_are_left_alone() {
    let done = diorite(&["umount", "/proc"]);
    assert_eq!(done.status.code(), Some(1));
    assert!(
        texts(&done).1.contains("its type is proc"),
        "{}",
        texts(&done).1
    );
    assert!(std::path::Path::new("/proc/self").exists());
    let done = diorite(&["mount", "-o", "remount,ro", "x.img", "/proc"]);
    assert_eq!(done.status.code(), Some(1));
    assert!(
        texts(&done).1.contains("no mount of diorite"),
        "{}",
        texts(&done).1
    );
}

/// What was written with O_DIRECT is durable at once where the open file, or the mount, asks for that.
#[test]
fn synchronous_writes_past_the_cache_are_durable() {
    use std::os::unix::fs::OpenOptionsExt;
    for (options, flags) in [
        ("rw", libc::O_DIRECT | libc::O_SYNC),
        ("rw", libc::O_DIRECT | libc::O_DSYNC),
        ("sync", libc::O_DIRECT),
        ("direct_io", libc::O_DSYNC),
    ] {
        let Some(bed) = Bed::new(&[]) else { return };
        bed.mount(&["-o", options]);
        let mut how = File::options();
        how.write(true).create(true).custom_flags(flags);
        let file = how.open(bed.path("file")).unwrap();
        let data = diorite_block::Buf::zeroed(4096);
        for n in 0..3 {
            file.write_all_at(data.as_slice(), n * 4096).unwrap();
        }
        for pid in bed.processes() {
            let _gone = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
        }
        drop(file);
        until("it ends", || bed.processes().is_empty());
        bed.mount(&[]);
        let len = fs::metadata(bed.path("file")).map(|m| m.len());
        assert_eq!(len.ok(), Some(3 * 4096), "{options} {flags:x}");
        bed.end();
    }
}

/// Requests through io_uring, where the kernel has it; otherwise by the device, without a word.
#[test]
fn requests_come_through_io_uring() {
    let Some(bed) = Bed::new(&[]) else { return };
    let serve = || {
        bed.mount(&["-o", "io_uring"]);
        std::thread::scope(|scope| {
            for n in 0..8_u8 {
                let path = bed.path(&format!("file-{n}"));
                scope.spawn(move || {
                    let data = vec![n; 3_000_001];
                    fs::write(&path, &data).unwrap();
                    File::open(&path).unwrap().sync_all().unwrap();
                    assert!(bytes(&path) == data);
                    fs::remove_file(&path).unwrap();
                });
            }
        });
        bed.unmount();
        bed.check();
    };
    if !crate::rings::with_rings(serve) {
        skip(
            "this kernel has no FUSE over io_uring, or it is switched off: only the fallback is tested",
        );
        serve();
    }
}

/// What was synced survives the death of all its processes, and the next mount of the directory takes what they left away.
#[test]
fn a_kill_loses_nothing_that_was_synced() {
    let Some(bed) = Bed::new(&[]) else { return };
    for round in 0..3 {
        bed.mount(&[]);
        let name = format!("file-{round}");
        synced(&bed, &name, &vec![round + 1; 50_000 + usize::from(round)]);
        fs::write(bed.path("unsynced"), vec![7; 10_000]).unwrap();
        for process in bed.processes() {
            // One may end because of another.
            let _ = kill_process(Pid::from_raw(process).unwrap(), Signal::KILL);
        }
        until("they are gone", || bed.processes().is_empty());
    }
    bed.mount(&[]);
    for round in 0..3_u8 {
        let there = bytes(&bed.path(&format!("file-{round}")));
        assert!(there == vec![round + 1; 50_000 + usize::from(round)]);
    }
    bed.end();
}

/// The server alone is killed: the keeper unmounts, and says so.
#[test]
fn a_dead_server_leaves_no_mount() {
    let Some(bed) = Bed::new(&[]) else { return };
    let keeper = Command::new(DIORITE)
        .args(bed.args(&["-f"]))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let server = || bed.processes_with("--server=").first().copied();
    until("it is mounted", || bed.is_mounted() && server().is_some());
    synced(&bed, "file", b"there");
    kill_process(Pid::from_raw(server().unwrap()).unwrap(), Signal::KILL).unwrap();
    let done = keeper.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(1));
    assert!(texts(&done).1.contains("signal 9"), "{}", texts(&done).1);
    assert!(!bed.is_mounted());
    bed.mount(&[]);
    assert_eq!(bytes(&bed.path("file")), b"there");
    bed.end();
}

#[test]
fn what_cannot_be_mounted_says_why() {
    let Some(bed) = Bed::new(&[]) else { return };
    bed.mount(&[]);
    let fails = |args: &[&str], why: &str| {
        let done = diorite(args);
        let (_, err) = texts(&done);
        assert_eq!(done.status.code(), Some(1), "{args:?}: {err}");
        assert!(err.contains(why), "{args:?}: {err}");
    };
    let (dir, at) = (scratch(), bed.at.to_str().unwrap());
    let (place, image) = (dir.path().to_str().unwrap(), bed.image.to_str().unwrap());
    fails(&["mount", image, place], &format!("it is mounted at {at}"));
    let zeros = dir.path().join("zeros");
    fs::write(&zeros, vec![0; 1 << 20]).unwrap();
    let empty = bed.image.parent().unwrap().join("empty");
    fs::create_dir(&empty).unwrap();
    let empty = empty.to_str().unwrap();
    fails(&["mount", "/no/such/image", empty], "/no/such/image");
    fails(&["mount", zeros.to_str().unwrap(), empty], "magic");
    fails(
        &["mount", image, "/no/such/place"],
        "/no/such/place: No such file or directory",
    );
    fails(
        &["mount", zeros.to_str().unwrap(), zeros.to_str().unwrap()],
        "not a directory",
    );
    fails(
        &["mount", zeros.to_str().unwrap(), place],
        "lies below the mount point",
    );
    fails(&["umount", empty], empty);
    // Its journal, too.
    let journal = ["--journal", zeros.to_str().unwrap()];
    fails(
        &[&["mount"], &journal[..], &[image, place]].concat(),
        "lies below the mount point",
    );
    bed.end();
}

/// An image that is mounted is found under another name, at once: no mount waits for the end of one that lasts.
#[test]
fn an_image_is_mounted_once_whatever_it_is_called() {
    let Some(bed) = Bed::new(&[]) else { return };
    let (dir, other) = (bed.image.parent().unwrap(), scratch());
    let (at, place) = (bed.at.to_str().unwrap(), other.path().to_str().unwrap());
    let link = dir.join("link.img");
    symlink(&bed.image, &link).unwrap();
    let mounts = |locator: &str, at: &str| {
        Command::new("timeout")
            .args(["--signal=KILL", "30", DIORITE, "mount", locator, at])
            .current_dir(dir)
            .output()
            .unwrap()
    };
    let image = bed.image.to_str().unwrap();
    let with_offset = format!("{image}?offset=0");
    let inside = format!("{image}!/inner.img");
    for first in ["disk.img", "./link.img", image] {
        assert!(mounts(first, at).status.success());
        for second in [
            "disk.img",
            "./disk.img",
            "link.img",
            image,
            &with_offset,
            &inside,
        ] {
            let done = mounts(second, place);
            let (_, err) = texts(&done);
            assert_eq!(done.status.code(), Some(1), "{first} {second}: {err}");
            let hint = format!("it is mounted at {at}");
            assert!(err.contains(&hint), "{first} {second}: {err}");
        }
        bed.unmount();
    }
    bed.check();
}

/// Names that are no text: of a mount point they are taken, of an image refused in words.
#[test]
fn names_that_are_no_text() {
    use std::os::unix::ffi::OsStrExt;
    let Some(bed) = Bed::new(&[]) else { return };
    let odd = std::ffi::OsStr::from_bytes(b"odd \xff,\\");
    let place = bed.image.with_file_name(odd);
    fs::create_dir(&place).unwrap();
    let run = |args: &[&std::ffi::OsStr]| {
        let mut command = Command::new("timeout");
        let command = command.args(["--signal=KILL", "30", DIORITE]).args(args);
        command.output().unwrap()
    };
    let image = bed.image.as_os_str();
    let done = run(&["mount".as_ref(), image, place.as_os_str()]);
    assert!(done.status.success(), "{}", texts(&done).1);
    fs::write(place.join("file"), "x").unwrap();
    let done = run(&["umount".as_ref(), place.as_os_str()]);
    assert!(done.status.success(), "{}", texts(&done).1);
    for wrong in [&[odd][..], &["mount".as_ref(), odd, bed.at.as_os_str()]] {
        let done = run(wrong);
        assert_eq!(done.status.code(), Some(2), "{}", texts(&done).1);
    }
    bed.check();
}

#[test]
fn an_image_inside_an_image_is_mounted() {
    let Some(bed) = Bed::new(&[]) else { return };
    let dir = scratch();
    let inner = dir.path().join("inner.img");
    run::run(
        "mke2fs",
        &["-q", "-F", "-t", "ext4", inner.to_str().unwrap(), "16M"],
    )
    .unwrap();
    said(
        DIORITE,
        &[
            "put",
            bed.image.to_str().unwrap(),
            inner.to_str().unwrap(),
            "/inner.img",
        ],
    );
    let locator = format!("{}!/inner.img", bed.image.display());
    let at = bed.at.to_str().unwrap();
    said(DIORITE, &["mount", "-o", "fakeroot", &locator, at]);
    fs::write(bed.path("file"), "inside").unwrap();
    bed.unmount();
    bed.check();
    assert_eq!(said(DIORITE, &["cat", &locator, "/file"]), "inside");
}

/// A device that fails below turns the mount read-only.
#[test]
fn an_image_that_vanishes_is_an_error_and_no_hang() {
    if !may_mount() {
        return;
    }
    let Some(bed) = Bed::new(&[]) else { return };
    bed.mount(&[]);
    fs::write(bed.path("file"), vec![1; 100_000]).unwrap();
    // The file is cut off below the mount: reads and writes behind its end fail or extend it, and nothing hangs.
    File::options()
        .write(true)
        .open(&bed.image)
        .unwrap()
        .set_len(1 << 20)
        .unwrap();
    let wrote = File::create(bed.path("more")).and_then(|file| {
        file.write_all_at(&[2; 1 << 20], 0)?;
        file.sync_all()
    });
    let listed = fs::read_dir(&bed.at).map(Iterator::count);
    let _ = (wrote, listed);
    within(DIORITE, &["umount", bed.at.to_str().unwrap()]);
    until("it ends", || bed.processes().is_empty());
    assert!(!bed.is_mounted());
}

/// In a container that shares the session of its host, the number of the session is 0. With the host's /proc beside it, as a
/// container without a /proc of its own has it, no process finds itself there either.
#[test]
fn a_session_begins_outside_of_the_container() {
    let Some(bed) = Bed::of_root("PID namespaces are root's") else {
        return;
    };
    let (image, at) = (bed.image.to_str().unwrap(), bed.at.to_str().unwrap());
    let script = r#"set -e
        "$0" mount "$1" "$2"; echo kept > "$2/file"; umount "$2"
        "$0" mount --foreground "$1" "$2" & until mountpoint -q "$2"; do sleep 0.01; done
        cat "$2/file"; umount "$2"; wait"#;
    for proc in ["--mount-proc", "--fork"] {
        let args = [
            "--pid", "--fork", proc, "sh", "-c", script, DIORITE, image, at,
        ];
        assert_eq!(said("unshare", &args), "kept\n", "{proc}");
        bed.check();
    }
}
