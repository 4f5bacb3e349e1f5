/*
 * libdiorite: ext4 in user space.
 *
 * Volumes are opened by locators (files, block devices, partitions, images inside images) or on a device of this
 * program. Files are read and written by blocking calls, through a page cache or past it, or by queues: many
 * requests in flight from one thread. Names, attributes, new file systems, imports, checks and transactions have
 * calls of their own.
 *
 * RESULTS  A call returns 0 or a count, or a negative error number (-ENOENT, ...) of <errno.h>; errno itself
 *   says nothing. The message of the latest call of a thread that has failed is diorite_error_message(). Any call may
 *   fail with EFAULT (a pointer that may not be NULL is), ENOMEM, and ENOTRECOVERABLE: a defect of the library,
 *   which has printed a message on standard error.
 *
 * HANDLES  diorite_volume, diorite_file and the others are numbers, checked by each call: one that was closed, is
 *   of another kind, or was never given out gives EBADF. Handles are closed once, by the call that their kind has; a
 *   call that is under way in another thread ends first with the object that it has. 0 is never a handle. Up to 2^20
 *   of a kind may be open.
 *
 * THREADS  Any thread may use any handle at any time. Calls that say "blocks" wait for I/O; those that do not only
 *   take short locks. Several threads that share a queue wait for each other's calls of diorite_submit: give each
 *   thread its own queue.
 *
 * FORK  In the child of fork(2) handles of the parent give EBADF, with a message that says so, and the parent goes
 *   on undisturbed. The child may open volumes of its own, if none was open in the parent at the fork and no other
 *   thread was in a call of this library. A child made by vfork, or by clone without the C library's handlers, may
 *   only exec.
 *
 * OWNERSHIP  Memory that is passed in is the caller's and is not kept after the call, but for: buffers of requests
 *   (until reaped), registered regions (until unregistered), contexts of callbacks (until replaced or released).
 *   Memory that is given out is the library's and is valid as long as each call says. Nothing that the library gives
 *   is freed by the caller.
 *
 * CALLBACKS  They must not call the library, except where it is said, must not fork, and return to their caller: no
 *   longjmp, no C++ exception, no end of the thread. They may be called by any thread.
 *
 * STRUCTURES THAT GROW  begin with `size`: set it, and all else to zero, by DIORITE_INIT(&options). A library that
 *   does not know a field that is not zero refuses it with E2BIG.
 *
 * TEXT  Locators, options and messages are UTF-8. Paths and names are bytes. Positions, lengths and sizes are in
 *   bytes; times are in UTC.
 *
 * SIGNALS  No call is async-signal-safe. SIGPIPE and others are not touched; interrupted system calls are
 *   repeated.
 */


#ifndef DIORITE_H
#define DIORITE_H

/* Made by `cargo xtask header` of frontends/c/src: change that. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

/* Sets a structure with a size field to its defaults: struct diorite_open_options options; DIORITE_INIT(&options); */
#define DIORITE_INIT(structure) \
    (memset((structure), 0, sizeof *(structure)), (void)((structure)->size = (uint32_t)sizeof *(structure)))


// The version of the binary interface: a program that was built for another is not to use this library. Fields that are added to
// structures, and functions that are added, do not change it.
#define DIORITE_ABI_VERSION 0

// A part of diorite failed in a way that is a defect.
#define DIORITE_LOG_ERROR 1

// Something was odd and no error: of a source of an import.
#define DIORITE_LOG_WARNING 2

// How a volume was opened: a journal that was replayed, an I/O engine that the host does not have.
#define DIORITE_LOG_INFO 3

// Each call that fails, with its message.
#define DIORITE_LOG_DEBUG 4

// The volume can be changed. Without it nothing is written, not even a journal that has to be replayed: that is done in memory.
#define DIORITE_OPEN_WRITE 1

// Open for writing although another process has the image open. Two writers destroy the volume.
#define DIORITE_OPEN_FORCE 2

// Do not take into account what the journal holds (norecovery).
#define DIORITE_OPEN_NO_RECOVERY 4

// Reading updates access times that are older than the last change, or a day old (relatime). Without it they never change.
#define DIORITE_OPEN_RELATIME 8

// Times alone are no reason for a commit (lazytime).
#define DIORITE_OPEN_LAZYTIME 16

// The directory argument of calls that take a whole path.
#define DIORITE_AT_ROOT 0

// The file can be written. Without it it is opened for reading.
#define DIORITE_O_RDWR 1

// Creates the file if it does not exist.
#define DIORITE_O_CREAT 2

// With DIORITE_O_CREAT: fails with EEXIST if it exists.
#define DIORITE_O_EXCL 4

// Makes the file empty.
#define DIORITE_O_TRUNC 8

// A write is durable when it is acknowledged, with what is needed to read it back.
#define DIORITE_O_DSYNC 16

// As DIORITE_O_DSYNC, and the inode's times are durable too.
#define DIORITE_O_SYNC 32

// Blocking reads and writes go past the page cache, as requests of queues always do.
#define DIORITE_O_DIRECT 64

// Fails with ELOOP if the last name is a symbolic link.
#define DIORITE_O_NOFOLLOW 128

// Fails with ENOTDIR for what is no directory. A directory can be opened for reading only, for fsync and attributes.
#define DIORITE_O_DIRECTORY 256

// Creates a file without a name near the directory that is named; diorite_linkfile gives it one. It is deleted when it is closed.
#define DIORITE_O_TMPFILE 512

// The size of the file stays.
#define DIORITE_FALLOC_KEEP_SIZE 1

// The range becomes a hole; needs DIORITE_FALLOC_KEEP_SIZE.
#define DIORITE_FALLOC_PUNCH_HOLE 2

// The range is removed, and what lies behind it moves down.
#define DIORITE_FALLOC_COLLAPSE_RANGE 8

// The range reads as zeros and stays allocated, as unwritten blocks.
#define DIORITE_FALLOC_ZERO_RANGE 16

// A hole is inserted, and what lies behind it moves up.
#define DIORITE_FALLOC_INSERT_RANGE 32

// As DIORITE_FALLOC_ZERO_RANGE, with written blocks: later writes are plain overwrites.
#define DIORITE_FALLOC_WRITE_ZEROES 128

// The next byte of data.
#define DIORITE_SEEK_DATA 3

// The next byte of a hole; the end of the file is one.
#define DIORITE_SEEK_HOLE 4

