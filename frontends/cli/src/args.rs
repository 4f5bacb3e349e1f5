//! The command line: commands and options, with their texts for `--help` and the man pages.
//!
//! Input: the process's arguments. Output: a [`Cli`]. Invariant: parsing changes nothing and opens nothing. Limits: wrong usage
//! ends the process with code 2, as clap does.

mod attributes;
mod change;
mod copy;
mod device;
mod late;
mod make;
mod mount;
mod read;
mod serve;
mod shared;
mod space;
mod texts;
mod tune;

pub(crate) use attributes::{
    ChattrArgs, GetfaclArgs, GetfattrArgs, LsattrArgs, SetfaclArgs, SetfattrArgs,
};
pub(crate) use change::{
    ChmodArgs, ChownArgs, LnArgs, MkdirArgs, MknodArgs, MvArgs, NodeType, RmArgs, RmdirArgs,
    TouchArgs,
};
pub(crate) use copy::{CopiesArgs, CpArgs, EditArgs, GetArgs, PutArgs};
pub(crate) use device::{CompareArgs, CopyArgs, Encoding};
pub(crate) use make::{
    DiskArgs, ExportArgs, ExportWord, FormatArgs, GrowArgs, ImportArgs, LabelArgs, MinimiseArgs,
    MkfsArgs, ResizeArgs, ShrinkArgs, TableWord, UndoArgs, UuidArgs,
};
pub(crate) use mount::{MountArgs, UmountArgs};
pub(crate) use read::{
    CatArgs, CheckArgs, CmpArgs, DfArgs, DuArgs, ExtentsArgs, FindArgs, InfoArgs, LsArgs,
    ReadlinkArgs, StatArgs, TimeStyle, TreeArgs, When,
};
pub(crate) use serve::{NbdArgs, Serve, ServeArgs};
pub(crate) use shared::JsonObject;
pub(crate) use space::{
    FallocateArgs, RecoverArgs, SparsifyArgs, SyncArgs, TruncateArgs, ZerofreeArgs,
};
pub(crate) use tune::TuneArgs;

use clap::{Args, Parser, Subcommand};
use diorite::Policy;
use diorite_block::IoEngine;
use late::Late;
use std::path::PathBuf;
use texts::{
    CHECK, CMP, COMPARE, COPY, CP, DISK, EDIT, EXPORT, GET, GROW, IMPORT, LOCATORS, MINIMISE, MKFS,
    PUT, RECOVER, SHRINK, SPARSIFY, TUNE, UNDO, ZEROFREE,
};

/// The name of the program.
pub(crate) const NAME: &str = "diorite";
/// Columns of help on wide terminals.
pub(crate) const MAX_TERM_WIDTH: usize = 100;

/// Make, fill, change, check, resize, mount and serve ext2, ext3 and ext4 images and devices, and measure direct I/O on them: from user
/// space, without root
#[derive(Debug, Parser)]
#[command(name = NAME, version, max_term_width = MAX_TERM_WIDTH, propagate_version = true, after_long_help = LOCATORS)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

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
    /// What the image has goes there before it is overwritten. Only commands with -z set it.
    #[arg(skip)]
    pub(crate) undo: Option<diorite::Undo>,
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

