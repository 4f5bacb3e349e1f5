"""Random steps: who calls what with which arguments, and what is looked at afterwards.

Input: a seed. Output: steps, each a user, the name of a call, its arguments, and looks: whose, of which path, how. Invariants: the same seed
gives the same steps; few names and offsets, so that steps meet. Limits: what docs/mount.md names as different is not asked for.
"""

import fcntl
import os
import random
import struct

# Users without further groups: those do not come to a FUSE server (docs/mount.md).
USERS = {'root': (0, 0, []), 'one': (1000, 1000, []), 'two': (1001, 3000, [])}
DIRS = ['.', 'p', 'p/q', 'r']
NAMES = ['a', 'b', 'c', 'd']
SLOTS = ['s1', 's2', 's3', 's4']
NODUMP, APPEND, IMMUTABLE, JOURNAL = 0x40, 0x20, 0x10, 0x4000
XAPPEND = 0x10
FLAGS = [0x1, 0x2, 0x4, 0x8, APPEND, IMMUTABLE, NODUMP, 0x80, 0x400, 0x800, 0x1000, JOURNAL, 0x8000, 0x10000, 0x20000,
         0x40000, 0x100000, 0x2000000, 0x10000000, 0x20000000, 0x40000000, 0x80000000]
XFLAGS = [0x8, XAPPEND, 0x20, 0x40, 0x80, 0x200]
MODES = [0o644, 0o600, 0o666, 0o777, 0o755, 0o4755, 0o2755, 0o6777, 0o2766, 0o4711, 0o1777, 0o000, 0o444, 0o640, 0o660, 0o7777]
ACCESS_ACL, DEFAULT_ACL = 'system.posix_acl_access', 'system.posix_acl_default'
EVERYBODY = 0o7777


