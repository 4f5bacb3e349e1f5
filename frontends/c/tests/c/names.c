/* Names, attributes and directory streams; transactions of an editor. */

#include "suite.h"

static int count_names(diorite_dir dir, const char *wanted)
{
    struct diorite_dirent entry;
    int count = 0, got;
    while ((got = diorite_readdir(dir, &entry)) == 1) {
        CHECK(strlen(entry.name) == entry.name_len && entry.ino > 0 && entry.position < (uint64_t)1 << 63);
        if (wanted == NULL || strcmp(entry.name, wanted) == 0)
            count++;
    }
    GIVES(0, got);
    return count;
}

static void attributes(diorite_volume volume, uint64_t ino)
{
    struct diorite_stat stat;
    struct diorite_attributes set;
    char text[64];
    DIORITE_INIT(&set);
    set.set = DIORITE_ATTR_MODE | DIORITE_ATTR_UID | DIORITE_ATTR_GID | DIORITE_ATTR_MTIME;
    set.mode = 04751;
    set.uid = 1000;
    set.gid = 70000;
    set.mtime.sec = -5;
    set.mtime.nsec = 999999999;
    WELL(diorite_setattr(volume, ino, &set));
    WELL(diorite_stat(volume, ino, &stat));
    CHECK(stat.mode == 0104751 && stat.uid == 1000 && stat.gid == 70000);
    CHECK(stat.mtime.sec == -5 && stat.mtime.nsec == 999999999 && stat.btime.sec > 1700000000);
    DIORITE_INIT(&set);
    set.set = DIORITE_ATTR_NOW;
    WELL(diorite_setattr(volume, ino, &set));
    WELL(diorite_stat(volume, ino, &stat));
    CHECK(stat.mtime.sec > 1700000000 && stat.atime.sec == stat.mtime.sec);

    FAILS(ENODATA, diorite_getxattr(volume, ino, "user.x", text, sizeof text));
    FAILS(ENODATA, diorite_setxattr(volume, ino, "user.x", "value", 5, DIORITE_XATTR_REPLACE));
    WELL(diorite_setxattr(volume, ino, "user.x", "value", 5, DIORITE_XATTR_CREATE));
    FAILS(EEXIST, diorite_setxattr(volume, ino, "user.x", "value", 5, DIORITE_XATTR_CREATE));
    WELL(diorite_setxattr(volume, ino, "user.yy", NULL, 0, 0));
    GIVES(5, diorite_getxattr(volume, ino, "user.x", NULL, 0));
    FAILS(ERANGE, diorite_getxattr(volume, ino, "user.x", text, 4));
    GIVES(5, diorite_getxattr(volume, ino, "user.x", text, 5));
    CHECK(memcmp(text, "value", 5) == 0);
    GIVES(0, diorite_getxattr(volume, ino, "user.yy", text, 5));
    GIVES(15, diorite_listxattr(volume, ino, NULL, 0));
    FAILS(ERANGE, diorite_listxattr(volume, ino, text, 14));
    GIVES(15, diorite_listxattr(volume, ino, text, sizeof text));
    CHECK(memcmp(text, "user.x\0user.yy", 15) == 0);
    WELL(diorite_removexattr(volume, ino, "user.x"));
    FAILS(ENODATA, diorite_removexattr(volume, ino, "user.x"));
    FAILS(EOPNOTSUPP, diorite_setxattr(volume, ino, "nonsense", "", 0, 0));
}

