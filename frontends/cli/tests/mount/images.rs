//! What a mount is made of: images named by descriptors, journals that are not replayed, few descriptors.
//!
//! Input: images. Output: none. Invariants: what other commands take as an image, a mount takes; what is only busy fails for nobody.
//! Limits: none of its own.

use crate::bed::{Bed, DIORITE, diorite, has, is_root, said, texts, within};
use crate::common::skip;
use crate::life::until;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

/// The defect: the processes of the mount were not started with the descriptor, or closed it.
#[test]
fn an_image_is_named_by_a_descriptor() {
    let Some(bed) = Bed::new(&[]) else { return };
    let (image, at) = (bed.image.to_str().unwrap(), bed.at.to_str().unwrap());
    let mut n = 0;
    for (path, redirection) in [
        ("/proc/self/fd/9", "9<>"),
        ("/dev/fd/7", "7<>"),
        ("/dev/stdin", "0<>"),
    ] {
        for foreground in ["", "-f"] {
            let script =
                format!("exec {redirection}\"$2\"; exec \"$1\" mount {foreground} {path} \"$3\"");
            match foreground {
                "" => drop(said("sh", &["-c", &script, "sh", DIORITE, image, at])),
                _ => {
                    let script = format!("( {script} ) >&- 2>&- &");
                    said("sh", &["-c", &script, "sh", DIORITE, image, at]);
                    until("it is mounted", || bed.is_mounted());
                }
            }
            n += 1;
            fs::write(bed.path(&format!("{n}")), path).unwrap();
            // The mount table names what others can open.
            let line = bed.mountinfo().unwrap();
            assert!(line.contains(&format!(" {image} ")), "{line}");
            bed.unmount();
            until("it ends", || bed.processes().is_empty());
            bed.check();
        }
    }
    // A file without a name has no path.
    let copy = bed.image.with_file_name("copy");
    fs::copy(&bed.image, &copy).unwrap();
    let script = "exec 5<>\"$2\"; rm \"$2\"; exec \"$1\" mount /proc/self/fd/5 \"$3\"";
    said(
        "sh",
        &["-c", script, "sh", DIORITE, copy.to_str().unwrap(), at],
    );
    assert_eq!(
        fs::read_to_string(bed.path("1")).unwrap(),
        "/proc/self/fd/9"
    );
    bed.unmount();
    bed.mount(&[]);
    bed.end();
}

/// As the kernel's ext4: read-only without what the log holds; for writing only if it holds nothing.
#[test]
fn a_journal_is_not_replayed() {
    let Some(bed) = Bed::new(&[]) else { return };
    for word in ["norecovery", "noload"] {
        bed.mount(&["-o", word]);
        fs::write(bed.path(word), "x").unwrap();
        File::open(bed.path(word)).unwrap().sync_all().unwrap();
        // The server first: it would end well if it heard of the others' end.
        for pid in [bed.processes_with("--server="), bed.processes()].concat() {
            let _gone = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
        }
        until("they are gone", || bed.processes().is_empty());
        within("umount", &["-l", bed.at.to_str().unwrap()]);
        let before = fs::read(&bed.image).unwrap();
        let refused = diorite(&bed.args(&["-o", word]));
        let why = texts(&refused).1;
        assert_eq!(refused.status.code(), Some(1), "{why}");
        assert!(why.contains("its journal has to be replayed"), "{why}");
        let done = diorite(&bed.args(&["-o", &format!("ro,{word}")]));
        assert!(done.status.success(), "{}", texts(&done).1);
        assert!(!bed.path(word).exists(), "it is in the log only");
        // Others may not ask for it.
        if is_root() && has("fstrim") {
            let refused = within("fstrim", &[bed.at.to_str().unwrap()]);
            assert!(texts(&refused).1.contains("Read-only file system"));
        }
        bed.unmount();
        assert!(
            before == fs::read(&bed.image).unwrap(),
            "nothing is written"
        );
        // With it, everything is there.
        bed.mount(&[]);
        assert_eq!(fs::read_to_string(bed.path(word)).unwrap(), "x");
        bed.unmount();
        bed.check();
    }
}