// Fill the buffer from `offset`.
#define DIORITE_OP_READ 1

// Write the buffer at `offset`.
#define DIORITE_OP_WRITE 2

// Write the buffer at the end of the file; the completion says where.
#define DIORITE_OP_APPEND 3

// As diorite_fsync: durable is what was acknowledged when the request is submitted.
#define DIORITE_OP_FSYNC 4

// As diorite_fdatasync.
#define DIORITE_OP_FDATASYNC 5

// As diorite_volume_sync; `file` is not used.
#define DIORITE_OP_SYNCFS 6

// Make the file `offset` bytes long.
#define DIORITE_OP_TRUNCATE 7

// As diorite_fallocate with `mode` for `length` bytes at `offset`.
#define DIORITE_OP_FALLOCATE 8

// Fail with EAGAIN instead of waiting for a lock, for metadata or for another request.
#define DIORITE_REQUEST_NOWAIT 1

// The write is durable when it is acknowledged, with what is needed to read it back.
#define DIORITE_REQUEST_DSYNC 2

// As DIORITE_REQUEST_DSYNC, and the inode's times are durable too.
#define DIORITE_REQUEST_SYNC 4

// Of a write: readers, and whoever opens the volume after a power cut, find all of it or nothing (RWF_ATOMIC).
#define DIORITE_REQUEST_ATOMIC 8

// Of a write: the file ends behind it. `length` need not be aligned; the buffer's memory reaches to the next multiple of `direct_align` of
// diorite_volume_stat, and its bytes behind `length` become zeros. The file has to become longer by it.
#define DIORITE_REQUEST_LAST 16

// Of lookups: a symbolic link that is the last name is meant itself.
#define DIORITE_AT_SYMLINK_NOFOLLOW 256

// Of diorite_unlinkat: the name is that of an empty directory.
#define DIORITE_AT_REMOVEDIR 512

// Fail with EEXIST if the new name exists.
#define DIORITE_RENAME_NOREPLACE 1

// Exchange two names that exist.
#define DIORITE_RENAME_EXCHANGE 2

// Leave a whiteout (a character device 0:0) at the old name.
#define DIORITE_RENAME_WHITEOUT 4

// Of diorite_setattr: what is set.
#define DIORITE_ATTR_MODE 1

#define DIORITE_ATTR_UID 2

#define DIORITE_ATTR_GID 4

#define DIORITE_ATTR_ATIME 8

#define DIORITE_ATTR_MTIME 16

// Both times become the time of the call.
#define DIORITE_ATTR_NOW 32

// Of diorite_setxattr: fail with EEXIST if the attribute exists.
#define DIORITE_XATTR_CREATE 1

// Of diorite_setxattr: fail with ENODATA if it does not.
#define DIORITE_XATTR_REPLACE 2

// The changes of a transaction stay.
#define DIORITE_END_COMMIT 0

// None of them does.
#define DIORITE_END_ABANDON 1

// The image is a new file of `bytes` bytes, which must not exist yet.
#define DIORITE_MKFS_CREATE 1

// No journal.
#define DIORITE_MKFS_NO_JOURNAL 2

// No blocks are reserved for privileged users.
#define DIORITE_MKFS_NO_RESERVE 4

// Of an import: everything belongs to `uid` and `gid`, in place of the source's owners.
#define DIORITE_IMPORT_OWNER 1

// Fill the parts from `offset`.
#define DIORITE_IO_READ 1

// Write the parts at `offset`.
#define DIORITE_IO_WRITE 2

// Make durable all writes that have ended.
#define DIORITE_IO_FLUSH 3

// What is in the range is not needed any more.
#define DIORITE_IO_DISCARD 4

// The range reads as zeros afterwards.
#define DIORITE_IO_WRITE_ZEROES 5

// Of a write: it is durable when it ends.
#define DIORITE_IO_FUA 1

// The device has a volatile cache: writes are durable only after a flush.
#define DIORITE_DEVICE_VOLATILE_CACHE 1

// Writes are refused.
#define DIORITE_DEVICE_READ_ONLY 2

// It takes DIORITE_IO_DISCARD.
#define DIORITE_DEVICE_DISCARD 4

// It takes DIORITE_IO_WRITE_ZEROES.
#define DIORITE_DEVICE_WRITE_ZEROES 8

// It takes DIORITE_IO_FUA; without it a flush follows instead.
#define DIORITE_DEVICE_FUA 16

// How to open a volume. Set @size by DIORITE_INIT; a field that is zero or NULL has its default. All texts are copied.
struct diorite_open_options {
    // sizeof(struct diorite_open_options).
    uint32_t size;
    // DIORITE_OPEN_...
    uint32_t flags;
    // The techniques in use: "diorite" (the default), a kernel's ("linux-6.19"), or one with switches ("diorite/unaligned=exclusive").
    const char *policy;
    // The I/O engine: "io_uring", "aio", "threads"; NULL: the best that the host has.
    const char *io_engine;
    // The locator of the device with the journal, of a volume whose journal is not inside it.
    const char *journal;
    // The path at which the volume will be seen, for "last mounted on" in its superblock; NULL: the field is not changed.
    const char *mounted_on;
    // User and group of what is created.
    uint32_t uid;
    uint32_t gid;
    // Worker threads of each class; 0: 4.
    uint32_t workers;
    // Age in milliseconds at which changes of metadata are committed; 0: 5,000.
    uint32_t commit_interval_ms;
    // Age in milliseconds at which dirty pages are written back; 0: 30,000.
    uint32_t write_back_age_ms;
    // Zero.
    uint32_t reserved;
    // Bytes for cached pages of this volume alone; 0: it shares the budget of the process.
    uint64_t page_cache;
    // Bytes for cached metadata; 0: 16 MiB.
    uint64_t metadata_cache;
};

// A volume: an open file system. 0 is none.
typedef uint64_t diorite_volume;

// A device of the host program. 0 is none.
typedef uint64_t diorite_device;

