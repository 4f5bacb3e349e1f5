# Others ask for attributes all the time, while names change: what the kernel keeps afterwards is what the server has.
NLINK, MTIME, CTIME = 4, 0x40, 0x80


def look(path, mask, fresh):
    out = ctypes.create_string_buffer(256)
    NOFOLLOW, FORCE_SYNC = 0x100, 0x2000
    call('statx', -100, path.encode(), NOFOLLOW | (FORCE_SYNC if fresh else 0), mask, out)
    nlink, = struct.unpack_from('=I', out, 16)
    return nlink, struct.unpack_from('=qI', out, 64 + 32), struct.unpack_from('=qI', out, 64 + 48)


def change(turn):
    kind = turn // 2 % 4
    if turn % 2:
        [os.rmdir, os.unlink, os.unlink, lambda name: os.rename(name, 'd/back')][kind]('d/new')
    else:
        [os.mkdir, os.mkfifo, lambda name: os.link('d/file', name), lambda name: os.rename('d/back', name)][kind]('d/new')


os.mkdir('d')
for name in ['d/file', 'd/back']:
    os.mkfifo(name)
stop = mmap.mmap(-1, 4096)
parent = os.getpid()
others = []
for _ in range(4):
    pid = os.fork()
    if pid == 0:
        while not stop[0] and os.getppid() == parent:
            look('d', 0x7FF, True)
        os._exit(0)
    others.append(pid)
late = 0
for turn in range(1200):
    change(turn)
    # At once there is mostly nothing old: it comes with a late reply.
    time.sleep(0.0005)
    cached = [look('d', mask, False) for mask in (NLINK, MTIME, CTIME)]
    seen = (cached[0][0], cached[1][2], cached[2][1])
    nlink, ctime, mtime = look('d', 0x7FF, True)
    if seen != (nlink, mtime, ctime):
        late += 1
        if late < 5:
            print(f'change {turn}: cached {seen}, in truth {(nlink, mtime, ctime)}')
stop[0] = 1
for pid in others:
    os.waitpid(pid, 0)
