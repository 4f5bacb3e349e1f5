/*
 * An external engine of fio over libdiorite: a file inside an image, by a queue.
 *
 *     fio --ioengine=external:./fio-diorite.so --thread --direct=1 --name=j --rw=randwrite --bs=4k --iodepth=64 \
 *         --filename='disk.img\:/data' --size=1g
 *
 * A file name is LOCATOR:/PATH, with its colons escaped for fio; or PATH, with the option image=LOCATOR. A file that a job reads and that
 * is too short is filled before; one that is only written is created empty, so the job fills holes or appends.
 *
 * All threads of a process share a volume. Processes cannot: --numjobs needs --thread, unless all jobs read.
 *
 * Built on the user's machine against the headers of the fio that is there: scripts/fio-engine.
 */

#include "fio.h"
#include "optgroup.h"

#include <diorite.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One piece of what is laid out before a job reads. */
enum { LAID = 1 << 20, MOST_VOLUMES = 64 };

struct engine_options {
    void *pad;
    char *image;
    char *policy;
    char *io_engine;
    unsigned int registered;
};

/* A volume that jobs of this process share. */
struct shared {
    char *locator;
    diorite_volume volume;
    int writes;
    int users;
};

/* A job. */
struct job {
    diorite_queue queue;
    struct shared *shared;
    uint32_t region;
    struct diorite_request *pending;
    unsigned int pending_count;
    struct diorite_completion *done;
    unsigned int depth;
    uint32_t write_flags;
};

/* An open file of a job. */
struct opened {
    diorite_file file;
    uint64_t attached;
};

struct ioengine_ops ioengine;

static struct shared volumes[MOST_VOLUMES];
static pthread_mutex_t volumes_lock = PTHREAD_MUTEX_INITIALIZER;

static int complain(struct thread_data *td, const char *what, int error)
{
    log_err("diorite: %s: %s: %s\n", td->o.name ? td->o.name : "job", what, diorite_error_message());
    td_verror(td, -error, "diorite");
    return 1;
}

/* Divides a file's name. Returns 0, or 1 after a message. */
static int divide(struct thread_data *td, const char *name, char **locator, const char **path)
{
    const struct engine_options *options = td->eo;
    const char *inside = strstr(name, ":/");

    if (options->image != NULL) {
        *locator = strdup(options->image);
        *path = name;
    } else if (inside != NULL) {
        *locator = strndup(name, (size_t)(inside - name));
        *path = inside + 1;
    } else {
        log_err("diorite: %s: a file name is LOCATOR\\:/PATH (colons escaped), or PATH with --image=LOCATOR\n", name);
        td_verror(td, EINVAL, "diorite");
        return 1;
    }
    return *locator == NULL;
}

static int writes(struct thread_data *td)
{
    return td_write(td) || td_trim(td);
}

/* The volume of a locator, opened by the first job that needs it. */
static struct shared *borrow(struct thread_data *td, const char *locator, int for_writing)
{
    const struct engine_options *given = td->eo;
    struct shared *found = NULL, *unused = NULL;
    int error = 0;

    pthread_mutex_lock(&volumes_lock);
    for (int at = 0; at < MOST_VOLUMES; at++) {
        if (volumes[at].users == 0)
            unused = &volumes[at];
        else if (strcmp(volumes[at].locator, locator) == 0 && volumes[at].writes >= for_writing)
            found = &volumes[at];
    }
    if (found == NULL && unused != NULL) {
        struct diorite_open_options options;

        DIORITE_INIT(&options);
        options.flags = for_writing ? DIORITE_OPEN_WRITE : 0;
        options.policy = given->policy;
        options.io_engine = given->io_engine;
        error = diorite_volume_open(locator, &options, &unused->volume);
        if (error == 0 && (unused->locator = strdup(locator)) != NULL) {
            unused->writes = for_writing;
            found = unused;
        }
    }
    if (found != NULL)
        found->users++;
    pthread_mutex_unlock(&volumes_lock);
    if (found == NULL) {
        complain(td, locator, error < 0 ? error : -EMFILE);
        if (error == -EBUSY)
            log_err("diorite: jobs that write an image must be threads of one process: --thread\n");
    }
    return found;
}

