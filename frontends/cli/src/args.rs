//! The command line: commands and options, with their texts for `--help` and the man pages.
//!
//! Input: the process's arguments. Output: a [`Cli`]. Invariant: parsing changes nothing and opens nothing. Limits: wrong usage
//! ends the process with code 2, as clap does.

mod attributes;
mod change;
mod copy;
mod device;
mod look;
mod make;
mod mount;
mod serve;
mod space;

pub(crate) use attributes::{
    ChattrArgs, GetfaclArgs, GetfattrArgs, LsattrArgs, SetfaclArgs, SetfattrArgs,
};
pub(crate) use change::{
    ChmodArgs, ChownArgs, LnArgs, MkdirArgs, MknodArgs, MvArgs, NodeType, RmArgs, RmdirArgs,
    TouchArgs,
};
pub(crate) use copy::{CopiesArgs, CpArgs, EditArgs, GetArgs, PutArgs};
pub(crate) use device::{CompareArgs, CopyArgs};
pub(crate) use look::{
    CatArgs, CheckArgs, CmpArgs, DfArgs, DuArgs, ExtentsArgs, FindArgs, InfoArgs, LsArgs,
    ReadlinkArgs, StatArgs, TimeStyle, TreeArgs, When,
};
pub(crate) use make::{ExportArgs, FormatArgs, ImportArgs, LabelArgs, MkfsArgs, UuidArgs};
pub(crate) use mount::{MountArgs, UmountArgs};
pub(crate) use serve::{NbdArgs, Serve, ServeArgs};
pub(crate) use space::{FallocateArgs, RecoverArgs, SyncArgs, TruncateArgs};

use clap::{Args, Parser, Subcommand};
use diorite::Policy;
use diorite_block::IoEngine;
use std::path::PathBuf;

/// Inspect ext2, ext3 and ext4 images, copy files into and out of them, change, check and recover them, and measure direct I/O
/// on them: from user space, without root
#[derive(Debug, Parser)]
#[command(name = "diorite", version, max_term_width = 100, propagate_version = true, after_long_help = LOCATORS)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const LOCATORS: &str = "\
Images (IMG):
  disk.img               an image file, or a block device
  disk.img?part=2        a partition of it (MBR or GPT)
  disk.img?offset=1M     the file system begins at this offset; also size=, sector=, ro
  outer.img:/inner.img   an image inside an existing image, to any depth: a:/b:/c; each may have
                         ?part= and the like; a name that ends like that gets another ? behind it
  outer.img!/inner.img   the same, also for names with a colon; quote ! and ? in a shell

Sizes:
  4096, 4K, 4KiB and 0x1000 are 4096 bytes; 4KB is 4000 bytes; 2048s is 2048 sectors of 512
  bytes; the units are K, M, G, T, P and E

Exit status: 0 if all went well; 1 if something could not be read or copied (ls: something below a directory that was \
given); 2 for wrong usage (ls: also if a given path or image could not be read). check: as e2fsck.";

/// Options of every command.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Global {
    /// How to access the device: uring, aio or threads; by default the first of these that works
    #[arg(long, global = true, value_name = "ENGINE")]
    pub(crate) io_engine: Option<IoEngine>,
    /// Behaviour of direct I/O: linux-2.6.31, linux-4.15, linux-5.10, linux-6.5, linux-6.19 or diorite
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        default_value = "diorite",
        hide_default_value = true
    )]
    pub(crate) policy: Policy,
    /// The journal's device, for an image with an external journal
    #[arg(long, global = true, value_name = "LOCATOR")]
    pub(crate) journal: Option<String>,
    /// Open for writing although another program has the image open. Only [`Writing`] sets it.
    #[arg(skip)]
    pub(crate) ignore_lock: bool,
}

