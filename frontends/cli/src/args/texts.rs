//! The long texts of the commands, for `--help` and the man pages.
//!
//! Input: none. Output: constants. Invariant: what a command promises stands here or at its option, and nowhere else. Limits: English.

use crate::words::directives::{Directives, OfFind};

pub(super) const LOCATORS: &str = "\
Images (IMG):
  disk.img               an image file, or a block device
  disk.img?part=2        a partition of it (MBR or GPT)
  disk.img?offset=1M     the file system begins at this offset; also size=, sector=, ro
  disk.qcow2             a qcow2 image, by its name; ?format=qcow2 says it of another name, ?format=raw that
                         its bytes are meant; contents decide only with ?format=auto, because a guest could
                         write the header of a qcow2 image into its raw disk; ?backing opens the files that
                         it names, such as a backing file; both are for images that you trust
  outer.img:/inner.img   an image inside an existing image, to any depth: a:/b:/c; each may have
                         ?part= and the like; a name that ends like that gets another ? behind it
  outer.img!/inner.img   the same, also for names with a colon; quote ! and ? in a shell

Sizes:
  4096, 4K, 4KiB and 0x1000 are 4096 bytes; 4KB is 4000 bytes; 2048s is 2048 sectors of 512
  bytes; the units are K, M, G, T, P and E

Exit status: 0 if all went well; 1 if something could not be read or copied (ls: something below a directory that was \
given); 2 for wrong usage (ls: also if a given path or image could not be read). check: as e2fsck.";

pub(super) const CHECK: &str = "\
Check whether an image is consistent: the superblock and the group descriptors; bitmaps and counters against the blocks and \
inodes in use; the block maps of files; directories and their hash trees; link counts; extended attributes; orphans; the \
journal; the usage of users, groups and projects against the quota files; and every checksum. Nothing is written without --repair.

A journal that has to be replayed is replayed in memory, and the image is checked as it is after the replay; `e2fsck -n` checks \
it without the replay. If the journal is on another device, name that device with --journal.

With --repair, if nothing is wrong but counts in group descriptors, blocks that are marked as in use and that nobody uses, the name of \
an orphan file that is not there, and the checksum of a superblock that has a copy, these are corrected, through the journal; the \
journal is replayed and \
orphans are processed; and when a second check finds nothing, recorded errors are forgotten and the image is marked as clean and checked, \
so that it can be written again. If anything else is wrong, nothing is written at all, and e2fsck is named. Blocks that \
nobody uses stay as they are if the image has a compatible feature whose blocks the check does not know (lazy_bg, snapshot_bitmap, or one \
without a name): a note says which. A crash in between leaves an \
image that another --repair, or e2fsck, finishes. Copies of the superblock and of the descriptors \
that e2fsck -b could not use are noted, and left as they are: tune2fs and resize2fs write them again. The image must not be in use.

Exit status, as of e2fsck: 0 if the image is clean; 1 if errors were corrected; 4 if there are errors, which are left as they are; \
8 if the image could not be checked: it cannot be read, or is of an unknown kind; 12 if its journal has to be replayed and is on a \
device that was not named; 16 for wrong usage.";

pub(super) const MKFS: &str = "\
Make an empty file system in an image or on a device. Options, units and defaults are those of mke2fs 1.47, with metadata_csum_seed \
and orphan_file by default, as newer releases have them; called by the name mke2fs, mkfs.ext2, mkfs.ext3 or mkfs.ext4, the program takes \
that one's place, with the defaults of MKE2FS_CONFIG or /etc/mke2fs.conf.

An image that does not exist is made with SIZE, and gets its name when it is whole and durable. A file or device that exists is used in \
place, up to SIZE; what was on it is gone. If standard input and output are a terminal, mkfs asks before it replaces a file system, a \
member \
of a RAID or a pool, something encrypted or a partition table, unless -F is given; after another answer than y nothing changes, and the \
exit \
status is 1. Below /dev no file is made: a name that is missing there is a typing error.

The same options, with --seed, or with -U and -E hash_seed=, and with SOURCE_DATE_EPOCH, make the same bytes on every host.

With -O journal_dev it makes a journal for another file system, on a device of its own or in a file; -J device= makes the file system that \
uses it. A journal that has a user is not taken away without -F. The kernel finds the device by its number in the superblock, or by the \
mount option journal_path; diorite and e2fsck are told (--journal, -j).

