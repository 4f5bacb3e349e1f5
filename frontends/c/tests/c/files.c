/* Files: cached and direct calls, allocation, holes; handles, threads and forks. */

#include "suite.h"
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

void test_files(void)
{
    diorite_volume volume = new_volume("image", 64);
    diorite_file file, direct, inode, link;
    char text[64];
    uint64_t at = 0;
    struct diorite_stat stat;
    struct diorite_volume_stat space;
    struct iovec parts[3];
    char *page = aligned(8192);

    WELL(diorite_volume_stat(volume, &space));
    CHECK(space.bytes == 64 << 20 && space.blocks_free > 1000 && strcmp(space.label, "suite") == 0);
    CHECK(space.uuid[0] == 1 && space.uuid[2] == 3 && space.direct_align >= 512 && space.atomic_min >= 512);

    /* Through the page cache. */
    FAILS(ENOENT, diorite_openat(volume, 0, "/a", DIORITE_O_RDWR, 0, &file));
    WELL(diorite_openat(volume, 0, "/a", DIORITE_O_RDWR | DIORITE_O_CREAT | DIORITE_O_EXCL, 0640, &file));
    FAILS(EEXIST, diorite_openat(volume, 0, "/a", DIORITE_O_RDWR | DIORITE_O_CREAT | DIORITE_O_EXCL, 0640, &direct));
    CHECK(direct == 0);
    GIVES(5, diorite_pwrite(file, "hello", 5, 3));
    GIVES(6, diorite_append(file, " world", 6, &at));
    CHECK(at == 8);
    GIVES(14, diorite_file_size(file));
    GIVES(11, diorite_pread(file, text, sizeof text, 3));
    CHECK(memcmp(text, "hello world", 11) == 0);
    GIVES(0, diorite_pread(file, text, sizeof text, 14));
    parts[0] = (struct iovec){text, 2};
    parts[1] = (struct iovec){NULL, 0};
    parts[2] = (struct iovec){text + 10, 3};
    GIVES(5, diorite_preadv(file, parts, 3, 3));
    CHECK(memcmp(text, "he", 2) == 0 && memcmp(text + 10, "llo", 3) == 0);
    GIVES(5, diorite_pwritev(file, parts, 3, 100));
    WELL(diorite_fsync(file));
    WELL(diorite_fdatasync(file));
    WELL(diorite_fstat(file, &stat));
    CHECK(stat.size == 105 && stat.mode == 0100640 && stat.nlink == 1 && stat.mtime.sec > 1700000000);
    GIVES(stat.ino, diorite_file_ino(file));

    /* By number, and read-only. */
    WELL(diorite_open_ino(volume, stat.ino, 0, &inode));
    FAILS(EROFS, diorite_pwrite(inode, "x", 1, 0));
    FAILS(EISDIR, diorite_openat(volume, 0, "/", DIORITE_O_RDWR, 0, &direct));
    FAILS(ENOTDIR, diorite_openat(volume, 0, "/a", DIORITE_O_DIRECTORY, 0, &direct));
    WELL(diorite_openat(volume, 2, "a", 0, 0, &direct));
    WELL(diorite_close(direct));
    FAILS(EINVAL, diorite_mkdirat(volume, 2, "a/b", 0755, NULL));
    WELL(diorite_symlinkat(volume, "a", 0, "/link", NULL));
    FAILS(ELOOP, diorite_openat(volume, 0, "/link", DIORITE_O_NOFOLLOW, 0, &link));
    WELL(diorite_openat(volume, 0, "/link", 0, 0, &link));
    GIVES(stat.ino, diorite_file_ino(link));

    /* Direct, from and to this memory. */
    WELL(diorite_openat(volume, 0, "/d", DIORITE_O_RDWR | DIORITE_O_CREAT | DIORITE_O_DIRECT, 0644, &direct));
    memset(page, 'd', 8192);
    GIVES(4096, diorite_pwrite(direct, page, 4096, 4096));
    FAILS(EINVAL, diorite_pwrite(direct, page, 4095, 0));
    FAILS(EINVAL, diorite_pwrite(direct, page, 4096, 1));
    FAILS(EINVAL, diorite_pread(direct, page, (size_t)2 << 30, 0));
    memset(page, 0, 8192);
    GIVES(8192, diorite_pread(direct, page, 8192, 0));
    CHECK(page[4095] == 0 && page[4096] == 'd' && page[8191] == 'd');
    GIVES(4096, diorite_append(direct, page + 4096, 4096, &at));
    CHECK(at == 8192);
    parts[0] = (struct iovec){page, 512};
    parts[1] = (struct iovec){page + 4096, 3584};
    GIVES(4096, diorite_preadv(direct, parts, 2, 8192));
    CHECK(page[0] == 'd' && page[511] == 'd' && page[512] == 0);
    GIVES(4096, diorite_pwritev(direct, parts, 2, 0));

    /* Allocation and holes. */
    WELL(diorite_fallocate(direct, 0, 0, 1 << 20));
    GIVES(1 << 20, diorite_file_size(direct));
    WELL(diorite_fallocate(direct, DIORITE_FALLOC_PUNCH_HOLE | DIORITE_FALLOC_KEEP_SIZE, 0, 4096));
    GIVES(4096, diorite_seek(direct, 0, DIORITE_SEEK_DATA));
    GIVES(0, diorite_seek(direct, 0, DIORITE_SEEK_HOLE));
    GIVES(4096, diorite_pread(direct, page, 4096, 0));
    CHECK(page[0] == 0);
    WELL(diorite_ftruncate(direct, 100));
    GIVES(100, diorite_file_size(direct));

    /* A file without a name gets one, which replaces another. */
    WELL(diorite_openat(volume, 0, "/", DIORITE_O_RDWR | DIORITE_O_TMPFILE, 0600, &inode));
    GIVES(3, diorite_pwrite(inode, "new", 3, 0));
    FAILS(EEXIST, diorite_linkfile(volume, inode, 0, "/a", 0));
    WELL(diorite_linkfile(volume, inode, 0, "/a", 1));
    GIVES(diorite_file_ino(inode), diorite_lookup(volume, 0, "/a", 0));
    WELL(diorite_openat(volume, 0, "/", DIORITE_O_RDWR | DIORITE_O_TMPFILE | DIORITE_O_DSYNC, 0600, &inode));
    GIVES(3, diorite_pwrite(inode, "new", 3, 0));
    WELL(diorite_openat(volume, 0, "/a", DIORITE_O_RDWR | DIORITE_O_TRUNC, 0, &inode));
    GIVES(0, diorite_file_size(inode));

    WELL(diorite_volume_sync(volume));
    WELL(diorite_volume_close(volume));
    FAILS(ESHUTDOWN, diorite_pwrite(direct, page, 4096, 0));
    WELL(diorite_close(direct));
    FAILS(EBADF, diorite_close(direct));
    free(page);
}