/// A command that opens an image for writing: its own options, and the option that all such commands share.
#[derive(Args, Clone, Debug)]
pub(crate) struct Writing<T: Args> {
    #[command(flatten)]
    pub(crate) args: T,
    /// Open the image for writing although it is mounted or another program has it open: two writers destroy its contents
    #[arg(
        long,
        global = true,
        help_heading = "Options of every command that writes"
    )]
    ignore_lock: bool,
}

impl<T: Args> Writing<T> {
    /// The global options, with the values given to this command.
    pub(crate) fn global(&self, global: &Global) -> Global {
        Global {
            ignore_lock: self.ignore_lock,
            ..global.clone()
        }
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Print the superblock as `dumpe2fs -h` does, and which features can be read and written; or what a device is
    #[command(after_help = "Examples:\n  \
            diorite info disk.img\n  \
            diorite info -v 'disk.img?part=1'\n  \
            diorite info -d /dev/sdb\n  \
            diorite info --json disk.img | jq .uuid")]
    Info(InfoArgs),
    /// List directories
    #[command(
        disable_help_flag = true,
        after_help = "Examples:\n  \
            diorite ls disk.img\n  \
            diorite ls -l disk.img /etc\n  \
            diorite ls -F --color=auto disk.img\n  \
            diorite ls -lRa --time-style full-iso disk.img /"
    )]
    Ls(LsArgs),
    /// Print directories as trees
    #[command(
        after_help = "Examples:\n  diorite tree disk.img\n  diorite tree -L 2 -d disk.img /usr\n  diorite tree -as disk.img /home"
    )]
    Tree(TreeArgs),
    /// Print the paths of files that match, as find(1) does
    #[command(
        override_usage = "diorite find [OPTIONS] <IMG> [PATH]... [EXPRESSION]",
        long_about = FIND,
        after_help = "Examples:\n  \
            diorite find disk.img /etc -name '*.conf'\n  \
            diorite find disk.img -type f -size +1M -o -type l\n  \
            diorite find disk.img / -perm /6000 -uid 0\n  \
            diorite find --json disk.img -empty | jq -r .path\n  \
            diorite find disk.img /var/cache -type f -mtime +30 -delete\n  \
            diorite find disk.img -newer /etc/build-id -printf '%s %p\\n'"
    )]
    Find(Writing<FindArgs>),
    /// Print the metadata of files
    #[command(after_help = "Examples:\n  \
            diorite stat disk.img /etc/passwd\n  \
            diorite stat --json disk.img /bin /sbin\n  \
            diorite stat -c '%a %U:%G %s %n' disk.img /etc/shadow")]
    Stat(StatArgs),
    /// Write the contents of files to standard output
    #[command(
        after_help = "Examples:\n  diorite cat disk.img /etc/os-release\n  diorite cat 'disk.img?part=2' /boot/vmlinuz | sha256sum"
    )]
    Cat(CatArgs),
    /// Print where symbolic links point
    #[command(
        after_help = "Examples:\n  diorite readlink disk.img /etc/os-release\n  diorite readlink -n disk.img /vmlinuz"
    )]
    Readlink(ReadlinkArgs),
    /// Print how much of an image is in use, as df does
    #[command(
        disable_help_flag = true,
        after_help = "Examples:\n  diorite df -h disk.img\n  diorite df -i disk.img\n  diorite df --json disk.img | jq .available"
    )]
    Df(DfArgs),
    /// Print the space that files and directories take, as du does
    #[command(
        disable_help_flag = true,
        after_help = "Examples:\n  diorite du -sh disk.img /usr /var\n  diorite du -d 1 disk.img\n  diorite du -ab disk.img /etc"
    )]
    Du(DuArgs),
    /// Compare a file in an image with a file of the host, byte for byte
    #[command(
        long_about = CMP,
        after_help = "Examples:\n  diorite cmp disk.img /boot/vmlinuz ./vmlinuz\n  diorite cmp -s disk.img /etc/passwd - && echo the same"
    )]
    Cmp(CmpArgs),
    /// Compare two devices or images, byte for byte
    #[command(
        long_about = COMPARE,
        after_help = "Examples:\n  \
            diorite compare disk.img copy.img\n  \
            diorite compare -s /dev/sdb 'disk.img?part=2'\n  \
            diorite compare -q outer.img:/inner.img inner.img && echo the same"
    )]
    Compare(CompareArgs),
    /// Copy the bytes of a device or image to another
    #[command(
        long_about = COPY,
        after_help = "Examples:\n  \
            diorite copy disk.img copy.img\n  \
            diorite copy --verify disk.img /dev/sdb\n  \
            diorite copy 'disk.img?part=2' outer.img:/root.img\n  \
            diorite copy -S 0 outer.img:/inner.img inner.img"
    )]
    Copy(Writing<CopyArgs>),
    /// Check whether an image is consistent, without changing it
    #[command(
        long_about = CHECK,
        after_help = "Examples:\n  \
            diorite check disk.img\n  \
            diorite check -v 'disk.img?part=1'\n  \
            diorite check --json disk.img | jq .clean"
    )]
    Check(CheckArgs),
    /// Copy files and whole directories out of an image
    #[command(
        long_about = GET,
        after_help = "Examples:\n  \
            diorite get disk.img / ./out\n  \
            diorite get disk.img /etc/passwd /etc/group .\n  \
            diorite get disk.img /vm/inner.img - | sha256sum"
    )]
    Get(GetArgs),
    /// Copy files and whole directories into an image
    #[command(
        long_about = PUT,
        override_usage = "diorite put [OPTIONS] <IMG> <SOURCE>... <DEST>\n       diorite put [OPTIONS] -t <DIR> <IMG> <SOURCE>...",
        after_help = "Examples:\n  \
            diorite put disk.img ./rootfs/. /\n  \
            diorite put disk.img app.conf /etc/\n  \
            curl -s https://example.org/rootfs.img | diorite put disk.img - /rootfs.img\n  \
            diorite put --owner 0 --group 0 --mode u=rwX,go=rX disk.img build/out /opt/app\n  \
            find . -name '*.so' | xargs diorite put -t /usr/lib disk.img"
    )]
    Put(Writing<PutArgs>),
    /// Copy files and whole directories between the host and an image, or from image to image
    #[command(
        long_about = CP,
        override_usage = "diorite cp [OPTIONS] <SOURCE>... <IMG>:/<DEST>\n       \
            diorite cp [OPTIONS] <IMG>:/<PATH>... <DEST>\n       \
            diorite cp [OPTIONS] <IMG>:/<PATH>... <IMG>:/<DEST>",
        after_help = "Examples:\n  \
            diorite cp app.conf disk.img:/etc/\n  \
            diorite cp 'disk.img?part=2:/var/log' ./logs\n  \
            diorite cp old.img:/home/. new.img:/home\n  \
            diorite cp -v disk.img:/etc/fstab disk.img:/etc/fstab.old"
    )]
    Cp(Writing<CpArgs>),
    /// Change an image by a script of commands, in transactions
    #[command(
        long_about = EDIT,
        after_help = "Examples:\n  \
            diorite edit --script changes.txt disk.img\n  \
            printf 'rm /etc/motd\\nput motd.new /etc/motd\\n' | diorite edit -f - disk.img\n  \
            diorite edit -n -f changes.txt disk.img && echo it would work\n  \
            diorite edit --batch -f removals.txt disk.img"
    )]
    Edit(Writing<EditArgs>),
    /// Print where the data of a file lies, as `filefrag -v` does
    #[command(after_help = "Examples:\n  \
            diorite extents disk.img /var/lib/database\n  \
            diorite extents --json disk.img /file | jq -s 'map(.length) | add'")]
    Extents(ExtentsArgs),
    /// Make files in an image shorter or longer
    #[command(after_help = "Examples:\n  \
            diorite truncate -s 10G disk.img /database\n  \
            diorite truncate -s +1M disk.img /log\n  \
            diorite truncate -c -s '<4K' disk.img /a /b\n  \
            diorite truncate -r /a disk.img /b")]
    Truncate(Writing<TruncateArgs>),
    /// Allocate space of a file in an image, or give it back
    #[command(after_help = "Examples:\n  \
            diorite fallocate -l 1G disk.img /database\n  \
            diorite fallocate -p -o 4M -l 1M disk.img /log\n  \
            diorite fallocate --insert-range -l 4K disk.img /file\n  \
            diorite fallocate -d disk.img /file")]
    Fallocate(Writing<FallocateArgs>),
    /// Make a file system, as mke2fs does
    #[command(
        long_about = MKFS,
        after_help = "Examples:\n  \
            diorite mkfs disk.img 1G\n  \
            diorite mkfs -t ext3 -L data -m 0 /dev/sdb1\n  \
            diorite mkfs -b 4096 -N 100000 --seed build-42 root.img 512M\n  \
            diorite mkfs -O bigalloc,^has_journal -E root_owner=1000:1000 disk.img 20G"
    )]
    Mkfs(Writing<MkfsArgs>),
    /// Make an image of directories, archives and container images
    #[command(
        long_about = IMPORT,
        override_usage = "diorite import [OPTIONS] <SOURCE>... <IMG>",
        after_help = "Examples:\n  \
            diorite import rootfs/ root.img\n  \
            docker save app | diorite import --size auto+256M docker:/dev/stdin app.img\n  \
            diorite import --owner 0:0 --seed build-42 base.tar.zst overlay/ root.img\n  \
            tar c . | diorite import --size 4G -L data - data.img"
    )]
    Import(Writing<ImportArgs>),
    /// Write the files of an image into a tar archive
    #[command(
        long_about = EXPORT,
        after_help = "Examples:\n  \
            diorite export root.img root.tar\n  \
            diorite export root.img:/srv - | tar tv\n  \
            diorite export root.img root.tar.zst"
    )]
    Export(ExportArgs),
    /// Print the label of an image, or set it
    #[command(after_help = "Examples:\n  diorite label disk.img\n  diorite label disk.img backup")]
    Label(Writing<LabelArgs>),
    /// Print the UUID of an image, or set it
    #[command(after_help = "Examples:\n  diorite uuid disk.img\n  diorite uuid disk.img random")]
    Uuid(Writing<UuidArgs>),
    /// Make directories in an image
    #[command(
        after_help = "Examples:\n  diorite mkdir disk.img /backup\n  diorite mkdir -p -m 700 disk.img /srv/data/private"
    )]
    Mkdir(Writing<MkdirArgs>),
    /// Remove files from an image, and with -r whole directories
    #[command(
        after_help = "Examples:\n  diorite rm disk.img /etc/motd\n  diorite rm -rf disk.img /var/cache /tmp/old"
    )]
    Rm(Writing<RmArgs>),
    /// Remove empty directories from an image
    #[command(
        after_help = "Examples:\n  diorite rmdir disk.img /lost+found\n  diorite rmdir -p disk.img srv/data/private"
    )]
    Rmdir(Writing<RmdirArgs>),
    /// Move or rename files in an image
    #[command(
        after_help = "Examples:\n  diorite mv disk.img /etc/fstab /etc/fstab.old\n  diorite mv disk.img /a /b /directory"
    )]
    Mv(Writing<MvArgs>),
    /// Make hard links to files in an image, or symbolic links
    #[command(after_help = "Examples:\n  \
            diorite ln disk.img /bin/busybox /bin/sh\n  \
            diorite ln -sf disk.img ../usr/lib/os-release /etc/os-release")]
    Ln(Writing<LnArgs>),
    /// Make pipes and devices in an image
    #[command(
        after_help = "Examples:\n  diorite mknod disk.img /dev/null c 1 3\n  diorite mknod -m 600 disk.img /run/fifo p"
    )]
    Mknod(Writing<MknodArgs>),
    /// Set the times of files in an image, to now or another time; create files that do not exist
    #[command(after_help = "Examples:\n  \
            diorite touch disk.img /forcefsck\n  \
            diorite touch -c -m disk.img /a /b\n  \
            diorite touch -d @1700000000 disk.img /etc/build-id")]
    Touch(Writing<TouchArgs>),
    /// Change the permissions of files in an image
    #[command(
        after_help = "Examples:\n  diorite chmod disk.img 640 /etc/shadow\n  diorite chmod -R disk.img u+rwX,go-w /home"
    )]
    Chmod(Writing<ChmodArgs>),
    /// Change the owner and the group, as numbers, of files in an image
    #[command(
        after_help = "Examples:\n  diorite chown disk.img 1000:1000 /home/me\n  diorite chown -R disk.img :33 /var/www"
    )]
    Chown(Writing<ChownArgs>),
    /// Print extended attributes of files
    #[command(
        disable_help_flag = true,
        after_help = "Examples:\n  \
            diorite getfattr -d disk.img /etc/motd\n  \
            diorite getfattr -d -m - -R disk.img /\n  \
            diorite getfattr -n system.posix_acl_access -e hex disk.img /srv"
    )]
    Getfattr(GetfattrArgs),
    /// Set an extended attribute of files in an image, or remove it
    #[command(
        disable_help_flag = true,
        after_help = "Examples:\n  \
            diorite setfattr -n user.origin -v build-7 disk.img /etc/motd\n  \
            diorite setfattr -x security.capability disk.img /usr/bin/ping"
    )]
    Setfattr(Writing<SetfattrArgs>),
    /// Print access control lists of files, as getfacl -n does
    #[command(
        after_help = "Examples:\n  diorite getfacl disk.img /srv\n  diorite getfacl -Rs disk.img /"
    )]
    Getfacl(GetfaclArgs),
    /// Change access control lists of files in an image
    #[command(after_help = "Examples:\n  \
            diorite setfacl -m u:1000:rwX,d:u:1000:rwX disk.img /srv\n  \
            diorite setfacl -b disk.img /etc/shadow\n  \
            diorite setfacl -R -x g:33 disk.img /var/www")]
    Setfacl(Writing<SetfaclArgs>),
    /// Print the flags of files, as lsattr does
    #[command(
        after_help = "Examples:\n  diorite lsattr disk.img /etc\n  diorite lsattr -Ra disk.img /"
    )]
    Lsattr(LsattrArgs),
    /// Change the flags of files in an image
    #[command(
        after_help = "Examples:\n  diorite chattr disk.img +i /etc/resolv.conf\n  diorite chattr -R disk.img -dA /home"
    )]
    Chattr(Writing<ChattrArgs>),
    /// Make durable what was written to an image, or to files in it
    #[command(
        after_help = "Examples:\n  diorite sync disk.img\n  diorite sync disk.img /var/lib/database"
    )]
    Sync(Writing<SyncArgs>),
    /// Replay the journal of an image that was not unmounted, deal with its orphans, and say what was done
    #[command(
        long_about = RECOVER,
        after_help = "Examples:\n  \
            diorite recover disk.img && e2fsck -fn disk.img\n  \
            diorite recover --json disk.img | jq .recovered"
    )]
    Recover(Writing<RecoverArgs>),
    /// Mount an image at a directory, without root
    #[command(
        long_about = mount::MOUNT,
        after_help = "Examples:\n  \
            diorite mount disk.img mnt\n  \
            diorite mount -r 'disk.img?part=2' mnt\n  \
            diorite mount -o fakeroot,noatime disk.img mnt && cp -r files/. mnt && diorite umount mnt\n  \
            diorite mount -f outer.img!/inner.img mnt"
    )]
    Mount(Writing<MountArgs>),
    /// End mounts, and wait until everything is durable
    #[command(long_about = mount::UMOUNT, after_help = "Examples:\n  diorite umount mnt")]
    Umount(UmountArgs),
    /// Serve images, block devices and files inside images to clients of other programs
    #[command(after_help = "Examples:\n  \
            diorite serve nbd --socket /tmp/disk.sock disk.img\n  \
            diorite serve nbd --listen 127.0.0.1:10809 'outer.img!/inner.img'")]
    Serve(Writing<ServeArgs>),
    /// Measure direct I/O: against the raw device, other policies of this volume, the kernel
    #[command(after_help = "Examples:\n  \
            diorite bench read-scaling\n  \
            diorite bench completion --peer kernel --json\n  \
            diorite bench run --image disk.img --file /database --rw randrw --runtime 10s")]
    Bench(Writing<crate::bench::Args>),
    /// Write man pages and shell completions into a directory
    #[command(hide = true)]
    Generate(GenerateArgs),
}

