/* Runs one group of tests: suite GROUP FOLDER. The folder is empty. */

#include "suite.h"

static const char *folder;

static const struct {
    const char *name;
    void (*run)(void);
} groups[] = {
    {"arguments", test_arguments}, {"files", test_files},   {"handles", test_handles}, {"threads", test_threads},
    {"fork", test_fork},           {"queues", test_queues}, {"names", test_names},     {"editor", test_editor},
    {"images", test_images},       {"devices", test_devices},
};

const char *path_of(const char *name)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

const char *new_image(const char *name, uint64_t mib)
{
    static const uint8_t sixteen[16] = {1, 2, 3};
    struct diorite_mkfs_options options;
    DIORITE_INIT(&options);
    options.flags = DIORITE_MKFS_CREATE;
    options.bytes = mib << 20;
    options.label = "suite";
    options.uuid = sixteen;
    options.hash_seed = sixteen;
    options.time = 1700000000;
    WELL(diorite_mkfs(path_of(name), &options));
    return path_of(name);
}

diorite_volume new_volume(const char *name, uint64_t mib)
{
    struct diorite_open_options options;
    diorite_volume volume;
    DIORITE_INIT(&options);
    options.flags = DIORITE_OPEN_WRITE;
    options.io_engine = getenv("SUITE_IO_ENGINE");
    WELL(diorite_volume_open(new_image(name, mib), &options, &volume));
    CHECK(volume != 0);
    return volume;
}

void *aligned(size_t size)
{
    void *memory = NULL;
    CHECK(posix_memalign(&memory, 4096, size) == 0);
    memset(memory, 0, size);
    return memory;
}

int main(int count, char **words)
{
    if (count != 3) {
        fprintf(stderr, "usage: suite GROUP FOLDER\n");
        return 2;
    }
    folder = words[2];
    GIVES(DIORITE_ABI_VERSION, diorite_abi_version());
    CHECK(diorite_version()[0] != '\0');
    for (size_t at = 0; at < sizeof groups / sizeof groups[0]; at++)
        if (strcmp(groups[at].name, words[1]) == 0) {
            groups[at].run();
            return 0;
        }
    fprintf(stderr, "there is no group %s\n", words[1]);
    return 2;
}