/// Requests that find no descriptor for a queue are served without one. The defect: four of five failed with EIO.
#[test]
fn few_descriptors_fail_no_request() {
    const SCRIPT: &str = r#"
import os, sys, threading
failed = []
def run(n):
    for i in range(15):
        try:
            file = os.open('%s/f%d' % (sys.argv[1], n), os.O_RDWR | os.O_CREAT)
            try:
                os.pwrite(file, b'y' * 5001, i % 7 * 65536)
                os.fsync(file)
                os.pread(file, 9000, 60000)
            finally:
                os.close(file)
        except OSError as error:
            failed.append(error)
threads = [threading.Thread(target=run, args=(n,)) for n in range(60)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(failed[:5], len(failed))
"#;
    if !has("python3") {
        return;
    }
    for limit in ["ulimit -n 40", "ulimit -Sn 24"] {
        let Some(bed) = Bed::new(&[]) else { return };
        let (image, at) = (bed.image.to_str().unwrap(), bed.at.to_str().unwrap());
        let script = format!("{limit}; exec \"$1\" mount \"$2\" \"$3\"");
        said("sh", &["-c", &script, "sh", DIORITE, image, at]);
        let server = bed.processes_with("--server")[0];
        let limits = fs::read_to_string(format!("/proc/{server}/limits")).unwrap();
        let line = limits
            .lines()
            .find(|line| line.starts_with("Max open files"));
        let words: Vec<_> = line.unwrap().split_whitespace().collect();
        assert_eq!(words[3], words[4], "the soft limit is the hard one");
        assert_eq!(
            said("python3", &["-c", SCRIPT, at]).trim(),
            "[] 0",
            "{limit}"
        );
        bed.end();
    }
}

/// A mount that was made read-only becomes writable, as the kernel's ext4: with its options, in the same processes' place, and files that a
/// killed writer had removed are deleted then. Whoever uses it keeps it as it is, and so does an image that may not be written.
#[test]
fn a_read_only_mount_becomes_writable() {
    let Some(bed) = Bed::of_root("a remount needs root") else {
        return;
    };
    let pid_file = bed.image.with_extension("pid");
    let pid = || fs::read_to_string(&pid_file).unwrap();
    bed.mount(&[]);
    let space = || rustix::fs::statvfs(&bed.at).unwrap().f_bfree;
    let empty = space();
    let removed = File::create(bed.path("removed")).unwrap();
    removed.write_all_at(&[1; 1 << 20], 0).unwrap();
    fs::remove_file(bed.path("removed")).unwrap();
    File::open(&bed.at).unwrap().sync_all().unwrap();
    for pid in bed.processes() {
        let _gone = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
    }
    until("they are gone", || bed.processes().is_empty());
    drop(removed);
    let options = [
        "-r",
        "-o",
        "lazytime",
        "--pid-file",
        pid_file.to_str().unwrap(),
    ];
    // Which is said.
    said(DIORITE, &bed.args(&options));
    let keeper = pid();
    assert_ne!(space(), empty, "the removed file is there");
    let remount = |words: &str| diorite(&bed.args(&["-o", words]));
    let user = File::open(bed.path("lost+found")).unwrap();
    let done = remount("remount,rw");
    assert_eq!(done.status.code(), Some(1));
    let why = texts(&done).1;
    assert!(why.contains("in use") && why.contains("read-only"), "{why}");
    assert!(bed.is_mounted() && fs::write(bed.path("new"), "x").is_err());
    drop(user);
    // Mounted elsewhere, too, it would not end. The defect: the mount was gone, and nobody made it anew.
    let beside = bed.at.with_file_name("beside");
    fs::create_dir(&beside).unwrap();
    said(
        "mount",
        &["--bind", bed.at.to_str().unwrap(), beside.to_str().unwrap()],
    );
    let done = remount("remount,rw");
    let why = texts(&done).1;
    assert!(
        done.status.code() == Some(1) && why.contains("in use"),
        "{why}"
    );
    assert!(bed.is_mounted() && bed.path("lost+found").exists());
    said("umount", &[beside.to_str().unwrap()]);
    // What does not fit changes nothing.
    assert_eq!(remount("remount,rw,data=journal").status.code(), Some(1));
    let done = remount("remount,rw,lazytime,noexec");
    assert!(done.status.success(), "{}", texts(&done).1);
    assert_eq!(pid(), keeper, "the process is the same");
    assert!(bed.mountinfo().unwrap().contains(" rw,noexec"));
    assert_eq!(space(), empty);
    fs::write(bed.path("new"), "x").unwrap();
    for words in ["remount,ro", "remount,rw", "remount,rw"] {
        assert!(remount(words).status.success(), "{words}");
    }
    fs::write(bed.path("new"), "y").unwrap();
    bed.unmount();
    assert!(!pid_file.exists());
    bed.check();
    // An image that may not be written.
    bed.mount(&["-r"]);
    let image = bed.image.to_str().unwrap();
    let immutable = within("chattr", &["+i", image]);
    if immutable.status.success() {
        let done = remount("remount,rw");
        let why = texts(&done).1;
        assert_eq!(done.status.code(), Some(1), "{why}");
        assert!(
            why.contains("cannot open") && why.contains("it stays read-only"),
            "{why}"
        );
        until("it is mounted as before", || bed.path("new").exists());
        within("chattr", &["-i", image]);
        assert!(fs::write(bed.path("new"), "z").is_err());
    } else {
        skip("this file system has no immutable files");
    }
    bed.end();
}

/// The defect: an image that its locator says is only read could not be mounted without -r, and the message did not say so.
#[test]
fn a_locator_that_says_read_only_is_mounted_so() {
    for more in [&[][..], &["-o", "rw"]] {
        let Some(mut bed) = Bed::new(&[]) else { return };
        let image = bed.image.clone();
        let before = fs::read(&image).unwrap();
        bed.image = format!("{}?ro", image.display()).into();
        bed.mount(more);
        let error = File::create(bed.path("file")).unwrap_err();
        let ro = rustix::io::Errno::ROFS.raw_os_error();
        assert_eq!(error.raw_os_error(), Some(ro));
        if is_root() {
            let done = diorite(&bed.args(&["-o", "remount,rw"]));
            let why = texts(&done).1;
            let is_told = why.contains("its locator says ?ro");
            assert!(done.status.code() == Some(1) && is_told, "{why}");
            assert!(bed.is_mounted() && fs::read_dir(&bed.at).is_ok());
        }
        assert!(fs::read(&image).unwrap() == before);
        bed.image = image;
        bed.end();
    }
}
