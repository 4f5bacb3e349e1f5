//! Commands that write to a host which says only later that there was no room: a mount whose kernel collects writes.
//!
//! Input: an image with a file that does not fit into the mount. Output: failures, and no copy with less than the file. Limits: NFS and
//! quotas do the same, but are no part of the test.

use crate::bed::{Bed, DIORITE, diorite, texts, within};
use std::fs;

/// Bytes of the file, and room for a half of it.
const LARGE: usize = 24 << 20;
const ROOM: &str = "12M";

/// The defect: exit status 0, and a file of the right length whose second half was a hole.
#[test]
fn what_does_not_fit_is_said_though_the_host_says_it_late() {
    let Some(bed) = Bed::sized(&["-O", "^has_journal"], ROOM) else {
        return;
    };
    let dir = bed.image.parent().unwrap();
    let at = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    fs::write(at("large"), vec![0xA5; LARGE]).unwrap();
    let source = at("source.img");
    for args in [
        &["mkfs", "-q", &source, "64M"][..],
        &["put", "-q", &source, &at("large"), "/large"],
    ] {
        let done = diorite(args);
        assert!(done.status.success(), "{args:?}: {}", texts(&done).1);
    }
    bed.mount(&["-o", "writeback_cache"]);
    let mount = bed.at.to_str().unwrap();
    for script in [
        "\"$1\" get -q \"$2\" /large \"$3/copy\"",
        "\"$1\" get -q --no-same-owner \"$2\" /large \"$3/copy\"",
        "\"$1\" get -q \"$2\" /large - > \"$3/stream\"",
        "\"$1\" cat \"$2\" /large > \"$3/stream\"",
        "\"$1\" export -q \"$2\" - > \"$3/stream\"",
        "\"$1\" export -q \"$2\" \"$3/copy.tar\"",
        "\"$1\" copy -q \"$2\" \"$3/copy\"",
    ] {
        let done = within("sh", &["-c", script, "sh", DIORITE, &source, mount]);
        let (_, err) = texts(&done);
        assert_eq!(done.status.code(), Some(1), "{script}: {err}");
        assert!(err.contains("No space left on device"), "{script}: {err}");
        assert!(!err.contains("is not kept"), "{script}: {err}");
        let left = fs::read_dir(&bed.at).unwrap();
        let left: Vec<_> = left.map(|e| e.unwrap().file_name()).collect();
        let partial = left.iter().any(|name| name == "stream");
        assert_eq!(left.len(), 1 + usize::from(partial), "{script}: {left:?}");
        if partial {
            fs::remove_file(bed.path("stream")).unwrap();
        }
    }
    bed.end();
}