const CHECK: &str = "\
Check whether an image is consistent: the superblock and the group descriptors; bitmaps and counters against the blocks and \
inodes in use; the block maps of files; directories and their hash trees; link counts; extended attributes; orphans; the \
journal; the usage of users, groups and projects against the quota files; and every checksum. Nothing is written.

A journal that has to be replayed is replayed in memory, and the image is checked as it is after the replay; `e2fsck -n` checks \
it without the replay. If the journal is on another device, name that device with --journal.

Exit status, as of `e2fsck -n`: 0 if the image is clean; 4 if there are errors, which are left as they are; 8 if the image could \
not be checked: it cannot be read, or is of an unknown kind; 12 if its journal has to be replayed and is on a device that was \
not named; 16 for wrong usage.";

const MKFS: &str = "\
Make an empty file system in an image or on a device. Options, units and defaults are those of mke2fs 1.47.2; called by the name mke2fs, \
mkfs.ext2, mkfs.ext3 or mkfs.ext4, the program takes that one's place, with the defaults of MKE2FS_CONFIG or /etc/mke2fs.conf.

An image that does not exist is made with SIZE, and gets its name when it is whole and durable. A file or device that exists is used in \
place, up to SIZE; what was on it is gone.

The same options, with --seed, or with -U and -E hash_seed=, and with SOURCE_DATE_EPOCH, make the same bytes on every host.