void test_handles(void)
{
    diorite_volume volume = new_volume("image", 16);
    diorite_file file, again;
    diorite_queue queue;
    diorite_dir dir;
    uint64_t attached;
    WELL(diorite_openat(volume, 0, "/a", DIORITE_O_RDWR | DIORITE_O_CREAT, 0644, &file));
    WELL(diorite_queue_create(volume, NULL, &queue));
    WELL(diorite_opendirat(volume, 0, "/", &dir));

    /* A handle of another kind. */
    FAILS(EBADF, diorite_close(volume));
    FAILS(EBADF, diorite_close(queue));
    FAILS(EBADF, diorite_volume_close(file));
    FAILS(EBADF, diorite_queue_destroy(dir));
    FAILS(EBADF, diorite_closedir(file));
    FAILS(EBADF, diorite_queue_attach(queue, volume, &attached));
    CHECK(strstr(diorite_error_message(), "is no file") != NULL);

    /* A closed one, whose place another file has. */
    WELL(diorite_close(file));
    FAILS(EBADF, diorite_fsync(file));
    CHECK(strstr(diorite_error_message(), "closed") != NULL);
    WELL(diorite_openat(volume, 0, "/a", DIORITE_O_RDWR, 0, &again));
    CHECK(again != file);
    FAILS(EBADF, diorite_fsync(file));
    WELL(diorite_fsync(again));

    /* Of a volume that is closed. */
    WELL(diorite_queue_attach(queue, again, &attached));
    WELL(diorite_volume_close(volume));
    FAILS(ESHUTDOWN, diorite_fsync(again));
    WELL(diorite_close(again));
    WELL(diorite_closedir(dir));
    WELL(diorite_queue_destroy(queue));
}

