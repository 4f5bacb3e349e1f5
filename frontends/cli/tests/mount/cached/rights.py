# Another user changes a program that runs with its owner's rights, and runs it at once.
DIRECT = os.O_RDWR | os.O_DIRECT
pages, address = memory(4096)
with open('/usr/bin/id', 'rb') as file:
    program = file.read()
with open('id', 'wb') as file:
    file.write(program)
os.chown('id', 0, 0)
with open('same', 'wb') as file:
    file.write(program)
pages[:] = program[:4096]
end = len(program) + 4096 & -4096


def run():
    """The user and the group that the program runs as."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(w, 1)
        # Of the real user, not of root.
        uid, gid = os.geteuid(), os.getegid()
        os.seteuid(0)
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
        os.execv('/bin/sh', ['sh', '-p', '-c', './id -u; ./id -g'])
    os.close(w)
    with os.fdopen(r) as said:
        text = said.read()
    os.waitpid(pid, 0)
    return [int(word) for word in text.split()]


def copy(fd):
    source = os.open('same', os.O_RDONLY)
    os.copy_file_range(source, fd, 4096, 0, 0)
    os.close(source)


def send(fd):
    source = os.open('same', os.O_RDONLY)
    os.sendfile(fd, source, 0, 4096)
    os.close(source)


CHANGES = [
    ('write', os.O_RDWR, lambda fd: os.pwrite(fd, program[:100], 0)),
    ('append', os.O_RDWR | os.O_APPEND, lambda fd: os.write(fd, b'x')),
    ('direct write', DIRECT, lambda fd: os.pwritev(fd, [pages], 0)),
    ('aio', DIRECT, lambda fd: Aio().write(fd, address, 4096, 0)),
    ('copy_file_range', os.O_RDWR, copy),
    ('sendfile', os.O_RDWR, send),
    ('truncate', os.O_RDWR, lambda fd: os.ftruncate(fd, end + 1)),
    ('fallocate', os.O_RDWR, lambda fd: call('fallocate', fd, 1, end, 65536)),
    ('punch', os.O_RDWR, lambda fd: call('fallocate', fd, 3, end, 4096)),
    ('zero', os.O_RDWR, lambda fd: call('fallocate', fd, 17, end, 4096)),
]
for turn in range(3):
    for name, flags, change in CHANGES:
        os.chmod('id', 0o6777)
        with User(OTHER):
            before = run()
            fd = os.open('id', flags)
            change(fd)
            os.close(fd)
            after = run()
        if before != [0, 0] or after != [OTHER, OTHER]:
            print(f'{name}: runs as {before}, and after it as {after}')
