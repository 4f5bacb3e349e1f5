"""System calls by name, each with a result that can be compared between two file systems.

Input: arguments without memory of this process: paths, numbers of open files, seeds of contents. Output: numbers, bytes, tuples; OSError.
Invariant: nothing that is random in a file system (inode numbers, generations, places) is part of a result. Limits: x86-64 and aarch64.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import platform
import random
import struct
import time
import zlib

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
HERE = -100
NUMBERS = {
    'x86_64': {'renameat2': 316, 'faccessat2': 439, 'io_setup': 206, 'io_destroy': 207, 'io_getevents': 208, 'io_submit': 209},
    'aarch64': {'renameat2': 276, 'faccessat2': 439, 'io_setup': 0, 'io_destroy': 1, 'io_getevents': 4, 'io_submit': 2},
}[platform.machine()]
# The longest content that is looked at.
WHOLE = 4 << 20


def call(function, *args):
    """A function of the C library; integers are 64 bits wide."""
    args = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    done = function(*args)
    if done < 0:
        raise OSError(ctypes.get_errno(), 'a call')
    return done


def attempt(function, *args, **more):
    """What a function returns, or the name of its error."""
    try:
        return function(*args, **more)
    except OSError as e:
        return errno.errorcode[e.errno]


def contents(seed, length):
    """Bytes that tell where they come from: none is zero."""
    one = random.Random(seed).randbytes(509).replace(b'\0', b'\1')
    return (one * (length // len(one) + 1))[:length]


def digest(data):
    return (len(data), zlib.crc32(data))


def memory(length):
    """Memory as direct I/O wants it."""
    whole = mmap.mmap(-1, max(length, 1))
    return memoryview(whole)[:length]


def statx(path, how):
    """A file's attributes: as stat(2) shows them, perhaps from a cache, or as the server says now. Links are not followed. With
    AT_STATX_DONT_SYNC the kernel's FUSE client shows even what it knows to be untrue, which no program sees otherwise."""
    buf = ctypes.create_string_buffer(256)
    libc.statx.restype = ctypes.c_int
    flags = {'cached': 0, 'fresh': 0x2000}[how] | 0x100
    call(libc.statx, HERE, path.encode(), flags, 0x7FF, buf)
    mask, block, _, links, uid, gid, mode, ino, size = struct.unpack_from('IIQIIIHxxQQ', buf)
    times = [struct.unpack_from('qI', buf, at) for at in (0x40, 0x50, 0x60, 0x70)]
    device = struct.unpack_from('II', buf, 0x80)
    is_dir = mode & 0o170000 == 0o040000
    return {
        'mask': mask & 0x7FF, 'links': links, 'owner': (uid, gid), 'mode': oct(mode), 'ino': ino, 'device': device,
        'size': 'a directory' if is_dir else size, 'mtime': times[3], 'ctime': times[2], 'block': block,
    }


def has_resources():
    """CAP_SYS_RESOURCE."""
    with open('/proc/self/status') as file:
        line = next(line for line in file if line.startswith('CapEff:'))
    return bool(int(line.split()[1], 16) >> 24 & 1)


def flags_of(fd):
    """The flags of a file. Whether a small one lies in its inode or in blocks is no difference (docs/mount.md)."""
    have = struct.unpack('I', fcntl.ioctl(fd, 0x80086601, bytes(4)))[0]
    return hex(have ^ 0x10080000 if have & 0x10080000 == 0x10000000 else have)


def patiently(do, *args):
    """The kernel tells a server of a close when it likes: until then the file may be busy."""
    for _ in range(500):
        try:
            return do(*args)
        except OSError as e:
            if e.errno != errno.EBUSY:
                raise
            time.sleep(0.02)
    return do(*args)