// Sizes and counts of a volume, as in statvfs(3). Blocks are of @block_size bytes.
struct diorite_volume_stat {
    // Bytes of a block.
    uint32_t block_size;
    // The longest name, in bytes.
    uint32_t name_max;
    // Blocks of the volume, without its own structures.
    uint64_t blocks;
    // Free blocks.
    uint64_t blocks_free;
    // Free blocks without those reserved for privileged users.
    uint64_t blocks_available;
    // Inodes, and free ones.
    uint64_t inodes;
    uint64_t inodes_free;
    // Made from the UUID.
    uint64_t fsid;
    // Bytes of the file system on its device.
    uint64_t bytes;
    // What positions and lengths of direct I/O are multiples of, in bytes.
    uint32_t direct_align;
    // What addresses of buffers of direct I/O are multiples of, in bytes.
    uint32_t memory_align;
    // The smallest and the largest write with DIORITE_REQUEST_ATOMIC, in bytes; 0: there are none.
    uint32_t atomic_min;
    uint32_t atomic_max;
    uint8_t uuid[16];
    // NUL-terminated.
    char label[64];
    // Zero.
    uint8_t reserved[32];
};

// An open file. 0 is none.
typedef uint64_t diorite_file;

// How to make a queue. Set @size by DIORITE_INIT; zeros are the defaults.
struct diorite_queue_options {
    // sizeof(struct diorite_queue_options).
    uint32_t size;
    // Requests that may be in flight at once, at most 32,768; 0: 128.
    uint32_t depth;
    // Not 0: diorite_reap looks for completions for up to so many nanoseconds before it sleeps, and polls the device's driver if it can.
    uint64_t poll_ns;
};

// A queue of requests to the files of one volume. 0 is none.
typedef uint64_t diorite_queue;

// A request: 64 bytes. Set what is not used to zero. Reads, writes and appends go past the page cache: positions, lengths and addresses
// are aligned as for DIORITE_O_DIRECT, and at most 1 GiB is transferred.
struct diorite_request {
    // What diorite_queue_attach has given.
    uint64_t file;
    // The position in bytes; the new size for DIORITE_OP_TRUNCATE.
    uint64_t offset;
    // Bytes of the buffer, or of the range of DIORITE_OP_FALLOCATE. 0 with a vector.
    uint64_t length;
    // The buffer; with @iov_count an array of so many struct iovec, which is not needed any more when diorite_submit returns.
    void *buffer;
    // The caller's: it comes back with the completion.
    uint64_t token;
    // DIORITE_OP_...
    uint32_t op;
    // DIORITE_REQUEST_...
    uint32_t flags;
    // The region of diorite_queue_register that the buffer lies in; 0: none.
    uint32_t region;
    // Parts of a vector, at most 1,024; 0: @buffer is the buffer.
    uint32_t iov_count;
    // DIORITE_FALLOC_...
    uint32_t mode;
    // Zero.
    uint32_t reserved;
};

// A finished request: 32 bytes.
struct diorite_completion {
    // The request's.
    uint64_t token;
    // Bytes that were transferred, 0 for operations without data; or a negative error number. Fewer bytes than asked for only if a read
    // has met the end of the file.
    int64_t result;
    // The request's position; of DIORITE_OP_APPEND where the data was written.
    uint64_t offset;
    // After an error a number for diorite_completion_message; otherwise 0.
    uint64_t error;
};

// A time: seconds since 1970, and nanoseconds from 0 to 999,999,999.
struct diorite_time {
    int64_t sec;
    uint32_t nsec;
    // Zero.
    uint32_t reserved;
};

// Attributes of an inode.
struct diorite_stat {
    uint64_t ino;
    // Bytes.
    uint64_t size;
    // Units of 512 bytes that it takes.
    uint64_t blocks;
    // Type and permissions, as in struct stat.
    uint32_t mode;
    uint32_t nlink;
    uint32_t uid;
    uint32_t gid;
    // Of device nodes.
    uint32_t rdev_major;
    uint32_t rdev_minor;
    // FS_..._FL of linux/fs.h.
    uint32_t flags;
    // Tells it from others that had its number.
    uint32_t generation;
    struct diorite_time atime;
    struct diorite_time mtime;
    struct diorite_time ctime;
    // Creation; zeros if the inode has no room for it.
    struct diorite_time btime;
    // Zero.
    uint64_t reserved[5];
};

// What diorite_setattr sets. Set @size by DIORITE_INIT.
struct diorite_attributes {
    // sizeof(struct diorite_attributes).
    uint32_t size;
    // DIORITE_ATTR_...
    uint32_t set;
    // Permissions: 12 bits.
    uint32_t mode;
    uint32_t uid;
    uint32_t gid;
    // Zero.
    uint32_t reserved;
    struct diorite_time atime;
    struct diorite_time mtime;
};

// A directory stream. 0 is none.
typedef uint64_t diorite_dir;

// An entry of a directory.
struct diorite_dirent {
    // The inode that the name leads to.
    uint64_t ino;
    // Where the stream goes on behind this entry, for diorite_seekdir: below 2^63.
    uint64_t position;
    // The type as in the upper bits of a mode (S_IFREG, ...); 0: the directory does not say.
    uint32_t type;
    // Bytes of the name.
    uint32_t name_len;
    // The name, with a NUL behind it. It need not be UTF-8.
    char name[256];
};

// An editor of an image. 0 is none.
typedef uint64_t diorite_editor;

// What a new file system is like. Set @size by DIORITE_INIT; a field that is zero or NULL has the default of mke2fs for the size.
struct diorite_mkfs_options {
    // sizeof(struct diorite_mkfs_options).
    uint32_t size;
    // DIORITE_MKFS_...
    uint32_t flags;
    // "ext4" (the default), "ext3" or "ext2".
    const char *type;
    // At most 16 bytes.
    const char *label;
    // 16 bytes; NULL: a random one.
    const uint8_t *uuid;
    // 16 bytes, the seed of the hashes of names; NULL: a random one. The same UUID, seed, time and files make the same bytes.
    const uint8_t *hash_seed;
    // When it is made, in seconds since 1970; 0: now.
    int64_t time;
    // Bytes of the file system; 0: all of its device, or of an import what the files need and `headroom`.
    uint64_t bytes;
    // Bytes of a block, 1,024 to 65,536.
    uint32_t block_size;
    // Bytes of an inode.
    uint32_t inode_size;
    // Number of inodes.
    uint32_t inodes;
    // Blocks of the journal.
    uint32_t journal_blocks;
    // Owner and group of the root directory, and its permissions (0: 0755).
    uint32_t root_uid;
    uint32_t root_gid;
    uint32_t root_mode;
    // Blocks that only privileged users may have, in percent, at most 50; 0: 5, or none with DIORITE_MKFS_NO_RESERVE.
    uint32_t reserved_percent;
};

