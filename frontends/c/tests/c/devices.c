/* A device of this program: memory behind a thread that ends requests later, in another order; failures; its own release. */

#include "suite.h"
#include <pthread.h>

enum { BYTES = 16 << 20, MOST = 1024 };

struct mine {
    pthread_mutex_t lock;
    pthread_cond_t more;
    pthread_t thread;
    struct diorite_io waiting[MOST];
    int count, ends, released, fails, at_once;
    uint64_t requests, flushes;
    char *bytes;
};

static void transfer(struct mine *mine, const struct diorite_io *io)
{
    char *at = mine->bytes + io->offset;
    CHECK(io->offset + io->length <= BYTES && io->offset % 512 == 0 && io->length % 512 == 0);
    for (uint32_t part = 0; part < io->iov_count; part++) {
        struct iovec iov = io->iov[part];
        if (io->op == DIORITE_IO_READ)
            memcpy(iov.iov_base, at, iov.iov_len);
        else
            memcpy(at, iov.iov_base, iov.iov_len);
        at += iov.iov_len;
    }
    if (io->op == DIORITE_IO_WRITE_ZEROES)
        memset(at, 0, io->length);
}

static void *serves(void *of)
{
    struct mine *mine = of;
    pthread_mutex_lock(&mine->lock);
    for (;;) {
        while (mine->count == 0 && !mine->ends)
            pthread_cond_wait(&mine->more, &mine->lock);
        if (mine->count == 0)
            break;
        struct diorite_io io = mine->waiting[--mine->count]; /* the latest first */
        int fails = mine->fails;
        pthread_mutex_unlock(&mine->lock);
        if (fails == 0)
            transfer(mine, &io);
        WELL(diorite_io_end(io.id, -fails));
        FAILS(EBADF, diorite_io_end(io.id, 0));
        pthread_mutex_lock(&mine->lock);
    }
    pthread_mutex_unlock(&mine->lock);
    return NULL;
}

static int submit(void *context, const struct diorite_io *io)
{
    struct mine *mine = context;
    pthread_mutex_lock(&mine->lock);
    mine->requests++;
    mine->flushes += io->op == DIORITE_IO_FLUSH;
    if (mine->at_once) {
        pthread_mutex_unlock(&mine->lock);
        transfer(mine, io);
        return diorite_io_end(io->id, 0);
    }
    int has_room = mine->count < MOST;
    if (has_room)
        mine->waiting[mine->count++] = *io;
    pthread_cond_signal(&mine->more);
    pthread_mutex_unlock(&mine->lock);
    return has_room ? 0 : -EIO;
}

static void release(void *context)
{
    ((struct mine *)context)->released++;
}

static void all(struct mine *mine)
{
    struct diorite_device_operations operations;
    struct diorite_mkfs_options mkfs;
    struct diorite_open_options writable;
    struct diorite_check_result result;
    diorite_device device;
    diorite_volume volume;
    diorite_file file;
    char text[8] = {0};
    DIORITE_INIT(&operations);
    operations.flags = DIORITE_DEVICE_VOLATILE_CACHE | DIORITE_DEVICE_WRITE_ZEROES;
    operations.bytes = BYTES;
    operations.submit = submit;
    operations.release = release;
    DIORITE_INIT(&mkfs);
    DIORITE_INIT(&writable);
    writable.flags = DIORITE_OPEN_WRITE;
    WELL(diorite_device_create("mine", &operations, mine, &device));
    FAILS(EUCLEAN, diorite_volume_open_device(device, &writable, &volume));
    WELL(diorite_mkfs_device(device, &mkfs));
    WELL(diorite_volume_open_device(device, &writable, &volume));
    WELL(diorite_openat(volume, 0, "/a", DIORITE_O_RDWR | DIORITE_O_CREAT, 0644, &file));
    GIVES(5, diorite_pwrite(file, "hello", 5, 0));
    uint64_t before = mine->flushes;
    WELL(diorite_fsync(file));
    CHECK(mine->flushes > before);
    GIVES(5, diorite_pread(file, text, sizeof text, 0));
    CHECK(memcmp(text, "hello", 5) == 0);

    /* Many in flight. */
    enum { COUNT = 32 };
    struct diorite_request batch[COUNT];
    struct diorite_completion done[COUNT];
    diorite_queue queue;
    uint64_t attached;
    char *memory = aligned(COUNT * 4096);
    WELL(diorite_queue_create(volume, NULL, &queue));
    WELL(diorite_queue_attach(queue, file, &attached));
    memset(batch, 0, sizeof batch);
    for (int at = 0; at < COUNT; at++) {
        memset(memory + at * 4096, at, 4096);
        batch[at].file = attached;
        batch[at].op = DIORITE_OP_WRITE;
        batch[at].offset = (uint64_t)at * 4096;
        batch[at].buffer = memory + at * 4096;
        batch[at].length = 4096;
    }
    GIVES(COUNT, diorite_submit(queue, batch, COUNT));
    GIVES(COUNT, diorite_reap(queue, done, COUNT, COUNT, -1));
    for (int at = 0; at < COUNT; at++)
        GIVES(4096, done[at].result);
    WELL(diorite_volume_sync(volume));

    /* It fails a read. */
    if (!mine->at_once) {
        pthread_mutex_lock(&mine->lock);
        mine->fails = EIO;
        pthread_mutex_unlock(&mine->lock);
        batch[0].op = DIORITE_OP_READ;
        GIVES(1, diorite_submit(queue, batch, 1));
        GIVES(1, diorite_reap(queue, done, 1, 1, -1));
        GIVES(-EIO, done[0].result);
        pthread_mutex_lock(&mine->lock);
        mine->fails = 0;
        pthread_mutex_unlock(&mine->lock);
    }
    WELL(diorite_queue_destroy(queue));
    WELL(diorite_close(file));
    WELL(diorite_volume_close(volume));
    WELL(diorite_check_device(device, NULL, &result));
    GIVES(0, result.findings);
    GIVES(0, mine->released);
    WELL(diorite_device_close(device));
    FAILS(EBADF, diorite_device_close(device));
    GIVES(1, mine->released);
    free(memory);
}

void test_devices(void)
{
    for (int at_once = 0; at_once < 2; at_once++) {
        static struct mine mine;
        memset(&mine, 0, sizeof mine);
        mine.at_once = at_once;
        mine.bytes = calloc(1, BYTES);
        CHECK(mine.bytes != NULL);
        CHECK(pthread_mutex_init(&mine.lock, NULL) == 0 && pthread_cond_init(&mine.more, NULL) == 0);
        CHECK(pthread_create(&mine.thread, NULL, serves, &mine) == 0);
        all(&mine);
        pthread_mutex_lock(&mine.lock);
        mine.ends = 1;
        pthread_cond_signal(&mine.more);
        pthread_mutex_unlock(&mine.lock);
        CHECK(pthread_join(mine.thread, NULL) == 0);
        free(mine.bytes);
    }
    FAILS(EINVAL, diorite_io_end(1, 1));
}