class Calls:
    """What one user has open on one mount."""

    def __init__(self, root):
        self.root = root
        os.chdir(root)
        self.files = {}
        self.maps = {}
        self.used_before = 0

    # Open files.

    def open(self, slot, path, flags, mode):
        fd = os.open(path, flags, mode)
        self.close(slot)
        self.files[slot] = fd
        return 'ok'

    def close_all(self):
        for slot in list(self.files):
            self.close(slot)
        for key in list(self.maps):
            self.unmap(key)

    def close(self, slot):
        if slot in self.files:
            os.close(self.files.pop(slot))

    def fd(self, slot):
        if slot not in self.files:
            raise OSError(errno.EBADF, 'not open')
        return self.files[slot]

    def pread(self, slot, pos, length):
        if self.is_odd(self.fd(slot), pos, length, reads=True):
            return 'not asked'
        buf = memory(length)
        done = os.preadv(self.fd(slot), [buf], pos)
        return digest(bytes(buf[:done]))

    def is_odd(self, fd, pos, length, reads=False):
        """Direct I/O of no whole sectors: before the kernel's ext4 refuses such a write, it has changed times and rights; where nothing is
        written it may read such a range."""
        flags = fcntl.fcntl(fd, fcntl.F_GETFL)
        if flags & os.O_APPEND and not reads:
            pos = os.fstat(fd).st_size
        return bool(flags & os.O_DIRECT and (pos | length) % 512)

    def pwrite(self, slot, pos, length, seed, how):
        if self.is_odd(self.fd(slot), os.fstat(self.fd(slot)).st_size if how & 0x10 else pos, length):
            return 'not asked'
        buf = memory(length)
        buf[:] = contents(seed, length)
        return os.pwritev(self.fd(slot), [buf], pos, how)

    def write(self, slot, length, seed):
        if self.is_odd(self.fd(slot), os.lseek(self.fd(slot), 0, os.SEEK_CUR), length):
            return 'not asked'
        buf = memory(length)
        buf[:] = contents(seed, length)
        return os.writev(self.fd(slot), [buf])

    def aio(self, slot, pos, length, seed, _):
        """A direct write by libaio, as databases do it."""
        fd = self.fd(slot)
        if not self.is_direct(slot) or self.is_odd(fd, pos, length):
            return 'not asked'
        buf = memory(length)
        buf[:] = contents(seed, length)
        address = ctypes.addressof(ctypes.c_char.from_buffer(buf)) if length else 0
        context = ctypes.c_ulong(0)
        call(libc.syscall, NUMBERS['io_setup'], 1, ctypes.byref(context))
        try:
            request = ctypes.create_string_buffer(struct.pack('QIiHhIQQqQII', 0, 0, 0, 1, 0, fd, address, length, pos, 0, 0, 0))
            requests = (ctypes.c_void_p * 1)(ctypes.addressof(request))
            call(libc.syscall, NUMBERS['io_submit'], context.value, 1, requests)
            event = ctypes.create_string_buffer(32)
            call(libc.syscall, NUMBERS['io_getevents'], context.value, 1, 1, event, None)
            done = struct.unpack_from('q', event, 16)[0]
            if done < 0:
                raise OSError(-done, 'a write')
            return done
        finally:
            call(libc.syscall, NUMBERS['io_destroy'], context.value)

    def ftruncate(self, slot, length):
        return os.ftruncate(self.fd(slot), length)

    def truncate(self, path, length):
        return os.truncate(path, length)

    def fallocate(self, slot, mode, pos, length):
        return call(libc.fallocate, self.fd(slot), mode, pos, length)

    def sync(self, slot, how):
        fd = self.fd(slot)
        return call({'fsync': libc.fsync, 'fdatasync': libc.fdatasync, 'syncfs': libc.syncfs}[how], fd)

    def is_direct(self, *slots):
        return any(fcntl.fcntl(self.fd(slot), fcntl.F_GETFL) & os.O_DIRECT for slot in slots)

    def copy(self, slot, other, at, to, length):
        if self.is_direct(slot, other):
            return 'not asked'
        return os.copy_file_range(self.fd(slot), self.fd(other), length, at, to)

    def sendfile(self, slot, other, at, length):
        if self.is_direct(slot, other):
            return 'not asked'
        return os.sendfile(self.fd(other), self.fd(slot), at, length)

    def fchmod(self, slot, mode):
        return os.fchmod(self.fd(slot), mode)

    def fchown(self, slot, uid, gid):
        return os.fchown(self.fd(slot), uid, gid)

    def setfl(self, slot, flags):
        return fcntl.fcntl(self.fd(slot), fcntl.F_SETFL, flags)

    def fstat(self, slot):
        have = os.fstat(self.fd(slot))
        is_dir = have.st_mode & 0o170000 == 0o040000
        return (oct(have.st_mode), 0 if is_dir and not have.st_nlink else have.st_nlink, have.st_uid, have.st_gid,
                None if is_dir else have.st_size)

    def flock(self, slot, how):
        return fcntl.flock(self.fd(slot), how | fcntl.LOCK_NB)

    def lock(self, slot, kind, command, start, length):
        one = struct.pack('hhqqi4x', kind, 0, start, length, 0)
        fcntl.fcntl(self.fd(slot), command, one)
        return 'ok'

    # Mappings: they stay when their file is closed.

    def map(self, key, slot, length):
        fd = self.fd(slot)
        if not os.fstat(fd).st_size or fcntl.fcntl(fd, fcntl.F_GETFL) & (os.O_DIRECT | 3) != os.O_RDWR:
            return 'not mapped'
        one = mmap.mmap(fd, length)
        self.unmap(key)
        self.maps[key] = (os.dup(fd), one)
        return 'ok'

    def unmap(self, key):
        if key in self.maps:
            fd, one = self.maps.pop(key)
            one.close()
            os.close(fd)

    def mapped(self, key, pos, length):
        """None where the file ends earlier: such memory is not there."""
        if key not in self.maps:
            return None
        fd, one = self.maps[key]
        end = min(os.fstat(fd).st_size, len(one))
        return (one, min(pos, end), min(pos + length, end))

    def mread(self, key, pos, length):
        have = self.mapped(key, pos, length)
        return have and digest(have[0][have[1]:have[2]])

    def mwrite(self, key, pos, length, seed):
        have = self.mapped(key, pos, length)
        if not have or have[1] == have[2]:
            return None
        one, start, end = have
        one[start:end] = contents(seed, end - start)
        fd = self.maps[key][0]
        is_direct = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT
        seen = None if is_direct else digest(os.pread(fd, end - start, start))
        one.flush()
        return (end - start, seen)

    # Names.

    def mkdir(self, path, mode):
        return os.mkdir(path, mode)

    def rmdir(self, path):
        return os.rmdir(path)

    def unlink(self, path):
        return os.unlink(path)

    def rename(self, path, other, flags):
        return call(libc.syscall, NUMBERS['renameat2'], HERE, path.encode(), HERE, other.encode(), flags)

    def link(self, path, other, follow):
        return call(libc.linkat, HERE, path.encode(), HERE, other.encode(), 0x400 if follow else 0)

    def linkfd(self, slot, other, by_proc):
        if by_proc:
            return call(libc.linkat, HERE, f'/proc/self/fd/{self.fd(slot)}'.encode(), HERE, other.encode(), 0x400)
        return call(libc.linkat, self.fd(slot), b'', HERE, other.encode(), 0x1000)

    def symlink(self, target, path):
        return os.symlink(target, path)

    def readlink(self, path):
        return os.readlink(path)

    def mknod(self, path, mode, major, minor):
        return os.mknod(path, mode, os.makedev(major, minor))

    def list(self, path):
        with os.scandir(path) as all:
            kinds = [(e.name, e.is_dir(follow_symlinks=False), e.is_symlink(), e.is_file(follow_symlinks=False)) for e in all]
        return sorted(kinds)

    # Attributes.

    def chmod(self, path, mode):
        return os.chmod(path, mode)

    def chown(self, path, uid, gid, follow):
        return os.chown(path, uid, gid, follow_symlinks=follow)

    def umask(self, mask):
        os.umask(mask)

    def utimens(self, path, access, change, follow):
        times = struct.pack('qqqq', *access, *change)
        return call(libc.utimensat, HERE, path.encode(), times, 0 if follow else 0x100)

    def access(self, path, mode, flags):
        return call(libc.syscall, NUMBERS['faccessat2'], HERE, path.encode(), mode, flags)

    def setxattr(self, path, name, value, how, follow):
        return os.setxattr(path, name, value, how, follow_symlinks=follow)

    def getxattr(self, path, name, follow):
        return os.getxattr(path, name, follow_symlinks=follow)

    def removexattr(self, path, name, follow):
        return os.removexattr(path, name, follow_symlinks=follow)

    def listxattr(self, path, follow):
        return sorted(os.listxattr(path, follow_symlinks=follow))

    def statfs(self, path):
        """With the inodes that came into use since `begin`. Free blocks depend on where data has its place: maps need some."""
        have = os.statvfs(path)
        return (have.f_bsize, have.f_frsize, have.f_blocks, have.f_files, have.f_namemax, have.f_flag & 0x1CFF, self.used() - self.used_before)

    def begin(self):
        self.used_before = self.used()

    def used(self):
        have = os.statvfs(self.root)
        return have.f_files - have.f_ffree

    # Ioctls, on a file that is opened for that.

    def ioctl(self, path, number, argument, keeps):
        """`keeps`: how much of what comes out is the same on all file systems."""
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        try:
            buf = bytearray(argument)
            done = fcntl.ioctl(fd, number, buf)
            return (done, bytes(buf[:keeps]))
        finally:
            os.close(fd)

    def chflags(self, path, clear, toggle):
        """Flags as chattr changes them. The kernel's ext4 asks whoever changes `j` for a capability, a server for root."""
        if toggle & 0x4000 and os.geteuid() == 0 and not has_resources():
            return 'not asked'
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        try:
            have = struct.unpack('I', fcntl.ioctl(fd, 0x80086601, bytes(4)))[0]
            want = struct.pack('I', have & ~clear ^ toggle)
            patiently(fcntl.ioctl, fd, 0x40086602, want)
            return flags_of(fd)
        finally:
            os.close(fd)

    def is_unchangeable(self, what):
        """Is it immutable or append-only?"""
        fd = os.dup(self.files[what]) if what in self.files else os.open(what, os.O_RDONLY | os.O_NONBLOCK)
        try:
            return bool(struct.unpack('I', fcntl.ioctl(fd, 0x80086601, bytes(4)))[0] & 0x30)
        finally:
            os.close(fd)

    def chxflags(self, path, clear, toggle, project):
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        try:
            have = list(struct.unpack('IIIII8x', fcntl.ioctl(fd, 0x801C581F, bytes(28))))
            have[0] = have[0] & ~clear ^ toggle
            have[3] = project
            patiently(fcntl.ioctl, fd, 0x401C5820, struct.pack('IIIII8x', *have))
            return fcntl.ioctl(fd, 0x801C581F, bytes(28))
        finally:
            os.close(fd)

    # What is there.

    def whole(self, path, how):
        """The contents of a file, through the cache, past it, or by a mapping. Its last access is not noted."""
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | (os.O_DIRECT if how == 'direct' else 0))
        try:
            have = os.fstat(fd)
            if have.st_mode & 0o170000 != 0o100000:
                return 'no file'
            if how == 'mapped':
                length = min(have.st_size, WHOLE)
                if not length:
                    return digest(b'')
                with mmap.mmap(fd, length, prot=mmap.PROT_READ) as one:
                    return digest(one[:])
            buf = memory(WHOLE)
            done = os.preadv(fd, [buf], 0)
            return digest(bytes(buf[:done]))
        finally:
            os.close(fd)

    def look(self, path, how):
        return statx(path, how)

    def walk(self):
        """Everything there is: attributes, extended attributes, flags, contents; hard links by the first of their names."""
        found, first = {}, {}
        todo = ['.']
        while todo:
            path = todo.pop()
            one = statx(path, 'fresh')
            kind = int(one['mode'], 8) & 0o170000
            one['same as'] = first.setdefault(one.pop('ino'), path)
            one['atime'] = one['mtime'] = one['ctime'] = None
            names = sorted(os.listxattr(path, follow_symlinks=False))
            one['names'] = {name: attempt(os.getxattr, path, name, follow_symlinks=False) for name in names}
            if kind == 0o120000:
                one['target'] = os.readlink(path)
            if kind in (0o040000, 0o100000):
                fd = os.open(path, os.O_RDONLY)
                one['flags'] = flags_of(fd)
                os.close(fd)
            if kind == 0o100000:
                for how in ('cached', 'direct', 'mapped'):
                    one[how] = self.whole(path, how)
            found[path] = one
            if kind == 0o040000:
                todo.extend(sorted((f'{path}/{name}' for name in os.listdir(path)), reverse=True))
        return found
