/* Queues: requests of each kind, buffers and vectors and regions, failures with their messages, a descriptor to poll. */

#include "suite.h"
#include <poll.h>
#include <pthread.h>

enum { DEPTH = 64, PAGE = 4096 };

static struct diorite_request request(uint64_t file, uint32_t op, uint64_t offset, void *buffer, uint64_t length)
{
    struct diorite_request made;
    memset(&made, 0, sizeof made);
    made.file = file;
    made.op = op;
    made.offset = offset;
    made.buffer = buffer;
    made.length = length;
    made.token = offset + 1;
    return made;
}

/* Runs one request to its end. */
static struct diorite_completion run(diorite_queue queue, struct diorite_request one)
{
    struct diorite_completion done;
    GIVES(1, diorite_submit(queue, &one, 1));
    GIVES(1, diorite_reap(queue, &done, 1, 1, -1));
    CHECK(done.token == one.token);
    return done;
}

static void many(diorite_queue queue, uint64_t file, char *memory, uint32_t region)
{
    struct diorite_request batch[DEPTH];
    struct diorite_completion done[DEPTH];
    for (int op = DIORITE_OP_WRITE; op >= DIORITE_OP_READ; op--) {
        for (int at = 0; at < DEPTH; at++) {
            if (op == DIORITE_OP_WRITE)
                memset(memory + at * PAGE, at + 1, PAGE);
            batch[at] = request(file, (uint32_t)op, (uint64_t)at * PAGE, memory + at * PAGE, PAGE);
            batch[at].region = region;
        }
        GIVES(DEPTH, diorite_submit(queue, batch, DEPTH));
        GIVES(0, diorite_submit(queue, batch, 1)); /* it is full */
        GIVES(DEPTH, diorite_queue_in_flight(queue));
        /* In small pieces: what is there already is not lost. */
        int got = 0;
        while (got < DEPTH) {
            int more = diorite_reap(queue, done + got, 5, 1, -1);
            CHECK(more >= 1 && more <= 5);
            got += more;
        }
        GIVES(0, diorite_queue_in_flight(queue));
        char seen[DEPTH] = {0};
        for (int at = 0; at < DEPTH; at++) {
            CHECK(done[at].result == PAGE && done[at].error == 0);
            seen[(done[at].token - 1) / PAGE]++;
        }
        for (int at = 0; at < DEPTH; at++)
            CHECK(seen[at] == 1);
        if (op == DIORITE_OP_WRITE)
            memset(memory, 0, DEPTH * PAGE);
    }
    for (int at = 0; at < DEPTH; at++)
        CHECK(memory[at * PAGE] == at + 1 && memory[at * PAGE + PAGE - 1] == at + 1);
}

static void each_operation(diorite_queue queue, uint64_t file, char *memory)
{
    struct diorite_request one;
    struct diorite_completion done;
    struct iovec parts[2] = {{memory, 512}, {memory + PAGE, PAGE - 512}};
    GIVES(0, run(queue, request(file, DIORITE_OP_TRUNCATE, 0, NULL, 0)).result);
    one = request(file, DIORITE_OP_APPEND, 0, memory, PAGE);
    GIVES(PAGE, run(queue, one).result);
    done = run(queue, one);
    CHECK(done.result == PAGE && done.offset == PAGE);
    one = request(file, DIORITE_OP_WRITE, 0, parts, 0);
    one.iov_count = 2;
    GIVES(PAGE, run(queue, one).result);
    one.op = DIORITE_OP_READ;
    GIVES(PAGE, run(queue, one).result);
    one = request(file, DIORITE_OP_WRITE, 0, memory, PAGE);
    one.flags = DIORITE_REQUEST_DSYNC;
    GIVES(PAGE, run(queue, one).result);
    one.flags = DIORITE_REQUEST_ATOMIC | DIORITE_REQUEST_SYNC;
    GIVES(PAGE, run(queue, one).result);
    /* The file ends inside a block. */
    one = request(file, DIORITE_OP_WRITE, 2 * PAGE, memory, 700);
    one.flags = DIORITE_REQUEST_LAST;
    GIVES(700, run(queue, one).result);
    one = request(file, DIORITE_OP_READ, 2 * PAGE, memory, PAGE);
    GIVES(700, run(queue, one).result);
    one = request(file, DIORITE_OP_FALLOCATE, 0, NULL, 1 << 20);
    GIVES(0, run(queue, one).result);
    one.mode = DIORITE_FALLOC_PUNCH_HOLE | DIORITE_FALLOC_KEEP_SIZE;
    one.length = PAGE;
    GIVES(0, run(queue, one).result);
    GIVES(0, run(queue, request(file, DIORITE_OP_FSYNC, 0, NULL, 0)).result);
    GIVES(0, run(queue, request(file, DIORITE_OP_FDATASYNC, 0, NULL, 0)).result);
    GIVES(0, run(queue, request(0, DIORITE_OP_SYNCFS, 0, NULL, 0)).result);
}

