//! What test suites of file systems ask of a mount, and the kernel's ext4 answers: error numbers, times, counts of blocks, rights.
//!
//! Input: scripts, which a mount of diorite and one of the kernel's ext4 run. Output: what they print, which is the same. Invariants: every
//! expectation was seen on the kernel's ext4 (6.18). Limits: without root the kernel is not there to compare with.

use crate::bed::{Bed, DIORITE, bytes, has, is_root, said, within};
use crate::common::skip;
use crate::mapped::{Mapped, What};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};
use xtask::digest::Digest;

/// Functions of the scripts: each prints a line of results, by which the mounts are compared.
const WORDS: &str = r#"
import ctypes, errno, fcntl, mmap, os, struct, sys, time
D = sys.argv[1]
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(number, *args):
    args = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    done = libc.syscall(ctypes.c_long(number), *args)
    if done < 0:
        raise OSError(ctypes.get_errno(), 'a call')
    return done
def tried(do, *args):
    try:
        return do(*args)
    except OSError as e:
        return errno.errorcode[e.errno]
def new(name, data):
    path = D + '/' + name
    with open(path, 'wb') as file:
        file.write(data)
    return path
def fallocate(fd, mode, pos, length):
    if libc.fallocate(fd, mode, ctypes.c_int64(pos), ctypes.c_int64(length)):
        raise OSError(ctypes.get_errno(), 'fallocate')
    return 'ok'
def moved(path, do):
    """Which of the times a call changes."""
    os.utime(path, ns=(10**18, 10**18))
    old = os.stat(path)
    time.sleep(0.02)
    do()
    now = os.stat(path)
    of = lambda s: (s.st_atime_ns, s.st_mtime_ns, s.st_ctime_ns)
    return ''.join(c for c, a, b in zip('amc', of(old), of(now)) if a != b)
def flags(fd, value):
    fcntl.ioctl(fd, 0x40086602, struct.pack('q', value))
"#;

/// Direct I/O in whole sectors, and what is refused.
const DIRECT: &str = r#"
path = new('direct', b'z' * 8192)
memory = mmap.mmap(-1, 1 << 21)
def part(n): return [memoryview(memory)[:n]]
fd = os.open(path, os.O_RDWR | os.O_DIRECT)
for pos, n in [(0, 4096), (512, 512), (0, 100), (100, 512), (8192, 512), (8192, 100), (4096, 8192), (1, 1), (8000, 512)]:
    print('direct read', pos, n, tried(os.preadv, fd, part(n), pos))
for pos, n in [(0, 4096), (512, 512), (0, 100), (100, 512), (8192, 512), (8000, 512), (8704, 1 << 20)]:
    print('direct write', pos, n, tried(os.pwritev, fd, part(n), pos), os.fstat(fd).st_size)
os.truncate(path, 8300)
print('direct tail', tried(os.preadv, fd, part(512), 8192), tried(os.preadv, fd, part(4096), 8192))
end = os.open(path, os.O_RDWR | os.O_DIRECT | os.O_APPEND)
print('direct append', tried(os.writev, end, part(512)), os.stat(path).st_size)
later = os.open(path, os.O_RDWR)
fcntl.fcntl(later, fcntl.F_SETFL, os.O_DIRECT)
print('direct later', tried(os.preadv, later, part(100), 0), tried(os.preadv, later, part(512), 0), tried(os.pwritev, later, part(9), 0))
fcntl.fcntl(later, fcntl.F_SETFL, 0)
print('direct no more', tried(os.preadv, later, part(100), 0))
"#;

/// Blocks that are counted before they have a place, times of allocations and flags, attributes by names that there are not.
const COUNTS: &str = r#"
for n in [1, 150, 4096, 4097, 100000]:
    fd = os.open(new('sized', b'x' * n), os.O_RDWR)
    before = os.fstat(fd).st_blocks
    os.fsync(fd)
    print('blocks', n, before, os.fstat(fd).st_blocks)