class Steps:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.seeds = 0
        self.kinds = [(weight, getattr(self, name)) for name, weight in WEIGHTS.items()]

    def pick(self, all):
        return self.random.choice(all)

    def often(self, one, others, of=4):
        """`one` most of the time."""
        return one if self.random.randrange(of) else self.pick(others)

    def path(self):
        strange = self.random.randrange(120)
        if strange < 6:
            return self.pick(['p', 'r', 'p/q', 'a/x', 'n' * 255, 'n' * 256, 'p/', 'a/', '.', 'p/..', 'p/.', 'missing/a', '', 'l/a'])
        if strange < 10:
            return 'l' + self.pick('12')
        return self.pick(DIRS) + '/' + self.pick(NAMES)

    def seed(self):
        self.seeds += 1
        return self.seeds

    def pos(self):
        rough = self.pick([512, 4096, 4096, 65536]) * self.random.randrange(12)
        return self.often(rough, [rough + 1, rough + 100, rough + 4095], 3)

    def length(self):
        rough = self.pick([512, 4096, 4096, 8192]) * self.random.randrange(1, 8)
        return self.often(rough, [1, 7, 100, rough + 1, rough + 513, 0], 3)

    def step(self):
        user = self.pick(['root', 'one', 'one', 'two', 'two'])
        kinds = [kind for _, kind in self.kinds]
        name, *args = self.random.choices(kinds, [weight for weight, _ in self.kinds])[0]()
        return (user, name, args, self.looks(args))

    def looks(self, args):
        """Mostly as cached, so that a cache that nobody refreshes is seen."""
        paths = [a for a in args if isinstance(a, str) and '/' in a and len(a) < 20] + [self.path()]
        found = []
        for path in paths:
            for how in self.pick([['cached'], ['cached'], ['cached', 'fresh'], ['fresh'], []]):
                found.append((self.pick(['root', 'one', 'two']), 'look', [path, how]))
        if self.random.randrange(3) == 0:
            how = self.pick(['cached', 'cached', 'direct', 'mapped'])
            found.append(('root', 'whole', [self.pick(paths), how]))
        return found

    # One kind of step each.

    def opens(self):
        flags = self.pick([os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_RDWR, os.O_RDWR])
        for flag, of in [(os.O_CREAT, 2), (os.O_EXCL, 8), (os.O_TRUNC, 8), (os.O_APPEND, 6), (os.O_DIRECT, 4), (os.O_NOFOLLOW, 8),
                         (os.O_DIRECTORY, 20), (os.O_DSYNC, 12), (os.O_SYNC, 20), (os.O_PATH, 30)]:
            if not self.random.randrange(of):
                flags |= flag
        if flags & os.O_DIRECTORY:
            flags &= ~os.O_CREAT
        if not self.random.randrange(25):
            return 'open', self.pick(SLOTS), self.pick(DIRS), os.O_TMPFILE | os.O_RDWR | self.pick([0, os.O_EXCL]), self.pick(MODES)
        return 'open', self.pick(SLOTS), self.path(), flags | os.O_NONBLOCK, self.pick(MODES)

    def closes(self):
        return 'close', self.pick(SLOTS)

    def preads(self):
        return 'pread', self.pick(SLOTS), self.pos(), self.length()

    def pwrites(self):
        # RWF_DSYNC, RWF_SYNC, RWF_APPEND.
        how = self.often(0, [2, 4, 0x10], 6)
        return 'pwrite', self.pick(SLOTS), self.pos(), self.length(), self.seed(), how

    def writes(self):
        return 'write', self.pick(SLOTS), self.length(), self.seed()

    def ftruncates(self):
        return 'ftruncate', self.pick(SLOTS), self.often(self.pos(), [0, -1, 1 << 20, 1 << 44, (1 << 63) - 1], 8)

    def truncates(self):
        return 'truncate', self.path(), self.often(self.pos(), [0, 0, -1], 6)

    def fallocates(self):
        keep, punch, no_hide, collapse, zero, insert = 1, 2, 4, 8, 16, 32
        mode = self.pick([0, 0, keep, keep | punch, keep | punch, zero, zero | keep, punch, no_hide, keep | zero | punch])
        return 'fallocate', self.pick(SLOTS), mode, self.pos(), self.often(self.length(), [0, -1, 1 << 19], 6)

    def syncs(self):
        return 'sync', self.pick(SLOTS), self.pick(['fsync', 'fdatasync', 'fdatasync', 'syncfs'])

    def copies(self):
        return 'copy', self.pick(SLOTS), self.pick(SLOTS), self.pos(), self.pos(), self.length()

    def sendfiles(self):
        return 'sendfile', self.pick(SLOTS), self.pick(SLOTS), self.pos(), self.length()

    def maps(self):
        return 'map', self.pick(['m1', 'm2']), self.pick(SLOTS), self.pick([4096, 65536, 300000])

    def unmaps(self):
        return 'unmap', self.pick(['m1', 'm2'])

    def mreads(self):
        return 'mread', self.pick(['m1', 'm2']), self.pos(), self.length()

    def mwrites(self):
        return 'mwrite', self.pick(['m1', 'm2']), self.pos(), self.length(), self.seed()

    def fchmods(self):
        return 'fchmod', self.pick(SLOTS), self.pick(MODES)

    def fchowns(self):
        return 'fchown', self.pick(SLOTS), *self.owners()

    def owners(self):
        """Not (-1, -1): docs/mount.md."""
        return self.pick([(0, 0), (1000, 1000), (1001, 3000), (-1, 3000), (1000, -1), (-1, 1000), (1001, 1001), (-1, 0)])

    def setfls(self):
        return 'setfl', self.pick(SLOTS), self.pick([0, os.O_APPEND, os.O_DIRECT, os.O_DIRECT | os.O_APPEND])

    def fstats(self):
        return 'fstat', self.pick(SLOTS)

    def flocks(self):
        return 'flock', self.pick(SLOTS), self.pick([fcntl.LOCK_SH, fcntl.LOCK_EX, fcntl.LOCK_UN])

    def locks(self):
        kind = self.pick([fcntl.F_RDLCK, fcntl.F_WRLCK, fcntl.F_UNLCK])
        # F_SETLK, and F_OFD_SETLK.
        return 'lock', self.pick(SLOTS), kind, self.pick([6, 37]), self.random.randrange(10), self.random.randrange(10)

    def mkdirs(self):
        return 'mkdir', self.often(self.pick(DIRS[1:]), [self.path()], 3), self.pick(MODES)

    def rmdirs(self):
        return 'rmdir', self.often(self.path(), DIRS, 6)

    def unlinks(self):
        return 'unlink', self.path()

    def renames(self):
        noreplace, exchange, whiteout = 1, 2, 4
        flags = self.often(0, [noreplace, exchange, exchange, whiteout, noreplace | whiteout, noreplace | exchange, 8], 2)
        return 'rename', self.path(), self.path(), flags

    def links(self):
        return 'link', self.path(), self.path(), self.pick([False, False, True])

    def linkfds(self):
        return 'linkfd', self.pick(SLOTS), self.path(), self.pick([False, True])

    def symlinks(self):
        target = self.pick(['a', './p/b', '../r/c', 'p', 'missing', 'x' * 59, 'x' * 60, 'x' * 4095, 'l1', 'a/', ''])
        return 'symlink', target, self.often(self.path(), ['l1', 'l2'], 2)

    def readlinks(self):
        return 'readlink', self.path()

    def mknods(self):
        mode = self.pick([0o010000, 0o020000, 0o060000, 0o140000, 0o100000, 0o000000, 0o040000]) | self.pick(MODES)
        return 'mknod', self.path(), mode, self.pick([0, 1, 300]), self.pick([0, 3, 70000])

    def lists(self):
        return 'list', self.pick(DIRS)

    def chmods(self):
        return 'chmod', self.often(self.path(), DIRS[1:], 10), self.pick(MODES)

    def chowns(self):
        return 'chown', self.path(), *self.owners(), self.pick([True, False])

    def umasks(self):
        return 'umask', self.pick([0, 0o022, 0o077, 0o007])

    def utimes(self):
        def time():
            now, omit = (1 << 30) - 1, (1 << 30) - 2
            return self.pick([(0, now), (0, omit), (self.random.randrange(1 << 31), self.random.randrange(10**9)), (-5, 7), (0, 10**9)])
        return 'utimens', self.path(), time(), time(), self.pick([True, False])

    def accesses(self):
        # AT_EACCESS, AT_SYMLINK_NOFOLLOW.
        return 'access', self.path(), self.random.randrange(8), self.pick([0, 0x200, 0x100])

    def acl(self):
        """Sometimes one that makes no sense."""
        def entry(tag, who=0xFFFFFFFF):
            return struct.pack('<HHI', tag, self.random.randrange(8), who)
        all = [entry(1)]
        all += [entry(2, uid) for uid in (1000, 1001) if self.random.randrange(2)]
        all.append(entry(4))
        all += [entry(8, gid) for gid in (1000, 3000) if self.random.randrange(2)]
        if len(all) > 2 or self.random.randrange(2):
            all.append(entry(16))
        all.append(entry(32))
        strange = self.random.randrange(20)
        if strange == 0:
            all.pop(self.random.randrange(len(all)))
        elif strange == 1:
            self.random.shuffle(all)
        return struct.pack('<I', self.often(2, [1, 3], 30)) + b''.join(all)

    def setxattrs(self):
        name = self.pick(['user.a', 'user.b', 'user.' + 'n' * 250, 'trusted.a', 'security.a', 'security.capability', 'system.a', 'odd'])
        value = bytes([self.seed() % 256]) * self.pick([0, 1, 20, 100, 900, 3000, 3900, 4100, 66000])
        if name == 'security.capability' and self.random.randrange(4):
            value = struct.pack('<IIIII', 0x02000001, 1 << 10, 0, 0, 0)
        return 'setxattr', self.path(), name, value, self.often(0, [1, 2], 4), self.pick([True, False])

    def setacls(self):
        return 'setxattr', self.often(self.path(), DIRS[1:], 4), self.pick([ACCESS_ACL, DEFAULT_ACL]), self.often(self.acl(), [b'', b'\2\0\0\0'], 10), 0, True

    def name(self):
        return self.pick(['user.a', 'user.b', 'trusted.a', 'security.a', 'security.capability', ACCESS_ACL, DEFAULT_ACL, 'system.a'])

    def getxattrs(self):
        return 'getxattr', self.path(), self.name(), self.pick([True, False])

    def removexattrs(self):
        return 'removexattr', self.path(), self.name(), self.pick([True, False])

    def listxattrs(self):
        return 'listxattr', self.path(), self.pick([True, False])

    def statfses(self):
        return 'statfs', self.pick(DIRS)

    def chflags(self):
        if self.random.randrange(3):
            # They would make everything fail.
            return 'chflags', self.path(), APPEND | IMMUTABLE, 0
        return 'chflags', self.path(), 0, self.pick(FLAGS)

    def chxflags(self):
        return 'chxflags', self.path(), 0x18, self.often(0, XFLAGS, 2), 0

    def ioctls(self):
        """Number, argument, and how many bytes of the result are the same everywhere."""
        number, argument, keeps = self.pick([
            (0x80087601, bytes(8), 0),               # FS_IOC_GETVERSION
            (0x40087602, bytes(8), 0),               # FS_IOC_SETVERSION
            (0x801C581F, bytes(28), 8),              # FS_IOC_FSGETXATTR
            (0xC0185879, struct.pack('QQQ', 0, 0, 0), 0),  # FITRIM
            (0xC0185879, struct.pack('QQQ', 1 << 50, 4096, 0), 0),
            (0x81009431, bytes(256), 256),           # FS_IOC_GETFSLABEL
            (0x41009432, b'x' * 256, 0),             # FS_IOC_SETFSLABEL
            (0x41009432, self.pick([b'one', b'two', b'x' * 16, b'']).ljust(256, b'\0'), 0),
            (0x541B, bytes(4), 0),                   # FIONREAD
            (0x5460, bytes(8), 0),                   # FIOQSIZE
            (0x12345678, bytes(64), 0),
        ])
        return 'ioctl', self.often(self.path(), DIRS, 4), number, argument, keeps


WEIGHTS = {
    'opens': 60, 'closes': 6, 'preads': 15, 'pwrites': 40, 'writes': 15, 'ftruncates': 15, 'truncates': 8, 'fallocates': 25, 'syncs': 8,
    'copies': 10, 'sendfiles': 3, 'maps': 10, 'unmaps': 2, 'mreads': 10, 'mwrites': 15, 'fchmods': 8, 'fchowns': 6, 'setfls': 4,
    'fstats': 6, 'flocks': 3, 'locks': 4, 'mkdirs': 10, 'rmdirs': 3, 'unlinks': 10, 'renames': 15, 'links': 8, 'linkfds': 5,
    'symlinks': 5, 'readlinks': 3, 'mknods': 4, 'lists': 4, 'chmods': 15, 'chowns': 12, 'umasks': 2, 'utimes': 10, 'accesses': 6,
    'setxattrs': 12, 'setacls': 10, 'getxattrs': 6, 'removexattrs': 6, 'listxattrs': 4, 'statfses': 2, 'chflags': 15, 'chxflags': 6,
    'ioctls': 8,
}