static int give_back(struct shared *shared)
{
    int error = 0;

    pthread_mutex_lock(&volumes_lock);
    if (--shared->users == 0) {
        error = diorite_volume_close(shared->volume);
        free(shared->locator);
        shared->locator = NULL;
    }
    pthread_mutex_unlock(&volumes_lock);
    return error;
}

/* Fills a file with bytes up to a size, so that reads find written blocks. */
static int lay_out(diorite_file file, uint64_t from, uint64_t size)
{
    char *piece = malloc(LAID);
    int64_t done = 0;

    if (piece == NULL)
        return -ENOMEM;
    memset(piece, 0xd1, LAID);
    while (done >= 0 && from < size) {
        uint64_t left = size - from;

        done = diorite_pwrite(file, piece, left < LAID ? (size_t)left : LAID, from);
        from += done > 0 ? (uint64_t)done : 0;
    }
    free(piece);
    return done < 0 ? (int)done : diorite_fsync(file);
}

/* Sets the size of a file, in the process that starts the jobs. */
static int size_up(struct thread_data *td, struct fio_file *f, uint64_t wanted)
{
    char *locator;
    const char *path;
    diorite_file file = 0;
    struct shared *shared;
    int64_t size = -1;
    int error, closed;

    if (divide(td, f->file_name, &locator, &path))
        return 1;
    shared = borrow(td, locator, writes(td));
    free(locator);
    if (shared == NULL)
        return 1;
    error = diorite_openat(shared->volume, DIORITE_AT_ROOT, path, writes(td) ? DIORITE_O_RDWR | DIORITE_O_CREAT : 0, 0644, &file);
    if (error == 0) {
        size = diorite_file_size(file);
        if (size >= 0 && td_read(td) && writes(td) && (uint64_t)size < wanted) {
            error = lay_out(file, (uint64_t)size, wanted);
            size = (int64_t)wanted;
        }
    }
    if (error < 0 || size < 0)
        complain(td, f->file_name, error < 0 ? error : (int)size);
    if (file != 0)
        diorite_close(file);
    closed = give_back(shared);
    if (error == 0 && closed < 0)
        complain(td, f->file_name, closed);
    if (error < 0 || size < 0 || closed < 0)
        return 1;
    /* A job that only writes may go on past the end. */
    f->real_file_size = writes(td) && (uint64_t)size < wanted ? wanted : (uint64_t)size;
    fio_file_set_size_known(f);
    return 0;
}

static int engine_setup(struct thread_data *td)
{
    struct fio_file *f;
    unsigned int i;
    uint64_t each = td->o.size && td->o.nr_files ? td->o.size / td->o.nr_files : 0;

    /* The version of fio's interface is checked by fio; that its structures are laid out as this was built for is not. */
    if (td->io_ops != &ioengine) {
        log_err("diorite: this engine was built for another fio\n");
        return 1;
    }
    for_each_file(td, f, i)
    {
        uint64_t wanted = td->o.file_size_high ? td->o.file_size_high : each;

        if (size_up(td, f, wanted + td->o.start_offset))
            return 1;
    }
    return 0;
}

static int engine_init(struct thread_data *td)
{
    struct diorite_queue_options options;
    struct job *job = calloc(1, sizeof *job);
    char *locator;
    const char *path;
    int error;

    if (job == NULL)
        return 1;
    td->io_ops_data = job;
    job->depth = td->o.iodepth;
    job->pending = calloc(job->depth, sizeof *job->pending);
    job->done = calloc(job->depth, sizeof *job->done);
    if (job->pending == NULL || job->done == NULL || divide(td, td->files[0]->file_name, &locator, &path))
        return 1;
    job->shared = borrow(td, locator, writes(td));
    free(locator);
    if (job->shared == NULL)
        return 1;
    DIORITE_INIT(&options);
    options.depth = job->depth;
    error = diorite_queue_create(job->shared->volume, &options, &job->queue);
    return error < 0 ? complain(td, "a queue", error) : 0;
}

/* After fio has its buffers. */
static int engine_post_init(struct thread_data *td)
{
    const struct engine_options *options = td->eo;
    struct job *job = td->io_ops_data;
    int region;

    if (!options->registered || td->orig_buffer == NULL)
        return 0;
    region = diorite_queue_register(job->queue, td->orig_buffer, td->orig_buffer_size);
    if (region < 0)
        return complain(td, "registered buffers", region);
    job->region = (uint32_t)region;
    return 0;
}