path = new('times', b'x' * 8192)
fd = os.open(path, os.O_RDWR)
KEEP = 1
print('allocate', moved(path, lambda: fallocate(fd, 0, 0, 8192)))
print('allocate behind', moved(path, lambda: fallocate(fd, KEEP, 8192, 8192)), os.fstat(fd).st_blocks)
print('allocate longer', moved(path, lambda: fallocate(fd, 0, 0, 12288)))
print('flags', moved(path, lambda: flags(fd, 0x80040)), moved(path, lambda: flags(fd, 0x80000)))
flags(fd, 0x80020)
print('append-only', tried(os.utime, path), tried(os.utime, path, (1, 1)), tried(os.chmod, path, 0o600), tried(os.truncate, path, 0))
flags(fd, 0x80010)
print('immutable', tried(os.utime, path), tried(os.utime, path, (1, 1)))
flags(fd, 0x80000)
os.setxattr(path, 'user.here', b'1')
for name in ['user.missing', 'other.space', 'system.other', 'system.data', 'trusted.missing', 'security.missing']:
    print('attribute', name, tried(os.getxattr, path, name))
for name in ['user.here', 'user.missing']:
    print('both flags', name, tried(os.setxattr, path, name, b'', os.XATTR_CREATE | os.XATTR_REPLACE))
"#;

/// Names that no attribute can have, and conditions that cannot be fulfilled; on files that must not change, too.
const NAMES: &str = r#"
NAMES = ['user.', 'trusted.', 'security.', 'gnu.', 'gnu.here', 'user.here', 'system.posix_acl_', 'system.posix_acl_other',
    'system.posix_acl_access', 'other.space', 'user', 'trusted']
for state, flag in [('plain', 0), ('append-only', 0x20), ('immutable', 0x10)]:
    path = new(state, b'')
    fd = os.open(path, os.O_RDONLY)
    os.setxattr(path, 'gnu.here', b'1')
    os.setxattr(path, 'user.here', b'1')
    flags(fd, 0x80000 | flag)
    for name in NAMES:
        done = [tried(os.getxattr, path, name)]
        for how in [0, os.XATTR_CREATE, os.XATTR_REPLACE, os.XATTR_CREATE | os.XATTR_REPLACE]:
            done.append(tried(os.setxattr, path, name, b'2', how))
        print(state, name, *done, tried(os.removexattr, path, name))
    flags(fd, 0x80000)
"#;

/// Requests that reach over the largest offset, or the end of the volume.
const ENDS: &str = r#"
MOST = ((1 << 32) - 1) * 4096
path = new('largest', b'')
fd, end = os.open(path, os.O_RDWR), os.open(path, os.O_WRONLY | os.O_APPEND)
for behind in [3, 4096, 4099, 8192]:
    for n in [2, 4096, 8192, 10000]:
        os.ftruncate(fd, 0)
        print('write', behind, n, tried(os.pwrite, fd, b'z' * n, MOST - behind), os.fstat(fd).st_size - MOST)
        os.ftruncate(fd, MOST - behind)
        print('append', behind, n, tried(os.write, end, b'z' * n), os.fstat(fd).st_size - MOST)
print('write behind', tried(os.pwrite, fd, b'z', MOST))
direct, memory = os.open(path, os.O_RDWR | os.O_DIRECT), mmap.mmap(-1, 16384)
for behind in [-4096, -1, 0, 512, 4095, 4096]:
    for n in [100, 512, 8192, 10000]:
        os.ftruncate(fd, 0)
        part = [memoryview(memory)[:n]]
        print('direct', behind, n, tried(os.pwritev, direct, part, MOST - behind), os.fstat(fd).st_size - MOST)
os.ftruncate(fd, 0)
for mode in [0, 1, 3, 16]:
    for pos, length in [(0, MOST + 1), (MOST - 1, 2), (MOST, 1), (1 << 62, 4096)]:
        print('range', mode, pos, length, tried(fallocate, fd, mode, pos, length), os.fstat(fd).st_size)
print('punch', tried(fallocate, fd, 3, MOST - 1, 1))
for start in [0, 4096, (64 << 20) - 1, 64 << 20, 1 << 63]:
    for length in [0, 4095, 4096, (1 << 64) - 1]:
        for least in [0, (1 << 27) + 4095, (1 << 27) + 4096, (1 << 64) - 1]:
            done = tried(fcntl.ioctl, fd, 0xC0185879, struct.pack('QQQ', start, length, least))
            print('trim', start, length, least, 'ok' if isinstance(done, bytes) else done)
"#;

