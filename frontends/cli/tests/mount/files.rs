//! Data, names and attributes, as of the kernel's ext4.

use crate::bed::{Bed, bytes, has, is_root, said};
use crate::common::skip;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, RenameFlags, SeekFrom, XattrFlags,
};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};

fn open(bed: &Bed, name: &str) -> File {
    let mut options = File::options();
    let options = options.read(true).write(true).create(true).truncate(false);
    options.open(bed.path(name)).unwrap()
}

/// Data at odd places, holes, sizes, with and without the kernel's cache, while the engine has pages of the last block.
#[test]
fn data_is_where_it_was_written() {
    for options in [&[][..], &["-o", "direct_io"], &["-o", "nowriteback_cache"]] {
        let Some(bed) = Bed::new(&["-b", "1024"]) else {
            return;
        };
        bed.mount(options);
        let file = open(&bed, "file");
        let mut model = vec![0_u8; 300_000];
        let writes = [
            (0, 100),
            (5000, 77),
            (99_999, 4097),
            (4095, 2),
            (131_072, 65_536),
            (299_000, 1000),
        ];
        for (n, (at, len)) in writes.into_iter().enumerate() {
            let data = vec![n as u8 + 1; len];
            file.write_all_at(&data, at as u64).unwrap();
            model[at..at + len].copy_from_slice(&data);
        }
        assert_eq!(file.metadata().unwrap().len(), 300_000);
        assert!(bytes(&bed.path("file")) == model, "{options:?}");
        file.sync_all().unwrap();
        file.set_len(5001).unwrap();
        file.set_len(9000).unwrap();
        model.truncate(5001);
        model.resize(9000, 0);
        assert!(bytes(&bed.path("file")) == model, "{options:?}");
        drop(file);
        bed.unmount();
        bed.check();
        bed.mount(options);
        assert!(
            bytes(&bed.path("file")) == model,
            "{options:?}: after a mount"
        );
        bed.end();
    }
}

/// O_DIRECT in sectors; a byte is refused nowhere, but goes another way.
#[test]
fn direct_and_cached_opens_see_the_same() {
    let Some(bed) = Bed::new(&["-b", "4096"]) else {
        return;
    };
    bed.mount(&[]);
    let path = bed.path("file");
    fs::write(&path, vec![1; 65_536]).unwrap();
    let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
    let direct = File::from(rustix::fs::open(&path, flags, Mode::empty()).unwrap());
    let cached = open(&bed, "file");
    let mut buf = diorite_block::Buf::zeroed(8192);
    buf.as_mut_slice().fill(2);
    direct.write_all_at(buf.as_slice(), 4096).unwrap();
    let mut back = vec![0; 65_536];
    cached.read_exact_at(&mut back, 0).unwrap();
    assert!(back[4096..12_288].iter().all(|b| *b == 2) && back[..4096].iter().all(|b| *b == 1));
    cached.write_all_at(&[3; 100], 5000).unwrap();
    direct
        .read_exact_at(&mut buf.as_mut_slice()[..4096], 4096)
        .unwrap();
    assert!(buf.as_slice()[904..1004].iter().all(|b| *b == 3));
    drop((direct, cached));
    bed.end();
}

#[test]
fn appends_of_several_threads_are_all_there() {
    let Some(bed) = Bed::new(&[]) else { return };
    bed.mount(&[]);
    let path = bed.path("log");
    std::thread::scope(|scope| {
        for n in 0..4_u8 {
            let mut file = File::options()
                .append(true)
                .create(true)
                .open(&path)
                .unwrap();
            scope.spawn(move || {
                for _ in 0..300 {
                    file.write_all(&[b'a' + n; 37]).unwrap();
                }
            });
        }
    });
    let all = bytes(&path);
    assert_eq!(all.len(), 4 * 300 * 37);
    for record in all.chunks(37) {
        assert!(record.iter().all(|b| *b == record[0]));
    }
    bed.end();
}