Exit status: 0 if the file system was made and is durable; 1 if not; 2 for wrong usage (1 in place of mke2fs).";

const IMPORT: &str = "\
Make an image of the files of all SOURCEs, in order: what comes later replaces what was there. Owners, permissions, times, extended \
attributes, access control lists, hard links, devices and holes are kept, without root: nothing is made on the host but the image.

A SOURCE is a directory; a tar archive, also compressed by gzip or zstd; an OCI image layout or an archive of docker save, with the \
whiteouts of its layers applied; IMG:/DIR in another image; a manifest (mtree). What it is is seen from what is there; dir:, tar:, oci:, \
docker:, image: and manifest: before the path say it.

The image gets its name when it is whole and durable; one that was there is replaced, unless somebody uses it. It is as large as its \
files need, or --size. The same sources with the same --seed (or -U and -E hash_seed=) and SOURCE_DATE_EPOCH make the same bytes: \
nothing is newer than that time.

Exit status: 0 if the image was made and is durable; 1 if not; 2 for wrong usage; 130 when interrupted.";

const EXPORT: &str = "\
Write the files of an image, or of a directory in it, into a tar archive in the POSIX format: owners, permissions, times to the \
nanosecond, extended attributes, access control lists, hard links, devices and holes, in the order of names. The same image gives \
the same archive. 'diorite get' copies files to the host, 'diorite import' into another image.