static void engine_cleanup(struct thread_data *td)
{
    struct job *job = td->io_ops_data;
    int error = 0;

    if (job == NULL)
        return;
    if (job->queue != 0)
        diorite_queue_destroy(job->queue);
    if (job->shared != NULL)
        error = give_back(job->shared);
    if (error < 0)
        complain(td, "closing the volume", error);
    free(job->pending);
    free(job->done);
    free(job);
    td->io_ops_data = NULL;
}

static int engine_open_file(struct thread_data *td, struct fio_file *f)
{
    struct job *job = td->io_ops_data;
    struct opened *opened = calloc(1, sizeof *opened);
    char *locator;
    const char *path;
    uint32_t flags = writes(td) ? DIORITE_O_RDWR | DIORITE_O_CREAT : 0;
    int error;

    if (opened == NULL || divide(td, f->file_name, &locator, &path)) {
        free(opened);
        return 1;
    }
    error = strcmp(locator, job->shared->locator) == 0 ? 0 : -EXDEV;
    free(locator);
    if (error < 0) {
        free(opened);
        log_err("diorite: %s: all files of a job are in one image\n", f->file_name);
        td_verror(td, EXDEV, "diorite");
        return 1;
    }
    if (td->o.sync_io & O_SYNC)
        flags |= (td->o.sync_io & O_SYNC) == O_SYNC ? DIORITE_O_SYNC : DIORITE_O_DSYNC;
    error = diorite_openat(job->shared->volume, DIORITE_AT_ROOT, path, flags, 0644, &opened->file);
    if (error == 0)
        error = diorite_queue_attach(job->queue, opened->file, &opened->attached);
    if (error < 0) {
        if (opened->file != 0)
            diorite_close(opened->file);
        free(opened);
        return complain(td, f->file_name, error);
    }
    FILE_SET_ENG_DATA(f, opened);
    return 0;
}

static int engine_close_file(struct thread_data *td, struct fio_file *f)
{
    struct job *job = td->io_ops_data;
    struct opened *opened = FILE_ENG_DATA(f);

    if (opened != NULL) {
        diorite_queue_detach(job->queue, opened->attached);
        diorite_close(opened->file);
        free(opened);
        FILE_SET_ENG_DATA(f, NULL);
    }
    return 0;
}

static enum fio_q_status engine_queue(struct thread_data *td, struct io_u *io_u)
{
    struct job *job = td->io_ops_data;
    const struct opened *opened = FILE_ENG_DATA(io_u->file);
    struct diorite_request *request;

    fio_ro_check(td, io_u);
    if (job->pending_count == job->depth)
        return FIO_Q_BUSY;
    request = &job->pending[job->pending_count];
    memset(request, 0, sizeof *request);
    request->file = opened->attached;
    request->token = (uint64_t)(uintptr_t)io_u;
    switch (io_u->ddir) {
    case DDIR_READ:
    case DDIR_WRITE:
        request->op = io_u->ddir == DDIR_READ ? DIORITE_OP_READ : DIORITE_OP_WRITE;
        request->offset = io_u->offset;
        request->buffer = io_u->xfer_buf;
        request->length = io_u->xfer_buflen;
        request->region = job->region;
        break;
    case DDIR_TRIM:
        request->op = DIORITE_OP_FALLOCATE;
        request->mode = DIORITE_FALLOC_PUNCH_HOLE | DIORITE_FALLOC_KEEP_SIZE;
        request->offset = io_u->offset;
        request->length = io_u->xfer_buflen;
        break;
    case DDIR_SYNC:
        request->op = DIORITE_OP_FSYNC;
        break;
    case DDIR_DATASYNC:
    case DDIR_SYNC_FILE_RANGE:
        request->op = DIORITE_OP_FDATASYNC;
        break;
    default:
        io_u->error = EINVAL;
        return FIO_Q_COMPLETED;
    }
    job->pending_count++;
    return FIO_Q_QUEUED;
}