#[test]
fn space_is_allocated_punched_and_found() {
    let Some(bed) = Bed::new(&["-b", "4096"]) else {
        return;
    };
    bed.mount(&[]);
    let file = open(&bed, "file");
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 1 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 1 << 20);
    assert_eq!(file.metadata().unwrap().blocks(), 2048);
    file.write_all_at(&[7; 65_536], 0).unwrap();
    file.sync_all().unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, punch, 8192, 8192).unwrap();
    rustix::fs::fallocate(&file, FallocateFlags::ZERO_RANGE, 20_480, 4096).unwrap();
    let mut back = vec![0; 65_536];
    file.read_exact_at(&mut back, 0).unwrap();
    let is_zero = |n: usize| (8192..16_384).contains(&n) || (20_480..24_576).contains(&n);
    assert!((0..65_536).all(|n| (back[n] == 0) == is_zero(n)));
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Hole(0)), Ok(8192));
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(8192)), Ok(16_384));
    assert_eq!(
        rustix::fs::seek(&file, SeekFrom::Data(1 << 20)),
        Err(Errno::NXIO)
    );
    let copy = open(&bed, "copy");
    let copied = rustix::fs::copy_file_range(&file, Some(&mut 0), &copy, Some(&mut 0), 65_536);
    assert_eq!(copied, Ok(65_536));
    assert!(bytes(&bed.path("copy")) == back);
    drop((file, copy));
    bed.end();
}

#[test]
fn names_are_made_moved_and_removed() {
    let Some(bed) = Bed::new(&[]) else { return };
    bed.mount(&[]);
    let at = |name: &str| bed.path(name);
    fs::write(at("a"), "a").unwrap();
    fs::hard_link(at("a"), at("b")).unwrap();
    assert_eq!(fs::metadata(at("a")).unwrap().nlink(), 2);
    fs::write(at("c"), "c").unwrap();
    let rename =
        |from: &str, to: &str, flags| rustix::fs::renameat_with(CWD, at(from), CWD, at(to), flags);
    assert_eq!(rename("a", "c", RenameFlags::NOREPLACE), Err(Errno::EXIST));
    rename("a", "c", RenameFlags::EXCHANGE).unwrap();
    assert_eq!(
        (bytes(&at("a")), bytes(&at("c"))),
        (b"c".to_vec(), b"a".to_vec())
    );
    fs::rename(at("a"), at("c")).unwrap();
    assert_eq!(bytes(&at("c")), b"c");
    assert_eq!(fs::metadata(at("b")).unwrap().nlink(), 1);
    symlink("b", at("link")).unwrap();
    assert_eq!(fs::read_link(at("link")).unwrap().to_str(), Some("b"));
    fs::create_dir_all(at("x/y")).unwrap();
    assert_eq!(fs::metadata(at("x")).unwrap().nlink(), 3);
    let removed = rustix::fs::unlinkat(CWD, at("x"), AtFlags::REMOVEDIR);
    assert_eq!(removed, Err(Errno::NOTEMPTY));
    let long = "n".repeat(256);
    assert_eq!(
        rustix::fs::mkdir(at(&long), Mode::RWXU),
        Err(Errno::NAMETOOLONG)
    );
    fs::create_dir(at(&long[1..])).unwrap();
    let fifo = rustix::fs::mknodat(CWD, at("fifo"), FileType::Fifo, Mode::RUSR, 0);
    fifo.unwrap();
    // Without a name: it is there until it is closed.
    let mut gone = open(&bed, "gone");
    gone.write_all(b"still here").unwrap();
    fs::remove_file(at("gone")).unwrap();
    assert_eq!(gone.metadata().unwrap().nlink(), 0);
    let mut back = [0; 10];
    gone.read_exact_at(&mut back, 0).unwrap();
    assert_eq!(&back, b"still here");
    drop(gone);
    let temporary = rustix::fs::open(
        &bed.at,
        OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC,
        Mode::RUSR,
    );
    let temporary = File::from(temporary.unwrap());
    temporary.write_all_at(b"named later", 0).unwrap();
    let of = format!("/proc/self/fd/{}", temporary.as_raw_fd());
    rustix::fs::linkat(CWD, of, CWD, at("named"), AtFlags::SYMLINK_FOLLOW).unwrap();
    assert_eq!(bytes(&at("named")), b"named later");
    drop(temporary);
    bed.end();
}