Exit status: 0 if everything was written; 1 if not; 2 for wrong usage; 130 when interrupted.";

const CMP: &str = "\
Compare a file in an image with a file of the host, byte for byte. The messages are those of cmp(1).

Exit status: 0 if both are the same; 1 if they differ; 2 if they could not be compared, and for wrong usage.";

const COMPARE: &str = "\
Compare two devices or images, byte for byte: files and block devices of the host, their partitions, files in images, each named by a \
locator. If one is longer, the rest of it has to be zeros; with --strict the sizes have to be the same. Ranges that both store as \
holes are not read.

The first difference is printed as cmp(1) does: `A B differ: byte N`, counted from 1.

Exit status: 0 if both are the same; 1 if they differ; 2 if they could not be compared, and for wrong usage.";

const COPY: &str = "\
Copy the bytes of SRC to DST, whatever they are: files and block devices of the host, their partitions, files in images, each named \
by a locator. A host file that does not exist is created with exactly the size of SRC, as is a file in an existing image (IMG:/path); it \
gets its name only when everything is copied and durable. An existing DST is overwritten from its beginning; it must be as large as SRC, \
and what is behind stays. A file in an image that is smaller is extended.

What SRC stores as holes, and zeros in its data, become holes of DST, or are written as zeros if it can have none. SRC and DST may be \
in one image; one inside the other, or both the same, is refused.