static int engine_commit(struct thread_data *td)
{
    struct job *job = td->io_ops_data;
    int taken;

    if (job->pending_count == 0)
        return 0;
    io_u_mark_submit(td, job->pending_count);
    taken = diorite_submit(job->queue, job->pending, job->pending_count);
    if (taken < 0)
        return complain(td, "submit", taken);
    job->pending_count -= (unsigned int)taken;
    memmove(job->pending, job->pending + taken, job->pending_count * sizeof *job->pending);
    return 0;
}

static int engine_getevents(struct thread_data *td, unsigned int min, unsigned int max, const struct timespec *t)
{
    struct job *job = td->io_ops_data;
    int64_t timeout = t != NULL ? (int64_t)t->tv_sec * 1000000000 + t->tv_nsec : -1;
    int count;

    if (max > job->depth)
        max = job->depth;
    if (min > max)
        min = max;
    count = diorite_reap(job->queue, job->done, max, min, timeout);
    return count < 0 ? -complain(td, "reap", count) : count;
}

static struct io_u *engine_event(struct thread_data *td, int event)
{
    struct job *job = td->io_ops_data;
    const struct diorite_completion *done = &job->done[event];
    struct io_u *io_u = (struct io_u *)(uintptr_t)done->token;

    io_u->error = 0;
    io_u->resid = 0;
    if (done->result < 0) {
        char text[256] = "";

        io_u->error = (int)-done->result;
        diorite_completion_message(job->queue, done->error, text, sizeof text);
        log_err("diorite: %s at byte %llu: %s\n", io_ddir_name(io_u->ddir), (unsigned long long)io_u->offset, text);
    } else if (io_u->ddir == DDIR_READ || io_u->ddir == DDIR_WRITE) {
        io_u->resid = io_u->xfer_buflen - (unsigned long long)done->result;
    }
    return io_u;
}

/* Sizes were set by engine_setup. */
static int engine_get_file_size(struct thread_data *td, struct fio_file *f)
{
    (void)td;
    return !fio_file_size_known(f);
}

static int engine_invalidate(struct thread_data *td, struct fio_file *f)
{
    (void)td;
    (void)f;
    return 0;
}

static struct fio_option options[] = {
    {
        .name = "image",
        .lname = "image",
        .type = FIO_OPT_STR_STORE,
        .off1 = offsetof(struct engine_options, image),
        .help = "The image's locator; file names are paths in it then",
        .category = FIO_OPT_C_ENGINE,
        .group = FIO_OPT_G_INVALID,
    },
    {
        .name = "policy",
        .lname = "policy",
        .type = FIO_OPT_STR_STORE,
        .off1 = offsetof(struct engine_options, policy),
        .help = "Behaviour of direct I/O: diorite, linux-6.19, ...",
        .category = FIO_OPT_C_ENGINE,
        .group = FIO_OPT_G_INVALID,
    },
    {
        .name = "io_engine",
        .lname = "io_engine",
        .type = FIO_OPT_STR_STORE,
        .off1 = offsetof(struct engine_options, io_engine),
        .help = "How to access the image: io_uring, aio or threads",
        .category = FIO_OPT_C_ENGINE,
        .group = FIO_OPT_G_INVALID,
    },
    {
        .name = "registered",
        .lname = "registered buffers",
        .type = FIO_OPT_BOOL,
        .off1 = offsetof(struct engine_options, registered),
        .help = "Register fio's buffers with the queue",
        .def = "0",
        .category = FIO_OPT_C_ENGINE,
        .group = FIO_OPT_G_INVALID,
    },
    {
        .name = NULL,
    },
};

/* The symbol that fio looks for. */
struct ioengine_ops ioengine = {
    .name = "diorite",
    .version = FIO_IOOPS_VERSION,
    .flags = FIO_DISKLESSIO | FIO_NOEXTEND | FIO_NODISKUTIL,
    .setup = engine_setup,
    .init = engine_init,
    .post_init = engine_post_init,
    .queue = engine_queue,
    .commit = engine_commit,
    .getevents = engine_getevents,
    .event = engine_event,
    .cleanup = engine_cleanup,
    .open_file = engine_open_file,
    .close_file = engine_close_file,
    .get_file_size = engine_get_file_size,
    .invalidate = engine_invalidate,
    .option_struct_size = sizeof(struct engine_options),
    .options = options,
};
