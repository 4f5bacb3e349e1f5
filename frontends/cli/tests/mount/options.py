# What options do: prints what one sees at the mount point, in lines.
import errno, os, shutil, stat, struct, subprocess, sys, time

root, OTHER = sys.argv[1], 4242
os.chdir(root)


def said(name, act):
    try:
        print(name, act())
    except OSError as error:
        print(name, errno.errorcode[error.errno])


def as_other(act):
    """What `act` gives in a process of another user."""
    inner, outer = os.pipe()
    child = os.fork()
    if not child:
        os.setgroups([])
        os.setresgid(OTHER, OTHER, OTHER)
        os.setresuid(OTHER, OTHER, OTHER)
        try:
            told = str(act())
        except OSError as error:
            told = errno.errorcode[error.errno]
        os.write(outer, told.encode())
        os._exit(0)
    os.close(outer)
    os.waitpid(child, 0)
    told = os.read(inner, 4096).decode()
    os.close(inner)
    return told


def moved(path, use):
    """Whether the access time moves: when it is older than a change, when it is newer, when it is two days old."""
    moves = []
    now = time.time_ns()
    for n, (atime, mtime) in enumerate( [(now - 9 * 10**9, now - 5 * 10**9), (now - 5 * 10**9, now - 9 * 10**9), (now - 2 * 86400 * 10**9, now - 3 * 86400 * 10**9)]):
        # The kernel's FUSE client reads a symbolic link once.
        if use is os.readlink:
            path = f'link{n}'
            os.symlink('file', path)
        os.utime(path, ns=(atime, mtime), follow_symlinks=False)
        before = os.lstat(path).st_atime_ns
        use(path)
        moves.append(os.lstat(path).st_atime_ns != before)
    return moves


def read(path):
    # Past what the cache has.
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.read(fd, 10)
    os.close(fd)


def program(mode):
    shutil.copy('/usr/bin/id', 'id')
    os.chmod('id', mode)
    return subprocess.run(['./id', '-u'], capture_output=True, text=True, user=OTHER, group=OTHER, extra_groups=[]).stdout.strip()


def acl():
    entries = [(1, 6, 0xFFFFFFFF), (2, 4, 1000), (4, 4, 0xFFFFFFFF), (16, 6, 0xFFFFFFFF), (32, 0, 0xFFFFFFFF)]
    value = struct.pack('<I', 2) + b''.join(struct.pack('<HHI', *entry) for entry in entries)
    os.setxattr('file', 'system.posix_acl_access', value)
    return oct(os.stat('file').st_mode)


def device():
    os.mknod('null', stat.S_IFCHR | 0o666, os.makedev(1, 3))
    return os.close(os.open('null', os.O_RDWR))


def groups():
    os.mkdir('ours')
    os.chown('ours', 0, 77)
    os.chmod('ours', 0o777)
    os.close(os.open('ours/file', os.O_CREAT | os.O_WRONLY))
    os.mkdir('ours/dir')
    theirs = as_other(lambda: (os.mkdir('ours/theirs'), os.stat('ours/theirs').st_gid)[1])
    found = os.stat('ours/file'), os.stat('ours/dir')
    return [one.st_gid for one in found], [oct(one.st_mode) for one in found], theirs


def space():
    found = os.statvfs('.')
    return found.f_blocks, found.f_bfree - found.f_bavail


def fill():
    """Whether another user gets more than what is free to all."""
    def act():
        reserve = os.statvfs('.').f_bfree - os.statvfs('.').f_bavail
        fd = os.open('full', os.O_CREAT | os.O_WRONLY, 0o666)
        os.posix_fallocate(fd, 0, (os.statvfs('.').f_bavail + reserve // 2) * 4096)
        return 'fits'
    told = as_other(act)
    os.unlink('full')
    return told


def followed():
    os.symlink('file', 'followed')
    return os.stat('followed').st_size


said('rights', lambda: os.chmod('.', 0o777))
said('write', lambda: open('file', 'w').write('x' * 100))
said('dir', lambda: os.mkdir('dir'))
said('reads move atime', lambda: moved('file', read))
said('lists move atime', lambda: moved('dir', os.listdir))
said('readlink moves atime', lambda: moved('link', os.readlink))
said('a program', lambda: program(0o755))
said('a program with set-user-ID', lambda: program(0o4755))
said('a device', device)
said('an attribute', lambda: os.setxattr('file', 'user.a', b'b'))
said('a trusted one', lambda: os.setxattr('file', 'trusted.a', b'b'))
said('attributes', lambda: sorted(os.listxattr('file')))
said('an ACL', acl)
said('groups', groups)
said('size and reserve', space)
said('the reserve for others', fill)
said('a link', followed)
said('a name of 255 bytes', lambda: os.mkdir('n' * 255))