A copy that failed or was interrupted leaves no new file. An existing DST is incomplete then, and the message says so.

Exit status: 0 if everything was copied and is durable; 1 if not; 2 for wrong usage; 130 when interrupted.";

const FIND: &str = "\
Print the paths of files that match an expression, as find(1) does: the files below each PATH (by default the root directory). \
The names of a directory are visited in byte order. Symbolic links are not followed. Options come before IMG.

Tests: -name, -iname, -path, -ipath PATTERN; -type f,d,l,b,c,p,s; -size [+-]N[cwbkMG]; -uid, -gid, -links, -inum [+-]N; -perm \
MODE, -MODE, /MODE (octal); -newer FILE (a file of the image); -mtime, -atime, -ctime [+-]DAYS; -empty; -true. Depth: -maxdepth \
N, -mindepth N, -depth. Operators: -a (or nothing), -o, !, and parentheses.

Actions: -print, the default if there is no other action; -print0 ends each path with a NUL; -printf FORMAT: %p %f %h %P %H path \
and its parts, %s size, %m %M permissions, %y type, %u %g owner and group, %i inode, %n links, %l target, %d depth, %b %k blocks, \
%t %a %c times, %TX %AX %CX the part X of them (@ Y m d H M S F T + and others); -delete removes files, and directories after their \
contents; it opens the image for writing.

