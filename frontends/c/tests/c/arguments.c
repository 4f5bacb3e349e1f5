/* Every function with handles that are none, and with NULL where something is needed. */

#include "suite.h"

static int submit_nothing(void *context, const struct diorite_io *io)
{
    (void)context;
    (void)io;
    return -EIO;
}

static void visit(void *context, const char *name, uint64_t value)
{
    CHECK(name[0] != '\0');
    (void)value;
    ++*(int *)context;
}

/* What no table has given out: zero, noise, and a handle of each kind that was closed, from `stale`. */
static void no_handle(uint64_t no)
{
    char byte = 0;
    uint64_t number = 0;
    struct iovec iov = {&byte, 1};
    struct diorite_volume_stat volume_stat;
    struct diorite_stat stat;
    struct diorite_attributes attributes;
    struct diorite_request request;
    struct diorite_completion completion;
    struct diorite_dirent entry;
    struct diorite_check_result result;
    DIORITE_INIT(&attributes);
    memset(&request, 0, sizeof request);

    FAILS(EBADF, diorite_volume_open_device(no, NULL, &number));
    FAILS(EBADF, diorite_volume_close(no));
    FAILS(EBADF, diorite_volume_sync(no));
    FAILS(EBADF, diorite_volume_stat(no, &volume_stat));
    FAILS(EBADF, diorite_volume_grow(no, 0, NULL));
    FAILS(EBADF, diorite_volume_trim(no, 0, NULL));
    FAILS(EBADF, diorite_volume_statistics(no, visit, &byte));
    FAILS(EBADF, diorite_openat(no, 0, "/x", 0, 0, &number));
    FAILS(EBADF, diorite_open_ino(no, 2, 0, &number));
    FAILS(EBADF, diorite_close(no));
    FAILS(EBADF, diorite_file_ino(no));
    FAILS(EBADF, diorite_file_size(no));
    FAILS(EBADF, diorite_pread(no, &byte, 1, 0));
    FAILS(EBADF, diorite_pwrite(no, &byte, 1, 0));
    FAILS(EBADF, diorite_preadv(no, &iov, 1, 0));
    FAILS(EBADF, diorite_pwritev(no, &iov, 1, 0));
    FAILS(EBADF, diorite_append(no, &byte, 1, NULL));
    FAILS(EBADF, diorite_fsync(no));
    FAILS(EBADF, diorite_fdatasync(no));
    FAILS(EBADF, diorite_ftruncate(no, 0));
    FAILS(EBADF, diorite_fallocate(no, 0, 0, 1));
    FAILS(EBADF, diorite_seek(no, 0, DIORITE_SEEK_DATA));
    FAILS(EBADF, diorite_queue_create(no, NULL, &number));
    FAILS(EBADF, diorite_queue_destroy(no));
    FAILS(EBADF, diorite_queue_attach(no, no, &number));
    FAILS(EBADF, diorite_queue_detach(no, 0));
    FAILS(EBADF, diorite_queue_register(no, &byte, 1));
    FAILS(EBADF, diorite_queue_unregister(no, 1));
    FAILS(EBADF, diorite_submit(no, &request, 1));
    FAILS(EBADF, diorite_reap(no, &completion, 1, 0, 0));
    FAILS(EBADF, diorite_queue_in_flight(no));
    FAILS(EBADF, diorite_queue_eventfd(no));
    FAILS(EBADF, diorite_completion_message(no, 1, &byte, 1));
    FAILS(EBADF, diorite_queue_statistics(no, visit, &byte));
    FAILS(EBADF, diorite_lookup(no, 0, "/", 0));
    FAILS(EBADF, diorite_mkdirat(no, 0, "/x", 0755, NULL));
    FAILS(EBADF, diorite_symlinkat(no, "y", 0, "/x", NULL));
    FAILS(EBADF, diorite_mknodat(no, 0, "/x", 010644, 0, 0, NULL));
    FAILS(EBADF, diorite_unlinkat(no, 0, "/x", 0));
    FAILS(EBADF, diorite_renameat(no, 0, "/x", 0, "/y", 0));
    FAILS(EBADF, diorite_linkat(no, 12, 0, "/x"));
    FAILS(EBADF, diorite_linkfile(no, no, 0, "/x", 0));
    FAILS(EBADF, diorite_readlink(no, 12, &byte, 1));
    FAILS(EBADF, diorite_know(no, 2, NULL));
    FAILS(EBADF, diorite_forget(no, 2, 1));
    FAILS(EBADF, diorite_opendirat(no, 0, "/", &number));
    FAILS(EBADF, diorite_readdir(no, &entry));
    FAILS(EBADF, diorite_seekdir(no, 0));
    FAILS(EBADF, diorite_closedir(no));
    FAILS(EBADF, diorite_stat(no, 2, &stat));
    FAILS(EBADF, diorite_fstat(no, &stat));
    FAILS(EBADF, diorite_setattr(no, 2, &attributes));
    FAILS(EBADF, diorite_getxattr(no, 2, "user.x", &byte, 1));
    FAILS(EBADF, diorite_listxattr(no, 2, &byte, 1));
    FAILS(EBADF, diorite_setxattr(no, 2, "user.x", &byte, 1, 0));
    FAILS(EBADF, diorite_removexattr(no, 2, "user.x"));
    FAILS(EBADF, diorite_editor_volume(no, &number));
    FAILS(EBADF, diorite_editor_begin(no));
    FAILS(EBADF, diorite_editor_end(no, 0));
    FAILS(EBADF, diorite_editor_write_file(no, "/x", 0644, &byte, 1));
    FAILS(EBADF, diorite_editor_read_file(no, "/x", &byte, 1));
    FAILS(EBADF, diorite_editor_make_dir(no, "/x", 0755, NULL));
    FAILS(EBADF, diorite_editor_remove(no, "/x"));
    FAILS(EBADF, diorite_editor_rename(no, "/x", "/y"));
    FAILS(EBADF, diorite_editor_put(no, "dir:/x", "/", NULL, NULL, NULL));
    FAILS(EBADF, diorite_editor_grow(no, 0, NULL));
    FAILS(EBADF, diorite_editor_sync(no));
    FAILS(EBADF, diorite_editor_close(no));
    FAILS(EBADF, diorite_device_close(no));
    FAILS(EBADF, diorite_io_end(no, 0));
    FAILS(EBADF, diorite_mkfs_device(no, NULL));
    FAILS(EBADF, diorite_check_device(no, NULL, &result));
}