// How to import. Set @size by DIORITE_INIT.
struct diorite_import_options {
    // sizeof(struct diorite_import_options).
    uint32_t size;
    // DIORITE_IMPORT_...
    uint32_t flags;
    uint32_t uid;
    uint32_t gid;
    // What the file system is like; NULL: the defaults.
    const struct diorite_mkfs_options *mkfs;
    // Bytes that are free in it afterwards, if its size follows from the files.
    uint64_t headroom;
    // Told the bytes that are written, and those of all files; ends the import by anything but 0. NULL: nobody is told. It is called by
    // any thread, also by several at once, and must not call the library.
    int (*progress)(void *context, uint64_t done, uint64_t total);
    // For @progress.
    void *context;
};

// How to check. Set @size by DIORITE_INIT.
struct diorite_check_options {
    // sizeof(struct diorite_check_options).
    uint32_t size;
    // Threads; 0: one for each processor.
    uint32_t threads;
    // Findings of each kind that are told; 0: 20. All are counted.
    uint32_t per_kind;
    // Zero.
    uint32_t reserved;
    // How the volume is opened, never for writing; NULL: the defaults.
    const struct diorite_open_options *open;
    // Told how far a stage is. It is called by any thread, also by several at once, and must not call the library.
    void (*progress)(void *context, const char *stage, uint64_t done, uint64_t total);
    // Told each finding when the check has ended, by the calling thread: its kind ("inode", "block_bitmap", ...), the inode (0: none),
    // and a sentence. The texts are valid during the call.
    void (*finding)(void *context, const char *kind, uint64_t ino, const char *message);
    // For both.
    void *context;
};

// What a check has found.
struct diorite_check_result {
    // Number of findings: 0 if the volume is consistent.
    uint64_t findings;
    // Counts of what is in the volume.
    uint64_t inodes;
    uint64_t directories;
    uint64_t names;
    uint64_t blocks;
    // 1: the check could not be completed; a finding says why.
    uint32_t unfinished;
    // 1: something was not compared that e2fsck compares.
    uint32_t partial;
    // Zero.
    uint64_t reserved[2];
};

// A request to a device of the host program.
struct diorite_io {
    // For diorite_io_end.
    uint64_t id;
    // In bytes: multiples of the logical block, inside the device.
    uint64_t offset;
    uint64_t length;
    // The memory, `length` bytes in all: it may be used, and the array read, until diorite_io_end is called.
    const struct iovec *iov;
    uint32_t iov_count;
    // DIORITE_IO_...
    uint32_t op;
    // DIORITE_IO_FUA or 0.
    uint32_t flags;
    // Zero.
    uint32_t reserved;
};

