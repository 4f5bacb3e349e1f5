#!/bin/sh
# Makes seed inputs for the fuzz targets in fuzz/corpus/<target>/: small pieces of images that mke2fs makes.
# Needs mke2fs and debugfs. Run it from anywhere.
set -eu
export PATH="$PATH:/usr/sbin:/sbin" LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for t in superblock inode_extent directory xattr journal image check image-bases nbd; do mkdir -p "$here/corpus/$t"; done

mkdir -p "$work/src/dir/sub"
printf 'hello\n' > "$work/src/hello"
head -c 300000 /dev/zero | tr '\0' 'x' > "$work/src/big"
for n in 0 1 2 3 4 5 6 7 8 9; do dd if=/dev/zero bs=1 count=0 seek=${n}00000 of="$work/src/frag" 2> /dev/null; printf y >> "$work/src/frag"; done
n=0; while [ $n -lt 60 ]; do : > "$work/src/dir/a name of some length $n"; n=$((n + 1)); done
ln -s hello "$work/src/link"

# inode IMAGE SIZE PATH: the bytes of an inode
inode() {
    set -- "$1" "$2" $(debugfs -R "imap $3" "$1" 2> /dev/null | sed -n 's/.*located at block \([0-9]*\), offset 0x\([0-9a-f]*\)/\1 \2/p') "$4"
    dd if="$1" bs=1 skip=$(($3 * $5 + 0x$4)) count="$2" 2> /dev/null
}
# block IMAGE BLOCKSIZE NUMBER: the bytes of a block
block() { dd if="$1" bs="$2" skip="$3" count=1 2> /dev/null; }

# make NAME KIND BLOCKSIZE INODESIZE FEATURES: KIND is the argument of src/lib.rs::volume, in three octal digits
make() {
    img="$work/$1.img"
    mke2fs -q -F -t ext4 -b "$3" -I "$4" -O "^metadata_csum,^has_journal,$5" -d "$work/src" "$img" 16M > /dev/null
    printf 'ea_set hello user.one value\nea_set hello user.two -f %s\nea_set dir security.x y\n' "$work/src/dirvalue" > "$work/s"
    head -c 400 "$work/src/big" > "$work/src/dirvalue"
    debugfs -w -f "$work/s" "$img" > /dev/null 2>&1
    e2fsck -fyD "$img" > /dev/null 2>&1 || true # makes hash trees
    cp --sparse=always "$img" "$here/corpus/image-bases/$1"
    printf "\\$(printf %03o "$n_image")" > "$here/corpus/image/$1"
    n_image=$((n_image + 1))
    dd if="$img" bs=1024 skip=1 count=1 of="$here/corpus/superblock/$1" 2> /dev/null
    gdt=$(( $3 == 1024 ? 2 : 1 ))
    block "$img" "$3" "$gdt" | head -c 1024 >> "$here/corpus/superblock/$1"
    for f in hello big frag link dir; do
        { printf "\\$2"; inode "$img" "$4" "/$f" "$3"; for b in $(debugfs -R "blocks /$f" "$img" 2> /dev/null | head -c 60); do block "$img" "$3" "$b"; done | head -c 8192; } > "$here/corpus/inode_extent/$1-$f"
    done
    for f in dir dir/sub; do
        { printf "\\$2"; inode "$img" "$4" "/$f" "$3"; for b in $(debugfs -R "blocks /$f" "$img" 2> /dev/null); do block "$img" "$3" "$b"; done | head -c 16384; } > "$here/corpus/directory/$1-$(echo $f | tr / -)"
    done
    acl=$(debugfs -R "stat /hello" "$img" 2> /dev/null | sed -n 's/^File ACL: \([0-9]*\).*/\1/p')
    { printf "\\$2"; inode "$img" "$4" /hello "$3"; block "$img" "$3" "${acl:-0}"; } > "$here/corpus/xattr/$1"
}
: > "$work/src/dirvalue"
n_image=0
make k1 314 1024 256 64bit
make k1-inline 334 1024 256 64bit,inline_data,ea_inode
make k2-old 011 2048 128 ^64bit,^extent
make k4 356 4096 256 64bit,large_dir
# whole NAME BLOCKSIZE FEATURES: an image that only the targets `image` and `check` use
whole() {
    img="$work/$1.img"
    mke2fs -q -F -t ext4 -b "$2" -O "^metadata_csum,$3" -d "$work/src" "$img" 8M > /dev/null
    debugfs -w -R "ea_set hello user.large -f $work/src/big-value" "$img" > /dev/null 2>&1
    e2fsck -fyD "$img" > /dev/null 2>&1 || true
    cp --sparse=always "$img" "$here/corpus/image-bases/$1"
    printf "\\$(printf %03o "$n_image")" > "$here/corpus/image/$1"
    n_image=$((n_image + 1))
}
head -c 5000 "$work/src/big" > "$work/src/big-value"
whole k1-clusters 1024 bigalloc,quota,project,ea_inode,^has_journal
whole k4-more 4096 orphan_file,ea_inode,inline_data,has_journal,casefold
{ printf '\314'; head -c 256 /dev/zero; printf '\1\0\0\0\1\0\6\0\2\0\7\0\350\3\0\0\4\0\4\0\20\0\7\0\40\0\4\0'; } > "$here/corpus/xattr/acl"
# log NAME FORM FEATURES OPEN: blocks of a log; FORM is the first byte of the journal target's input, OPEN opens the journal in debugfs
log() {
    img="$work/$1.img"
    mke2fs -q -F -t ext4 -b 1024 -O "$3" "$img" 16M > /dev/null
    head -c 3072 "$work/src/big" > "$work/copies"
    printf '%s\njw -b 9000,9001,9002 %s\njw -r 9001\njc\n' "$4" "$work/copies" > "$work/s"
    debugfs -w -f "$work/s" "$img" > /dev/null 2>&1
    for n in 0 1 5 6 7; do
        { printf "\\$2"; block "$img" 1024 "$(debugfs -R "bmap <8> $n" "$img" 2> /dev/null)"; } > "$here/corpus/journal/$1-$n"
    done
}
log none 000 ^metadata_csum,^64bit jo
log v1 005 ^metadata_csum,64bit 'jo -c'
log v2 002 metadata_csum,^64bit 'jo -c -v 2'
log v3 007 metadata_csum,64bit 'jo -c -v 3'
cp "$here"/corpus/image/* "$here/corpus/check/"
ls "$here"/corpus/* | wc -l

# What a client says in the handshake: TLS or not, its flags, options with their data.
option() { printf 'IHAVEOPT\000\000\000'; printf "\\$(printf %03o "$1")\000\000\000\\$(printf %03o ${#2})$2"; }
for tls in 0 1; do
    { printf "\\00$tls\000\000\000\003"; option 5 ''; option 3 ''; option 8 ''; option 11 ''; printf 'IHAVEOPT\000\000\000\007\000\000\000\013\000\000\000\003one\000\001\000\003'; } > "$here/corpus/nbd/go$tls"
done