/// A listing that is under way while its names are removed ends, and shows what stays.
#[test]
fn a_directory_is_listed_while_it_is_emptied() {
    let Some(bed) = Bed::new(&["-N", "4096"]) else {
        return;
    };
    bed.mount(&[]);
    let names: BTreeSet<String> = (0..3000)
        .map(|n| format!("{n:05}-{}", "x".repeat(40)))
        .collect();
    fs::create_dir(bed.path("dir")).unwrap();
    for name in &names {
        File::create(bed.path("dir").join(name)).unwrap();
    }
    let list = || -> BTreeSet<String> {
        let all = fs::read_dir(bed.path("dir")).unwrap();
        all.map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    };
    assert_eq!(list(), names);
    for entry in fs::read_dir(bed.path("dir")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    assert_eq!(list(), BTreeSet::new());
    bed.end();
}

#[test]
fn attributes_are_kept() {
    let Some(bed) = Bed::new(&[]) else { return };
    bed.mount(&[]);
    let path = bed.path("file");
    fs::write(&path, "x").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4751)).unwrap();
    let set = |flags| rustix::fs::setxattr(&path, "user.one", &[1; 200], flags);
    set(XattrFlags::CREATE).unwrap();
    assert_eq!(set(XattrFlags::CREATE), Err(Errno::EXIST));
    set(XattrFlags::REPLACE).unwrap();
    let mut value = vec![0; 300];
    assert_eq!(
        rustix::fs::getxattr(&path, "user.one", &mut value[..]),
        Ok(200)
    );
    assert_eq!(
        rustix::fs::getxattr(&path, "user.one", &mut value[..100]),
        Err(Errno::RANGE)
    );
    assert_eq!(
        rustix::fs::getxattr(&path, "user.two", &mut value[..]),
        Err(Errno::NODATA)
    );
    let time = rustix::fs::Timespec {
        tv_sec: 1_234_567_890,
        tv_nsec: 123_456_789,
    };
    let times = rustix::fs::Timestamps {
        last_access: time,
        last_modification: time,
    };
    rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
    if has("chattr") {
        said("chattr", &["+A", path.to_str().unwrap()]);
    }
    bed.unmount();
    bed.check();
    bed.mount(&[]);
    let seen = fs::metadata(&path).unwrap();
    assert_eq!(seen.mode() & 0o7777, 0o4751);
    assert_eq!(
        (seen.mtime(), seen.mtime_nsec()),
        (1_234_567_890, 123_456_789)
    );
    assert_eq!(
        rustix::fs::getxattr(&path, "user.one", &mut value[..]),
        Ok(200)
    );
    if has("lsattr") {
        let flags = said("lsattr", &[path.to_str().unwrap()]);
        assert!(flags.split(' ').next().unwrap().contains('A'), "{flags}");
    }
    bed.end();
}

/// What others write loses the right to act as its owner; files made below a directory with set-group-id belong to its group.
#[test]
fn rights_follow_the_callers() {
    let Some(bed) = Bed::of_root("others than the user who mounts need root") else {
        return;
    };
    bed.mount(&[]);
    let tool = bed.path("tool");
    fs::write(&tool, "x").unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o6777)).unwrap();
    let mode = || fs::metadata(&tool).unwrap().mode() & 0o7777;
    fs::write(&tool, "by root").unwrap();
    let others = |command: &str| {
        let args = [
            "--reuid=12345",
            "--regid=12345",
            "--clear-groups",
            "sh",
            "-c",
            command,
        ];
        crate::bed::within("setpriv", &args).status.success()
    };
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o6777)).unwrap();
    assert!(others(&format!("echo changed >> {}", tool.display())));
    assert_eq!(mode(), 0o777);
    let dir = bed.path("shared");
    fs::create_dir(&dir).unwrap();
    std::os::unix::fs::chown(&dir, Some(0), Some(777)).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o3777)).unwrap();
    assert!(others(&format!(
        "umask 027; mkdir {0}/d && echo > {0}/f",
        dir.display()
    )));
    let made = fs::metadata(dir.join("f")).unwrap();
    assert_eq!(
        (made.uid(), made.gid(), made.mode() & 0o7777),
        (12_345, 777, 0o640)
    );
    assert_eq!(fs::metadata(dir.join("d")).unwrap().mode() & 0o7777, 0o2750);
    fs::write(dir.join("of-root"), "").unwrap();
    assert!(
        !others(&format!("rm -f {}/of-root", dir.display())),
        "the directory is sticky"
    );
    assert!(!others(&format!("echo > {}", bed.path("no").display())));
    bed.end();
}

