# A file whose bytes the kernel still has takes another's name; the mount is killed when that is durable.
how, length = sys.argv[2], int(sys.argv[3])
data = b'n' * length
with open('name', 'wb') as file:
    file.write(b'o' * 5000)
directory = os.open('.', os.O_RDONLY)
os.fsync(directory)
if how == 'temporary':
    os.unlink('name')
    fd = os.open('.', os.O_TMPFILE | os.O_RDWR)
else:
    fd = os.open('new', os.O_CREAT | os.O_RDWR)
if how == 'mapped':
    os.ftruncate(fd, length)
    mapping = mmap.mmap(fd, length)
    mapping[:] = data
else:
    for at in range(0, length, 1000):
        os.write(fd, data[at:at + 1000])
if how in ('rename', 'mapped'):
    os.rename('new', 'name')
elif how == 'exchange':
    call('renameat2', -100, b'new', -100, b'name', 2)
elif how == 'exchange back':
    call('renameat2', -100, b'name', -100, b'new', 2)
elif how == 'link':
    os.unlink('name')
    os.link('new', 'name')
else:
    call('linkat', -100, b'/proc/self/fd/%d' % fd, -100, b'name', 0x400)
os.fsync(directory)
print('durable', flush=True)
# Whoever kills the mount ends this, too: a close would hand the bytes over.
time.sleep(1000)