void test_names(void)
{
    diorite_volume volume = new_volume("image", 16);
    diorite_file file;
    diorite_dir dir;
    struct diorite_dirent entry;
    struct diorite_stat stat;
    uint64_t ino = 0, link = 0;
    uint32_t generation = 0;
    char text[16];

    WELL(diorite_mkdirat(volume, 0, "/dir", 0750, &ino));
    FAILS(EEXIST, diorite_mkdirat(volume, 0, "/dir", 0750, NULL));
    FAILS(ENOENT, diorite_mkdirat(volume, 0, "/no/dir", 0750, NULL));
    WELL(diorite_openat(volume, ino, "file", DIORITE_O_RDWR | DIORITE_O_CREAT, 0644, &file));
    GIVES(diorite_file_ino(file), diorite_lookup(volume, 0, "/dir/file", 0));
    GIVES(diorite_file_ino(file), diorite_lookup(volume, ino, "file", 0));
    FAILS(ENOENT, diorite_lookup(volume, ino, "none", 0));
    FAILS(ENOENT, diorite_lookup(volume, 0, "", 0));
    FAILS(ENOTDIR, diorite_lookup(volume, 0, "/dir/file/x", 0));

    WELL(diorite_symlinkat(volume, "file", ino, "link", &link));
    GIVES(4, diorite_readlink(volume, link, text, sizeof text));
    CHECK(memcmp(text, "file", 4) == 0);
    GIVES(4, diorite_readlink(volume, link, text, 2));
    FAILS(EINVAL, diorite_readlink(volume, ino, text, sizeof text));
    GIVES(link, diorite_lookup(volume, 0, "/dir/link", DIORITE_AT_SYMLINK_NOFOLLOW));
    GIVES(diorite_file_ino(file), diorite_lookup(volume, 0, "/dir/link", 0));
    WELL(diorite_mknodat(volume, ino, "null", 020666, 1, 3, &link));
    WELL(diorite_stat(volume, link, &stat));
    CHECK(stat.mode == 020666 && stat.rdev_major == 1 && stat.rdev_minor == 3);
    WELL(diorite_linkat(volume, (uint64_t)diorite_file_ino(file), ino, "other"));
    FAILS(EPERM, diorite_linkat(volume, ino, 0, "/dir2"));
    WELL(diorite_renameat(volume, ino, "other", 0, "/moved", 0));
    FAILS(EEXIST, diorite_renameat(volume, 0, "/moved", ino, "file", DIORITE_RENAME_NOREPLACE));
    FAILS(EINVAL, diorite_renameat(volume, 0, "/dir", ino, "below", 0));
    WELL(diorite_renameat(volume, 0, "/moved", ino, "null", DIORITE_RENAME_EXCHANGE));
    attributes(volume, (uint64_t)diorite_file_ino(file));

    WELL(diorite_opendirat(volume, 0, "/dir", &dir));
    GIVES(5, count_names(dir, NULL)); /* . .. file link null */
    WELL(diorite_seekdir(dir, 0));
    GIVES(1, count_names(dir, "link"));
    WELL(diorite_seekdir(dir, 0));
    GIVES(1, diorite_readdir(dir, &entry));
    WELL(diorite_seekdir(dir, entry.position));
    GIVES(4, count_names(dir, NULL));
    FAILS(EINVAL, diorite_seekdir(dir, UINT64_MAX));
    WELL(diorite_closedir(dir));
    FAILS(EBADF, diorite_closedir(dir));
    FAILS(ENOTDIR, diorite_opendirat(volume, 0, "/dir/file", &dir));
    WELL(diorite_opendirat(volume, ino, "", &dir));
    WELL(diorite_closedir(dir));

    FAILS(ENOTEMPTY, diorite_unlinkat(volume, 0, "/dir", DIORITE_AT_REMOVEDIR));
    FAILS(EISDIR, diorite_unlinkat(volume, 0, "/dir", 0));
    /* A file that is known by its number lives without a name. */
    link = (uint64_t)diorite_file_ino(file);
    WELL(diorite_know(volume, link, &generation));
    WELL(diorite_close(file));
    WELL(diorite_unlinkat(volume, ino, "file", 0));
    WELL(diorite_unlinkat(volume, ino, "null", 0));
    WELL(diorite_stat(volume, link, &stat));
    CHECK(stat.nlink == 0 && stat.generation == generation);
    WELL(diorite_forget(volume, link, 1));
    FAILS(ESTALE, diorite_stat(volume, link, &stat));
    WELL(diorite_unlinkat(volume, ino, "link", 0));
    WELL(diorite_unlinkat(volume, 0, "/dir", DIORITE_AT_REMOVEDIR));
    WELL(diorite_volume_close(volume));
}

void test_editor(void)
{
    diorite_editor editor;
    diorite_volume volume;
    char text[16] = {0};
    uint64_t grown = 0, ino = 0;
    new_image("image", 16);
    FAILS(ENOENT, diorite_editor_open(path_of("none"), NULL, &editor));
    WELL(diorite_editor_open(path_of("image"), NULL, &editor));
    WELL(diorite_editor_write_file(editor, "/etc", 0644, "a file", 6));
    WELL(diorite_editor_remove(editor, "/etc"));
    WELL(diorite_editor_make_dir(editor, "/etc/deep/er", 0755, &ino));
    CHECK(ino > 2);

    WELL(diorite_editor_begin(editor));
    FAILS(EBUSY, diorite_editor_begin(editor));
    WELL(diorite_editor_write_file(editor, "/etc/name", 0644, "new", 3));
    FAILS(EBUSY, diorite_editor_sync(editor));
    WELL(diorite_editor_end(editor, DIORITE_END_COMMIT));
    FAILS(EINVAL, diorite_editor_end(editor, DIORITE_END_COMMIT));
    FAILS(EINVAL, diorite_editor_end(editor, 2));

    WELL(diorite_editor_volume(editor, &volume));
    WELL(diorite_editor_begin(editor));
    WELL(diorite_editor_write_file(editor, "/etc/name", 0644, "newer", 5));
    WELL(diorite_mkdirat(volume, 0, "/etc/more", 0755, NULL));
    WELL(diorite_editor_end(editor, DIORITE_END_ABANDON));
    FAILS(ESHUTDOWN, diorite_mkdirat(volume, 0, "/etc/most", 0755, NULL));
    GIVES(3, diorite_editor_read_file(editor, "/etc/name", text, sizeof text));
    CHECK(memcmp(text, "new", 4) == 0);
    GIVES(3, diorite_editor_read_file(editor, "/etc/name", NULL, 0));
    FAILS(ENOENT, diorite_editor_rename(editor, "/etc/more", "/x"));
    WELL(diorite_editor_rename(editor, "/etc/name", "/name"));
    FAILS(ENOENT, diorite_editor_remove(editor, "/etc/name"));
    WELL(diorite_volume_close(volume));

    FILE *image = fopen(path_of("image"), "r+");
    CHECK(image != NULL && fseek(image, (32 << 20) - 1, SEEK_SET) == 0 && fputc(0, image) == 0 && fclose(image) == 0);
    WELL(diorite_editor_grow(editor, 0, &grown));
    GIVES(32 << 20, grown);
    WELL(diorite_editor_sync(editor));
    /* An open transaction is none when the image is closed. */
    WELL(diorite_editor_begin(editor));
    WELL(diorite_editor_remove(editor, "/name"));
    WELL(diorite_editor_close(editor));
    FAILS(EBADF, diorite_editor_close(editor));
    WELL(diorite_editor_open(path_of("image"), NULL, &editor));
    GIVES(3, diorite_editor_read_file(editor, "/name", text, sizeof text));
    WELL(diorite_editor_close(editor));
}