static void failures(diorite_volume volume, diorite_queue queue, uint64_t file, char *memory)
{
    struct diorite_request batch[3];
    struct diorite_completion done[3];
    char text[8], whole[256];
    diorite_queue other;

    /* What makes no sense is refused; what comes before it is accepted. */
    batch[0] = request(file, DIORITE_OP_READ, 0, memory, PAGE);
    batch[1] = request(file, 99, 0, memory, PAGE);
    batch[2] = batch[0];
    GIVES(1, diorite_submit(queue, batch, 3));
    FAILS(EINVAL, diorite_submit(queue, batch + 1, 2));
    GIVES(1, diorite_reap(queue, done, 3, 3, -1));
    struct diorite_request odd = batch[0];
    odd.buffer = NULL;
    FAILS(EFAULT, diorite_submit(queue, &odd, 1));
    odd = batch[0];
    odd.reserved = 1;
    FAILS(EINVAL, diorite_submit(queue, &odd, 1));
    odd = batch[0];
    odd.flags = 32;
    FAILS(EINVAL, diorite_submit(queue, &odd, 1));
    odd.flags = DIORITE_REQUEST_ATOMIC;
    FAILS(EINVAL, diorite_submit(queue, &odd, 1));
    odd = batch[0];
    odd.mode = 1;
    FAILS(EINVAL, diorite_submit(queue, &odd, 1));
    odd = batch[0];
    odd.region = 9;
    FAILS(EINVAL, diorite_submit(queue, &odd, 1));
    odd = batch[0];
    odd.length = (uint64_t)1 << 40;
    FAILS(EINVAL, diorite_submit(queue, &odd, 1));
    odd = batch[0];
    odd.iov_count = 1025;
    FAILS(EINVAL, diorite_submit(queue, &odd, 1));

    /* What the engine refuses is completed, with a message. */
    struct diorite_completion failed = run(queue, request(file, DIORITE_OP_READ, 1, memory, PAGE));
    GIVES(-EINVAL, failed.result);
    int64_t length = diorite_completion_message(queue, failed.error, text, sizeof text);
    CHECK(length > (int64_t)sizeof text && strlen(text) == sizeof text - 1);
    GIVES(length, diorite_completion_message(queue, failed.error, NULL, 0));
    GIVES(length, diorite_completion_message(queue, failed.error, whole, sizeof whole));
    CHECK((int64_t)strlen(whole) == length && strstr(whole, "multiple") != NULL);
    for (int at = 0; at < 300; at++)
        GIVES(-EINVAL, run(queue, request(file, DIORITE_OP_READ, 1, memory, PAGE)).result);
    FAILS(ENOENT, diorite_completion_message(queue, failed.error, whole, sizeof whole));

    /* A file that is not attached, or to another queue. */
    GIVES(-EBADF, run(queue, request(0, DIORITE_OP_READ, 0, memory, PAGE)).result);
    GIVES(-EBADF, run(queue, request(file + 1, DIORITE_OP_READ, 0, memory, PAGE)).result);
    WELL(diorite_queue_create(volume, NULL, &other));
    GIVES(-EBADF, run(other, request(file, DIORITE_OP_READ, 0, memory, PAGE)).result);
    FAILS(EBADF, diorite_queue_detach(other, file));
    WELL(diorite_queue_destroy(other));
}

static void polled(diorite_queue queue, uint64_t file, char *memory)
{
    struct diorite_completion done;
    struct diorite_request one = request(file, DIORITE_OP_READ, 0, memory, PAGE);
    struct pollfd fd = {diorite_queue_eventfd(queue), POLLIN, 0};
    CHECK(fd.fd >= 0);
    for (int round = 0; round < 10; round++) {
        GIVES(1, diorite_submit(queue, &one, 1));
        int got = 0;
        while (got == 0) {
            CHECK(poll(&fd, 1, 1000) >= 0);
            got = diorite_reap(queue, &done, 1, 0, 0);
        }
        GIVES(1, got);
    }
    GIVES(0, diorite_reap(queue, &done, 1, 1, -1)); /* nothing is in flight */
}