enum { ROUNDS = 300 };

static diorite_volume shared;
static diorite_file shared_file;
static uint64_t closing[ROUNDS];

/* Opens and closes what the other thread uses at the same time. */
static void *opens(void *unused)
{
    (void)unused;
    for (int round = 0; round < ROUNDS; round++) {
        diorite_file file;
        WELL(diorite_openat(shared, 0, "/a", DIORITE_O_RDWR, 0, &file));
        __atomic_store_n(&closing[round], file, __ATOMIC_RELEASE);
        GIVES(1, diorite_pwrite(file, "x", 1, (uint64_t)round));
        WELL(diorite_close(file));
    }
    return NULL;
}

static void *uses(void *unused)
{
    char byte;
    (void)unused;
    for (int round = 0; round < ROUNDS; round++) {
        diorite_file file;
        while ((file = __atomic_load_n(&closing[round], __ATOMIC_ACQUIRE)) == 0)
            GIVES(1, diorite_pread(shared_file, &byte, 1, 0));
        int64_t got = diorite_pread(file, &byte, 1, 0);
        CHECK(got == 1 || got == -EBADF);
    }
    return NULL;
}

void test_threads(void)
{
    pthread_t threads[2];
    shared = new_volume("image", 16);
    WELL(diorite_openat(shared, 0, "/a", DIORITE_O_RDWR | DIORITE_O_CREAT, 0644, &shared_file));
    GIVES(1, diorite_pwrite(shared_file, "y", 1, 0));
    CHECK(pthread_create(&threads[0], NULL, opens, NULL) == 0);
    CHECK(pthread_create(&threads[1], NULL, uses, NULL) == 0);
    CHECK(pthread_join(threads[0], NULL) == 0 && pthread_join(threads[1], NULL) == 0);
    GIVES(ROUNDS, diorite_file_size(shared_file));
    /* The message is of the thread. */
    FAILS(EBADF, diorite_close(0));
    WELL(diorite_close(shared_file));
    WELL(diorite_volume_close(shared));
}

void test_fork(void)
{
    diorite_volume volume = new_volume("image", 16);
    diorite_file file;
    int status;
    WELL(diorite_openat(volume, 0, "/a", DIORITE_O_RDWR | DIORITE_O_CREAT, 0644, &file));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        FAILS(EBADF, diorite_fsync(file));
        CHECK(strstr(diorite_error_message(), "before fork()") != NULL);
        FAILS(EBADF, diorite_close(file));
        FAILS(EBADF, diorite_volume_sync(volume));
        FAILS(EBADF, diorite_volume_close(volume));
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    GIVES(1, diorite_pwrite(file, "x", 1, 0));
    WELL(diorite_fsync(file));
    WELL(diorite_close(file));
    WELL(diorite_volume_close(volume));

    /* With nothing open, the child has the library for itself; a handle of the parent stays none. */
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct diorite_open_options options;
        DIORITE_INIT(&options);
        options.flags = DIORITE_OPEN_WRITE;
        FAILS(EBADF, diorite_volume_sync(volume));
        WELL(diorite_volume_open(path_of("image"), &options, &volume));
        WELL(diorite_openat(volume, 0, "/b", DIORITE_O_RDWR | DIORITE_O_CREAT, 0644, &file));
        GIVES(1, diorite_pwrite(file, "x", 1, 0));
        WELL(diorite_close(file));
        WELL(diorite_volume_close(volume));
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    WELL(diorite_volume_open(path_of("image"), NULL, &volume));
    CHECK(diorite_lookup(volume, 0, "/b", 0) > 0);
    WELL(diorite_volume_close(volume));
}