#[test]
fn a_full_volume_says_so() {
    let Some(bed) = Bed::new(&["-m", "0"]) else {
        return;
    };
    bed.mount(&[]);
    let file = open(&bed, "big");
    let mut written = 0;
    let full = loop {
        assert!(written < 64 << 20, "as much as the image is long");
        match file.write_at(&[1; 65_536], written) {
            Ok(count) => written += count as u64,
            Err(error) => break error,
        }
    };
    assert_eq!(full.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
    assert!(written > 40 << 20, "{written}");
    file.sync_all().unwrap();
    drop(file);
    let mut back = Vec::new();
    File::open(bed.path("big"))
        .unwrap()
        .read_to_end(&mut back)
        .unwrap();
    assert!(back.len() as u64 == written && back.iter().all(|b| *b == 1));
    fs::remove_file(bed.path("big")).unwrap();
    fs::write(bed.path("small"), "again").unwrap();
    bed.end();
}

/// Times of direct writes are seen at once, although they are written to the inode later; times are shown as they can be stored.
#[test]
fn times_are_seen_at_once() {
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
    let Some(bed) = Bed::new(&[]) else { return };
    bed.mount(&[]);
    let mut how = File::options();
    how.read(true)
        .write(true)
        .create(true)
        .custom_flags(libc::O_DIRECT);
    let file = how.open(bed.path("file")).unwrap();
    let past = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
    file.set_modified(past).unwrap();
    assert_eq!(file.metadata().unwrap().mtime(), 1_000_000);
    let data = diorite_block::Buf::zeroed(4096);
    file.write_all_at(data.as_slice(), 0).unwrap();
    // Nobody but the server knows the time of a direct write.
    drop(file);
    let path = bed.path("file");
    let asked = said(
        "stat",
        &["--cached=never", "-c", "%Y", path.to_str().unwrap()],
    );
    assert!(
        asked.trim().parse::<i64>().unwrap() > 1_700_000_000,
        "{asked}"
    );
    let far = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1 << 40);
    File::open(&path).unwrap().set_modified(far).unwrap();
    let shown = said(
        "stat",
        &["--cached=never", "-c", "%Y", path.to_str().unwrap()],
    );
    assert_eq!(shown.trim(), "15032385535");
    bed.end();
}

/// Flags that the kernel does not know of are checked here: who may set them, by whatever number, and what they forbid.
#[test]
fn flags_are_checked() {
    let Some(bed) = Bed::new(&[]) else { return };
    if !is_root() || !has("chattr") {
        return skip("flags of others' files need root, and chattr");
    }
    bed.mount(&[]);
    let path = bed.path("file");
    fs::write(&path, "one").unwrap();
    said("chattr", &["+a", path.to_str().unwrap()]);
    let refused = File::options().write(true).open(&path).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EPERM));
    let mut appends = File::options().append(true).open(&path).unwrap();
    std::io::Write::write_all(&mut appends, b" two").unwrap();
    appends.sync_all().unwrap();
    drop(appends);
    assert_eq!(bytes(&path), b"one two");
    // The number of 32-bit callers, which the kernel passes on without a check.
    let script = "import fcntl,os,sys\nos.setuid(65534)\nfd=os.open(sys.argv[1],os.O_RDONLY)\n\
        try:\n fcntl.ioctl(fd,0x40046602,b'\\0\\0\\x08\\0')\n print('set')\nexcept OSError as e: print(e.errno)\n";
    if has("python3") {
        let done = said("python3", &["-c", script, path.to_str().unwrap()]);
        assert_eq!(done.trim(), libc::ENOTTY.to_string());
    }
    said("chattr", &["-a", path.to_str().unwrap()]);
    bed.end();
}

/// A program that runs cannot be opened for writing or truncated, and does not notice the attempt.
#[test]
fn a_running_program_stays_whole() {
    let Some(bed) = Bed::new(&[]) else { return };
    bed.mount(&[]);
    let path = bed.path("program");
    let sleep = said("sh", &["-c", "command -v sleep"]);
    for _ in 0..10 {
        // Not by this process: another test may start a program meanwhile, which would have the copy open for writing for a moment.
        said("cp", &[sleep.trim(), path.to_str().unwrap()]);
        let mut running = std::process::Command::new(&path)
            .arg("0.1")
            .spawn()
            .unwrap();
        for flags in [libc::O_WRONLY, libc::O_RDWR, libc::O_RDONLY | libc::O_TRUNC] {
            let flags = rustix::fs::OFlags::from_bits_retain(flags.cast_unsigned());
            let opened = rustix::fs::open(&path, flags, rustix::fs::Mode::empty());
            assert_eq!(opened.err(), Some(Errno::TXTBSY));
        }
        assert!(running.wait().unwrap().success());
        fs::remove_file(&path).unwrap();
    }
    bed.end();
}
