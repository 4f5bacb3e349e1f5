//! What is easily forgotten: the time of creation, labels and generations, flags of mapped files, whiteouts, reserved blocks, lazytime.

use crate::bed::{Bed, DIORITE, has, is_root, said, within};
use crate::common::skip;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};

/// The time of creation is passed on, and stays.
#[test]
fn the_time_of_creation_is_shown() {
    let Some(bed) = Bed::new(&[]) else { return };
    bed.mount(&[]);
    fs::write(bed.path("file"), "x").unwrap();
    let born = || {
        let path = bed.path("file");
        let shown = said("stat", &["-c", "%W %w", path.to_str().unwrap()]);
        let seconds: u64 = shown.split(' ').next().unwrap().parse().unwrap();
        assert!(seconds > 1_700_000_000, "{shown}");
        shown
    };
    let first = born();
    fs::write(bed.path("file"), "more").unwrap();
    fs::rename(bed.path("file"), bed.path("other")).unwrap();
    fs::rename(bed.path("other"), bed.path("file")).unwrap();
    assert_eq!(born(), first);
    bed.unmount();
    bed.mount(&[]);
    assert_eq!(born(), first);
    bed.end();
}

/// The word is known, and times are still right after a mount.
#[test]
fn lazytime_loses_no_time() {
    let Some(bed) = Bed::new(&[]) else { return };
    bed.mount(&["-o", "lazytime"]);
    let file = File::create(bed.path("file")).unwrap();
    let past = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
    file.set_modified(past).unwrap();
    file.write_all_at(b"x", 0).unwrap();
    let written = file.metadata().unwrap().modified().unwrap();
    assert!(written > past);
    drop(file);
    bed.unmount();
    bed.mount(&["-o", "nolazytime"]);
    let seen = fs::metadata(bed.path("file")).unwrap().modified().unwrap();
    assert_eq!(seen, written);
    bed.end();
}

/// Runs a script of python3 with the mount point as its argument.
fn python(bed: &Bed, script: &str) -> String {
    said("python3", &["-c", script, bed.at.to_str().unwrap()])
}

#[test]
fn a_label_is_read_and_set() {
    let Some(bed) = Bed::new(&["-L", "before"]) else {
        return;
    };
    if !has("python3") {
        return;
    }
    let get = "import fcntl,os,sys\nfd=os.open(sys.argv[1],os.O_RDONLY)\n\
        print(fcntl.ioctl(fd,0x81009431,bytes(256)).split(b'\\0')[0].decode())\n";
    let set = |label: &str| {
        format!(
            "import fcntl,os,sys\nfd=os.open(sys.argv[1],os.O_RDONLY)\n\
             try: fcntl.ioctl(fd,0x41009432,b'{label}'.ljust(256,b'\\0'))\nexcept OSError as e: print(e.errno)\n"
        )
    };
    bed.mount(&[]);
    assert_eq!(python(&bed, get), "before\n");
    if !is_root() {
        assert_eq!(python(&bed, &set("mine")), format!("{}\n", libc::EPERM));
        bed.end();
        return skip("only root sets a label");
    }
    assert_eq!(python(&bed, &set("after")), "");
    assert_eq!(python(&bed, get), "after\n");
    let long = python(&bed, &set("more than 16 bytes"));
    assert_eq!(long, format!("{}\n", libc::EINVAL));
    bed.unmount();
    bed.check();
    let image = bed.image.to_str().unwrap();
    assert_eq!(said(DIORITE, &["label", image]), "after\n");
    bed.mount(&["-o", "ro"]);
    assert_eq!(python(&bed, get), "after\n");
    let refused = python(&bed, &set("other"));
    assert_eq!(refused, format!("{}\n", libc::EROFS));
    bed.end();
}

/// FS_IOC_GETVERSION, which lsattr asks for: what the inode has on disk. Its number says eight bytes, but ext4 writes four, and lsattr has
/// room for four.
#[test]
fn a_generation_is_read() {
    let Some(bed) = Bed::new(&[]) else { return };
    if !has("lsattr") {
        return;
    }
    bed.mount(&[]);
    fs::write(bed.path("file"), "x").unwrap();
    let shown = said("lsattr", &["-v", bed.path("file").to_str().unwrap()]);
    let shown: u32 = shown.split_whitespace().next().unwrap().parse().unwrap();
    // With checksums of metadata there is no FS_IOC_SETVERSION, as on ext4.
    let set = r#"
import fcntl, os, struct, sys
try: fcntl.ioctl(os.open(sys.argv[1] + "/file", os.O_RDWR), 0x40087602, struct.pack("q", 7))
except OSError as error: print(error.errno)
"#;
    if has("python3") {
        assert_eq!(python(&bed, set), format!("{}\n", libc::ENOTTY));
    }
    bed.unmount();
    bed.check();
    let stat = crate::common::debugfs(bed.image.to_str().unwrap(), "stat /file");
    let on_disk = stat.split("Generation: ").nth(1).unwrap();
    let on_disk: u32 = on_disk.split_whitespace().next().unwrap().parse().unwrap();
    assert_eq!(shown, on_disk);
}

