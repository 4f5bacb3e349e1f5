/* What the tests of libdiorite in C share: checks that name their place, and a volume to try things on. */

#ifndef SUITE_H
#define SUITE_H

#include <diorite.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                                              \
    do {                                                                                                              \
        if (!(condition)) {                                                                                           \
            fprintf(stderr, "%s:%d: %s; latest error: %s\n", __FILE__, __LINE__, #condition, diorite_error_message()); \
            exit(1);                                                                                                  \
        }                                                                                                             \
    } while (0)

/* The call gives this number. */
#define GIVES(expected, call)                                                                                 \
    do {                                                                                                      \
        long long gave_ = (long long)(call), want_ = (long long)(expected);                                   \
        if (gave_ != want_) {                                                                                 \
            fprintf(stderr, "%s:%d: %s gave %lld, not %lld; latest error: %s\n", __FILE__, __LINE__, #call,   \
                    gave_, want_, diorite_error_message());                                                   \
            exit(1);                                                                                          \
        }                                                                                                     \
    } while (0)

#define WELL(call) GIVES(0, call)

/* The call fails with this error number, and leaves it and a message behind. */
#define FAILS(number, call)                          \
    do {                                             \
        GIVES(-(number), call);                      \
        GIVES((number), diorite_error_number());     \
        CHECK(diorite_error_message()[0] != '\0');   \
    } while (0)

/* The path of a file in the test's folder; the text is valid until the next call. */
const char *path_of(const char *name);

/* A new image of this many MiB in the test's folder; its path is valid until the next call of path_of. */
const char *new_image(const char *name, uint64_t mib);

/* Such an image, open for writing. */
diorite_volume new_volume(const char *name, uint64_t mib);

/* Memory for direct I/O. */
void *aligned(size_t size);

void test_arguments(void);
void test_files(void);
void test_handles(void);
void test_threads(void);
void test_fork(void);
void test_queues(void);
void test_names(void);
void test_editor(void);
void test_images(void);
void test_devices(void);

#endif
