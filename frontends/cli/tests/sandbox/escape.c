/* What somebody tries who has taken over a server: every way out of its sandbox that we know of. Add what you learn of.
 *
 * It is preloaded into the server. When the sandbox is complete (the filter of system calls is there) it tries each way and prints a line:
 * "out NAME" if it led out, "kept NAME" if not, and "end" at the end. It does nothing that harms the host if it succeeds.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static long other; /* a process of the same user outside */

static void said(const char *name, int is_out, long number) {
    char line[160];
    int n = snprintf(line, sizeof line, "%s %s (%ld)\n", is_out ? "out" : "kept", name, number);
    syscall(SYS_write, 2, line, n);
}

/* A call that must fail, and did not find out by itself that its arguments are wrong. */
static void call(const char *name, long number, long a, long b, long c, long d, long e, long f) {
    long self = getpid(), got = syscall(number, a, b, c, d, e, f);
    if (syscall(SYS_getpid) != self) _exit(0); /* A process came of it: the other one says so. */
    said(name, got >= 0 || (errno != ENOSYS && errno != EPERM && errno != EACCES), got < 0 ? -errno : got);
}

#define CALL(name, ...) CALL_(name, __VA_ARGS__, 0, 0, 0, 0, 0, 0)
#define CALL_(name, a, b, c, d, e, f, ...) call(#name, SYS_##name, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