With -O quota the usage files hold what the files of -d have. Such images are read, but not written yet.

Exit status: 0 if the file system was made and is durable; 1 if not; 2 for wrong usage (1 in place of mke2fs).";

pub(super) const IMPORT: &str = "\
Make an image of the files of all SOURCEs, in order: what comes later replaces what was there. Owners, permissions, times, extended \
attributes, access control lists, hard links, devices and holes are kept, without root: nothing is made on the host but the image.

A SOURCE is a directory; a tar archive; a container image with the whiteouts of its layers applied: an OCI image layout, an archive of \
one, or an archive of docker save; IMG:/DIR in another image; a manifest (mtree). What it is is seen from what is there; dir:, tar:, oci:, \
docker:, image: and manifest: before the path say it; docker:ARCHIVE:NAME is one image of several. Archives may be packed by gzip, zstd, \
xz, bzip2, lz4 or zip, and - is one on standard input; a FIFO or a device is none. What GNU tar \
leaves out with a warning is left out with one. What \
such an archive holds is kept beside IMG, in a file without a name, until IMG is made: of a tar archive its files, of a container image \
the unpacked archive and the files of its packed layers.

An IMG named .gz, .zst, .simg or .qcow2 is written compressed, as an Android sparse image or as a qcow2 image; the packed ones first \
raw and without a name beside it. --format says another format. --bmap: as for 'diorite copy'.

The image gets its name when it is whole and durable; one that was there is replaced, unless somebody uses it. It is as large as its \
files need, or --size. The same sources with the same --seed (or -U and -E hash_seed=) and SOURCE_DATE_EPOCH make the same bytes: \
nothing is newer than that time.

Exit status: 0 if the image was made and is durable; 1 if not; 2 for wrong usage; 130 or 143 when SIGINT or SIGTERM ended it.";

pub(super) const DISK: &str = "\
Make a disk image with a partition table, without root. Each PART is a partition, in the order of their places: an image (a file, a \
device, any locator), whose bytes are put into it; or a SIZE, or + for what the others leave of --size, and nothing is put into it \
(diorite mkfs 'DISK?part=N' can make a file system there).

Fields behind commas: type=, by default linux: with a GPT a word of systemd-repart (linux, esp, xbootldr, swap, home, srv, var, tmp, lvm, \
raid, bios, basic, prep, root-x86-64, root-arm64, usr-x86-64 and so on, root-x86-64-verity) or a GUID, with an MBR linux, esp, swap, lvm, \
raid, fat16, fat32, ntfs, prep, xbootldr or a number like 0x83; name= and uuid= with a GPT; size=SIZE or size=+ for more room than \
the image needs; bootable: the active partition of an MBR, the attribute legacy BIOS bootable of a GPT. A comma in a name is written as \
two.

A GPT has a protective MBR in front and its backup at the end. An MBR does not say how large its sectors are: with --sector 4096 its \
partitions are 'DISK?part=N&sector=4096'. Holes of images, and zeros in them, are holes of the disk. The disk gets \
its name when it is whole and durable, named .qcow2 it is a qcow2 image; a file that was there is replaced, unless somebody uses it. \
The same images with the same --seed or --disk-id make the same bytes; nothing in a table depends on the time.

Exit status: 0 if the disk was made and is durable; 1 if not; 2 for wrong usage; 130 or 143 when SIGINT or SIGTERM ended it.";

pub(super) const EXPORT: &str = "\
Write the files of an image, or of a directory in it, into a tar archive in the POSIX format: owners, permissions, times to the \
nanosecond, extended attributes, access control lists, hard links, devices and holes, in the order of names. The same image gives \
the same archive.

DEST may also be a directory, which gets the same, as with 'diorite get'; or another image, as with 'diorite import', which has more \
options. What DEST is is seen from what is there, or from its name; --as says it.

Exit status: 0 if everything was written; 1 if not; 2 for wrong usage; 130 or 143 when SIGINT or SIGTERM ended it.";

pub(super) const CMP: &str = "\
Compare a file in an image with a file of the host, byte for byte. The messages are those of cmp(1).

Exit status: 0 if both are the same; 1 if they differ; 2 if they could not be compared, and for wrong usage.";

