//! What root and an ordinary user may do with flags and ioctls: as on the kernel's ext4.
//!
//! Input: scripts, as in `like_ext4`. Output: what they print. Invariant: each flag and ioctl is asked for by both users, of a file and of
//! a directory, which belong to the ordinary one or to root. Limits: what differs is named in docs/mount.md.

use crate::common::skip;
use crate::{bed::is_root, like_ext4::judged};

/// What one user does in a process of its own.
const AS: &str = r#"
os.chmod(D, 0o777)
def as_user(uid, do):
    sys.stdout.flush()
    child = os.fork()
    if not child:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        do()
        sys.stdout.flush()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
def both():
    for owner in [0, 1000]:
        file = new('file', b'data')
        path = D + '/dir'
        os.mkdir(path)
        for one in [file, path]:
            os.chown(one, owner, owner)
            os.chmod(one, 0o777)
            yield owner, one
        os.unlink(file)
        os.rmdir(path)
"#;

/// Each flag but those of docs/mount.md (`e`, and 0x400000 that has no meaning). Of root `j` is not asked: whether this root has
/// CAP_SYS_RESOURCE no server knows.
const FLAGS: &str = r#"
def get(fd):
    return struct.unpack('I', fcntl.ioctl(fd, 0x80086601, bytes(4)))[0]
for owner, path in both():
    fd = os.open(path, os.O_RDONLY)
    for bit in range(32):
        if 1 << bit in (0x80000, 0x400000):
            continue
        for uid in [1000] if 1 << bit == 0x4000 else [0, 1000]:
            before = get(fd)
            def change():
                done = tried(fcntl.ioctl, os.open(path, os.O_RDONLY), 0x40086602, struct.pack('I', before ^ 1 << bit))
                print('flag', owner, path[len(D):], hex(1 << bit), uid, 'ok' if isinstance(done, bytes) else done, end=' ')
            as_user(uid, change)
            print(hex(get(fd) ^ before))
            fcntl.ioctl(fd, 0x40086602, struct.pack('I', before))
    for bit in range(0, 32):
        if 1 << bit == 0x800:
            continue
        for uid in [0, 1000]:
            before = fcntl.ioctl(fd, 0x801C581F, bytes(28))
            def change():
                word = struct.pack('I', struct.unpack('I', before[:4])[0] ^ 1 << bit) + before[4:]
                done = tried(fcntl.ioctl, os.open(path, os.O_RDONLY), 0x401C5820, word)
                print('xflag', owner, path[len(D):], hex(1 << bit), uid, 'ok' if isinstance(done, bytes) else done, end=' ')
            as_user(uid, change)
            after = fcntl.ioctl(fd, 0x801C581F, bytes(28))
            print([hex(a ^ b) for a, b in zip(before, after)][:2])
            fcntl.ioctl(fd, 0x401C5820, before)
"#;

/// Appends to a file that is only appended to, from each place in a block.
const APPENDS: &str = r#"
for size in [0, 1, 100, 512, 4095, 4096, 4097, 8192]:
    for length in [1, 511, 512, 513, 4096, 4097, 24576]:
        for how in [0, os.O_DIRECT, os.O_DSYNC]:
            if how == os.O_DIRECT and (size | length) % 512:
                continue
            path = new('appended', b'x' * size)
            fd = os.open(path, os.O_RDONLY)
            flags(fd, 0x80020)
            to = os.open(path, os.O_WRONLY | os.O_APPEND | how)
            memory = mmap.mmap(-1, 24576)
            memory.write(b'y' * 24576)
            done = [tried(os.writev, to, [memoryview(memory)[:length]]) for _ in range(2)]
            print('append', size, length, how, *done, os.fstat(fd).st_size, set(open(path, 'rb').read()[size:]))
            flags(fd, 0x80000)
            os.close(to)
"#;

/// Each ioctl that changes something, or tells something: the result, and what comes out as far as it is the same everywhere.
const IOCTLS: &str = r#"
fds = {}
for owner, path in both():
    for name, number, argument, keep in [
        ('FIGETBSZ', 0x2, bytes(4), 4),
        ('FIONREAD', 0x541B, bytes(4), 4 if path.endswith('file') else 0),
        ('GETVERSION', 0x80087601, bytes(8), 0),
        ('GETVERSION of before', 0x80086603, bytes(8), 0),
        ('SETVERSION', 0x40087602, bytes(8), 0),
        ('SETVERSION of before', 0x40086604, bytes(8), 0),
        ('FSGETXATTR', 0x801C581F, bytes(28), 8),
        ('FITRIM', 0xC0185879, struct.pack('QQQ', 0, 1 << 40, 1 << 20), 0),
        ('FITRIM of nothing', 0xC0185879, struct.pack('QQQ', 0, 0, 0), 0),
        ('GETFSLABEL', 0x81009431, bytes(256), 256),
        ('SETFSLABEL', 0x41009432, b'label'.ljust(256, b'\0'), 0),
        ('SETFSLABEL long', 0x41009432, b'x' * 256, 0),
        ('SETFSLABEL full', 0x41009432, b'1234567890123456'.ljust(256, b'\0'), 0),
        ('GETFSLABEL', 0x81009431, bytes(256), 256),
        ('PRECACHE_EXTENTS', 0x6612, 0, 0),
        ('CLEAR_ES_CACHE', 0x6628, 0, 0),
        ('ALLOC_DA_BLKS', 0x660c, 0, 0),
        ('CHECKPOINT', 0x4004662b, struct.pack('I', 0), 0),
        ('CHECKPOINT dry', 0x4004662b, struct.pack('I', 4), 0),
        ('CHECKPOINT dry, discarded', 0x4004662b, struct.pack('I', 5), 0),
        ('CHECKPOINT with both', 0x4004662b, struct.pack('I', 3), 0),
        ('CHECKPOINT with more', 0x4004662b, struct.pack('I', 8), 0),
        ('unknown', 0x12345678, bytes(64), 0),
        ('TCGETS', 0x5401, bytes(64), 0),
    ]:
        for uid in [1000, 0]:
            def ask():
                buf = argument and bytearray(argument)
                done = tried(fcntl.ioctl, os.open(path, os.O_RDONLY), number, buf)
                print('ioctl', owner, path[len(D):], name, uid, done, buf and bytes(buf[:keep]).rstrip(b'\0'))
            as_user(uid, ask)