/// What a mapping changed was written back behind the flag, and refused: it was lost, and fsync failed.
#[test]
fn what_a_mapping_changed_outlives_a_flag() {
    let Some(bed) = Bed::of_root("only root makes files immutable") else {
        return;
    };
    if !has("python3") {
        return;
    }
    let script = r#"
import fcntl, mmap, os, struct, sys
fds = []
for flag in [0x10, 0x20]:
    fd = os.open(f"{sys.argv[1]}/file-{flag}", os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, bytes(3 << 20), 0)
    mapping = mmap.mmap(fd, 3 << 20)
    mapping[0:4] = mapping[2 << 20:(2 << 20) + 4] = b"kept"
    fcntl.ioctl(fd, 0x40086602, struct.pack("q", 0x80000 | flag))
    os.fsync(fd)
    fds.append((fd, mapping))
open("/proc/sys/vm/drop_caches", "w").write("1")
for fd, mapping in fds:
    print(os.pread(fd, 4, 0), os.pread(fd, 4, 2 << 20))
    fcntl.ioctl(fd, 0x40086602, struct.pack("q", 0x80000))
"#;
    bed.mount(&[]);
    assert_eq!(python(&bed, script), "b'kept' b'kept'\n".repeat(2));
    bed.end();
}

/// A whiteout belonged to whoever had mounted.
#[test]
fn a_whiteout_belongs_to_its_maker() {
    let Some(bed) = Bed::of_root("two users of a mount need root") else {
        return;
    };
    if !has("python3") {
        return;
    }
    let script = r#"
import ctypes, os, sys
os.chdir(sys.argv[1])
for name, mode in [("plain", 0o777), ("group", 0o2777)]:
    os.mkdir(name)
    os.chown(name, 0, 55)
    os.chmod(name, mode)
os.setgroups([])
os.setresgid(77, 77, 77)
os.setresuid(66, 66, 66)
for name in ["plain", "group"]:
    open(name + "/old", "w")
    WHITEOUT = 4
    done = ctypes.CDLL(None).renameat2(-100, f"{name}/old".encode(), -100, f"{name}/new".encode(), WHITEOUT)
    left = os.lstat(name + "/old")
    print(done, oct(left.st_mode), left.st_rdev, left.st_uid, left.st_gid)
"#;
    bed.open_to_all();
    bed.mount(&["-o", "allow_other"]);
    let said = python(&bed, script);
    assert_eq!(said, "0 0o20000 0 66 77\n0 0o20000 0 66 55\n");
    bed.end();
}

/// What root mounts, all use; the blocks that are reserved are still root's alone.
#[test]
fn reserved_blocks_are_for_root() {
    if !is_root() {
        return skip("two users of a mount need root");
    }
    let Some(bed) = Bed::new(&["-m", "20"]) else {
        return;
    };
    bed.open_to_all();
    bed.mount(&[]);
    fs::set_permissions(&bed.at, fs::Permissions::from_mode(0o777)).unwrap();
    let by_others = |command: &str| {
        let args = [
            "--reuid=12345",
            "--regid=12345",
            "--clear-groups",
            "sh",
            "-c",
        ];
        let place = bed.at.to_str().unwrap();
        within("setpriv", &[&args[..], &[command, "sh", place]].concat())
    };
    let filled = by_others("dd if=/dev/zero of=$1/theirs bs=100k");
    assert!(!filled.status.success());
    let size = fs::metadata(bed.path("theirs")).unwrap().len();
    assert!((35 << 20..46 << 20).contains(&size), "{size}");
    // What they have they may change; more they do not get, in no way.
    let may = "dd if=/dev/zero of=$1/theirs bs=1M count=8 conv=notrunc";
    assert!(by_others(may).status.success());
    for more in [
        "dd if=/dev/zero of=$1/theirs bs=1M count=1 oflag=append conv=notrunc",
        "dd if=/dev/zero of=$1/more bs=1M count=1 oflag=direct",
        "fallocate -l 1M $1/more",
        "cp --reflink=never $1/theirs $1/more",
    ] {
        assert!(!by_others(more).status.success(), "{more}");
    }
    fs::write(bed.path("ours"), vec![1; 8 << 20]).unwrap();
    File::open(bed.path("ours")).unwrap().sync_all().unwrap();
    assert!(
        by_others("rm $1/theirs && dd if=/dev/zero of=$1/more bs=1M count=20")
            .status
            .success()
    );
    bed.end();
}
