//! How much memory caches may take, by what the host lets this process have.
//!
//! Input: the host's memory, the limits of the process (`ulimit -v`) and of its cgroups (versions 1 and 2). Output: the budgets of the
//! process and its volumes.
//! Invariant: a budget only shrinks. Limits: a limit that is set later is not seen; what cannot be read is no limit.

use diorite::{OpenOptions, PageCache};
use rustix::process::{Resource, getrlimit};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

/// This part of the memory is for pages: the rest is for the inodes and maps that are in use, requests under way, and what else runs there.
const PART: u64 = 8;

/// And this part for the metadata of a volume, and for its maps. A cached block takes up to twice its size.
const PART_OF_METADATA: u64 = 16;

/// The memory of this process.
static LIMIT: OnceLock<u64> = OnceLock::new();

/// Fits the budget of the process to its memory. Call before a sandbox hides the host.
pub(crate) fn fit_cache() {
    let info = rustix::system::sysinfo();
    let host = info.totalram.saturating_mul(info.mem_unit.into());
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = getrlimit(Resource::As).current.unwrap_or(u64::MAX);
    let limit = limit_of(&groups, Path::new("/sys/fs/cgroup"))
        .map_or(host, |limit| limit.min(host))
        .min(own);
    let cache = PageCache::process();
    cache.set_cache_bytes(cache.cache_bytes().min(limit / PART));
    LIMIT.get_or_init(|| limit);
}

/// Fits the budgets of a volume to the memory of the process.
pub(crate) fn fitting(options: OpenOptions) -> OpenOptions {
    let part = LIMIT
        .get()
        .map_or(u64::MAX, |limit| limit / PART_OF_METADATA);
    let part = usize::try_from(part).unwrap_or(usize::MAX);
    let (metadata, maps) = (options.metadata_cache, options.map_cache);
    options
        .metadata_cache(metadata.min(part))
        .map_cache(maps.min(part))
}

/// The smallest limit of these groups and of those that they are in. `groups` is what /proc/self/cgroup says.
fn limit_of(groups: &str, root: &Path) -> Option<u64> {
    let group = |line: &str| {
        let (_, line) = line.split_once(':')?;
        let (controllers, path) = line.split_once(':')?;
        let path = path.trim_start_matches('/').to_owned();
        match controllers {
            "" => Some((root.to_owned(), "memory.max", path)),
            _ if controllers.split(',').any(|name| name == "memory") => {
                Some((root.join("memory"), "memory.limit_in_bytes", path))
            }
            _ => None,
        }
    };
    let all = groups.lines().filter_map(group);
    all.filter_map(|(root, name, path)| {
        let above = ancestors(&path).map(|dir| root.join(dir).join(name));
        // "max" is no number.
        let limit = |file: PathBuf| fs::read_to_string(file).ok()?.trim().parse().ok();
        above.filter_map(limit).min()
    })
    .min()
}

/// A group and all groups that it is in. In a container the path may be one of the host's, of which only the root is there.
fn ancestors(path: &str) -> impl Iterator<Item = &Path> {
    let path = Path::new(path);
    let is_plain = path.components().all(|c| matches!(c, Component::Normal(_)));
    let path = if is_plain { path } else { Path::new("") };
    path.ancestors()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_limit_counts() {
        let dir = tempfile::tempdir().expect("a scratch directory");
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().expect("below the root")).expect("a directory");
            fs::write(path, text).expect("a file");
        };
        let of = |groups: &str| limit_of(groups, dir.path());
        write("memory/memory.limit_in_bytes", "9223372036854771712\n");
        write("memory/a/memory.limit_in_bytes", "5000\n");
        write("memory/a/b/memory.limit_in_bytes", "7000\n");
        write("c/memory.max", "6000\n");
        write("c/d/memory.max", "max\n");
        assert_eq!(of("3:cpu,memory:/a/b\n2:pids:/a\n"), Some(5000));
        assert_eq!(of("0::/c/d\n"), Some(6000));
        assert_eq!(of("4:memory:/a/b\n0::/c/d\n"), Some(5000));
        assert_eq!(of("4:memory:/not/here\n"), Some(9_223_372_036_854_771_712));
        assert_eq!(of("0::/../c\n"), None);
        assert_eq!(of("nonsense\n0:\n"), None);
    }
}