/// Commands that look at an image and are short: to define all commands takes longer than what these do, so they are defined apart.
#[derive(Debug, Subcommand)]
pub(crate) enum Look {
    /// Print the superblock as `dumpe2fs -h` does, and which features can be read and written; or what a device is
    #[command(after_help = "Examples:\n  \
            diorite info disk.img\n  \
            diorite info -v 'disk.img?part=1'\n  \
            diorite info -d /dev/sdb\n  \
            diorite info --json disk.img | jq .uuid")]
    Info(Late<InfoArgs>),
    /// List directories
    #[command(
        disable_help_flag = true,
        after_help = "Examples:\n  \
            diorite ls disk.img\n  \
            diorite ls -l disk.img /etc\n  \
            diorite ls -F --color=auto disk.img\n  \
            diorite ls -lRa --time-style full-iso disk.img /"
    )]
    Ls(Late<LsArgs>),
    /// Print directories as trees
    #[command(
        after_help = "Examples:\n  diorite tree disk.img\n  diorite tree -L 2 -d disk.img /usr\n  diorite tree -as disk.img /home"
    )]
    Tree(Late<TreeArgs>),
    /// Print the paths of files that match, as find(1) does
    #[command(
        override_usage = "diorite find [OPTIONS] <IMG> [PATH]... [EXPRESSION]",
        long_about = texts::find(),
        after_help = "Examples:\n  \
            diorite find disk.img /etc -name '*.conf'\n  \
            diorite find disk.img -type f -size +1M -o -type l\n  \
            diorite find disk.img / -perm /6000 -uid 0\n  \
            diorite find --json disk.img -empty | jq -r .path\n  \
            diorite find disk.img /var/cache -type f -mtime +30 -delete\n  \
            diorite find disk.img -newer /etc/build-id -printf '%s %p\\n'"
    )]
    Find(Late<Writing<FindArgs>>),
    /// Print the metadata of files
    #[command(after_help = "Examples:\n  \
            diorite stat disk.img /etc/passwd\n  \
            diorite stat --json disk.img /bin /sbin\n  \
            diorite stat -c '%a %U:%G %s %n' disk.img /etc/shadow")]
    Stat(Late<StatArgs>),
    /// Write the contents of files to standard output
    #[command(
        after_help = "Examples:\n  diorite cat disk.img /etc/os-release\n  diorite cat 'disk.img?part=2' /boot/vmlinuz | sha256sum"
    )]
    Cat(Late<CatArgs>),
    /// Print where symbolic links point
    #[command(
        after_help = "Examples:\n  diorite readlink disk.img /etc/os-release\n  diorite readlink -n disk.img /vmlinuz"
    )]
    Readlink(Late<ReadlinkArgs>),
    /// Print how much of an image is in use, as df does
    #[command(
        disable_help_flag = true,
        after_help = "Examples:\n  diorite df -h disk.img\n  diorite df -i disk.img\n  diorite df --json disk.img | jq .available"
    )]
    Df(Late<DfArgs>),
    /// Print the space that files and directories take, as du does
    #[command(
        disable_help_flag = true,
        after_help = "Examples:\n  diorite du -sh disk.img /usr /var\n  diorite du -d 1 disk.img\n  diorite du -ab disk.img /etc"
    )]
    Du(Late<DuArgs>),
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// See [`Look`].
    #[command(flatten)]
    Look(Look),
    /// Compare a file in an image with a file of the host, byte for byte
    #[command(
        long_about = CMP,
        after_help = "Examples:\n  diorite cmp disk.img /boot/vmlinuz ./vmlinuz\n  diorite cmp -s disk.img /etc/passwd - && echo the same"
    )]
    Cmp(Late<CmpArgs>),
    /// Compare two devices or images, byte for byte
    #[command(
        long_about = COMPARE,
        after_help = "Examples:\n  \
            diorite compare disk.img copy.img\n  \
            diorite compare -s /dev/sdb 'disk.img?part=2'\n  \
            diorite compare -q outer.img:/inner.img inner.img && echo the same"
    )]
    Compare(Late<CompareArgs>),
    /// Copy the bytes of a device or image to another
    #[command(
        override_usage = "diorite copy [OPTIONS] <SRC>... <DST>",
        long_about = COPY,
        after_help = "Examples:\n  \
            diorite copy disk.img copy.img\n  \
            diorite copy --verify disk.img /dev/sdb\n  \
            diorite copy 'disk.img?part=2' outer.img:/root.img\n  \
            diorite copy -S 0 outer.img:/inner.img inner.img\n  \
            diorite copy --bmap disk.bmap disk.img disk.img.zst\n  \
            diorite copy system.simg system.img\n  \
            diorite copy system.img_sparsechunk.* system.img"
    )]
    Copy(Late<Writing<CopyArgs>>),
    /// Check whether an image is consistent, without changing it; with --repair correct its counts
    #[command(
        long_about = CHECK,
        after_help = "Examples:\n  \
            diorite check disk.img\n  \
            diorite check -v 'disk.img?part=1'\n  \
            diorite check --repair disk.img\n  \
            diorite check --json disk.img | jq .clean"
    )]
    Check(Late<Writing<CheckArgs>>),
    /// Copy files and whole directories out of an image
    #[command(
        long_about = GET,
        after_help = "Examples:\n  \
            diorite get disk.img / ./out\n  \
            diorite get disk.img /etc/passwd /etc/group .\n  \
            diorite get disk.img /vm/inner.img - | sha256sum"
    )]
    Get(Late<GetArgs>),
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
    Put(Late<Writing<PutArgs>>),
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
    Cp(Late<Writing<CpArgs>>),
    /// Change an image by a script of commands, in transactions
    #[command(
        long_about = EDIT,
        after_help = "Examples:\n  \
            diorite edit --script changes.txt disk.img\n  \
            printf 'rm /etc/motd\\nput motd.new /etc/motd\\n' | diorite edit -f - disk.img\n  \
            diorite edit -n -f changes.txt disk.img && echo it would work\n  \
            diorite edit --batch -f removals.txt disk.img"
    )]
    Edit(Late<Writing<EditArgs>>),
    /// Print where the data of a file lies, as `filefrag -v` does
    #[command(after_help = "Examples:\n  \
            diorite extents disk.img /var/lib/database\n  \
            diorite extents --json disk.img /file | jq -s 'map(.length) | add'")]
    Extents(Late<ExtentsArgs>),
    /// Make files in an image shorter or longer
    #[command(after_help = "Examples:\n  \
            diorite truncate -s 10G disk.img /database\n  \
            diorite truncate -s +1M disk.img /log\n  \
            diorite truncate -c -s '<4K' disk.img /a /b\n  \
            diorite truncate -r /a disk.img /b")]
    Truncate(Late<Writing<TruncateArgs>>),
    /// Allocate space of a file in an image, or give it back
    #[command(after_help = "Examples:\n  \
            diorite fallocate -l 1G disk.img /database\n  \
            diorite fallocate -p -o 4M -l 1M disk.img /log\n  \
            diorite fallocate --insert-range -l 4K disk.img /file\n  \
            diorite fallocate -d disk.img /file")]
    Fallocate(Late<Writing<FallocateArgs>>),
    /// Discard the free blocks of an image, so that its file takes no space for them
    #[command(
        long_about = SPARSIFY,
        after_help = "Examples:\n  \
            diorite sparsify disk.img\n  \
            diorite sparsify -m 64K 'disk.img?part=2'\n  \
            diorite sparsify --json outer.img:/inner.img | jq .discarded"
    )]
    Sparsify(Late<Writing<SparsifyArgs>>),
    /// Write zeros to the free blocks of an image
    #[command(
        long_about = ZEROFREE,
        after_help = "Examples:\n  diorite zerofree -n disk.img\n  diorite zerofree -v disk.img && gzip disk.img"
    )]
    Zerofree(Late<Writing<ZerofreeArgs>>),
    /// Make a file system, as mke2fs does
    #[command(
        long_about = MKFS,
        after_help = "Examples:\n  \
            diorite mkfs disk.img 1G\n  \
            diorite mkfs -t ext3 -L data -m 0 /dev/sdb1\n  \
            diorite mkfs -b 4096 -N 100000 --seed build-42 root.img 512M\n  \
            diorite mkfs -O bigalloc,^has_journal -E root_owner=1000:1000 disk.img 20G"
    )]
    Mkfs(Late<Writing<MkfsArgs>>),
    /// Make an image of directories, archives and container images
    #[command(
        long_about = IMPORT,
        override_usage = "diorite import [OPTIONS] <SOURCE>... <IMG>",
        after_help = "Examples:\n  \
            diorite import rootfs/ root.img\n  \
            docker save app | diorite import --size auto+256M - app.img\n  \
            diorite import --owner 0:0 --seed build-42 base.tar.zst overlay/ root.img\n  \
            tar c . | diorite import --size 4G -L data - data.img\n  \
            diorite import --bmap root.bmap rootfs/ root.img.zst"
    )]
    Import(Late<Writing<ImportArgs>>),
    /// Make a disk image with a partition table, and put images into its partitions
    #[command(
        long_about = DISK,
        after_help = "Examples:\n  \
            diorite disk disk.img esp.img,type=esp root.img,type=root-x86-64,name=root\n  \
            diorite disk --size 8G --seed build-42 disk.img 512M,type=esp root.img 1G,type=swap +,type=home\n  \
            diorite disk --table mbr disk.img root.img,bootable,size=2G\n  \
            diorite mkfs 'disk.img?part=1'"
    )]
    Disk(Late<Writing<DiskArgs>>),
    /// Write the files of an image into a tar archive
    #[command(
        long_about = EXPORT,
        after_help = "Examples:\n  \
            diorite export root.img root.tar\n  \
            diorite export root.img:/srv - | tar tv\n  \
            diorite export root.img root.tar.zst"
    )]
    Export(Late<ExportArgs>),
    /// Print the label of an image, or set it
    #[command(after_help = "Examples:\n  diorite label disk.img\n  diorite label disk.img backup")]
    Label(Late<Writing<LabelArgs>>),
    /// Print the UUID of an image, or set it
    #[command(after_help = "Examples:\n  diorite uuid disk.img\n  diorite uuid disk.img random")]
    Uuid(Late<Writing<UuidArgs>>),
    /// Make the file system in an image larger
    #[command(
        long_about = GROW,
        after_help = "Examples:\n  \
            diorite grow disk.img 20G\n  \
            diorite grow disk.img +2G\n  \
            diorite grow /dev/sdb1"
    )]
    Grow(Late<Writing<GrowArgs>>),
    /// Make the file system in an image smaller
    #[command(
        long_about = SHRINK,
        after_help = "Examples:\n  \
            diorite shrink disk.img 4G\n  \
            diorite shrink disk.img -1G"
    )]
    Shrink(Late<Writing<ShrinkArgs>>),
    /// Make the file system in an image as small as possible
    #[command(
        visible_alias = "minimize",
        long_about = MINIMISE,
        after_help = "Examples:\n  \
            diorite minimise disk.img\n  \
            diorite minimise --headroom 64M disk.img\n  \
            diorite minimise -n disk.img"
    )]
    Minimise(Late<Writing<MinimiseArgs>>),
    /// What the program is if it is called resize2fs
    #[command(hide = true)]
    Resize2fs(Late<Writing<ResizeArgs>>),
    /// Change parameters of a file system, as tune2fs does
    #[command(
        long_about = TUNE,
        after_help = "Examples:\n  \
            diorite tune -m 1 -e remount-ro disk.img\n  \
            diorite tune -O metadata_csum_seed -U random disk.img\n  \
            diorite tune -E mount_opts=noatime,stride=16 'disk.img?part=2'\n  \
            diorite tune -l disk.img"
    )]
    Tune(Late<Writing<TuneArgs>>),
    /// Take back what a command with --undo, or a program of e2fsprogs with -z, has changed
    #[command(
        long_about = UNDO,
        after_help = "Examples:\n  \
            diorite tune -z before.undo -O ^has_journal disk.img && diorite undo before.undo disk.img\n  \
            diorite undo -n -v before.undo disk.img"
    )]
    Undo(Late<Writing<UndoArgs>>),
    /// Make directories in an image
    #[command(
        after_help = "Examples:\n  diorite mkdir disk.img /backup\n  diorite mkdir -p -m 700 disk.img /srv/data/private"
    )]
    Mkdir(Late<Writing<MkdirArgs>>),
    /// Remove files from an image, and with -r whole directories
    #[command(
        after_help = "Examples:\n  diorite rm disk.img /etc/motd\n  diorite rm -rf disk.img /var/cache /tmp/old"
    )]
    Rm(Late<Writing<RmArgs>>),
    /// Remove empty directories from an image
    #[command(
        after_help = "Examples:\n  diorite rmdir disk.img /lost+found\n  diorite rmdir -p disk.img srv/data/private"
    )]
    Rmdir(Late<Writing<RmdirArgs>>),
    /// Move or rename files in an image
    #[command(
        after_help = "Examples:\n  diorite mv disk.img /etc/fstab /etc/fstab.old\n  diorite mv disk.img /a /b /directory"
    )]
    Mv(Late<Writing<MvArgs>>),
    /// Make hard links to files in an image, or symbolic links
    #[command(after_help = "Examples:\n  \
            diorite ln disk.img /bin/busybox /bin/sh\n  \
            diorite ln -sf disk.img ../usr/lib/os-release /etc/os-release")]
    Ln(Late<Writing<LnArgs>>),
    /// Make pipes and devices in an image
    #[command(
        after_help = "Examples:\n  diorite mknod disk.img /dev/null c 1 3\n  diorite mknod -m 600 disk.img /run/fifo p"
    )]
    Mknod(Late<Writing<MknodArgs>>),
    /// Set the times of files in an image, to now or another time; create files that do not exist
    #[command(after_help = "Examples:\n  \
            diorite touch disk.img /forcefsck\n  \
            diorite touch -c -m disk.img /a /b\n  \
            diorite touch -d @1700000000 disk.img /etc/build-id")]
    Touch(Late<Writing<TouchArgs>>),
    /// Change the permissions of files in an image
    #[command(
        after_help = "Examples:\n  diorite chmod disk.img 640 /etc/shadow\n  diorite chmod -R disk.img u+rwX,go-w /home"
    )]
    Chmod(Late<Writing<ChmodArgs>>),
    /// Change the owner and the group, as numbers, of files in an image
    #[command(
        after_help = "Examples:\n  diorite chown disk.img 1000:1000 /home/me\n  diorite chown -R disk.img :33 /var/www"
    )]
    Chown(Late<Writing<ChownArgs>>),
    /// Print extended attributes of files
    #[command(
        disable_help_flag = true,
        after_help = "Examples:\n  \
            diorite getfattr -d disk.img /etc/motd\n  \
            diorite getfattr -d -m - -R disk.img /\n  \
            diorite getfattr -n system.posix_acl_access -e hex disk.img /srv"
    )]
    Getfattr(Late<GetfattrArgs>),
    /// Set an extended attribute of files in an image, or remove it
    #[command(
        disable_help_flag = true,
        after_help = "Examples:\n  \
            diorite setfattr -n user.origin -v build-7 disk.img /etc/motd\n  \
            diorite setfattr -x security.capability disk.img /usr/bin/ping"
    )]
    Setfattr(Late<Writing<SetfattrArgs>>),
    /// Print access control lists of files, as getfacl -n does
    #[command(
        after_help = "Examples:\n  diorite getfacl disk.img /srv\n  diorite getfacl -Rs disk.img /"
    )]
    Getfacl(Late<GetfaclArgs>),
    /// Change access control lists of files in an image
    #[command(after_help = "Examples:\n  \
            diorite setfacl -m u:1000:rwX,d:u:1000:rwX disk.img /srv\n  \
            diorite setfacl -b disk.img /etc/shadow\n  \
            diorite setfacl -R -x g:33 disk.img /var/www")]
    Setfacl(Late<Writing<SetfaclArgs>>),
    /// Print the flags of files, as lsattr does
    #[command(
        after_help = "Examples:\n  diorite lsattr disk.img /etc\n  diorite lsattr -Ra disk.img /"
    )]
    Lsattr(Late<LsattrArgs>),
    /// Change the flags of files in an image
    #[command(
        after_help = "Examples:\n  diorite chattr disk.img +i /etc/resolv.conf\n  diorite chattr -R disk.img -dA /home"
    )]
    Chattr(Late<Writing<ChattrArgs>>),
    /// Make durable what was written to an image, or to files in it
    #[command(
        after_help = "Examples:\n  diorite sync disk.img\n  diorite sync disk.img /var/lib/database"
    )]
    Sync(Late<Writing<SyncArgs>>),
    /// Replay the journal of an image that was not unmounted, deal with its orphans, and say what was done
    #[command(
        long_about = RECOVER,
        after_help = "Examples:\n  \
            diorite recover disk.img && e2fsck -fn disk.img\n  \
            diorite recover --json disk.img | jq .recovered"
    )]
    Recover(Late<Writing<RecoverArgs>>),
    /// Mount an image at a directory, without root
    #[command(
        long_about = mount::MOUNT,
        after_help = "Examples:\n  \
            diorite mount disk.img mnt\n  \
            diorite mount -r 'disk.img?part=2' mnt\n  \
            diorite mount -o fakeroot,noatime disk.img mnt && cp -r files/. mnt && diorite umount mnt\n  \
            diorite mount -f outer.img!/inner.img mnt"
    )]
    Mount(Late<Writing<MountArgs>>),
    /// End mounts, and wait until everything is durable
    #[command(long_about = mount::UMOUNT, after_help = "Examples:\n  diorite umount mnt")]
    Umount(Late<UmountArgs>),
    /// Serve images, block devices and files inside images to clients of other programs
    #[command(after_help = "Examples:\n  \
            diorite serve nbd --socket /tmp/disk.sock disk.img\n  \
            diorite serve nbd --listen 127.0.0.1:10809 'outer.img!/inner.img'")]
    Serve(Late<Writing<ServeArgs>>),
    /// Measure direct I/O: against the raw device, other policies of this volume, the kernel
    #[command(after_help = "Examples:\n  \
            diorite bench read-scaling\n  \
            diorite bench completion --peer kernel --json\n  \
            diorite bench run --image disk.img --file /database --rw randrw --runtime 10s")]
    Bench(Late<Writing<diorite_bench::Args>>),
    /// Write man pages, shell completions or pages of the book into a directory
    #[command(hide = true)]
    Generate(Late<GenerateArgs>),
}

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
    /// The commands' pages of the book, in Markdown
    Book,
}

#[cfg(test)]
mod tests;
