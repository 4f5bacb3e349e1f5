# A file is cut while an asynchronous direct write of its last page is under way, and one changes that page by a mapping: then the cache
# has the bytes of the image, whichever of the write and the cut came last.
PAGE = 4096
rounds = int(sys.argv[2])
pages, address = memory(PAGE)
aio = Aio()
fd = os.open('file', os.O_RDWR | os.O_CREAT | os.O_DIRECT)
cached = os.open('file', os.O_RDWR)
os.ftruncate(cached, 2 * PAGE)
mapped = mmap.mmap(cached, 2 * PAGE)
there = mmap.mmap(-1, 2 * PAGE)
old = 0
for turn in range(rounds):
    os.ftruncate(cached, 2 * PAGE)
    pages[:] = bytes([turn % 255 + 1]) * PAGE
    aio.submit(1, fd, address, PAGE, PAGE)
    os.ftruncate(cached, PAGE + 1 + turn * 37 % (PAGE - 1))
    aio.wait()
    mapped[PAGE] = turn % 251
    mapped.flush()
    os.fstat(cached)
    seen = os.pread(cached, 2 * PAGE, 0)
    length = os.preadv(fd, [there], 0)
    if seen != there[:length] or os.fstat(fd).st_size != length:
        old += 1
        if old < 5:
            print(f'round {turn}: {len(seen)} bytes by the cache, {length} in the image; both have the bytes: {seen == there[: len(seen)]}')
