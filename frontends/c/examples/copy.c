/*
 * Copies a file of the host into an image: pieces of 64 KiB, 64 of them in flight, and one sync at the end.
 *
 *     copy FILE IMAGE PATH
 *
 * The image's file gets its name when it is whole and durable: a crash leaves the old one or the new one.
 */

#include <diorite.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 64 << 10, DEPTH = 64 };

static void stop(const char *what)
{
    fprintf(stderr, "copy: %s: %s\n", what, diorite_error_message());
    exit(1);
}

/* Fills a piece from the host's file; returns its bytes. */
static size_t fill(int from, char *piece, off_t offset)
{
    size_t done = 0;
    while (done < PIECE) {
        ssize_t more = pread(from, piece + done, PIECE - done, offset + (off_t)done);
        if (more < 0 && errno != EINTR) {
            perror("copy: read");
            exit(1);
        }
        if (more == 0)
            break;
        if (more > 0)
            done += (size_t)more;
    }
    return done;
}

/* A piece whose write has ended may carry the next. */
static void reap(diorite_queue queue, int *idle, int *idle_count, int least)
{
    struct diorite_completion done[DEPTH];
    int count = diorite_reap(queue, done, DEPTH, (uint32_t)least, -1);
    if (count < 0)
        stop("reap");
    for (int at = 0; at < count; at++) {
        if (done[at].result < 0) {
            char text[256] = "";
            diorite_completion_message(queue, done[at].error, text, sizeof text);
            fprintf(stderr, "copy: write at %llu: %s\n", (unsigned long long)done[at].offset, text);
            exit(1);
        }
        idle[(*idle_count)++] = (int)done[at].token;
    }
}

int main(int count, char **words)
{
    if (count != 4) {
        fprintf(stderr, "usage: copy FILE IMAGE PATH\n");
        return 2;
    }
    int from = open(words[1], O_RDONLY);
    struct stat stat;
    if (from < 0 || fstat(from, &stat) < 0) {
        perror(words[1]);
        return 1;
    }
    struct diorite_open_options options;
    diorite_volume volume;
    DIORITE_INIT(&options);
    options.flags = DIORITE_OPEN_WRITE;
    if (diorite_volume_open(words[2], &options, &volume) < 0)
        stop(words[2]);

    diorite_file file;
    diorite_queue queue;
    uint64_t attached;
    char *memory = aligned_alloc(4096, (size_t)PIECE * DEPTH);
    if (memory == NULL)
        return 1;
    if (diorite_openat(volume, DIORITE_AT_ROOT, "/", DIORITE_O_RDWR | DIORITE_O_TMPFILE, stat.st_mode & 0777, &file) < 0 ||
        diorite_queue_create(volume, NULL, &queue) < 0 || diorite_queue_attach(queue, file, &attached) < 0)
        stop(words[3]);
    int region = diorite_queue_register(queue, memory, (size_t)PIECE * DEPTH);
    if (region < 0)
        stop("memory");

    int idle[DEPTH], idle_count = 0, in_flight = 0;
    for (int at = 0; at < DEPTH; at++)
        idle[idle_count++] = at;
    off_t offset = 0;
    struct diorite_volume_stat space;
    if (diorite_volume_stat(volume, &space) < 0)
        stop(words[2]);
    while (offset < stat.st_size) {
        if (idle_count == 0)
            reap(queue, idle, &idle_count, 1);
        int slot = idle[--idle_count];
        char *piece = memory + (size_t)slot * PIECE;
        size_t bytes = fill(from, piece, offset);
        if (bytes == 0)
            break; /* it has become shorter */
        struct diorite_request write;
        memset(&write, 0, sizeof write);
        write.op = DIORITE_OP_WRITE;
        write.file = attached;
        write.offset = (uint64_t)offset;
        write.buffer = piece;
        write.length = bytes;
        write.region = (uint32_t)region;
        write.token = (uint64_t)slot;
        if (bytes % space.direct_align != 0)
            write.flags = DIORITE_REQUEST_LAST; /* the file ends inside a block */
        if (diorite_submit(queue, &write, 1) != 1)
            stop("submit");
        offset += (off_t)bytes;
    }
    while ((in_flight = diorite_queue_in_flight(queue)) > 0)
        reap(queue, idle, &idle_count, 1);
    if (in_flight < 0 || diorite_queue_destroy(queue) < 0)
        stop("queue");

    /* Data first, then the name: what has the name is replaced in one step. */
    if (diorite_fsync(file) < 0 || diorite_linkfile(volume, file, DIORITE_AT_ROOT, words[3], 1) < 0 || diorite_close(file) < 0 ||
        diorite_volume_close(volume) < 0)
        stop(words[3]);
    free(memory);
    close(from);
    return 0;
}