Exit status: 0 if everything could be read; 1 if something could not be read; 2 for wrong usage.";

const GET: &str = "\
Copy files and whole directories out of an image, with mode, times, extended attributes (including ACLs and capabilities), hard \
links and holes, and as root also with owners and devices.

Like `cp -a`: if DEST is a directory, the copies are made in it; otherwise the one PATH becomes DEST. Like `tar`: existing files \
are replaced, directories are merged, symbolic links are never followed, and nothing in the image can make a copy land outside \
DEST. If DEST is `-`, the contents of files are written to standard output. An owner or attribute that the host refuses is a \
warning. A file that could not be copied is an error with exit status 1; the other files are copied.

A copy gets its name, or replaces a file, only when it is complete: a copy that is interrupted, or does not fit on the host, \
leaves nothing behind. Of a file that the image does not give completely, the part that could be read is kept. Files with \
several names get all of them from the beginning.";

const PUT: &str = "\
Copy files and whole directories into an image, with owners and groups (as numbers), mode, times, extended attributes (including \
ACLs and capabilities), hard links, holes, symbolic links, pipes and devices. The only rights needed are to read SOURCE and to \
write IMG.

Like `cp -a`: if DEST is a directory, the copies are made in it; otherwise the one SOURCE becomes DEST. If SOURCE ends in `/.`, \
its contents are copied into DEST, and DEST gets its attributes. If SOURCE is `-`, standard input is copied to the file DEST, \
which belongs to root and has mode 0644 unless options say otherwise. Existing files are replaced, directories are merged, \
symbolic links in SOURCE are copied, never followed.

