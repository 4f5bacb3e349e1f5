# Each operation, then each attribute of each inode that it may concern: as the kernel has it cached, and as the server has it.
import shutil

DIRECT = os.O_RDWR | os.O_DIRECT
pages, address = memory(65536)
aio = Aio()
NAMES = ['.', 'd', 'e', 'd/f', 'd/g', 'e/h', 'e/link', 'd/s', 'd/sub', 'e/empty']
# In this order: one that the kernel has marked as not known any more makes it ask for all, so the often marked ones come last.
MASKS = dict(mode=2, nlink=4, uid=8, gid=16, blocks=0x400, size=0x200, mtime=0x40, atime=0x20, ctime=0x80)


def look(fd, mask, fresh):
    out = ctypes.create_string_buffer(256)
    EMPTY_PATH, FORCE_SYNC = 0x1000, 0x2000
    call('statx', fd, b'', EMPTY_PATH | (FORCE_SYNC if fresh else 0), mask, out)
    nlink, uid, gid, mode = struct.unpack_from('=IIIH', out, 16)
    size, blocks = struct.unpack_from('=QQ', out, 40)
    atime, _, ctime, mtime = [struct.unpack_from('=qI', out, 64 + 16 * n) for n in range(4)]
    return dict(nlink=nlink, uid=uid, gid=gid, mode=oct(mode), size=size, blocks=blocks, atime=atime, ctime=ctime, mtime=mtime)


def opened(do, flags=os.O_RDWR, path='d/f'):
    def run():
        fd = os.open(path, flags)
        try:
            do(fd)
        finally:
            os.close(fd)
    return run


def write(flags=os.O_RDWR, length=4096, at=0):
    return opened(lambda fd: os.pwritev(fd, [memoryview(pages)[:length]], at), flags)


def mapped(fd):
    with mmap.mmap(fd, 20000) as m:
        m[100] = 1
        m.flush()


def toggled(fd):
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_DIRECT)
    os.pwritev(fd, [memoryview(pages)[:4096]], 0)


def fallocate(mode, at, length):
    return opened(lambda fd: call('fallocate', fd, mode, at, length))


def rename(old, new, flags=0):
    return lambda: call('renameat2', -100, old.encode(), -100, new.encode(), flags)


def temporary():
    fd = os.open('d', os.O_TMPFILE | os.O_RDWR)
    os.write(fd, b'hello')
    call('linkat', -100, b'/proc/self/fd/%d' % fd, -100, b'd/made', 0x400)
    os.close(fd)


def after(*steps):
    """The first ones are seen before the last one is done."""
    def run():
        for step in steps[:-1]:
            step()
            look(os.open('d/f', os.O_PATH), 0x7FF, False)
        steps[-1]()
    return run


def append(length, end):
    def do(fd):
        os.pwrite(fd, b'y' * length, 20000)
        look(fd, 0x7FF, False)
        end(fd)
    return opened(do)


ACL = struct.pack('<I', 2) + b''.join(
    struct.pack('<HHI', *e) for e in [(1, 7, 2**32 - 1), (2, 5, 1234), (4, 4, 2**32 - 1), (16, 5, 2**32 - 1), (32, 0, 2**32 - 1)])