/// Holes behind the end of what a file without extents can have.
const HOLES: &str = r#"
MOST = (12 + 1024 + 1024 ** 2 + 1024 ** 3) * 4096
fd = os.open(new('mapped', b'z'), os.O_RDWR)
for pos in [MOST - 1, MOST, MOST + 4096, ((1 << 32) - 2) * 4096, ((1 << 32) - 1) * 4096]:
    for length in [1, 4096]:
        print('punch', pos, length, tried(fallocate, fd, 3, pos, length), os.fstat(fd).st_size)
"#;

/// The capability: an owner, or a writer, takes it away, but not one without a value.
const CAPABILITIES: &str = r#"
os.chmod(D, 0o777)
WHOLE = struct.pack('<IIIII', 0x02000001, 1 << 10, 0, 0, 0)
for value in [b'', WHOLE]:
    for what, do in [
        ('chown', lambda path: os.chown(path, 5, 5)),
        ('chgrp', lambda path: os.chown(path, -1, 7)),
        ('chmod', lambda path: os.chmod(path, 0o700)),
        ('write', lambda path: os.pwrite(os.open(path, os.O_WRONLY), b'x', 0)),
        ('truncate', lambda path: os.truncate(path, 3)),
        ('allocate', lambda path: fallocate(os.open(path, os.O_RDWR), 0, 0, 20000)),
    ]:
        path = new('capable', b'data')
        os.chmod(path, 0o4755)
        os.setxattr(path, 'security.capability', value)
        do(path)
        print('capability', len(value), what, os.listxattr(path), oct(os.stat(path).st_mode))
        os.unlink(path)
"#;

/// Set-group-id where the group may not execute: a writer who is not in the group takes it away.
const RIGHTS: &str = r#"
os.chmod(D, 0o777)
for mode in [0o2666, 0o6666, 0o6777, 0o2766]:
    for group in [0, 12345]:
        for what, do in [
            ('write', lambda fd, path: os.pwrite(fd, b'x', 0)),
            ('truncate', lambda fd, path: os.ftruncate(fd, 5)),
            ('allocate', lambda fd, path: fallocate(fd, 0, 0, 20000)),
            ('punch', lambda fd, path: fallocate(fd, 3, 0, 4096)),
            ('copy', lambda fd, path: os.copy_file_range(fd, fd, 100, 0, 4096)),
            ('empty', lambda fd, path: os.close(os.open(path, os.O_WRONLY | os.O_TRUNC))),
        ]:
            path = new('rights', b'a' * 8192)
            os.chown(path, 0, group)
            os.chmod(path, mode)
            child = os.fork()
            if not child:
                os.setgroups([])
                os.setgid(12345)
                os.setuid(12345)
                do(os.open(path, os.O_RDWR), path)
                os._exit(0)
            print('rights', oct(mode), group, what, os.waitpid(child, 0)[1], oct(os.stat(path).st_mode))
            os.unlink(path)
    for what, owners in [('chown', (5, -1)), ('chgrp', (-1, 55))]:
        path = new('rights', b'')
        os.chown(path, 0, 12345)
        os.chmod(path, mode)
        os.chown(path, *owners)
        print('rights', oct(mode), what, oct(os.stat(path).st_mode))
        os.unlink(path)
"#;

/// File handles: of an inode that the kernel has forgotten, of one that is gone, of one that has its number.
const HANDLES: &str = r#"
def handle(path):
    buf = ctypes.create_string_buffer(struct.pack('Ii', 128, 0) + bytes(128))
    call(303, -100, path.encode(), buf, ctypes.byref(ctypes.c_int()), 0)
    return buf
root = os.open(D, os.O_RDONLY)
def opened(buf, flags=os.O_RDONLY):
    fd = tried(call, 304, root, buf, flags)
    if isinstance(fd, str):
        return fd
    try:
        return os.read(fd, 9) if flags == os.O_RDONLY else 'a directory'
    finally:
        os.close(fd)
def drop():
    with open('/proc/sys/vm/drop_caches', 'w') as file:
        file.write('2')
os.makedirs(D + '/deep/deeper')
path = new('deep/deeper/file', b'contents')
of_file, of_dir = handle(path), handle(D + '/deep/deeper')
os.sync()
drop()
print('handle', opened(of_file), opened(of_dir, os.O_RDONLY | os.O_DIRECTORY))
os.rename(path, D + '/elsewhere')
drop()
print('handle moved', opened(of_file))
os.unlink(D + '/elsewhere')
print('handle gone', opened(of_file))
drop()
new('again', b'other')
print('handle again', opened(of_file))
"#;