struct lane {
    diorite_queue queue;
    uint64_t file;
};

static void *submits(void *of)
{
    struct lane *lane = of;
    char *memory = aligned(PAGE);
    for (int at = 0; at < 500; at++) {
        struct diorite_request one = request(lane->file, DIORITE_OP_READ, 0, memory, PAGE);
        while (diorite_submit(lane->queue, &one, 1) == 0)
            ;
    }
    /* The other thread reaps them; it has seen the last when it ends. */
    return memory;
}

static void *reaps(void *of)
{
    struct lane *lane = of;
    struct diorite_completion done[8];
    for (int left = 1000; left > 0;) {
        int got = diorite_reap(lane->queue, done, 8, left < 8 ? 0 : 1, 1000000);
        CHECK(got >= 0);
        for (int at = 0; at < got; at++)
            CHECK(done[at].result == PAGE);
        left -= got;
    }
    return NULL;
}

static void two_threads(diorite_queue queue, uint64_t file)
{
    struct lane lane = {queue, file};
    pthread_t threads[3];
    void *memory[3];
    CHECK(pthread_create(&threads[0], NULL, reaps, &lane) == 0);
    for (int at = 1; at < 3; at++)
        CHECK(pthread_create(&threads[at], NULL, submits, &lane) == 0);
    for (int at = 0; at < 3; at++)
        CHECK(pthread_join(threads[at], &memory[at]) == 0);
    free(memory[1]);
    free(memory[2]);
}

void test_queues(void)
{
    diorite_volume volume = new_volume("image", 64), closed = new_volume("other", 16);
    diorite_file file, foreign;
    diorite_queue queue;
    struct diorite_queue_options options;
    uint64_t attached, again;
    char *memory = aligned(DEPTH * PAGE);
    DIORITE_INIT(&options);
    options.depth = DEPTH;
    WELL(diorite_queue_create(volume, &options, &queue));
    WELL(diorite_openat(volume, 0, "/a", DIORITE_O_RDWR | DIORITE_O_CREAT, 0644, &file));
    WELL(diorite_queue_attach(queue, file, &attached));
    WELL(diorite_close(file)); /* the queue keeps it */
    many(queue, attached, memory, 0);
    int region = diorite_queue_register(queue, memory, DEPTH * PAGE);
    CHECK(region == 1);
    /* Memory that would go on behind the last address. */
    FAILS(EINVAL, diorite_queue_register(queue, (void *)(UINTPTR_MAX - PAGE + 1), 2 * PAGE));
    many(queue, attached, memory, (uint32_t)region);
    struct diorite_request outside = request(attached, DIORITE_OP_READ, 0, memory + PAGE, DEPTH * PAGE);
    outside.region = 1;
    FAILS(EFAULT, diorite_submit(queue, &outside, 1));
    WELL(diorite_queue_unregister(queue, 1));
    outside.length = PAGE;
    FAILS(EINVAL, diorite_submit(queue, &outside, 1));
    each_operation(queue, attached, memory);
    failures(volume, queue, attached, memory);
    two_threads(queue, attached);
    polled(queue, attached, memory);

    WELL(diorite_openat(closed, 0, "/b", DIORITE_O_RDWR | DIORITE_O_CREAT, 0644, &foreign));
    FAILS(EINVAL, diorite_queue_attach(queue, foreign, &again));
    WELL(diorite_close(foreign));
    WELL(diorite_volume_close(closed));

    WELL(diorite_queue_detach(queue, attached));
    FAILS(EBADF, diorite_queue_detach(queue, attached));
    GIVES(-EBADF, run(queue, request(attached, DIORITE_OP_READ, 0, memory, PAGE)).result);
    WELL(diorite_queue_destroy(queue));

    /* It looks for completions before it sleeps. */
    options.poll_ns = 1000000;
    WELL(diorite_queue_create(volume, &options, &queue));
    WELL(diorite_openat(volume, 0, "/a", DIORITE_O_RDWR, 0, &file));
    WELL(diorite_queue_attach(queue, file, &attached));
    many(queue, attached, memory, 0);
    struct diorite_request left = request(attached, DIORITE_OP_READ, 0, memory, PAGE);
    GIVES(1, diorite_submit(queue, &left, 1));
    WELL(diorite_queue_destroy(queue)); /* with a request in flight */
    WELL(diorite_close(file));
    WELL(diorite_volume_close(volume));
    free(memory);
}