pub(super) const COMPARE: &str = "\
Compare two devices or images, byte for byte: files and block devices of the host, their partitions, files in images, each named by a \
locator. If one is longer, the rest of it has to be zeros; with --strict the sizes have to be the same. Ranges that both store as \
holes are not read.

The first difference is printed as cmp(1) does: `A B differ: byte N`, counted from 1.

Exit status: 0 if both are the same; 1 if they differ; 2 if they could not be compared, and for wrong usage.";

pub(super) const COPY: &str = "\
Copy the bytes of SRC to DST, whatever they are: files and block devices of the host, their partitions, files in images, each named \
by a locator. A host file that does not exist is created with exactly the size of SRC, as is a file in an existing image (IMG:/path); it \
gets its name only when everything is copied and durable. An existing DST is overwritten from its beginning; it must be as large as SRC, \
and what is behind stays. A file in an image that is smaller is extended.

What SRC stores as holes, and zeros in its data, become holes of DST, or are written as zeros if it can have none. SRC and DST may be \
in one image; one inside the other, or both the same, is refused.

Formats: a SRC that is compressed by gzip (.gz), zstd (.zst), xz (.xz), bzip2 (.bz2) or lz4 (.lz4), is the one file of a zip archive \
(.zip), or is an Android sparse image (.simg), is unpacked; of a qcow2 image \
(.qcow2) the disk in it is copied; -f raw copies such a file as it is. A DST with such a name is written like that: a file of the host, \
which is replaced when the new one is whole and durable; -O says another format. A qcow2 image is a device, as are raw ones: one that \
exists is overwritten in place. A SRC that is packed, for a DST that exists or is in an image, is first unpacked in TMPDIR, so that a \
broken one changes nothing.

Several SRC are Android sparse images that hold parts of one disk (system.img_sparsechunk.*, super_1.img and so on), all of its size; what \
none holds is zeros, and of what several hold the last one counts, as of simg2img.

The name alone says the format, as anybody who writes to a disk could make its bytes look like another one; a SRC that is taken for a \
disk and looks like something else is told. With -f auto, or SRC?format=auto, the first bytes say the format: for a SRC whose writers are \
trusted. gz, zst, android-sparse and qcow2 are written, the others only read.

--bmap writes the map with which 'bmaptool copy' writes DST to a device. The map leaves out what is a hole of SRC and is not used by an \
ext4 file system on it or in a partition of it: there the device keeps what it has. A stream has no holes: of its zeros, only what such a \
file system has free is left out.

A copy that failed or was interrupted leaves no new file. An existing DST is incomplete then, and the message says so.

Exit status: 0 if everything was copied and is durable; 1 if not; 2 for wrong usage; 130 or 143 when SIGINT or SIGTERM ended it.";

const FIND: &str = "\
Print the paths of files that match an expression, as find(1) does: the files below each PATH (by default the root directory). \
The names of a directory are visited in byte order. Symbolic links are not followed. Options come before IMG.