fn python(at: &Path, script: &str) -> String {
    let script = format!("{WORDS}{script}");
    said("python3", &["-c", &script, at.to_str().unwrap()])
}

/// Runs the script on a mount of diorite and, where the host lets root, on one of the kernel's ext4: they print the same. Returns what
/// they print, of which the caller expects the essential lines, as the kernel may not be there to judge.
pub(crate) fn judged(script: &str) -> Option<String> {
    judged_on(&["-b", "4096"], script)
}

/// As [`judged`], on images that mke2fs makes of these words.
fn judged_on(mke2fs: &[&str], script: &str) -> Option<String> {
    let bed = Bed::new(mke2fs)?;
    if !has("python3") {
        return None;
    }
    bed.mount(&[]);
    let ours = python(&bed.at, script);
    bed.unmount();
    bed.check();
    if is_root() {
        let kernel = Bed::new(mke2fs)?;
        let (image, at) = (kernel.image.to_str().unwrap(), kernel.at.to_str().unwrap());
        let mounted = within("mount", &["-o", "loop", image, at]);
        if mounted.status.success() {
            let theirs = python(&kernel.at, script);
            said("umount", &[at]);
            assert_eq!(ours, theirs, "ours, and the kernel's");
        } else {
            skip("the kernel mounts no loop device here");
        }
    }
    Some(ours)
}

#[test]
fn direct_io_takes_whole_sectors() {
    let Some(said) = judged(DIRECT) else { return };
    for line in [
        "direct read 0 100 EINVAL",
        "direct read 100 512 EINVAL",
        "direct read 8192 100 0",
        "direct read 4096 8192 4096",
        "direct write 0 100 EINVAL 8192",
        "direct append EINVAL 8300",
        "direct later EINVAL 512 EINVAL",
        "direct no more 100",
    ] {
        assert!(said.lines().any(|l| l == line), "{line}: {said}");
    }
}

#[test]
fn blocks_times_and_names_are_as_ext4_has_them() {
    if !is_root() {
        return skip("append-only and immutable files need root");
    }
    let Some(said) = judged(COUNTS) else { return };
    for line in [
        "blocks 1 8 8",
        "blocks 4097 16 16",
        "allocate mc",
        "allocate behind mc 32",
        "flags c c",
        "append-only None EPERM EPERM EPERM",
        "immutable EPERM EPERM",
        "attribute user.missing ENODATA",
        "attribute system.data ENOTSUP",
        "both flags user.here EEXIST",
        "both flags user.missing ENODATA",
    ] {
        assert!(said.lines().any(|l| l == line), "{line}: {said}");
    }
}

/// The defect: a name without anything behind its prefix was read as missing, as were names that begin like those of ACLs; two conditions
/// that exclude each other hid what else was wrong; files that must not change told which names there can be.
#[test]
fn names_that_no_attribute_can_have_are_refused_as_by_ext4() {
    if !is_root() {
        return skip("append-only and immutable files need root");
    }
    let Some(said) = judged(NAMES) else { return };
    for line in [
        "plain user. EINVAL EINVAL EINVAL EINVAL EINVAL EINVAL",
        "plain gnu.here b'1' None EEXIST None EEXIST None",
        "plain system.posix_acl_other ENOTSUP ENOTSUP ENOTSUP ENOTSUP ENOTSUP ENOTSUP",
        "immutable other.space ENOTSUP EPERM EPERM EPERM EPERM EPERM",
    ] {
        assert!(said.lines().any(|l| l == line), "{line}: {said}");
    }
}

/// The defect: a write over the largest offset was refused as a whole, or stopped at a block; a hole could be punched behind it; a range
/// that cannot be trimmed was taken for an empty one.
#[test]
fn what_reaches_over_an_end_is_cut_or_refused_as_by_ext4() {
    if !is_root() {
        return skip("only root trims");
    }
    let Some(said) = judged(ENDS) else { return };
    for line in [
        "write 4099 8192 4099 0",
        "append 4096 10000 4096 0",
        "write behind EFBIG",
        "direct 0 100 EFBIG -17592186040320",
        "direct 4096 10000 4096 0",
        "direct 4096 100 EINVAL -17592186040320",
        "range 3 17592186040319 2 EFBIG 0",
        "punch ok",
        "trim 67108864 4096 0 EINVAL",
        "trim 0 4096 134221823 ok",
    ] {
        assert!(said.lines().any(|l| l == line), "{line}: {said}");
    }
}

