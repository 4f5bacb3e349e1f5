/* New file systems, imports with progress, checks with findings, growth, the log. */

#include "suite.h"
#include <sys/stat.h>

struct told {
    uint64_t calls, last, total;
    int ends;
};

static int progress(void *context, uint64_t done, uint64_t total)
{
    struct told *told = context;
    __atomic_add_fetch(&told->calls, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&told->last, done, __ATOMIC_RELAXED);
    __atomic_store_n(&told->total, total, __ATOMIC_RELAXED);
    return told->ends;
}

static void finding(void *context, const char *kind, uint64_t ino, const char *message)
{
    int *count = context;
    CHECK(kind[0] != '\0' && message[0] != '\0');
    (void)ino;
    ++*count;
}

static void stage(void *context, const char *name, uint64_t done, uint64_t total)
{
    (void)context;
    CHECK(name[0] != '\0' && done <= total);
}

static void line(void *context, uint32_t level, const char *message)
{
    CHECK(level >= DIORITE_LOG_ERROR && level <= DIORITE_LOG_DEBUG && message[0] != '\0');
    __atomic_add_fetch((int *)context, 1, __ATOMIC_RELAXED);
}

static int count_findings(const char *image)
{
    struct diorite_check_options options;
    struct diorite_check_result result;
    int count = 0;
    DIORITE_INIT(&options);
    options.finding = finding;
    options.progress = stage;
    options.context = &count;
    options.threads = 2;
    WELL(diorite_check(image, &options, &result));
    CHECK(result.inodes > 0 && result.blocks > 0 && result.unfinished == 0);
    CHECK((result.findings == 0) == (count == 0));
    return count;
}

static void imports(void)
{
    struct diorite_import_options options;
    struct diorite_mkfs_options mkfs;
    struct diorite_stat stat;
    struct told told = {0, 0, 0, 0};
    char source[4200];
    const char *sources[] = {source};
    diorite_volume volume;
    diorite_editor editor;
    uint64_t files = 0;
    CHECK(mkdir(path_of("tree"), 0755) == 0 && mkdir(path_of("tree/sub"), 0755) == 0);
    FILE *file = fopen(path_of("tree/sub/file"), "w");
    CHECK(file != NULL);
    for (int at = 0; at < 300000; at++)
        CHECK(fputc('x', file) == 'x');
    CHECK(fclose(file) == 0);
    snprintf(source, sizeof source, "dir:%s", path_of("tree"));

    DIORITE_INIT(&mkfs);
    mkfs.label = "imported";
    DIORITE_INIT(&options);
    options.flags = DIORITE_IMPORT_OWNER;
    options.uid = options.gid = 42;
    options.mkfs = &mkfs;
    options.headroom = 4 << 20;
    options.progress = progress;
    options.context = &told;
    WELL(diorite_import(path_of("imported"), sources, 1, &options));
    CHECK(told.calls > 0 && told.total == 300000);
    FAILS(EEXIST, diorite_import(path_of("imported"), sources, 1, &options));
    WELL(diorite_volume_open(path_of("imported"), NULL, &volume));
    WELL(diorite_stat(volume, (uint64_t)diorite_lookup(volume, 0, "/sub/file", 0), &stat));
    CHECK(stat.size == 300000 && stat.uid == 42);
    WELL(diorite_volume_close(volume));
    GIVES(0, count_findings(path_of("imported")));

    told.ends = 1;
    FAILS(ECANCELED, diorite_import(path_of("ended"), sources, 1, &options));
    CHECK(fopen(path_of("ended"), "r") == NULL);
    snprintf(source, sizeof source, "dir:%s", path_of("nowhere"));
    FAILS(ENOENT, diorite_import(path_of("ended"), sources, 1, &options));

    snprintf(source, sizeof source, "dir:%s", path_of("tree"));
    told.ends = 0;
    WELL(diorite_editor_open(path_of("imported"), NULL, &editor));
    WELL(diorite_editor_make_dir(editor, "/again", 0755, NULL));
    WELL(diorite_editor_put(editor, source, "/again", progress, &told, &files));
    CHECK(files >= 2);
    FAILS(ENOENT, diorite_editor_put(editor, source, "/nowhere", NULL, NULL, NULL));
    told.ends = 1;
    FAILS(ECANCELED, diorite_editor_put(editor, source, "/again", progress, &told, &files));
    WELL(diorite_editor_close(editor));
    GIVES(0, count_findings(path_of("imported")));
}

void test_images(void)
{
    struct diorite_mkfs_options options;
    struct diorite_check_result result;
    struct diorite_volume_stat space;
    struct diorite_open_options writable;
    diorite_volume volume;
    uint64_t grown = 0;
    int lines = 0;
    WELL(diorite_set_log(line, &lines, DIORITE_LOG_DEBUG));
    FAILS(ENOENT, diorite_check(path_of("none"), NULL, &result));
    CHECK(lines == 1);
    WELL(diorite_set_log(NULL, NULL, DIORITE_LOG_DEBUG));
    FAILS(ENOENT, diorite_check(path_of("none"), NULL, &result));
    CHECK(lines == 1);

    GIVES(0, count_findings(new_image("image", 16)));
    /* What was there is lost. */
    DIORITE_INIT(&options);
    options.type = "ext2";
    options.block_size = 1024;
    options.inodes = 256;
    options.root_uid = 7;
    options.flags = DIORITE_MKFS_NO_JOURNAL | DIORITE_MKFS_NO_RESERVE;
    WELL(diorite_mkfs(path_of("image"), &options));
    WELL(diorite_volume_open(path_of("image"), NULL, &volume));
    WELL(diorite_volume_stat(volume, &space));
    CHECK(space.block_size == 1024 && space.inodes == 256 && space.blocks_free == space.blocks_available);
    WELL(diorite_volume_close(volume));

    new_image("grows", 16);
    DIORITE_INIT(&writable);
    writable.flags = DIORITE_OPEN_WRITE | DIORITE_OPEN_RELATIME | DIORITE_OPEN_LAZYTIME;
    writable.policy = "linux-6.19";
    writable.io_engine = "threads";
    writable.commit_interval_ms = 100;
    writable.write_back_age_ms = 100;
    writable.page_cache = 8 << 20;
    writable.metadata_cache = 1 << 20;
    writable.workers = 1;
    writable.mounted_on = "/somewhere";
    WELL(diorite_volume_open(path_of("grows"), &writable, &volume));
    FAILS(EINVAL, diorite_volume_grow(volume, 64 << 20, &grown));
    FAILS(EINVAL, diorite_volume_grow(volume, 1 << 20, &grown));
    FILE *image = fopen(path_of("grows"), "r+");
    CHECK(image != NULL && fseek(image, (64 << 20) - 1, SEEK_SET) == 0 && fputc(0, image) == 0 && fclose(image) == 0);
    WELL(diorite_volume_grow(volume, 0, &grown));
    GIVES(64 << 20, grown);
    WELL(diorite_volume_stat(volume, &space));
    CHECK(space.bytes == 64 << 20);
    int trimmed = diorite_volume_trim(volume, 0, &grown);
    CHECK(trimmed == 0 || trimmed == -EOPNOTSUPP);
    WELL(diorite_volume_close(volume));
    GIVES(0, count_findings(path_of("grows")));

    /* A damaged volume is no error, and neither is one that says why it cannot be checked. */
    image = fopen(path_of("grows"), "r+");
    CHECK(image != NULL && fseek(image, 4096 + 12, SEEK_SET) == 0 && fputc(0xee, image) == 0xee && fclose(image) == 0);
    CHECK(count_findings(path_of("grows")) > 0);
    imports();
}