Tests: -name, -iname, -path, -ipath, -lname, -ilname PATTERN; -regex, -iregex EXPRESSION for the whole path, in the form of \
-regextype (emacs, posix-extended, sed and others); -type f,d,l,b,c,p,s; -size [+-]N[cwbkMG]; -uid, -gid, -links, -inum [+-]N; -user, \
-group NAME (of the image's /etc/passwd and /etc/group) or N; -perm MODE, -MODE, /MODE (octal or letters); -newer FILE (a file of the \
image), -newerXY FILE, -newerXt TIME; -mtime, -atime, -ctime [+-]DAYS; -mmin, -amin, -cmin [+-]MINUTES; -empty; -true, -false. \
-prune does not enter a directory, -quit ends. Depth: -maxdepth N, -mindepth N, -depth; -xdev changes nothing. Operators: -a (or \
nothing), -o, !, and parentheses.

Actions: -print, the default if there is no other action; -print0 ends each path with a NUL; -ls prints a line as ls -dils does; \
-printf FORMAT: {DIRECTIVES}; -delete removes files, and directories after their \
contents; it opens the image for writing.

Exit status: 0 if everything could be read; 1 if something could not be read; 2 for wrong usage.";

pub(super) const GET: &str = "\
Copy files and whole directories out of an image, with mode, times, extended attributes (including ACLs and capabilities), hard \
links and holes, and as root also with owners and devices.

Like `cp -a`: if DEST is a directory, the copies are made in it; otherwise the one PATH becomes DEST, and a file goes where a symbolic \
link at DEST leads, if that exists. Like `tar`: existing files \
are replaced, directories are merged, symbolic links below DEST are never followed, and nothing in the image can make a copy land outside \
DEST. If DEST is `-`, the contents of files are written to standard output. An owner or attribute that the host refuses is a \
warning. A file that could not be copied is an error with exit status 1; the other files are copied.

A copy gets its name, or replaces a file, only when it is complete: a copy that is interrupted, or does not fit on the host, \
leaves nothing behind. Of a file that the image does not give completely, the part that could be read is kept. Files with \
several names get all of them from the beginning; so do all files on a host without nameless files (O_TMPFILE), such as NFS. \
Copies are durable when the host makes them so: sync(1).";

pub(super) const PUT: &str = "\
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

pub(super) const CP: &str = "\
Copy files and whole directories between the host and an image, as `put` and `get` do; or from one image to another or within \
one image, as `put` does from the host. A path in an image is IMG:/path, where IMG is an existing file or block device, with \
?part= and the like; IMG:/inner.img:/path is a path in an image inside that image, to any depth. Instead of each colon ! is \
possible.

An image that is only copied from is opened for reading. Both images may be inside one image, or one inside the other. A \
directory is not copied into itself. The options --owner, --group, --mode and --no-clobber apply only to copies in an image.

Exit status: 0 if everything was copied; 1 if something could not be copied; 2 for wrong usage.";

pub(super) const EDIT: &str = "\
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

pub(super) const RECOVER: &str = "\
Replay the journal of an image that was not unmounted, finish its orphans (files that were being deleted or truncated, or that \
were deleted while open), and print what was done.

Every command that writes does this first; commands that read replay the journal in memory and do not change the image. A clean \
image is not changed. An image that cannot be recovered is refused, with the reason, and not changed.

Exit status: 0 if the image is clean now, whether or not anything had to be done (as of `e2fsck -p` after it has replayed a \
journal); 1 if it could not be recovered; 2 for wrong usage.";

pub(super) const GROW: &str = "\
Make the file system in an image larger: to SIZE, or to the size of its device. An image file that is shorter is made longer first, \
with a hole. Without SIZE a file system becomes as large as its file, partition or block device.

The file system grows in one transaction: after a crash it has the old size or the new one, and the same command with a SIZE goes on. \
What lies behind the file system in its file is never overwritten, unless all of it is zeros, or what an interrupted growth to that \
size, or to the length of the file, has written there.

Each further group has as many inodes as those that are there: an image of 'import --size auto' has inodes for its files alone, unless \
-i or \
auto+SIZE asked for more.

Group descriptors grow into the space that mke2fs keeps for them (`mke2fs -E resize=`). Where that ends, files, bitmaps, inode tables \
and the journal that lie behind it move away first, each move in a transaction of its own.

Exit status: 0 if it has that size, or had it already; 1 if not; 2 for wrong usage.";

pub(super) const SHRINK: &str = "\
Make the file system in an image smaller: to SIZE, or by as much as -SIZE says. Files, directories and the journal move to the \
front first, so nothing is lost; what does not fit is an error that says so. An image file is cut to the new size afterwards; the size \
of a partition or of a file in another image stays as it is.

Each move is a transaction, and the last one moves the end: after a crash the file system has the old size or the new one, and all \
its files, once its journal is replayed (`diorite recover`, or e2fsck). Only a move of the journal may leave blocks that nobody \
uses; `diorite check --repair`, or e2fsck, frees these. If its file was not cut yet, the same command cuts it, or says that \
other data is there. Without a journal a crash is left to e2fsck, which may put files that were moving into lost+found.

Exit status: 0 if it has that size, or had less already; 1 if not; 2 for wrong usage.";

pub(super) const MINIMISE: &str = "\
Make the file system in an image as small as its files allow, as `shrink` does, and cut the image file to that size. With --headroom \
so much of it stays free: a percentage is of what the files have. -n prints the size, and changes nothing.

Called by the name resize2fs, the program takes that one's place: resize2fs [-f] [-F] [-M] [-P] [-p] [-b] [-s] IMAGE [SIZE], where \
SIZE is in blocks, or with s, K, M, G or T in these. -b turns the feature 64bit on, and -s off. -d and -S are accepted and change \
nothing.

Exit status: 0 if it is as small now; 1 if not; 2 for wrong usage.";

pub(super) const SPARSIFY: &str = "\
Discard the free blocks of an image, as fstrim does of a mount: an image file gets holes there and takes less space, a device below \
learns what is not needed. What the free blocks held is gone; files, and the image's size, stay as they are. The journal is replayed \
first if necessary.

Where the device or the host cannot discard, 'diorite zerofree' writes zeros instead.

Exit status: 0 if all free blocks in the range were discarded; 1 if not; 2 for wrong usage.";

pub(super) const ZEROFREE: &str = "\
Write zeros to the free blocks of an image that hold anything else, as zerofree(8) does: what deleted files held is gone, and the \
image compresses better. Only free blocks are written: not what lies behind the end of a file in its last block, not the names and \
inodes of deleted files, not the journal. Blocks that an image file has as holes stay holes. The journal is replayed first if \
necessary. An image file does not shrink: 'diorite sparsify' discards free blocks.

Exit status: 0 if all free blocks are zeros now (-n: were looked at); 1 if not; 2 for wrong usage.";

pub(super) const UNDO: &str = "\
Put back what a command with --undo (-z) has overwritten in an image: mkfs, tune, grow, shrink, minimise, check --repair, edit, and undo \
itself; or a program of e2fsprogs. Before a block is overwritten, what it held is in the undo file, and durable: so an undo file \
whose command was killed, or lost its power, has all that is needed. It says that it is not finished, and -f puts it back. e2undo takes \
these undo files, too.

The image must be as the command has left it: its superblock is compared, and -f puts pieces back whatever it is. All checksums are \
checked before anything is written; -f passes those of keys and of the header, not those of contents. The superblock is \
written last, so this can be repeated after a crash. An image file gets its old length again, unless its length was changed since. \
An image inside a file or disk is found by the offset in the undo file, by -o, or named: disk.img?part=2.

An undo file that is there is continued, if it is finished and the image is as it left it: then both changes are undone at once. \
Otherwise the command is refused before it changes anything. -z '' writes into the folder that E2FSPROGS_UNDO_DIR names. Journals \
on other devices are not in it.

Called by the name e2undo, the program takes that one's place.

Exit status: 0 if all was put back (-n: could be); 1 if not; 2 for wrong usage.";

pub(super) const TUNE: &str = "\
Change parameters and the form of the file system in an image, with the words of tune2fs 1.47: label, UUID, reserved blocks, behaviour \
after errors, intervals of checks, default mount options, RAID geometry, features, the journal, the size of inodes, quotas. Called by the \
name tune2fs or e2label, the program takes that one's place.

Features that are set in the superblock alone, and change what begins with the next file: dir_index, extent, flex_bg, large_dir, ea_inode, \
large_file, huge_file, dir_nlink, extra_isize, metadata_csum_seed, stable_inodes, fast_commit, encrypt, verity, read-only. Cleared \
there, if \
no file needs them: dir_index, large_file, huge_file, dir_nlink; and fast_commit, read-only, metadata_csum_seed.

What changes more: -U where checksums have the UUID in them; -O [^]metadata_csum, [^]uninit_bg, [^]has_journal, [^]orphan_file, [^]quota, \
[^]project, [^]mmp, [^]casefold, [^]64bit, ^resize_inode; -j, -J, -I, -Q, -E clear_mmp. All of it is checked before anything is written, \
and it is \
written as one transaction of a journal: the file system's own if it has room, else one in free space. After a power cut the file system \
is \
the old one or the new one once its journal is recovered, by diorite, e2fsck or a mount; where the kernel refuses to mount it, or blocks \
are left that nobody uses, e2fsck completes the rest. A journal that is added or taken away, and the log of a file system without one, \
are put there by the order of writes: after a cut e2fsck -f, or the same command, completes it. With -I the tables are copied first. Other \
parameters given with these are changed behind them, and 64bit last.

With quota, project or mmp diorite reads an image and writes no file in it: take the feature off, write, and set it again. In directories \
that ignore case (casefold) no name is changed.

Exit status: 0 if everything was done and is durable; 1 if nothing was done; 2 for wrong usage (1 in place of tune2fs).";

/// The text of `find`, with the directives of -printf.
pub(super) fn find() -> String {
    FIND.replace("{DIRECTIVES}", &OfFind::help())
}