/// The defect: such a hole was too far away, as if it had to be mapped.
#[test]
fn behind_what_blocks_can_map_there_is_nothing_to_punch() {
    let words = ["-b", "4096", "-O", "^extent,^64bit"];
    let Some(said) = judged_on(&words, HOLES) else {
        return;
    };
    for line in [
        "punch 4402345725952 4096 ok 1",
        "punch 17592186036224 4096 ok 1",
        "punch 17592186040320 1 EFBIG 1",
    ] {
        assert!(said.lines().any(|l| l == line), "{line}: {said}");
    }
}

/// What the kernel has collected may reach over the largest offset: what fits is kept. The defect: nothing of it was.
#[test]
fn what_fits_of_a_late_write_is_kept() {
    const MOST: u64 = ((1 << 32) - 1) * 4096;
    let Some(bed) = Bed::new(&["-b", "4096"]) else {
        return;
    };
    bed.mount(&["-o", "writeback_cache"]);
    let file = File::create(bed.path("file")).unwrap();
    file.set_len(MOST).unwrap();
    file.write_all_at(&[7; 10], MOST - 5).unwrap();
    assert!(file.sync_all().is_err(), "it does not fit");
    drop(file);
    bed.unmount();
    bed.mount(&[]);
    let mut end = [0; 10];
    let file = File::open(bed.path("file")).unwrap();
    assert_eq!(file.read_at(&mut end, MOST - 6).unwrap(), 6);
    assert_eq!(end, [0, 7, 7, 7, 7, 7, 0, 0, 0, 0]);
    drop(file);
    bed.end();
}

/// The defect: a capability without a value went, too.
#[test]
fn a_capability_without_a_value_stays() {
    if !is_root() {
        return skip("only root gives capabilities and files away");
    }
    let Some(said) = judged(CAPABILITIES) else {
        return;
    };
    for line in [
        "capability 0 chown ['security.capability'] 0o100755",
        "capability 0 write ['security.capability'] 0o104755",
        "capability 20 chown [] 0o100755",
        "capability 20 allocate [] 0o104755",
    ] {
        assert!(said.lines().any(|l| l == line), "{line}: {said}");
    }
}

#[test]
fn who_is_not_in_the_group_takes_its_right_away() {
    if !is_root() {
        return skip("two users of a mount need root");
    }
    let Some(said) = judged(RIGHTS) else { return };
    for line in [
        "rights 0o2666 0 write 0 0o100666",
        "rights 0o2666 12345 write 0 0o102666",
        "rights 0o6777 12345 punch 0 0o100777",
        "rights 0o6666 chown 0o102666",
    ] {
        assert!(said.lines().any(|l| l == line), "{line}: {said}");
    }
}

#[test]
fn handles_outlive_the_kernels_caches() {
    if !is_root() {
        return skip("only root opens by handle, and drops caches");
    }
    let Some(said) = judged(HANDLES) else { return };
    assert_eq!(
        said,
        "handle b'contents' a directory\nhandle moved b'contents'\nhandle gone ESTALE\nhandle again ESTALE\n"
    );
}

/// A file whose generation is changed while it is open and listed stays open.
#[test]
fn a_new_generation_breaks_no_open_file() {
    let Some(bed) = Bed::new(&["-O", "^metadata_csum"]) else {
        return;
    };
    if !has("python3") {
        return;
    }
    bed.mount(&[]);
    let script = "
path = new('file', b'contents')
fd = os.open(path, os.O_RDWR)
fcntl.ioctl(fd, 0x40087602, struct.pack('i', 77))
print(struct.unpack('i', fcntl.ioctl(fd, 0x80087601, bytes(4)))[0])
for _ in range(3):
    [entry.stat() for entry in os.scandir(D)]
print(tried(os.pread, fd, 8, 0), tried(os.fstat, fd).st_size)
";
    assert_eq!(python(&bed.at, script), "77\nb'contents' 8\n");
    bed.end();
}

