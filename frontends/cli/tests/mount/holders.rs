//! A second mount of an image that has a server.
//!
//! Input: mounts under other names, detached, and about to end. Output: none. Invariants: whoever finds a mount in use fails with its
//! place, and does not wait for its end; whoever finds one that ends waits for that. Limits: none of them asserts a time: a mount that
//! waits for one in use is ended by the patience of `bed`, and has no message then.

use crate::bed::{Bed, DIORITE, diorite, said, texts, within};
use crate::common::scratch;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What a second mount of the image says, which fails.
fn refused(bed: &Bed, options: &[&str]) -> String {
    let other = scratch();
    let (image, place) = (bed.image.to_str().unwrap(), other.path().to_str().unwrap());
    let done = diorite(&[&["mount"], options, &[image, place]].concat());
    let (_, err) = texts(&done);
    assert_eq!(done.status.code(), Some(1), "{err}");
    err
}

/// The mount table does not have the image's name.
#[test]
fn a_mount_with_another_source_is_found() {
    let Some(bed) = Bed::new(&[]) else { return };
    bed.mount(&["-o", "fsname=something else"]);
    let hint = format!("it is mounted at {}", bed.at.display());
    for options in [&[][..], &["-o", "fsname=third"]] {
        let err = refused(&bed, options);
        assert!(err.contains(&hint), "{err}");
    }
    bed.end();
}

/// Nor does it have a mount that was detached while somebody used it.
#[test]
fn a_detached_mount_in_use_is_found() {
    let Some(bed) = Bed::of_root("umount -l needs root") else {
        return;
    };
    bed.mount(&[]);
    let mut file = File::create(bed.path("file")).unwrap();
    said("umount", &["-l", bed.at.to_str().unwrap()]);
    assert!(!bed.is_mounted());
    let err = refused(&bed, &[]);
    let hint = format!("its mount at {} is still in use", bed.at.display());
    assert!(err.contains(&hint), "{err}");
    // It goes on for its user, and the next mount has what that wrote.
    file.write_all(b"to the end").unwrap();
    file.sync_all().unwrap();
    drop(file);
    bed.mount(&[]);
    assert_eq!(fs::read(bed.path("file")).unwrap(), b"to the end");
    bed.end();
}

/// umount(8) does not wait for the server; the next mount does, each time.
#[test]
fn mounts_follow_each_other() {
    let Some(bed) = Bed::of_root("umount(8) needs root here") else {
        return;
    };
    for n in 0..20 {
        bed.mount(&["-o", &format!("fsname=number {n}")]);
        for old in 0..n {
            let text = fs::read_to_string(bed.path(&format!("{old}"))).unwrap();
            assert_eq!(text, old.to_string());
        }
        fs::write(bed.path(&format!("{n}")), n.to_string()).unwrap();
        let lazily = if n % 3 == 0 { &["-l"][..] } else { &[] };
        let words = [lazily, &[bed.at.to_str().unwrap()]].concat();
        // A program that another test starts has the files open until it is another program.
        let mut tries = 0;
        while !within("umount", &words).status.success() {
            tries += 1;
            assert!(tries < 100, "the mount stays busy");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    bed.mount(&[]);
    bed.end();
}

/// The defect: who mounted an image read-only that somebody writes was not told, as `ls` and `check` tell it.
#[test]
fn a_read_only_mount_tells_of_a_writer() {
    let Some(bed) = Bed::new(&[]) else { return };
    bed.mount(&[]);
    let other = scratch();
    let (image, place) = (bed.image.to_str().unwrap(), other.path().to_str().unwrap());
    for way in [&["-r"][..], &["-o", "ro"]] {
        let done = diorite(&[&["mount"], way, &[image, place]].concat());
        let (_, err) = texts(&done);
        assert!(done.status.success(), "{err}");
        let warned = "warning: ";
        assert!(
            err.contains(warned) && err.contains("a writer is present"),
            "{err}"
        );
        said(DIORITE, &["umount", place]);
    }
    bed.unmount();
    // Which says nothing.
    bed.mount(&["-r"]);
    bed.end();
}

/// A mount that goes is still being written: a read-only one waits for its end, too. The defect: it had what was written up to then.
#[test]
fn a_read_only_mount_waits_for_one_that_ends() {
    const TRIES: u32 = 10;
    let Some(bed) = Bed::of_root("umount(8) needs root here") else {
        return;
    };
    for n in 0..TRIES {
        bed.mount(&[]);
        let name = n.to_string();
        fs::write(bed.path(&name), "there").unwrap();
        let server = Pid::from_raw(bed.processes_with("--server")[0]).unwrap();
        kill_process(server, Signal::STOP).unwrap();
        said("umount", &["-l", bed.at.to_str().unwrap()]);
        let mounting = Command::new(DIORITE)
            .args(bed.args(&["-r"]))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // The mount must not come before the writer goes on. It waits for one that says nothing for a moment only.
        let began = Instant::now();
        while !bed.is_mounted() && began.elapsed() < Duration::from_millis(800) {
            std::thread::sleep(Duration::from_millis(10));
        }
        kill_process(server, Signal::CONT).unwrap();
        let done = mounting.wait_with_output().unwrap();
        assert!(done.status.success(), "{}", texts(&done).1);
        let is_there = bed.path(&name).exists();
        bed.unmount();
        if is_there {
            return bed.check();
        }
    }
    panic!("what was written is not there in any of {TRIES} mounts");
}

/// Defect: the keeper's socket was named by the numbers of the mount's device alone, so whoever had the name first was asked instead.
#[test]
fn who_takes_a_name_hides_no_keeper() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    let Some(bed) = Bed::new(&[]) else { return };
    bed.mount(&[]);
    let device = fs::metadata(&bed.at).unwrap().dev();
    let device = format!(
        "{}:{}",
        rustix::fs::major(device),
        rustix::fs::minor(device)
    );
    // It hears everybody and answers nobody; before the keeper's in every order.
    let names = [
        format!("diorite-mount/{device}"),
        format!("diorite-mount/{device}/0"),
    ];
    let strangers = names.map(|name| {
        let address = SocketAddr::from_abstract_name(name).unwrap();
        let listener = UnixListener::bind_addr(&address).expect("the keeper has another name");
        let hears = listener.try_clone().unwrap();
        let thread = std::thread::spawn(move || while hears.accept().is_ok() {});
        (listener, thread)
    });
    fs::write(bed.path("file"), b"to the end").unwrap();
    let done = diorite(&["umount", bed.at.to_str().unwrap()]);
    assert_eq!(done.status.code(), Some(0), "{}", texts(&done).1);
    assert!(!bed.is_mounted());
    // The answer was the keeper's: nothing has to be recovered.
    let said = diorite(&["check", bed.image.to_str().unwrap()]);
    assert_eq!(said.status.code(), Some(0), "{}", texts(&said).1);
    bed.mount(&[]);
    assert_eq!(fs::read(bed.path("file")).unwrap(), b"to the end");
    bed.end();
    // The number of the device is another mount's next.
    for (listener, thread) in strangers {
        rustix::net::shutdown(&listener, rustix::net::Shutdown::Both).unwrap();
        thread.join().unwrap();
    }
}
