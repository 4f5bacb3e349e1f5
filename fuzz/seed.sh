#!/bin/sh
# Makes seed inputs for the fuzz targets in fuzz/corpus/<target>/: small pieces of images that mke2fs makes.
# Needs mke2fs and debugfs; what other tools make is left out where they are not installed. Run it from anywhere.
set -eu
export PATH="$PATH:/usr/sbin:/sbin" LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for t in superblock inode_extent directory xattr journal image check image-bases nbd archive container encoding locator manifest partition qcow2 undo; do mkdir -p "$here/corpus/$t"; done

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

has() { command -v "$1" > /dev/null 2>&1; }
# first OCTAL: the byte by which a target chooses
first() { printf "\\$1"; }

# Archives: names of each form, links, a sparse file in each format, attributes.
t="$work/tar"
long=$(printf '%070d/%070d' 0 0)
mkdir -p "$t/dir/$long"
printf 'hello\n' > "$t/dir/$long/file"
ln -s "$(printf 'x%.0s' $(seq 130))" "$t/long-link"
ln "$t/dir/$long/file" "$t/other-name"
mkfifo "$t/pipe"
dd if=/dev/zero bs=1 count=0 seek=50000 of="$t/sparse" 2> /dev/null
printf y | dd of="$t/sparse" bs=1 seek=30000 conv=notrunc 2> /dev/null
setfattr -n user.one -v value "$t/dir" 2> /dev/null || true
corpus="$here/corpus"
# archive NAME FILE OPTIONS...
archive() {
    name=$1 file=$2
    shift 2
    tar --record-size=512 -C "$t" "$@" -cf "$corpus/archive/$name" "$file"
}
archive v7 sparse --format=v7
archive ustar dir --format=ustar
archive gnu . --format=gnu
archive posix . --format=posix
archive attributes dir --format=posix --xattrs --acls
archive gnu-sparse . --format=gnu -S
for version in 0.0 0.1 1.0; do archive "posix-sparse-$version" . --format=posix -S --sparse-version=$version; done
sed 's/^    //' > "$work/hostile.py" << 'EOF'
    import io, sys, tarfile
    def member(name, kind=tarfile.REGTYPE, data=b"", **fields):
        info = tarfile.TarInfo(name)
        info.type, info.size = kind, len(data)
        for key, value in fields.items(): setattr(info, key, value)
        return info, io.BytesIO(data)
    def save(name, members, format=tarfile.PAX_FORMAT):
        with tarfile.open(sys.argv[1] + "/" + name, "w", format=format) as out:
            for info, data in members: out.addfile(info, data)
    save("upwards", [member("a/../../b"), member("/root"), member("c", tarfile.LNKTYPE, linkname="../../etc")])
    save("devices", [member("c", tarfile.CHRTYPE, devmajor=4095, devminor=255), member("b", tarfile.BLKTYPE, devmajor=8, devminor=1)])
    save("times", [member("old", mtime=-2.5), member("new", mtime=17179869184.25)])
    save("records", [member("a", pax_headers={"SCHILY.xattr.user.x": "1" * 300, "SCHILY.acl.access": "user::rwx,group::r-x,other::r-x",
        "uid": "70000", "comment": "a\nb"})])
    save("whiteouts", [member("d", tarfile.DIRTYPE), member("d/.wh.a"), member("d/.wh..wh..opq"), member(".wh..wh..opq"), member(".wh.d")])
EOF
if has python3; then python3 "$work/hostile.py" "$corpus/archive"; fi
if has gzip; then gzip -c "$corpus/archive/ustar" > "$corpus/archive/gzip"; fi

# Container images: archives as docker writes them, and layouts in the form of the target.
mkdir -p "$work/docker"
cp "$corpus/archive/ustar" "$work/docker/layer1.tar"
[ ! -f "$corpus/archive/whiteouts" ] || cp "$corpus/archive/whiteouts" "$work/docker/layer2.tar"
printf '[{"Config":"c.json","RepoTags":["a:b"],"Layers":[%s]}]' \
    "$(cd "$work/docker" && ls | sed 's/.*/"&"/' | paste -sd,)" > "$work/docker/manifest.json"
{ first 0; tar --record-size=512 -C "$work/docker" -cf - .; } > "$corpus/container/saved"
layer='{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":"sha256:@%s","size":1}'
{
    first 1
    printf '{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:@1","size":1,'
    printf '"platform":{"architecture":"amd64","os":"linux"}}]}\n--\n'
    printf "{\"schemaVersion\":2,\"layers\":[$layer,$layer]}\n--\n" 2 3
    cat "$corpus/archive/ustar"
    printf '\n--\n'
    cat "$work/docker/layer2.tar" 2> /dev/null || cat "$corpus/archive/ustar"
} > "$corpus/container/layout"