static void null_pointers(diorite_volume volume)
{
    char byte = 0;
    int count = 0;
    uint64_t number = 0;
    diorite_file file;
    diorite_queue queue;
    diorite_dir dir;
    diorite_editor editor;
    const char *source = NULL;
    struct diorite_device_operations operations;
    struct diorite_check_result result;
    DIORITE_INIT(&operations);
    operations.bytes = 1 << 20;
    WELL(diorite_openat(volume, 0, "/file", DIORITE_O_RDWR | DIORITE_O_CREAT, 0644, &file));
    WELL(diorite_queue_create(volume, NULL, &queue));
    WELL(diorite_opendirat(volume, 0, "/", &dir));

    FAILS(EFAULT, diorite_volume_open(NULL, NULL, &number));
    FAILS(EFAULT, diorite_volume_open("x", NULL, NULL));
    FAILS(EFAULT, diorite_volume_stat(volume, NULL));
    FAILS(EFAULT, diorite_volume_statistics(volume, NULL, NULL));
    WELL(diorite_volume_statistics(volume, visit, &count));
    CHECK(count > 20);
    FAILS(EFAULT, diorite_openat(volume, 0, NULL, 0, 0, &number));
    FAILS(EFAULT, diorite_openat(volume, 0, "/file", 0, 0, NULL));
    FAILS(EFAULT, diorite_open_ino(volume, 2, 0, NULL));
    FAILS(EFAULT, diorite_pread(file, NULL, 1, 0));
    FAILS(EFAULT, diorite_pwrite(file, NULL, 1, 0));
    FAILS(EFAULT, diorite_preadv(file, NULL, 1, 0));
    FAILS(EFAULT, diorite_pwritev(file, NULL, 1, 0));
    FAILS(EFAULT, diorite_append(file, NULL, 1, NULL));
    WELL(diorite_pread(file, NULL, 0, 0));
    WELL(diorite_pwrite(file, NULL, 0, 0));
    FAILS(EFAULT, diorite_queue_create(volume, NULL, NULL));
    FAILS(EFAULT, diorite_queue_attach(queue, file, NULL));
    FAILS(EFAULT, diorite_queue_register(queue, NULL, 1));
    FAILS(EFAULT, diorite_submit(queue, NULL, 1));
    WELL(diorite_submit(queue, NULL, 0));
    FAILS(EFAULT, diorite_reap(queue, NULL, 1, 0, 0));
    FAILS(EFAULT, diorite_completion_message(queue, 1, NULL, 1));
    FAILS(EFAULT, diorite_queue_statistics(queue, NULL, NULL));
    FAILS(EFAULT, diorite_lookup(volume, 0, NULL, 0));
    FAILS(EFAULT, diorite_mkdirat(volume, 0, NULL, 0755, NULL));
    FAILS(EFAULT, diorite_symlinkat(volume, NULL, 0, "/x", NULL));
    FAILS(EFAULT, diorite_symlinkat(volume, "y", 0, NULL, NULL));
    FAILS(EFAULT, diorite_mknodat(volume, 0, NULL, 010644, 0, 0, NULL));
    FAILS(EFAULT, diorite_unlinkat(volume, 0, NULL, 0));
    FAILS(EFAULT, diorite_renameat(volume, 0, NULL, 0, "/y", 0));
    FAILS(EFAULT, diorite_renameat(volume, 0, "/y", 0, NULL, 0));
    FAILS(EFAULT, diorite_linkat(volume, 12, 0, NULL));
    FAILS(EFAULT, diorite_linkfile(volume, file, 0, NULL, 0));
    FAILS(EFAULT, diorite_readlink(volume, 12, NULL, 1));
    FAILS(EFAULT, diorite_opendirat(volume, 0, NULL, &number));
    FAILS(EFAULT, diorite_opendirat(volume, 0, "/", NULL));
    FAILS(EFAULT, diorite_readdir(dir, NULL));
    FAILS(EFAULT, diorite_stat(volume, 2, NULL));
    FAILS(EFAULT, diorite_fstat(file, NULL));
    FAILS(EFAULT, diorite_setattr(volume, 2, NULL));
    FAILS(EFAULT, diorite_getxattr(volume, 2, NULL, NULL, 0));
    FAILS(EFAULT, diorite_listxattr(volume, 2, NULL, 1));
    FAILS(EFAULT, diorite_setxattr(volume, 2, NULL, &byte, 1, 0));
    FAILS(EFAULT, diorite_setxattr(volume, 2, "user.x", NULL, 1, 0));
    FAILS(EFAULT, diorite_removexattr(volume, 2, NULL));
    FAILS(EFAULT, diorite_editor_open(NULL, NULL, &editor));
    FAILS(EFAULT, diorite_editor_open("x", NULL, NULL));
    FAILS(EFAULT, diorite_mkfs(NULL, NULL));
    FAILS(EFAULT, diorite_import(NULL, &source, 1, NULL));
    FAILS(EFAULT, diorite_import(path_of("new"), NULL, 1, NULL));
    FAILS(EFAULT, diorite_import(path_of("new"), &source, 1, NULL));
    FAILS(EFAULT, diorite_check(NULL, NULL, &result));
    FAILS(EFAULT, diorite_check("x", NULL, NULL));
    FAILS(EFAULT, diorite_device_create(NULL, &operations, NULL, &number));
    FAILS(EFAULT, diorite_device_create("mine", &operations, NULL, &number));
    operations.submit = submit_nothing;
    FAILS(EFAULT, diorite_device_create("mine", &operations, NULL, NULL));
    FAILS(EFAULT, diorite_device_create("mine", NULL, NULL, &number));

    WELL(diorite_closedir(dir));
    WELL(diorite_queue_destroy(queue));
    WELL(diorite_close(file));
}

