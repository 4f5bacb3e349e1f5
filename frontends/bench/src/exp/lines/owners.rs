//! The owners of addresses: the part of volume or device that lies there, or else the function that writes there.
//!
//! Input: the parts that the child has named, its mappings, and the symbols of this program. Output: names. Invariants: of several parts
//! around an address the smallest names it. Limits: without `nm` a function is a number; inlined functions have the name of their caller.

use super::super::super::tool;
use super::child::Part;
use std::ops::Range;
use std::path::Path;

/// A mapping of a process.
struct Mapping<'a> {
    range: Range<u64>,
    access: &'a str,
    path: &'a str,
}

/// See the module.
pub(super) struct Owners {
    parts: Vec<Part>,
    /// Functions by address, of this program.
    functions: Vec<(u64, String)>,
    program: Range<u64>,
}

fn mappings(maps: &str) -> impl Iterator<Item = Mapping<'_>> {
    maps.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let (from, to) = words.next()?.split_once('-')?;
        let hex = |text| u64::from_str_radix(text, 16).ok();
        Some(Mapping {
            range: hex(from)?..hex(to)?,
            access: words.next()?,
            path: words.nth(3).unwrap_or(""),
        })
    })
}

/// The stacks of a process's threads: memory without a file behind a page that nobody may access, and the first thread's.
pub(super) fn stacks(maps: &str) -> Vec<Range<u64>> {
    let mut guard = 0;
    let mut stacks = Vec::new();
    for mapping in mappings(maps) {
        let Range { start, end } = mapping.range;
        // The C library may have named it.
        let is_memory = mapping.path.is_empty() || mapping.path.starts_with("[anon");
        let is_guarded = guard == start && mapping.access.starts_with("rw") && is_memory;
        if is_guarded || mapping.path == "[stack]" {
            stacks.push(start..end);
        }
        let is_guard = mapping.access.starts_with("---") && end - start <= 64 << 10;
        guard = if is_guard { end } else { 0 };
    }
    stacks
}

impl Owners {
    /// `maps` are the mappings of a process that runs `program`.
    pub(super) fn new(parts: Vec<Part>, maps: &str, program: &Path) -> Owners {
        let of_program = |m: &Mapping<'_>| Path::new(m.path) == program;
        let mut all = mappings(maps).filter(of_program).map(|m| m.range);
        let first = all.next().unwrap_or(0..0);
        let end = all.last().map_or(first.end, |last| last.end);
        let words = ["-C".as_ref(), "--defined-only".as_ref(), "-n".as_ref()];
        // Without symbols the functions are numbers.
        let text = tool::run("nm", words.into_iter().chain([program.as_os_str()]));
        let functions = text
            .unwrap_or_default()
            .lines()
            .filter_map(function)
            .collect();
        Owners {
            parts,
            functions,
            program: first.start..end,
        }
    }

    /// The owner of an address, which this instruction has written to.
    pub(super) fn name(&self, (address, by): (u64, u64)) -> String {
        let around = |part: &&Part| (part.from..part.from + part.len).contains(&address);
        match self.parts.iter().filter(around).min_by_key(|p| p.len) {
            Some(part) => part.name.clone(),
            None => format!("memory written by {}", self.function(by)),
        }
    }

    fn function(&self, by: u64) -> String {
        if !self.program.contains(&by) {
            return "a library".into();
        }
        let at = by - self.program.start;
        let behind = self.functions.partition_point(|(from, _)| *from <= at);
        let function = behind.checked_sub(1).and_then(|n| self.functions.get(n));
        function.map_or_else(|| format!("{at:#x}"), |(_, name)| name.clone())
    }
}

/// A line of `nm -n`: `0000000000123456 t name`.
fn function(line: &str) -> Option<(u64, String)> {
    let (address, rest) = line.split_once(' ')?;
    let (kind, name) = rest.split_once(' ')?;
    let is_code = matches!(kind, "t" | "T" | "w" | "W");
    let address = u64::from_str_radix(address, 16).ok()?;
    is_code.then(|| (address, name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
        00400000-00500000 r-xp 00000000 00:1f 123 /bin/diorite\n\
        00500000-00520000 rw-p 00100000 00:1f 123 /bin/diorite\n\
        05000000-05001000 ---p 00000000 00:00 0 \n\
        05001000-05081000 rw-p 00000000 00:00 0 [anon: glibc: pthread stack: 7]\n\
        06000000-06100000 rw-p 00000000 00:00 0 \n\
        1ffeffc000-1fff001000 rw-p 00000000 00:00 0 [stack]\n";

    #[test]
    fn stacks_are_behind_guards() {
        let expected = [0x0500_1000..0x0508_1000, 0x1f_feff_c000..0x1f_ff00_1000];
        assert_eq!(stacks(MAPS), expected);
    }

    #[test]
    fn the_smallest_part_names_an_address() {
        let part = |name: &str, from, len| Part {
            name: name.into(),
            from,
            len,
        };
        let owners = Owners {
            parts: vec![part("inode", 100, 100), part("inode: lock", 120, 8)],
            functions: vec![(0x10, "first".into()), (0x20, "second".into())],
            program: 0x40_0000..0x50_0000,
        };
        assert_eq!(owners.name((121, 0)), "inode: lock");
        assert_eq!(owners.name((130, 0)), "inode");
        assert_eq!(owners.name((7, 0x40_0025)), "memory written by second");
        assert_eq!(owners.name((7, 0x70_0025)), "memory written by a library");
    }
}