static void calls(void) {
    struct sockaddr_un name = {AF_UNIX, "outside"};
    struct iovec bytes = {&name, 1};
    CALL(socket, AF_UNIX, SOCK_STREAM, 0);
    CALL(socketpair, AF_UNIX, SOCK_DGRAM, 0, (int[2]){0});
    CALL(connect, 0, &name, sizeof name);
    CALL(bind, 0, &name, sizeof name);
    CALL(listen, 0, 1);
    CALL(execve, "/bin/true", 0, 0);
    CALL(execveat, AT_FDCWD, "/bin/true", 0, 0, 0);
    CALL(ptrace, 16 /* PTRACE_ATTACH */, other, 0, 0);
    CALL(process_vm_readv, other, &bytes, 1, &bytes, 1, 0);
    CALL(process_vm_writev, other, &bytes, 1, &bytes, 1, 0);
    CALL(process_madvise, -1, &bytes, 1, 4, 0);
    CALL(kcmp, getpid(), other, 0, 0, 0);
    CALL(pidfd_open, other, 0);
    CALL(pidfd_getfd, 0, 0, 0);
    CALL(pidfd_send_signal, 0, 0, 0, 0);
    CALL(kill, other, 0);
    CALL(tkill, other, 0);
    CALL(tgkill, other, other, 0);
    CALL(rt_sigqueueinfo, other, 0, 0);
    CALL(rt_tgsigqueueinfo, other, other, 0, 0);
    CALL(unshare, CLONE_NEWUSER);
    CALL(setns, 0, 0);
    CALL(clone3, 0, 0);
    CALL(vfork, 0);
    CALL(fork, 0);
    CALL(mount, "none", "/tmp", "tmpfs", 0, 0);
    CALL(umount2, "/nowhere", 0);
    CALL(pivot_root, "/", "/");
    CALL(chroot, "/");
    CALL(fsopen, "tmpfs", 0);
    CALL(fsmount, 0, 0, 0);
    CALL(fspick, AT_FDCWD, "/", 0);
    CALL(open_tree, AT_FDCWD, "/", 1);
    CALL(move_mount, -1, "", -1, "", 0);
    CALL(mount_setattr, -1, "", 0, 0, 0);
    CALL(open_by_handle_at, AT_FDCWD, &name, 0);
    CALL(name_to_handle_at, AT_FDCWD, "/", &name, &name, 0);
    CALL(openat2, AT_FDCWD, "/etc/passwd", &(long[3]){0}, 24);
    CALL(memfd_create, "x", 0);
    CALL(memfd_secret, 0);
    CALL(userfaultfd, 0);
    CALL(bpf, 0, 0, 0);
    CALL(perf_event_open, 0, 0, -1, -1, 0);
    CALL(keyctl, 0, -3, 0);
    CALL(add_key, "user", "x", "x", 1, -3);
    CALL(request_key, "user", "x", 0, 0);
    CALL(io_uring_setup, 8, &(struct io_uring_params){0});
    CALL(io_uring_register, -1, 31 /* SEND_MSG_RING */, 0, 1);
    CALL(init_module, 0, 0, "");
    CALL(finit_module, 0, "", 0);
    CALL(delete_module, "none", 0);
    CALL(kexec_load, 0, 0, 0, 0);
    CALL(reboot, 0, 0, 0);
    CALL(swapon, "/nowhere", 0);
    CALL(acct, 0);
    CALL(syslog, 9, 0, 0);
    CALL(quotactl, 0, 0, 0, 0);
    CALL(settimeofday, 0, 0);
    CALL(clock_settime, -1, 0);
    CALL(adjtimex, 0);
    CALL(sethostname, "x", -1);
    CALL(setrlimit, 99, 0);
    CALL(prlimit64, other, 0, 0, 0);
    CALL(sched_setaffinity, other, 0, 0);
    CALL(sched_setscheduler, other, 99, 0);
    CALL(setpriority, 0, other, 0);
    CALL(ioprio_set, 1, other, -1);
    CALL(migrate_pages, other, 0, 0, 0);
    CALL(move_pages, other, 0, 0, 0, 0, 0);
    CALL(personality, 0xffffffff);
    CALL(modify_ldt, 0, 0, 0);
    CALL(iopl, 3);
    CALL(ioperm, 0x80, 1, 1);
    CALL(shmget, 1, 4096, 0600);
    CALL(msgget, 1, 0600);
    CALL(semget, 1, 1, 0600);
    CALL(mq_open, "x", 0, 0, 0);
    CALL(inotify_init1, 0);
    CALL(fanotify_init, 0, 0);
    CALL(signalfd4, -1, 0, 8, 0);
    CALL(timer_create, 0, 0, 0);
    CALL(timerfd_create, 0, 0);
    CALL(epoll_create1, 0);
    CALL(splice, -1, 0, -1, 0, 0, 0);
    CALL(vmsplice, -1, 0, 0, 0);
    CALL(sendfile, -1, -1, 0, 0);
    CALL(copy_file_range, -1, 0, -1, 0, 0, 0);
    CALL(symlink, "x", "y");
    CALL(linkat, AT_FDCWD, "x", AT_FDCWD, "y", 0);
    CALL(mknod, "x", S_IFIFO, 0);
    CALL(mkdir, "x", 0);
    CALL(rename, "x", "y");
    CALL(truncate, "x", 0);
    CALL(chmod, "x", 0);
    CALL(chown, "x", 0, 0);
    CALL(fchmod, -1, 0);
    CALL(fchown, -1, 0, 0);
    CALL(setxattr, "x", "user.x", "", 0, 0);
    CALL(capset, 0, 0);
    CALL(seccomp, 0, 1, 0);
    CALL(landlock_create_ruleset, 0, 0, 1);
    /* Parts of calls that are permitted for something else. */
    CALL(clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    CALL(clone, SIGCHLD, 0, 0, 0, 0);
    CALL(clone, CLONE_THREAD | CLONE_SIGHAND | CLONE_VM | CLONE_NEWNET, 0, 0, 0, 0);
    CALL(sched_setscheduler, 0, 99, 0);
    CALL(prctl, PR_SET_DUMPABLE, 1);
    CALL(prctl, PR_SET_KEEPCAPS, 1);
    CALL(prctl, PR_SET_MM, 0);
    CALL(fcntl, 2, F_SETOWN, other);
    CALL(fcntl, 2, F_SETSIG, SIGTERM);
    CALL(ioctl, 2, TIOCSTI, "x");
    CALL(ioctl, 2, FIOSETOWN, &other);
    CALL(sendto, 2, "x", 1, 0, &name, sizeof name);
    CALL(sendto, 2, "x", 1, MSG_FASTOPEN, 0, 0);
    CALL(sendmsg, 2, 0, MSG_FASTOPEN);
}

static void opens(const char *path, int flags) {
    long fd = syscall(SYS_openat, AT_FDCWD, path, flags, 0);
    said(path, fd >= 0, fd < 0 ? -errno : fd);
    if (fd >= 0) close(fd);
}

static void files(void) {
    char path[64];
    opens("/etc/passwd", O_RDONLY);
    opens("/etc/shadow", O_RDONLY);
    opens("/", O_RDONLY | O_DIRECTORY);
    opens("/dev/mem", O_RDONLY);
    opens("/dev/kmsg", O_RDONLY);
    opens("/proc/kmsg", O_RDONLY);
    opens("/proc/kcore", O_RDONLY);
    opens("/dev/ptmx", O_RDWR);
    opens("/dev/vda", O_RDONLY);
    opens("/proc/sys/kernel/core_pattern", O_WRONLY);
    opens("/proc/sysrq-trigger", O_WRONLY);
    opens("/sys/kernel/uevent_helper", O_WRONLY);
    opens("/proc/self/mem", O_RDWR);
    opens("/proc/self/root/etc/passwd", O_RDONLY);
    opens("/proc/thread-self/mem", O_WRONLY);
    for (const char *const *of = (const char *const[]){"mem", "environ", "maps", "root/etc/passwd", "cwd/secret", 0}; *of; of++) {
        snprintf(path, sizeof path, "/proc/%ld/%s", other, *of);
        opens(path, O_RDONLY);
    }
    opens("secret", O_RDONLY);
    opens("secret", O_WRONLY);
    opens("new", O_WRONLY | O_CREAT);
}

/* Where a ring's parts lie, as the kernel says of a ring of our own; and whether it gave us one. */
static struct io_uring_params layout;
static int has_layout = 1;

/* The bytes of a ring's entries. */
enum { SQES = 256 * sizeof(struct io_uring_sqe) };

/* Gives one entry to a ring; its result, or 1000 if the ring did not answer. */
static long entry(int ring, const struct io_uring_params *p, const void *sqe, int size) {
    char *m = mmap(0, 1 << 16, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    char *sqes = mmap(0, SQES, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
    long result = 1000;
    if (m == MAP_FAILED || sqes == MAP_FAILED) return result;
    unsigned *tail = (void *)(m + p->sq_off.tail), *mask = (void *)(m + p->sq_off.ring_mask);
    unsigned *head = (void *)(m + p->cq_off.head), *end = (void *)(m + p->cq_off.tail), *round = (void *)(m + p->cq_off.ring_mask);
    /* The array's place depends on the ring's size: it is behind the completions. */
    unsigned *array = (void *)(m + ((p->cq_off.cqes + (*round + 1) * sizeof(struct io_uring_cqe) + 63) & ~63ul));
    unsigned i = *tail & *mask;
    if (i * size + size <= SQES) {
        memcpy(sqes + i * size, sqe, size);
        array[i] = i;
        __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
        if (syscall(SYS_io_uring_enter, ring, 1, 0, 1, 0, 0) < 0) result = -errno;
        else if (__atomic_load_n(end, __ATOMIC_ACQUIRE) != *head) {
            result = ((struct io_uring_cqe *)(m + p->cq_off.cqes))[*head & *round].res;
            __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
        }
    }
    munmap(m, 1 << 16);
    munmap(sqes, SQES);
    return result;
}

/* Every operation of a ring that is not one of reading and writing is refused, whatever its arguments. */
static void operations(int ring) {
    static const char data[] = {IORING_OP_NOP, IORING_OP_READV, IORING_OP_WRITEV, IORING_OP_FSYNC, IORING_OP_READ_FIXED, IORING_OP_WRITE_FIXED,
        IORING_OP_POLL_ADD, IORING_OP_POLL_REMOVE, IORING_OP_TIMEOUT, IORING_OP_FALLOCATE, IORING_OP_READ, IORING_OP_WRITE};
    char name[64];
    int tried = 0, refused = 0;
    for (int op = 0; op < 64; op++) {
        if (memchr(data, op, sizeof data)) continue;
        struct io_uring_sqe sqe = {.opcode = op, .fd = -1};
        long got = entry(ring, &layout, &sqe, sizeof sqe);
        tried++;
        refused += got == -EACCES || got == -EINVAL;
        if (got != -EACCES && got != -EINVAL) {
            snprintf(name, sizeof name, "operation %d of ring %d", op, ring);
            said(name, 1, got);
        }
    }
    said("the operations of a ring", tried != refused, ring);
    struct io_uring_sqe sqe = {.opcode = IORING_OP_NOP, .flags = IOSQE_CQE_SKIP_SUCCESS};
    said("flags of a ring", entry(ring, &layout, &sqe, sizeof sqe) != -EACCES, ring);
    CALL(io_uring_register, ring, IORING_REGISTER_PROBE, calloc(1, 4096), 1);
    CALL(io_uring_register, ring, IORING_REGISTER_PERSONALITY, 0, 0);
    CALL(io_uring_register, ring, IORING_REGISTER_RESTRICTIONS, 0, 0);
    CALL(io_uring_register, ring, IORING_REGISTER_PBUF_RING, 0, 1);
    CALL(io_uring_register, ring, IORING_REGISTER_IOWQ_AFF, 0, 0);
}

/* All rings that the process has. */
static void rings(void) {
    int found = 0;
    if (!has_layout) return;
    for (int fd = 3; fd < 1024; fd++) {
        /* Of anything else the kernel says that it is no ring. */
        if (syscall(SYS_io_uring_register, fd, IORING_REGISTER_FILES_UPDATE, 0, 0) == 0 || errno == EOPNOTSUPP || errno == EBADF) continue;
        if (found >= 4) break;
        found++;
        operations(fd);
    }
    said("rings were found", 0, found);
}

static void try_all(void) {
    calls();
    files();
    rings();
    said("end", 0, getuid());
}

/* Whether this thread has a filter that it did not begin with. */
static int filters(void) {
    char status[4096] = "";
    int fd = open("/proc/thread-self/status", O_RDONLY);
    if (fd < 0) return 0;
    if (read(fd, status, sizeof status - 1) < 0) status[0] = 0;
    close(fd);
    char *at = strstr(status, "Seccomp_filters:");
    return at ? atoi(at + 16) : 0;
}

static int before;

__attribute__((constructor)) static void begin(void) {
    const char *whom = getenv("ESCAPE_FROM");
    if (!whom) return;
    other = atol(whom);
    before = filters();
    /* The kernel gives the memory of rings back, and what the user may have, some time after their process has ended. */
    const struct timespec pause = {.tv_nsec = 10000000};
    int ring = -1;
    for (int n = 0; n < 500 && ring < 0; n++) {
        ring = syscall(SYS_io_uring_setup, 8, &layout);
        if (ring < 0 && errno != ENOMEM && errno != EAGAIN) break;
        if (ring < 0) nanosleep(&pause, 0);
    }
    if (ring < 0) has_layout = 0;
    else close(ring);
}

/* The server's wait for its end is the first to call it once the sandbox is complete. */
ssize_t recv(int fd, void *bytes, size_t len, int flags) {
    static int done;
    if (other && filters() > before && !__atomic_exchange_n(&done, 1, __ATOMIC_SEQ_CST)) try_all();
    return syscall(SYS_recvfrom, fd, bytes, len, flags, 0, 0);
}