static void odd_values(diorite_volume volume)
{
    uint64_t number = 7;
    diorite_file file;
    struct diorite_open_options options;
    struct diorite_queue_options depth;
    struct diorite_attributes attributes;
    struct diorite_device_operations operations;
    struct diorite_mkfs_options mkfs;
    struct {
        struct diorite_queue_options known;
        uint64_t of_later;
    } newer;

    DIORITE_INIT(&options);
    FAILS(ENOENT, diorite_volume_open(path_of("nothing"), &options, &number));
    CHECK(number == 0);
    options.policy = "no such policy";
    FAILS(EINVAL, diorite_volume_open(path_of("image"), &options, &number));
    DIORITE_INIT(&options);
    options.io_engine = "steam";
    FAILS(EINVAL, diorite_volume_open(path_of("image"), &options, &number));
    DIORITE_INIT(&options);
    options.flags = 0x8000;
    FAILS(EINVAL, diorite_volume_open(path_of("image"), &options, &number));
    memset(&options, 0, sizeof options);
    FAILS(EINVAL, diorite_volume_open(path_of("image"), &options, &number));
    FAILS(EINVAL, diorite_volume_open("\xff", NULL, &number));

    WELL(diorite_openat(volume, 0, "/odd", DIORITE_O_RDWR | DIORITE_O_CREAT, 0644, &file));
    FAILS(EINVAL, diorite_openat(volume, 0, "/odd", 1 << 20, 0, &number));
    FAILS(EINVAL, diorite_openat(volume, 0, "/new", DIORITE_O_CREAT, 0644, &number));
    FAILS(EINVAL, diorite_openat(volume, 0, "/new", DIORITE_O_RDWR | DIORITE_O_CREAT, 0100644, &number));
    FAILS(EINVAL, diorite_open_ino(volume, 0, 0, &number));
    FAILS(EINVAL, diorite_open_ino(volume, UINT64_MAX, 0, &number));
    FAILS(EINVAL, diorite_open_ino(volume, 2, DIORITE_O_CREAT, &number));
    FAILS(EINVAL, diorite_fallocate(file, 64, 0, 4096));
    FAILS(EINVAL, diorite_fallocate(file, DIORITE_FALLOC_PUNCH_HOLE, 0, 4096));
    FAILS(EINVAL, diorite_seek(file, 0, 0));
    FAILS(ENXIO, diorite_seek(file, 1 << 20, DIORITE_SEEK_DATA));
    FAILS(EINVAL, diorite_preadv(file, NULL, -1, 0));
    FAILS(EINVAL, diorite_preadv(file, NULL, 1025, 0));
    FAILS(EINVAL, diorite_pread(file, &number, SIZE_MAX, 0));
    FAILS(EFBIG, diorite_ftruncate(file, UINT64_MAX));
    FAILS(EINVAL, diorite_lookup(volume, 0, "/odd", 1));
    FAILS(EINVAL, diorite_unlinkat(volume, 0, "/odd", 1));
    FAILS(EINVAL, diorite_renameat(volume, 0, "/odd", 0, "/even", 8));
    FAILS(EINVAL, diorite_mknodat(volume, 0, "/node", 0, 0, 0, NULL));
    FAILS(EINVAL, diorite_setxattr(volume, 2, "user.x", "", 0, 3));
    FAILS(EINVAL, diorite_set_log(NULL, NULL, 0));
    FAILS(EINVAL, diorite_set_log(NULL, NULL, 5));

    DIORITE_INIT(&depth);
    depth.depth = 32769;
    FAILS(EINVAL, diorite_queue_create(volume, &depth, &number));
    memset(&newer, 0, sizeof newer);
    newer.known.size = sizeof newer;
    newer.of_later = 1;
    FAILS(E2BIG, diorite_queue_create(volume, &newer.known, &number));
    newer.of_later = 0;
    WELL(diorite_queue_create(volume, &newer.known, &number));
    FAILS(EINVAL, diorite_reap(number, NULL, 1, 2, 0));
    FAILS(EINVAL, diorite_reap(number, NULL, 1, 0, -2));
    FAILS(EINVAL, diorite_queue_register(number, &depth, 0));
    FAILS(EINVAL, diorite_queue_unregister(number, 0));
    FAILS(EINVAL, diorite_queue_unregister(number, 1));
    FAILS(EBADF, diorite_queue_detach(number, 12345));
    FAILS(ENOENT, diorite_completion_message(number, 0, NULL, 0));
    FAILS(ENOENT, diorite_completion_message(number, 1, NULL, 0));
    WELL(diorite_queue_destroy(number));

    DIORITE_INIT(&attributes);
    attributes.set = 64;
    FAILS(EINVAL, diorite_setattr(volume, 2, &attributes));
    attributes.set = DIORITE_ATTR_MTIME;
    attributes.mtime.nsec = 1000000000;
    FAILS(EINVAL, diorite_setattr(volume, 2, &attributes));

    DIORITE_INIT(&operations);
    operations.submit = submit_nothing;
    operations.bytes = 1000;
    FAILS(EINVAL, diorite_device_create("mine", &operations, NULL, &number));
    operations.bytes = 1 << 20;
    operations.logical = 1000;
    FAILS(EINVAL, diorite_device_create("mine", &operations, NULL, &number));

    DIORITE_INIT(&mkfs);
    mkfs.flags = DIORITE_MKFS_CREATE;
    FAILS(EINVAL, diorite_mkfs(path_of("new"), &mkfs));
    mkfs.bytes = UINT64_MAX;
    FAILS(EFBIG, diorite_mkfs(path_of("new"), &mkfs));
    CHECK(strstr(diorite_error_message(), "18446744073709551615") != NULL);
    mkfs.bytes = 8 << 20;
    mkfs.label = "seventeen letters";
    FAILS(EINVAL, diorite_mkfs(path_of("new"), &mkfs));
    mkfs.label = NULL;
    mkfs.type = "ext5";
    FAILS(EINVAL, diorite_mkfs(path_of("new"), &mkfs));
    mkfs.type = NULL;
    mkfs.block_size = 77;
    FAILS(EINVAL, diorite_mkfs(path_of("new"), &mkfs));
    FILE *left = fopen(path_of("new"), "r");
    CHECK(left == NULL);
    mkfs.block_size = 0;
    FAILS(EEXIST, diorite_mkfs(path_of("image"), &mkfs));
    WELL(diorite_close(file));
}

void test_arguments(void)
{
    diorite_volume volume = new_volume("image", 16);
    static const uint64_t noise[] = {0, 1, UINT64_MAX, 0x0123456789abcdef, 0x0110000000000005};
    for (size_t at = 0; at < sizeof noise / sizeof noise[0]; at++)
        no_handle(noise[at]);
    null_pointers(volume);
    odd_values(volume);
    WELL(diorite_volume_close(volume));
    no_handle(volume);
}
