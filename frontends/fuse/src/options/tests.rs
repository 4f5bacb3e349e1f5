//! Lists of words, and what they mean; what is refused; the words for fusermount3.

use super::*;

fn of(list: &str) -> Result<MountOptions, OptionError> {
    let mut options = MountOptions::default();
    options.add(list).map(|()| options)
}

#[test]
fn the_last_word_counts() {
    let options = of("ro,noatime,rw,nosuid,relatime").expect("known words");
    assert!(!options.is_read_only());
    assert_eq!(options.times, Times::Relative);
    assert!(options.flags.contains(MountFlags::NOSUID));
    assert_eq!(of("data=journal").expect("known").data_journal, Some(true));
    assert_eq!(of("offset=4096,").expect("known").offset, Some(4096));
    let followed = of("nosymfollow,symfollow").expect("known");
    assert!(!followed.flags.contains(MountFlags::NOSYMFOLLOW));
    let fsname = of(r"fsname=a\,b\\c,ro").expect("known");
    assert_eq!(fsname.source, br"a,b\c");
    assert!(fsname.is_read_only());
}

/// The defect: callers of a server that was killed hung for ever.
#[test]
fn there_are_no_rings_where_the_kernel_collects_writes() {
    for (list, wants) in [
        ("io_uring,writeback_cache", false),
        ("io_uring,writeback_cache,nowriteback_cache", true),
    ] {
        assert_eq!(of(list).expect("known").wants_rings(), wants, "{list}");
    }
}

#[test]
fn what_is_not_known_is_an_error() {
    for list in [
        "no_such",
        "no_such=1",
        "RO",
        "offset",
        "offset=x",
        "errors=",
        "data=x",
        "max_threads=0",
    ] {
        assert!(of(list).is_err(), "{list}");
    }
    for list in IGNORED {
        of(list).expect(list);
    }
    of("x-systemd.automount,comment=a b,_netdev").expect("words for others");
}

#[test]
fn a_remount_may_repeat_what_is_fixed() {
    let options = of("noatime,acl,sync,data=journal,ro").expect("known words");
    for word in ["noatime", "acl", "sync", "data=journal", "nolazytime", "rw"] {
        assert!(!options.is_changed_by(word), "{word}");
    }
    for word in [
        "strictatime",
        "noacl",
        "async",
        "data=ordered",
        "lazytime",
        "dirsync",
        "no_such",
    ] {
        assert!(options.is_changed_by(word), "{word}");
    }
    let again = of("remount,ro,noatime,relatime,nodev").expect("known words");
    assert_eq!(again.fixed, ["noatime"]);
}

#[test]
fn words_for_the_helper() {
    let mut options =
        of("ro,nosuid,nodev,noatime,nodiratime,allow_other,default_permissions,fsname=a\\,b")
            .expect("known");
    options.flags -= MountFlags::NOEXEC;
    let words = options.helper_words().into_string().expect("text");
    assert_eq!(
        words,
        "ro,nosuid,nodev,noatime,allow_other,default_permissions,fsname=a\\,b,subtype=diorite"
    );
}