printf '#mtree\n/set type=file uid=0 gid=0 mode=0644\n. type=dir mode=0755\n./a time=1700000000.5 sha256=00\n./d\\040e type=dir\n' > "$corpus/manifest/one"
printf './d/l type=link link=../a\n./c type=char device=native,4,64\n./h hardlink=./a\n./x xattr.user.a=AQID \\\n mode=4755\n' >> "$corpus/manifest/one"

# Encodings.
head -c 20000 "$work/src/big" > "$work/raw"
dd if=/dev/zero bs=1 count=0 seek=65536 of="$work/raw" 2> /dev/null
if has img2simg; then
    img2simg "$work/raw" "$work/simg"
    { first 0; cat "$work/simg"; } > "$corpus/encoding/android"
fi
if has zstd; then
    { first 1; zstd -qc "$work/raw"; zstd -qc --no-check "$work/src/hello"; } > "$corpus/encoding/zstd"
    zstd -qc "$corpus/archive/gnu" > "$corpus/archive/zstd"
fi
if has gzip; then { first 2; gzip -c "$work/raw"; gzip -c "$work/src/hello"; } > "$corpus/encoding/gzip"; fi
if has xz; then { first 3; xz -c "$work/raw"; xz -c "$work/src/hello"; } > "$corpus/encoding/xz"; fi
if has bzip2; then { first 4; bzip2 -c "$work/raw"; bzip2 -c "$work/src/hello"; } > "$corpus/encoding/bzip2"; fi
if has lz4; then { first 5; lz4 -qc "$work/raw"; lz4 -qc "$work/src/hello"; } > "$corpus/encoding/lz4"; fi
if has zip; then { first 6; zip -q - "$work/raw"; } > "$corpus/encoding/zip"; fi

# Partition tables: the beginning of a disk of 64 MiB.
if has sfdisk; then
    # table NAME FIRST BYTES: the script comes from standard input
    table() {
        rm -f "$work/disk"
        dd if=/dev/zero bs=1 count=0 seek=64M of="$work/disk" 2> /dev/null
        sfdisk -q "$work/disk" > /dev/null 2>&1
        { first "$2"; first 032; head -c "$3" "$work/disk"; } > "$corpus/partition/$1"
    }
    printf 'label: gpt\n,16M,L,\n,8M,U,\n' | table gpt 016 17408
    printf 'label: dos\n,16M,L,*\n,,E,\n,4M,L\n,4M,L\n' | table mbr 004 4096
fi

# qcow2 files with the smallest clusters, so that they are short.
if has qemu-img && has qemu-io; then
    # qcow2 NAME OPTIONS SIZE COMMAND...
    qcow2() {
        name=$1 options=$2 size=$3
        shift 3
        qemu-img create -q -f qcow2 -o "$options" "$work/q" "$size" || return 0
        for command in "$@"; do qemu-io -f qcow2 -c "$command" "$work/q" > /dev/null; done
        { first 0; cat "$work/q"; } > "$corpus/qcow2/$name-read"
        { first 1; cat "$work/q"; } > "$corpus/qcow2/$name-write"
    }
    qcow2 empty cluster_size=512 64K
    qcow2 data cluster_size=512 256K 'write -P 7 0 1024' 'write -P 8 200K 512' 'write -z 4K 512'
    qcow2 old cluster_size=512,compat=0.10 128K 'write -P 7 0 1024'
    qcow2 packed cluster_size=512 128K 'write -c -P 7 0 512' 'write -P 1 64K 512'
    qcow2 zstd cluster_size=512,compression_type=zstd 128K 'write -c -P 7 0 512' 'write -P 1 64K 512'
    qcow2 extended cluster_size=16k,extended_l2=on 256K 'write -P 7 512 1024' 'write -z 4K 512' 'write -c -P 1 64K 16K'
    qcow2 lazy cluster_size=1024,lazy_refcounts=on,refcount_bits=64 128K 'write -P 7 0 1024'
fi

n=0
for word in 'disk.img?part=2&ro' 'a!/b/c.img?offset=1M&size=4K' 'mem:64M' 'sim:size=1M' 'a%20b?sector=4096' '.*\.(so|a) -- system_u:object_r:lib_t:s0' '**/x?[a]*'; do
    printf '%s' "$word" > "$corpus/locator/$n"
    n=$((n + 1))
done

# An undo file of each kind: of tune2fs, and of mke2fs with an offset.
mke2fs -q -F -t ext4 -b 1024 "$work/undo.img" 1M > /dev/null 2>&1
tune2fs -z "$work/tune.undo" -L seed "$work/undo.img" > /dev/null 2>&1
mke2fs -q -F -z "$work/mke2fs.undo" -E offset=65536 "$work/undo.img" 900k > /dev/null 2>&1
for name in tune mke2fs; do
    { printf '\001'; cat "$work/$name.undo"; } > "$corpus/undo/$name"
done
