//! Images that are named by a descriptor of the first process: `/proc/self/fd/N`, `/dev/fd/N`, `/dev/stdin`.
//!
//! The processes of a mount close the descriptors that they inherited, and live longer than the process that started them. So the first of
//! them replaces the descriptor by the path of its file. A file without a path (memfd, or removed) stays open in the others.
//!
//! Input: locators. Output: locators that mean the same in the other processes; the descriptors that these must keep. Invariant: a path is
//! taken only if it leads to the same file. Limits: of a descriptor without a path only 0 and those from 3 on reach the server.

use super::base_path;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The number of the descriptor that the path names.
pub(crate) fn number(path: &Path) -> Option<u32> {
    let path = path.to_str()?;
    if path == "/dev/stdin" {
        return Some(0);
    }
    let rest = ["/proc/self/fd/", "/dev/fd/"]
        .iter()
        .find_map(|place| path.strip_prefix(place))?;
    rest.parse().ok()
}

/// The locator with the path of the file that its descriptor is of. None: it names no descriptor, or one of a file without a path.
pub(super) fn settled(locator: &str) -> Option<String> {
    let named = base_path(locator)?;
    // The other names are links to this one.
    let found = std::fs::read_link(format!("/proc/self/fd/{}", number(&named)?)).ok()?;
    let (ours, there) = (named.metadata().ok()?, found.metadata().ok()?);
    let identity = |of: &std::fs::Metadata| (of.dev(), of.ino(), of.rdev());
    let rest = locator.strip_prefix(named.to_str()?)?;
    let text = format!("{}{rest}", found.to_str()?);
    // The path may have letters with a meaning in locators.
    let means_the_same = identity(&ours) == identity(&there) && base_path(&text)? == found;
    means_the_same.then_some(text)
}

/// The descriptors that these locators name.
pub(super) fn named<'l>(locators: impl IntoIterator<Item = &'l String>) -> Vec<u32> {
    let paths = locators.into_iter().filter_map(|text| base_path(text));
    paths.filter_map(|path| number(&path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn descriptors_are_settled_where_they_have_a_path() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("image");
        let file = std::fs::File::create(&path).expect("a file");
        let fd = file.as_raw_fd();
        for place in ["/proc/self/fd", "/dev/fd"] {
            let of = |rest: &str| settled(&format!("{place}/{fd}{rest}"));
            let path = path.to_str().expect("text");
            assert_eq!(of(""), Some(path.to_owned()));
            assert_eq!(of("?offset=512!/a"), Some(format!("{path}?offset=512!/a")));
        }
        assert_eq!(settled("/tmp/3"), None);
        std::fs::remove_file(&path).expect("removed");
        let text = format!("/proc/self/fd/{fd}");
        assert_eq!(settled(&text), None);
        let numbers = named([&text, &"/tmp/x".to_owned(), &"/dev/stdin".to_owned()]);
        assert_eq!(numbers, [fd.cast_unsigned(), 0]);
    }
}