set_acl = lambda: os.setxattr('d/f', 'system.posix_acl_access', ACL)
set_long = lambda: os.setxattr('d/f', 'user.a', b'1' * 2000)
OPERATIONS = {
    'write': write(), 'append': write(at=20000), 'odd append': write(length=77, at=20000), 'far write': write(at=1 << 20),
    'direct write': write(DIRECT), 'direct append': write(DIRECT, at=20480),
    'aio write': opened(lambda fd: aio.write(fd, address, 4096, 0), DIRECT),
    'aio append': opened(lambda fd: aio.write(fd, address, 4096, 20480), DIRECT),
    'write toggled to direct': opened(toggled), 'mapped write': opened(mapped), 'mapped write of a direct file': opened(mapped, DIRECT),
    'read': opened(lambda fd: os.pread(fd, 100, 0)), 'direct read': opened(lambda fd: os.preadv(fd, [pages], 0), DIRECT),
    'truncate': lambda: os.truncate('d/f', 100), 'truncate up': lambda: os.truncate('d/f', 100000),
    'truncate to the same': lambda: os.truncate('d/f', 20000),
    'ftruncate': opened(lambda fd: os.ftruncate(fd, 100)), 'O_TRUNC': opened(lambda fd: None, os.O_RDWR | os.O_TRUNC),
    'fallocate': fallocate(0, 0, 1 << 20), 'fallocate keep size': fallocate(1, 0, 1 << 20), 'punch': fallocate(3, 0, 8192),
    'zero': fallocate(16, 0, 8192), 'zero keep size': fallocate(17, 0, 1 << 20),
    'copy_file_range': opened(lambda to: opened(lambda fd: os.copy_file_range(fd, to, 9000, 0, 0), path='d/g')()),
    'sendfile': opened(lambda to: opened(lambda fd: os.sendfile(to, fd, 0, 9000), path='d/g')()),
    'chmod': lambda: os.chmod('d/f', 0o4755), 'chgrp': lambda: os.chown('d/f', -1, 5), 'chown': lambda: os.chown('d/f', 7, -1),
    'chown of a directory': lambda: os.chown('d', 7, -1), 'utime': lambda: os.utime('d/f', (5, 5)),
    'link': lambda: os.link('d/f', 'e/l2'), 'unlink of one name': lambda: os.unlink('e/link'), 'unlink': lambda: os.unlink('e/h'),
    'rename': rename('d/f', 'd/ff'), 'rename across': rename('d/f', 'e/ff'), 'rename over': rename('d/g', 'd/f'),
    'rename over one name': rename('e/h', 'e/link'), 'rename to the same inode': rename('d/f', 'e/link'),
    'exchange': rename('d/f', 'e/h', 2), 'exchange with a directory': rename('d/f', 'e/empty', 2), 'whiteout': rename('d/g', 'e/gg', 4),
    'rename of a directory': rename('d/sub', 'e/sub'), 'directory over directory': rename('d/sub', 'e/empty'),
    'mkdir': lambda: os.mkdir('d/new'), 'rmdir': lambda: os.rmdir('d/sub'), 'mkfifo': lambda: os.mkfifo('d/p'),
    'create': opened(lambda fd: None, os.O_CREAT | os.O_RDWR, 'd/new'), 'symlink': lambda: os.symlink('x' * 200, 'd/ln'),
    'many names': lambda: [os.mkfifo(f'd/{"n" * 200}{n}') for n in range(30)], 'a name of a temporary file': temporary,
    'setxattr': lambda: os.setxattr('d/f', 'user.a', b'1'), 'setxattr, long': set_long,
    'setxattr of a directory': lambda: os.setxattr('d', 'user.a', b'1' * 2000),
    'removexattr': after(set_long, lambda: os.removexattr('d/f', 'user.a')),
    'acl': set_acl, 'acl of a directory': lambda: os.setxattr('d', 'system.posix_acl_access', ACL),
    'default acl': lambda: os.setxattr('d', 'system.posix_acl_default', ACL),
    'acl removed': after(set_acl, lambda: os.removexattr('d/f', 'system.posix_acl_access')),
    'chmod with an acl': after(set_acl, lambda: os.chmod('d/f', 0o700)),
    'flags': opened(lambda fd: fcntl.ioctl(fd, 0x40086602, struct.pack('q', 0x80040))),
    'close': append(300001, lambda fd: None), 'fsync': append(300001, os.fsync), 'syncfs': append(300001, lambda fd: call('syncfs', fd)),
    'readdir': lambda: os.listdir('d'), 'readlink': lambda: os.readlink('d/s'),
}


def fresh(place):
    os.mkdir(place)
    os.chdir(place)
    for name in ['d', 'e', 'd/sub', 'e/empty']:
        os.mkdir(name)
    for name in ['d/f', 'd/g', 'e/h']:
        with open(name, 'wb') as file:
            file.write(b'x' * 20000)
        os.chmod(name, 0o6777)
    os.link('d/f', 'e/link')
    os.symlink('f', 'd/s')
    for name in ['.', 'd', 'e', 'd/sub', 'e/empty']:
        os.chmod(name, 0o777)
    for name in NAMES:
        os.utime(name, (1000, 1000), follow_symlinks=False)


number = 0
for uid in [0, OTHER] if os.geteuid() == 0 else [os.geteuid()]:
    done = set()
    for name, operation in OPERATIONS.items():
        number += 1
        fresh(f'r{number}')
        fds = [os.open(n, os.O_PATH | os.O_NOFOLLOW) for n in NAMES]
        for fd in fds:
            look(fd, 0x7FF, True)
        with User(uid if os.geteuid() == 0 else 0):
            try:
                operation()
                done.add(name)
            except PermissionError:
                pass
            for what, fd in zip(NAMES, fds):
                cached = {field: look(fd, mask, False)[field] for field, mask in MASKS.items()}
                for field, now in look(fd, 0x7FF, True).items():
                    if cached[field] != now:
                        print(f'user {uid}: {name}: {what}: {field}: cached {cached[field]}, in truth {now}')
        for fd in fds:
            os.close(fd)
        os.chdir('..')
        shutil.rmtree(f'r{number}')
    assert len(done) > 40, done