"#;

/// Which times changes of attributes move, if there is nothing to change; and what becomes of the mode.
const ATTRIBUTES: &str = r#"
ACCESS, DEFAULT = 'system.posix_acl_access', 'system.posix_acl_default'
def acl(*entries):
    return struct.pack('<I', 2) + b''.join(struct.pack('<HHI', tag, how, who) for tag, how, who in entries)
ALL = 0xFFFFFFFF
MINIMAL = acl((1, 7, ALL), (4, 7, ALL), (32, 7, ALL))
MORE = acl((1, 7, ALL), (2, 5, 1000), (4, 7, ALL), (16, 7, ALL), (32, 7, ALL))
NONE = struct.pack('<I', 2)
for owner, path in both():
    names = [ACCESS, DEFAULT] if path.endswith('dir') else [ACCESS]
    for name in names:
        for what, do in [
            ('removed', lambda: os.removexattr(path, name)),
            ('empty', lambda: os.setxattr(path, name, NONE)),
            ('minimal', lambda: os.setxattr(path, name, MINIMAL)),
            ('minimal again', lambda: os.setxattr(path, name, MINIMAL)),
            ('more', lambda: os.setxattr(path, name, MORE)),
            ('more again', lambda: os.setxattr(path, name, MORE)),
            ('gone', lambda: os.removexattr(path, name)),
        ]:
            print('acl', owner, path[len(D):], name, what, moved(path, do), oct(os.stat(path).st_mode))
    for length in [0, 10, 300]:
        for what, value in [('set', b'a'), ('again', b'a'), ('other', b'b'), ('again', b'b')]:
            print('attribute', length, what, moved(path, lambda: os.setxattr(path, f'user.{length}', value * length)))
    for mode in [0o2777, 0o6750]:
        for name in names:
            os.chmod(path, mode)
            os.chown(path, 1000, 3000)
            os.chmod(path, mode)
            as_user(1000, lambda: os.setxattr(path, name, MORE))
            print('group', owner, path[len(D):], oct(mode), name, oct(os.stat(path).st_mode))
"#;

fn expect(script: &str, lines: &[&str]) {
    if !is_root() {
        return skip("two users of a mount need root");
    }
    let Some(said) = judged(&format!("{AS}{script}")) else {
        return;
    };
    for line in lines {
        assert!(said.lines().any(|l| l == *line), "{line}: {said}");
    }
}

/// The defect: an ordinary owner could send the data of a file through the journal, of which everybody shares the room.
#[test]
fn flags_are_for_those_who_may_set_them_on_ext4() {
    expect(
        FLAGS,
        &[
            "flag 1000 /file 0x4000 1000 EPERM 0x0",
            "flag 1000 /file 0x40 1000 ok 0x40",
            "flag 1000 /file 0x10 1000 EPERM 0x0",
            "flag 0 /file 0x40 1000 EPERM 0x0",
            "flag 1000 /dir 0x10000 1000 ok 0x10000",
        ],
    );
}

/// The defect: a write of a sector or more at the end of such a file was refused if the file ended with a sector.
#[test]
fn files_that_are_only_appended_to_take_appends_of_any_length() {
    expect(
        APPENDS,
        &[
            "append 0 4096 0 4096 4096 8192 {121}",
            "append 4096 4097 0 4097 4097 12290 {121}",
            "append 100 513 0 513 513 1126 {121}",
        ],
    );
}

#[test]
fn ioctls_are_for_those_who_may_use_them_on_ext4() {
    expect(
        IOCTLS,
        &[
            "ioctl 1000 /file SETFSLABEL 1000 EPERM b''",
            "ioctl 1000 /file FITRIM 1000 EPERM b''",
            "ioctl 0 /file CLEAR_ES_CACHE 1000 EACCES 0",
            "ioctl 1000 /file CHECKPOINT 0 0 b''",
            "ioctl 0 /dir GETFSLABEL 1000 0 b'1234567890123456'",
        ],
    );
}

/// The defects: an ACL that was removed and not there, and an attribute that had its value already, moved ctime; a default ACL took
/// set-group-id away from its directory.
#[test]
fn attributes_that_stay_as_they_are_move_no_time() {
    expect(
        ATTRIBUTES,
        &[
            "acl 0 /file system.posix_acl_access removed  0o100777",
            "acl 0 /file system.posix_acl_access more c 0o100777",
            "acl 0 /dir system.posix_acl_default more again  0o40777",
            "attribute 300 again ",
            "attribute 300 other c",
            "group 0 /dir 0o2777 system.posix_acl_access 0o40777",
            "group 0 /dir 0o2777 system.posix_acl_default 0o42777",
        ],
    );
}