// What a device is, and how it works. Set @size by DIORITE_INIT.
struct diorite_device_operations {
    // sizeof(struct diorite_device_operations).
    uint32_t size;
    // DIORITE_DEVICE_...
    uint32_t flags;
    // Bytes of the device, a multiple of the logical block.
    uint64_t bytes;
    // What positions and lengths are multiples of: a power of two, 512 to 65,536; 0: 512.
    uint32_t logical;
    // What addresses are multiples of: a power of two, at most 4,096; 0: 1.
    uint32_t memory_align;
    // Bytes of one request, at most; 0: 1 MiB.
    uint32_t max_transfer;
    // Zero.
    uint32_t reserved;
    // Starts a request. Returns 0: diorite_io_end is called for it, by any thread, once, during this call or later; or a negative error
    // number: it has ended with that. *@io is valid during the call only. Does not wait for the I/O. It is called by any thread, also by
    // several at once, under locks of the library: of its functions it may call diorite_io_end only.
    int (*submit)(void *context, const struct diorite_io *io);
    // Called once, when nothing uses the device any more; NULL: nobody is told.
    void (*release)(void *context);
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// DIORITE_ABI_VERSION of the library that is loaded.
uint32_t diorite_abi_version(void);

// The library's version as text, such as "0.1.0". It belongs to the library and is valid for ever.
const char *diorite_version(void);

// The message of the latest call of this thread that has failed, as NUL-terminated text; empty if none has. It is valid until the next
// call of this thread that fails, and belongs to the library. Does not block.
const char *diorite_error_message(void);

// The error number of the same call, positive; 0 if none has failed. Does not block.
int diorite_error_number(void);

// Sets the function that is told messages up to a level (DIORITE_LOG_...), in place of the one before; NULL for none.
//
// @context is passed through. The function is called by any thread, also by several at once, and must not call the library. The message is
// one line of UTF-8 and valid during the call. When this returns the function before is not running any more. Blocks for that.
//
// Errors: EINVAL for an unknown level.
int diorite_set_log(void (*function)(void *context, uint32_t level, const char *message),
                    void *context,
                    uint32_t level);

// Opens the volume that a locator names: "disk.img", "/dev/sdx1", "disk.img?part=2", "outer.img!/inner.img", "disk.qcow2".
//
// @options may be NULL: for reading. @volume gets the handle; it is 0 after an error. Blocks.
//
// Errors: ENOENT, EACCES, EBUSY (another process has it open), EUCLEAN (damaged), EOPNOTSUPP (a feature that is not supported, or a state
// that forbids writing), EINVAL (the locator, an option), and those of the host.
int diorite_volume_open(const char *locator,
                        const struct diorite_open_options *options,
                        diorite_volume *volume);

// Opens the volume on a device of the host program: see diorite_device_create. The volume keeps the device until it is closed and its
// files and queues are. Otherwise as diorite_volume_open.
int diorite_volume_open_device(diorite_device device,
                               const struct diorite_open_options *options,
                               diorite_volume *volume);

// Closes a volume: no request is taken any more, those in flight end, everything is made durable. The handle is invalid afterwards, after
// an error, too. Open files, queues and directory streams stay valid handles that are to be closed; calls with them fail with ESHUTDOWN.
// Completions that were not reaped can still be reaped. Blocks.
//
// Errors: EBADF; those of the device: then something that was not synced before may be lost.
int diorite_volume_close(diorite_volume volume);

// Makes everything durable that was acknowledged before this call, of all files and names (syncfs). Blocks.
//
// Errors: EBADF, EROFS, ESHUTDOWN; those of the device: each failed flush and write-back is reported once.
int diorite_volume_sync(diorite_volume volume);

// Size and free space of a volume. Does not block on I/O.
//
// Errors: EBADF.
//
// @stat points to a structure.
int diorite_volume_stat(diorite_volume volume, struct diorite_volume_stat *stat);

// Makes the file system larger while it is in use, to at most @bytes; 0: as large as its device is. An image file has to be made that long
// before (truncate). @grown gets the bytes that it has afterwards; it may be NULL. Blocks; requests of others do not.
//
// Errors: EBADF, EROFS; EINVAL: fewer bytes than it has, or more than the device or the format has; EOPNOTSUPP: the group descriptors
// cannot grow so far; those of the device.
//
// @grown is NULL or points to a number.
int diorite_volume_grow(diorite_volume volume,
                        uint64_t bytes,
                        uint64_t *grown);

// Discards free blocks on the device, in runs of at least @least bytes (FITRIM). @discarded gets the bytes; it may be NULL. Blocks.
//
// Errors: EBADF, EROFS; EOPNOTSUPP: the device cannot discard; those of the device.
//
// @discarded is NULL or points to a number.
int diorite_volume_trim(diorite_volume volume,
                        uint64_t least,
                        uint64_t *discarded);

// Opens a file. @dir is DIORITE_AT_ROOT, and @path a path from the root; or @dir is the inode of a directory and @path a single name in
// it, which is no symbolic link.
//
// @flags are DIORITE_O_...; @mode are the permissions of a file that is created. @file gets the handle; it is 0 after an error. Blocks.
//
// Errors: EBADF, ENOENT, EEXIST, ENOTDIR, EISDIR (a directory for writing), ELOOP, ENAMETOOLONG, EROFS, EPERM, ENOSPC, EINVAL (flags).
int diorite_openat(diorite_volume volume,
                   uint64_t dir,
                   const char *path,
                   uint32_t flags,
                   uint32_t mode,
                   diorite_file *file);

// Opens a file by the number of its inode. Of DIORITE_O_... those apply that create nothing. Otherwise as diorite_openat.
//
// Errors: ESTALE: the inode is not in use; those of diorite_openat.
//
// @file points to a handle.
int diorite_open_ino(diorite_volume volume,
                     uint64_t ino,
                     uint32_t flags,
                     diorite_file *file);

// Closes a file. The handle is invalid afterwards. A queue that has the file attached keeps it open. What was written is durable only
// after diorite_fsync: closing tells of no failure. Does not wait for write-back.
//
// Errors: EBADF.
int diorite_close(diorite_file file);

// The number of a file's inode, or a negative error number: EBADF. Does not block.
int64_t diorite_file_ino(diorite_file file);

// The size of a file in bytes, with what is written and not durable yet; or a negative error number: EBADF. Does not block.
int64_t diorite_file_size(diorite_file file);

// Reads @size bytes at @offset; fewer only at the end of the file. Returns their number.
//
// With DIORITE_O_DIRECT offset and size are multiples of `direct_align` of diorite_volume_stat, the buffer's address one of
// `memory_align`, and the size is at most 1 GiB. Blocks.
//
// Errors: EBADF, EFAULT, EINVAL (not aligned), EUCLEAN, ESHUTDOWN, EIO and others of the device.
//
// @size bytes at @buffer can be written, and nobody touches them meanwhile.
int64_t diorite_pread(diorite_file file,
                      void *buffer,
                      size_t size,
                      uint64_t offset);

// Writes @size bytes at @offset, which may be behind the end. Returns how many were written: fewer only after an error behind them,
// which a further call reports; a direct call writes all or fails. Alignment as for diorite_pread. Blocks; with DIORITE_O_DSYNC until it
// is durable.
//
// Errors: those of diorite_pread; ENOSPC, EROFS, EFBIG, EPERM.
//
// @size bytes at @buffer can be read, and nobody changes them meanwhile.
int64_t diorite_pwrite(diorite_file file,
                       const void *buffer,
                       size_t size,
                       uint64_t offset);

// As diorite_pread, into several buffers; with DIORITE_O_DIRECT they are aligned as a whole.
//
// @iov has @count parts, at most 1,024, each as of diorite_pread; no two of them overlap.
int64_t diorite_preadv(diorite_file file, const struct iovec *iov, int count, uint64_t offset);

// As diorite_pwrite, from several buffers; with DIORITE_O_DIRECT they are aligned as a whole.
//
// @iov has @count parts, at most 1,024, each as of diorite_pwrite.
int64_t diorite_pwritev(diorite_file file, const struct iovec *iov, int count, uint64_t offset);

// Writes @size bytes at the end of the file, behind all earlier appends. @offset gets where; it may be NULL. Returns @size. Otherwise as
// diorite_pwrite.
//
// As of diorite_pwrite; @offset is NULL or points to a number.
int64_t diorite_append(diorite_file file,
                       const void *buffer,
                       size_t size,
                       uint64_t *offset);

// Makes durable what was written to the file, and its attributes; of a directory its names. A new file that must be found after a crash
// needs both. Blocks.
//
// Errors: EBADF, EROFS, ESHUTDOWN; those of the device: a failed write-back or flush is reported once by each open file.
int diorite_fsync(diorite_file file);

// As diorite_fsync, without what is not needed to read the data back, such as times.
int diorite_fdatasync(diorite_file file);

// Makes a file @size bytes long; bytes that are new read as zeros. Blocks.
//
// Errors: EBADF, EROFS, EPERM, EFBIG, EUCLEAN; those of the device.
int diorite_ftruncate(diorite_file file, uint64_t size);

// Allocates, frees, zeroes or moves @len bytes at @offset; @mode is 0 or DIORITE_FALLOC_..., whose values are those of Linux. Blocks.
//
// Errors: EBADF, EINVAL (the mode, or a range that it does not allow), EOPNOTSUPP (a file without extents), ENOSPC with nothing changed,
// EROFS, EPERM, EFBIG; those of the device.
int diorite_fallocate(diorite_file file,
                      uint32_t mode,
                      uint64_t offset,
                      uint64_t len);

// The first byte at or behind @offset that is of data or of a hole (DIORITE_SEEK_...). Blocks while the map is read.
//
// Errors: EBADF, EINVAL; ENXIO: the offset is behind the end, or no data follows; EUCLEAN; those of the device.
int64_t diorite_seek(diorite_file file, uint64_t offset, uint32_t whence);

// Makes a queue. @options may be NULL. @queue gets the handle; it is 0 after an error. Blocks for a moment.
//
// Errors: EBADF, EINVAL (a depth above 32,768), ESHUTDOWN, EMFILE, ENOMEM and others of the host.
int diorite_queue_create(diorite_volume volume, const struct diorite_queue_options *options, diorite_queue *queue);

// Ends a queue: waits for its requests in flight, and discards completions that were not reaped. The handle is invalid afterwards. Blocks.
// If another thread is in a call with the queue, that call ends first, and it does the waiting.
//
// Errors: EBADF.
int diorite_queue_destroy(diorite_queue queue);

// Makes an open file known to a queue. @attached gets a number for `file` of requests: it is valid in this queue only, until
// diorite_queue_detach. The file may be closed then: the queue keeps it open.
//
// Errors: EBADF; EINVAL: the file is of another volume; EOPNOTSUPP: it is encrypted or protected by verity.
//
// @attached points to a number.
int diorite_queue_attach(diorite_queue queue,
                         diorite_file file,
                         uint64_t *attached);

// Takes a file from a queue. Blocks until its requests in this queue have ended; their completions can still be reaped.
//
// Errors: EBADF: also for a number that names no file of this queue.
int diorite_queue_detach(diorite_queue queue, uint64_t attached);

// Registers memory that requests will use again and again: the kernel maps it once, and not for each request. Returns its number, 1 or
// more, for `region` of requests of this queue. If the host does not permit it (RLIMIT_MEMLOCK), requests work without.
//
// The memory stays the caller's and must stay mapped until diorite_queue_unregister or diorite_queue_destroy has returned.
//
// Errors: EBADF, EFAULT, EINVAL (no bytes, or more than memory has), ENOSPC (1,024 regions of one queue).
int diorite_queue_register(diorite_queue queue,
                           void *start,
                           size_t size);

// Forgets a region. Requests in flight go on to use it: the caller waits for them before the memory is unmapped.
//
// Errors: EBADF; EINVAL: no such region.
int diorite_queue_unregister(diorite_queue queue, uint32_t region);

// Starts requests, in order. Returns how many were accepted: fewer than @count if the queue is full, or if the next one makes no sense;
// that one is refused with an error if it is the first. Each accepted request is completed once, by diorite_reap. Does not block on I/O;
// may wait for locks, but not for those of inodes with DIORITE_REQUEST_NOWAIT.
//
// The array is the caller's again when this returns. The memory that a request names is the library's until its completion was reaped:
// it is not touched, and not used by another request unless both only write from it.
//
// Errors: EBADF, EFAULT, EINVAL.
int diorite_submit(diorite_queue queue,
                   const struct diorite_request *requests,
                   uint32_t count);

// Takes up to @max completions. Returns their number. Blocks until at least @min were taken, @timeout_ns nanoseconds have passed (-1: no
// limit), or no request is in flight; with a @min of 0 it never blocks. Meanwhile it does work that its requests owe.
//
// More may be there if it returns @max: take those before you poll the queue's descriptor. A call takes all from the queue that have
// ended, and what it has no room for is the next call's: of several threads that reap one queue another may sleep meanwhile.
//
// Errors: EBADF, EFAULT, EINVAL (@min is more than @max, a negative timeout).
//
// @completions has room for @max.
int diorite_reap(diorite_queue queue,
                 struct diorite_completion *completions,
                 uint32_t max,
                 uint32_t min,
                 int64_t timeout_ns);

// Requests that were accepted and whose completions were not reaped; or a negative error number: EBADF.
int diorite_queue_in_flight(diorite_queue queue);

// A descriptor for poll(2) and epoll(7): it becomes readable when diorite_reap may have something to do. It belongs to the queue: do not
// read from it or close it. If several queues of a volume share a file, poll with a timeout of some milliseconds while requests are in
// flight, and reap after it: a request may wait for one of another queue.
//
// Errors: EBADF.
int diorite_queue_eventfd(diorite_queue queue);

// The message of a failed completion: @error is its field. Copies at most @size bytes with a NUL behind them; returns the length of the
// whole message without the NUL. The messages of the latest 256 failures of a queue are kept.
//
// Errors: EBADF, EFAULT; ENOENT: no message has this number any more.
//
// @size bytes at @text can be written.
int64_t diorite_completion_message(diorite_queue queue,
                                   uint64_t error,
                                   char *text,
                                   size_t size);

// Finds the inode that a name leads to. @flags are 0 or DIORITE_AT_SYMLINK_NOFOLLOW; in a directory by number a link is never followed.
// Returns the inode's number. Blocks while metadata is read.
//
// Errors: EBADF, ENOENT, ENOTDIR, ELOOP, ENAMETOOLONG, EUCLEAN.
int64_t diorite_lookup(diorite_volume volume,
                       uint64_t dir,
                       const char *path,
                       uint32_t flags);

// Makes a directory with these permissions. @ino gets its inode's number; it may be NULL. Durable with the next diorite_volume_sync, or
// fsync of its parent. Blocks.
//
// Errors: EBADF, EEXIST, ENOENT, ENOTDIR, ENOSPC, EMLINK, ENAMETOOLONG, EROFS, EPERM, EINVAL.
int diorite_mkdirat(diorite_volume volume,
                    uint64_t dir,
                    const char *path,
                    uint32_t mode,
                    uint64_t *ino);

// Makes a symbolic link to @target, which need not exist. Otherwise as diorite_mkdirat.
int diorite_symlinkat(diorite_volume volume, const char *target, uint64_t dir, const char *path, uint64_t *ino);

// Makes a FIFO, a socket or a device node: @mode has its type (S_IFIFO, ...) and permissions. Otherwise as diorite_mkdirat.
int diorite_mknodat(diorite_volume volume,
                    uint64_t dir,
                    const char *path,
                    uint32_t mode,
                    uint32_t major,
                    uint32_t minor,
                    uint64_t *ino);

// Removes a name. @flags are 0 or DIORITE_AT_REMOVEDIR. A file without a name is deleted when nobody has it open. Blocks.
//
// Errors: EBADF, ENOENT, EISDIR, ENOTDIR, ENOTEMPTY, EBUSY (the root), EROFS, EPERM.
int diorite_unlinkat(diorite_volume volume,
                     uint64_t dir,
                     const char *path,
                     uint32_t flags);

// Moves a name. What has the new name is replaced, and data of the moved file is on the device before. @flags are DIORITE_RENAME_...
// Blocks.
//
// Errors: those of diorite_mkdirat and diorite_unlinkat; EINVAL: a directory would move below itself.
int diorite_renameat(diorite_volume volume,
                     uint64_t from_dir,
                     const char *from,
                     uint64_t to_dir,
                     const char *to,
                     uint32_t flags);

// Gives an inode another name; it has one already. Blocks.
//
// Errors: those of diorite_mkdirat; EPERM for a directory.
int diorite_linkat(diorite_volume volume, uint64_t ino, uint64_t dir, const char *path);

// Gives an open file another name, or its first (DIORITE_O_TMPFILE). With @replace a name that exists is replaced in one step: a crash
// leaves the old file or the whole new one. Blocks.
//
// Errors: those of diorite_mkdirat; EISDIR: the name is a directory's; those of write-back.
int diorite_linkfile(diorite_volume volume,
                     diorite_file file,
                     uint64_t dir,
                     const char *path,
                     int replace);

// Copies the target of a symbolic link to @text: at most @size bytes, without a NUL behind them. Returns the length of the whole target.
// Blocks.
//
// Errors: EBADF, EFAULT, EINVAL (no symbolic link), ESTALE, EUCLEAN.
int64_t diorite_readlink(diorite_volume volume,
                         uint64_t ino,
                         char *text,
                         size_t size);

// Keeps an inode from being deleted while it is known by its number, as a file server does for its handles. @generation gets the number
// that tells it from others with its number; it may be NULL. Each call needs one of diorite_forget. Blocks while metadata is read.
//
// Errors: EBADF, ESTALE, EUCLEAN.
int diorite_know(diorite_volume volume,
                 uint64_t ino,
                 uint32_t *generation);

// Takes back @times calls of diorite_know. An inode without a name is deleted with the last. Blocks for that.
//
// Errors: EBADF, EINVAL.
int diorite_forget(diorite_volume volume, uint64_t ino, uint64_t times);

// Attributes of an inode by its number, with changes that are not durable yet. Blocks while metadata is read.
//
// Errors: EBADF, EFAULT, EINVAL, ESTALE (not in use), EUCLEAN.
int diorite_stat(diorite_volume volume, uint64_t ino, struct diorite_stat *stat);

// Attributes of an open file. Does not block.
//
// Errors: EBADF, EFAULT.
int diorite_fstat(diorite_file file, struct diorite_stat *stat);

// Sets permissions, owner, group and times of an inode in one step. Durable with the next diorite_volume_sync, or fsync of the file.
// Blocks.
//
// Errors: EBADF, EFAULT, EINVAL, EROFS, EPERM (its flags forbid it), EUCLEAN.
int diorite_setattr(diorite_volume volume,
                    uint64_t ino,
                    const struct diorite_attributes *attributes);

// Copies the value of an extended attribute, by its whole name ("user.x"), to @value. Returns its length; with a @size of 0 only that.
// Blocks.
//
// Errors: EBADF, EFAULT, ENODATA (no such attribute), ERANGE (@size is too small), ESTALE, EUCLEAN.
int64_t diorite_getxattr(diorite_volume volume,
                         uint64_t ino,
                         const char *name,
                         void *value,
                         size_t size);

// Copies the names of an inode's extended attributes to @names, each with a NUL behind it. Returns the length of all; with a @size of 0
// only that. Blocks.
//
// Errors: EBADF, EFAULT, ERANGE (@size is too small), ESTALE, EUCLEAN.
int64_t diorite_listxattr(diorite_volume volume,
                          uint64_t ino,
                          char *names,
                          size_t size);

// Sets an extended attribute. @flags are 0, DIORITE_XATTR_CREATE or DIORITE_XATTR_REPLACE. Durable as by diorite_setattr. Blocks.
//
// Errors: EBADF, EFAULT, EINVAL, EEXIST, ENODATA, ENOSPC (the inode has no room), E2BIG, ERANGE (the name), EOPNOTSUPP, EROFS, EPERM,
// EUCLEAN.
int diorite_setxattr(diorite_volume volume,
                     uint64_t ino,
                     const char *name,
                     const void *value,
                     size_t size,
                     uint32_t flags);

// Removes an extended attribute. Durable as by diorite_setattr. Blocks.
//
// Errors: EBADF, EFAULT, ENODATA, EROFS, EPERM, EUCLEAN.
int diorite_removexattr(diorite_volume volume, uint64_t ino, const char *name);

// Opens a directory stream at its beginning. The place is as of diorite_openat, but an empty @path is the directory @dir itself. @stream
// gets the handle; it is 0 after an error. Blocks.
//
// Errors: EBADF, ENOENT, ENOTDIR, ELOOP, EUCLEAN.
int diorite_opendirat(diorite_volume volume,
                      uint64_t dir,
                      const char *path,
                      diorite_dir *stream);

// Reads the next entry, "." and ".." included. Returns 1, or 0 at the end. Blocks while metadata is read.
//
// Errors: EBADF, EFAULT, EUCLEAN; those of the device.
int diorite_readdir(diorite_dir stream, struct diorite_dirent *entry);

// Goes to a position: 0 is the beginning, others are those of entries of the same directory, also of an earlier stream. Blocks.
//
// Errors: EBADF; EINVAL: the directory has no such position.
int diorite_seekdir(diorite_dir stream,
                    uint64_t position);

// Closes a directory stream.
//
// Errors: EBADF.
int diorite_closedir(diorite_dir stream);

// Opens an image for changes. Of @options, which may be NULL, all apply; DIORITE_OPEN_WRITE is implied. @editor gets the handle; it is 0
// after an error. Blocks.
//
// Errors: those of diorite_volume_open.
int diorite_editor_open(const char *locator,
                        const struct diorite_open_options *options,
                        diorite_editor *editor);

// Gives a handle of the editor's volume, for all that editors have no call for; its changes belong to the open transaction. It is to be
// closed by diorite_volume_close, after which the editor fails with ESHUTDOWN. After a transaction was abandoned it is of no use
// (ESHUTDOWN).
//
// Errors: EBADF, EFAULT, EMFILE.
int diorite_editor_volume(diorite_editor editor,
                          diorite_volume *volume);

// Begins a transaction: what anybody changes in the volume from now on is durable with diorite_editor_end, as a whole, or not at all.
// Meanwhile nothing can be synced, and a change fails for which the journal has no room. Blocks: what was changed before is made
// durable.
//
// Errors: EBADF, EBUSY (one is open already), EAGAIN, EROFS, ESHUTDOWN; those of the device.
int diorite_editor_begin(diorite_editor editor);

// Ends the transaction. @how is DIORITE_END_COMMIT or DIORITE_END_ABANDON: then the image is as it was at its beginning, and the volume
// is opened anew; files and handles of the old one fail with ESHUTDOWN. Blocks.
//
// Errors: EBADF; EINVAL: none is open; those of the device, after which the volume cannot be changed any more.
int diorite_editor_end(diorite_editor editor,
                       uint32_t how);

// Makes a file of @size bytes at @path, in place of one that is there. Blocks.
//
// Errors: those of diorite_openat; ENOSPC: then the name is what it was.
int diorite_editor_write_file(diorite_editor editor,
                              const char *path,
                              uint32_t mode,
                              const void *contents,
                              size_t size);

// Copies the bytes of a file to @contents, at most @size. Returns the length of the whole file. Blocks.
//
// Errors: those of diorite_openat; those of the device.
int64_t diorite_editor_read_file(diorite_editor editor, const char *path, void *contents, size_t size);

// Makes a directory, and those on the way to it that are not there; that it is there is no error. @ino gets its inode; it may be NULL.
// Blocks.
//
// Errors: those of diorite_mkdirat, but EEXIST; EINVAL: something else has one of the names.
int diorite_editor_make_dir(diorite_editor editor,
                            const char *path,
                            uint32_t mode,
                            uint64_t *ino);

// Removes a name, with everything below it if it is a directory. Blocks.
//
// Errors: those of diorite_unlinkat; EINVAL: the last part of @path is no name.
int diorite_editor_remove(diorite_editor editor, const char *path);

// Moves a name; what has the new one is replaced. Blocks.
//
// Errors: those of diorite_renameat.
int diorite_editor_rename(diorite_editor editor, const char *from, const char *to);

// Puts all files of a source (as of diorite_import) into the directory @dir. @progress is told the bytes that are written, and ends it
// by anything but 0; it may be NULL, is called by any thread, and must not call the library. @files gets the number of files; it may be
// NULL. Blocks.
//
// Errors: ECANCELED: @progress has ended it; EINVAL: the source; ENOENT, ENOSPC and others. What is there by then stays.
int diorite_editor_put(diorite_editor editor,
                       const char *source,
                       const char *dir,
                       int (*progress)(void *context, uint64_t done, uint64_t total),
                       void *context,
                       uint64_t *files);

// Makes the file system larger: see diorite_volume_grow.
int diorite_editor_grow(diorite_editor editor, uint64_t size, uint64_t *grown);

// Makes everything durable. Blocks.
//
// Errors: EBADF, EBUSY (a transaction is open); those of diorite_volume_sync.
int diorite_editor_sync(diorite_editor editor);

// Makes everything durable and closes the image; an open transaction is abandoned. The handle is invalid afterwards, after an error,
// too. Blocks.
//
// Errors: those of diorite_volume_close.
int diorite_editor_close(diorite_editor editor);

// Makes a file system on what a locator names. With DIORITE_MKFS_CREATE @image is the path of a file of the host that is created. What
// was there is lost. @options may be NULL. Blocks.
//
// Errors: EEXIST; EINVAL: the options make no sense, or do not fit each other; EFBIG: no file is so long; ENOSPC; EBUSY: somebody has it
// open; those of the host.
int diorite_mkfs(const char *image,
                 const struct diorite_mkfs_options *options);

// As diorite_mkfs, on a device of the host program.
int diorite_mkfs_device(diorite_device device, const struct diorite_mkfs_options *options);

// Makes an image of files: @image is the path of a file of the host that is created; it is there whole or not at all. @sources are
// @count texts: "dir:PATH", "tar:PATH", "oci:PATH", "docker:PATH" or "docker:PATH:NAME", "image:LOCATOR" or "image:LOCATOR:/DIR",
// "manifest:PATH", or a path alone. A file of a later source replaces one of an earlier. @options may be NULL. Blocks.
//
// Errors: EEXIST; ECANCELED: the progress function has ended it; EINVAL: a source; ENOENT, ENOSPC; those of the host.
int diorite_import(const char *image,
                   const char *const *sources,
                   size_t count,
                   const struct diorite_import_options *options);

// Checks the volume at a locator, as e2fsck -n does, and writes nothing. Damage is no error: it is in @result. @options may be NULL.
// Blocks.
//
// Errors: EFAULT, EINVAL; what prevents a check: ENOENT, EUCLEAN (no file system), EOPNOTSUPP (unknown features); those of the device.
int diorite_check(const char *locator,
                  const struct diorite_check_options *options,
                  struct diorite_check_result *result);

// As diorite_check, of a device of the host program.
int diorite_check_device(diorite_device device,
                         const struct diorite_check_options *options,
                         struct diorite_check_result *result);

// Makes a device of functions of this program. @name is for messages. @context is passed through. @device gets the handle; it is 0 after
// an error, and `release` is not called then. Does not block.
//
// Errors: EFAULT, EINVAL, EMFILE.
int diorite_device_create(const char *name,
                          const struct diorite_device_operations *operations,
                          void *context,
                          diorite_device *device);

// Closes the handle of a device. A volume on it keeps it; `release` is called when nothing uses it any more, perhaps by this call.
//
// Errors: EBADF.
int diorite_device_close(diorite_device device);

// Ends a request that `submit` was given: @status is 0, or the negative error number with which it failed (-ENOSPC: the storage below is
// full). Called once for each, by any thread; from then on the request's memory is not touched. Does not block.
//
// Errors: EBADF: there is no such request, or it has ended; EINVAL: a positive status.
int diorite_io_end(uint64_t id,
                   int status);

// Calls @visit with each number of a volume: "queue." counters of all its queues, "journal.", "pages." and "usage." (what it holds now).
// The name is valid during the call. Blocks while a commit is under way.
//
// Errors: EBADF, EFAULT.
int diorite_volume_statistics(diorite_volume volume,
                              void (*visit)(void *context, const char *name, uint64_t value),
                              void *context);

// Calls @visit with each counter of a queue: how requests completed, and why some did not go the fast way.
//
// Errors: EBADF, EFAULT.
int diorite_queue_statistics(diorite_queue queue,
                             void (*visit)(void *context, const char *name, uint64_t value),
                             void *context);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* DIORITE_H */