A copy gets its name, or replaces a file, only when it is complete. A file that could not be read or written completely is an \
error with exit status 1 and leaves nothing behind; the other files are copied. Everything is committed at the end, and every \
few seconds before.

Exit status: 0 if everything was copied; 1 if something could not be copied; 2 for wrong usage.";

const CP: &str = "\
Copy files and whole directories between the host and an image, as `put` and `get` do; or from one image to another or within \
one image, as `put` does from the host. A path in an image is IMG:/path, where IMG is an existing file or block device, with \
?part= and the like; IMG:/inner.img:/path is a path in an image inside that image, to any depth. Instead of each colon ! is \
possible.

An image that is only copied from is opened for reading. Both images may be inside one image, or one inside the other. A \
directory is not copied into itself. The options --owner, --group, --mode and --no-clobber apply only to copies in an image.

Exit status: 0 if everything was copied; 1 if something could not be copied; 2 for wrong usage.";

const EDIT: &str = "\
Change an image by a script of commands, in transactions: of each transaction either everything is in the image afterwards, or \
nothing.

A line is a command as on the command line, without the image: put, mkdir, rm, rmdir, mv, ln, mknod, touch, chmod, chown, \
truncate, setfattr, setfacl, chattr, with their options. Words are quoted as for a shell ('a b', \"a b\", a\\ b, $'\\n'), # \
begins a comment, and a line that ends with \\ continues on the next one; nothing is expanded.

The whole script is one transaction. A line `commit` ends a transaction, and the next line begins another; with --each every line \
is a transaction. If a command fails, its transaction is discarded: none of its changes is in the image. Earlier transactions \
are in the image, later ones are not tried. The same holds if the machine stops. Only in an image without a journal can a stop \
during a commit leave a part of a transaction.

Space that a transaction frees can be used only after it. A file that a transaction cuts in the middle of a block can become \
longer only after it. Changes to files with the flag S are durable when the transaction is.

A transaction has to fit into one transaction of the journal. If it does not, it is discarded, with a message that names the \
line, the largest transaction of the journal, and what was needed. In that case divide it with `commit` lines, or use --batch, \
which commits between two lines whenever the transaction is half full or the next line does not fit any more. Each line is then \
still done completely or not at all, but not the whole script: if a line fails, or the machine stops, the lines before it are in \
the image. A message names the first line that is not.

Exit status: 0 if everything was done; 1 if a transaction was discarded (with --batch: the lines from the named one on), with \
messages that name the lines; 2 for wrong usage, and for a script with invalid lines, of which nothing is done.";

const RECOVER: &str = "\
Replay the journal of an image that was not unmounted, finish its orphans (files that were being deleted or truncated, or that \
were deleted while open), and print what was done.

Every command that writes does this first; commands that read replay the journal in memory and do not change the image. A clean \
image is not changed. An image that cannot be recovered is refused, with the reason, and not changed.

Exit status: 0 if the image is clean now, whether or not anything had to be done (as of `e2fsck -p` after it has replayed a \
journal); 1 if it could not be recovered; 2 for wrong usage.";

/// `generate`.
#[derive(Args, Debug)]
pub(crate) struct GenerateArgs {
    /// What to write
    #[arg(value_enum)]
    pub(crate) what: Generated,
    /// The directory to write them into; created if it does not exist
    pub(crate) dir: PathBuf,
}

/// See [`GenerateArgs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Generated {
    /// Man pages, section 1
    Man,
    /// Completions for bash, elvish, fish, PowerShell and zsh
    Completions,
}

#[cfg(test)]
mod tests;
