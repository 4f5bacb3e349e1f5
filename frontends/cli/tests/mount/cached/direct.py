# Readers through the cache and through mappings beside direct writes: once a write has returned, nobody sees older bytes.
import threading

LENGTH = 128 << 10
how, rounds = sys.argv[2], int(sys.argv[3])
with open('file', 'wb') as file:
    file.write(bytes(LENGTH))
stop = mmap.mmap(-1, 4096)


def reader(kind):
    """A process that reads as fast as it can."""
    pid = os.fork()
    if pid:
        return pid
    flags = os.O_RDWR | os.O_DIRECT if kind == 'map of a direct file' else os.O_RDWR
    fd = os.open('file', flags)
    while not stop[0] and os.getppid() == parent:
        if kind == 'read':
            os.pread(fd, LENGTH, 0)
        elif kind == 'open':
            other = os.open('file', os.O_RDONLY)
            os.pread(other, LENGTH, 0)
            os.close(other)
        else:
            with mmap.mmap(fd, LENGTH) as m:
                m[::4096]
    os._exit(0)


parent = os.getpid()
readers = [reader(kind) for kind in ['read', 'open', 'map', 'map of a direct file']]
pages, address = memory(LENGTH)
if how == 'toggled':
    fd = os.open('file', os.O_RDWR)
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_DIRECT)
else:
    fd = os.open('file', os.O_RDWR | os.O_DIRECT)
cached = os.open('file', os.O_RDONLY)
mapped = mmap.mmap(cached, LENGTH, prot=mmap.PROT_READ)
aio = Aio()
old = 0
for turn in range(rounds):
    value = bytes([turn % 255 + 1]) * LENGTH
    pages[:] = value
    count = os.pwrite(fd, pages, 0) if how == 'sync' else aio.write(fd, address, LENGTH, 0)
    assert count == LENGTH, count
    seen = {'read': os.pread(cached, LENGTH, 0), 'mapping': mapped[:]}
    for kind, bytes_seen in seen.items():
        if bytes_seen != value:
            old += 1
            if old < 5:
                print(f'{how}: write {turn}: {kind} has old bytes')
stop[0] = 1
for pid in readers:
    os.waitpid(pid, 0)