/// What a mapping has changed in a hole, or in allocated space, is data before it is written back.
#[test]
fn mapped_changes_are_no_hole() {
    let Some(bed) = Bed::new(&["-b", "4096"]) else {
        return;
    };
    let Some(mut mapped) = Mapped::start() else {
        return;
    };
    bed.mount(&[]);
    let path = bed.path("file");
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .unwrap();
    file.set_len(1 << 20).unwrap();
    file.write_all_at(b"x", 500_000).unwrap();
    let what = What(0, &path);
    let mut at = vec![(122 * 4096, 123 * 4096)];
    for page in [20, 21, 200] {
        mapped.write(what, page * 4096 + 7, b"mapped");
        at.push((page as u64 * 4096, (page as u64 + 1) * 4096));
        at.sort_unstable();
        assert_eq!(data(&file), joined(&at), "{page}");
    }
    assert_eq!(mapped.read(what, 20 * 4096 + 7, 6), b"mapped");
    drop(mapped);
    drop(file);
    bed.end();
}

/// The ranges of data, by SEEK_DATA and SEEK_HOLE.
fn data(file: &File) -> Vec<(u64, u64)> {
    use rustix::fs::{SeekFrom, seek};
    let (mut all, mut at) = (Vec::new(), 0);
    while let Ok(start) = seek(file, SeekFrom::Data(at)) {
        at = seek(file, SeekFrom::Hole(start)).unwrap();
        all.push((start, at));
    }
    all
}

/// Ranges that touch are one.
fn joined(ranges: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut all: Vec<(u64, u64)> = Vec::new();
    for (start, end) in ranges {
        match all.last_mut() {
            Some(last) if last.1 == *start => last.1 = *end,
            _ => all.push((*start, *end)),
        }
    }
    all
}

/// After a remount as read-only nothing is written any more, also no time of a read; those from before are.
#[test]
fn reads_of_a_remounted_mount_change_nothing() {
    let Some(bed) = Bed::new(&[]) else { return };
    if !is_root() {
        return skip("only root remounts");
    }
    bed.mount(&["-o", "strictatime,commit=1"]);
    for name in ["before", "behind"] {
        fs::write(bed.path(name), name).unwrap();
        File::open(bed.path(name)).unwrap().sync_all().unwrap();
    }
    let read = |name: &str| {
        assert_eq!(fs::read_to_string(bed.path(name)).unwrap(), name);
        fs::metadata(bed.path(name)).unwrap().atime_nsec()
    };
    let noted = read("before");
    said(DIORITE, &bed.args(&["-o", "remount,ro"]));
    let whole = || Digest::of(&bytes(&bed.image));
    let then = whole();
    read("behind");
    fs::read_dir(&bed.at).unwrap().for_each(drop);
    // More than the age at which changes are committed.
    std::thread::sleep(Duration::from_millis(2500));
    assert!(then == whole(), "a read has changed the image");
    said(DIORITE, &bed.args(&["-o", "remount,rw"]));
    let before = fs::metadata(bed.path("behind")).unwrap().atime_nsec();
    assert_ne!(read("behind"), before, "reads count again");
    bed.unmount();
    bed.mount(&["-o", "noatime"]);
    let kept = fs::metadata(bed.path("before")).unwrap().atime_nsec();
    assert_eq!(kept, noted, "what was read before the remount");
    bed.end();
}

/// With lazytime a time that a write changes waits for a sync; without, for the next commit.
#[test]
fn lazytime_writes_times_late() {
    for (options, is_late) in [("commit=1", false), ("commit=1,lazytime", true)] {
        let Some(bed) = Bed::new(&[]) else { return };
        bed.mount(&["-o", options]);
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(bed.path("file"))
            .unwrap();
        file.write_all_at(&[1; 4096], 0).unwrap();
        file.set_modified(UNIX_EPOCH).unwrap();
        file.sync_all().unwrap();
        file.write_all_at(&[2; 4096], 0).unwrap();
        assert!(file.metadata().unwrap().mtime() > 1_000_000);
        // More than the age at which changes are committed.
        std::thread::sleep(Duration::from_millis(2500));
        let on_disk = || {
            let image = bed.image.to_str().unwrap();
            said(DIORITE, &["stat", "-c", "%Y", image, "/file"]) != "0\n"
        };
        assert_eq!(on_disk(), !is_late, "{options}");
        file.sync_all().unwrap();
        assert!(on_disk(), "{options}: after a sync");
        drop(file);
        bed.end();
    }
}
