//! How `ls` shows a name: quoted, in a colour, with a mark for its type.
//!
//! Input: a name and its inode; the variable LS_COLORS, as dircolors(1) writes it. Output: bytes. Invariant: of the variable
//! only numbers are sent to the terminal. Limits: only the entries of LS_COLORS for file types and for endings of names are
//! used.

use crate::args::{LsArgs, When};
use crate::words::names::quoted;
use diorite_format::{FileType, Inode};
use std::collections::HashMap;

/// The default colours of dircolors(1) for file types.
const USUAL: &str = "di=01;34:ln=01;36:pi=40;33:so=01;35:bd=40;33;01:cd=40;33;01:su=37;41:sg=30;43:tw=30;42:ow=34;42:st=37;44:ex=01;32";

/// See the module.
pub(super) struct NameStyle {
    terminal: bool,
    classify: bool,
    slash: bool,
    colors: Option<Colors>,
}

impl NameStyle {
    pub(super) fn new(args: &LsArgs, terminal: bool) -> NameStyle {
        let colored = match args.color {
            When::Always => true,
            When::Auto => terminal,
            When::Never => false,
        };
        let asked = || std::env::var("LS_COLORS").unwrap_or_default();
        NameStyle {
            terminal,
            classify: args.classify,
            slash: args.slash,
            colors: colored.then(|| Colors::read(&asked())),
        }
    }

    /// Whether the form of a name depends on its inode.
    pub(super) fn needs_inodes(&self) -> bool {
        self.classify || self.slash || self.colors.is_some()
    }

    pub(super) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// A name in its colour and with its mark; without the mark if a link's target follows it.
    pub(super) fn name(&self, name: &[u8], inode: Option<&Inode>, is_followed: bool) -> Vec<u8> {
        let shown = quoted(name, self.terminal);
        let color = self.colors.as_ref().zip(inode);
        let mut out = match color.and_then(|(colors, inode)| colors.of(name, inode)) {
            Some(code) => [b"\x1b[", code.as_bytes(), b"m", &shown, b"\x1b[0m"].concat(),
            None => shown.into_owned(),
        };
        if self.classify && !is_followed {
            out.extend(inode.and_then(mark));
        } else if self.slash && inode.is_some_and(Inode::is_dir) {
            out.push(b'/');
        }
        out
    }
}

/// The mark of a file type.
fn mark(inode: &Inode) -> Option<u8> {
    Some(match inode.file_type? {
        FileType::Directory => b'/',
        FileType::Symlink => b'@',
        FileType::Fifo => b'|',
        FileType::Socket => b'=',
        FileType::Regular if inode.mode & 0o111 != 0 => b'*',
        FileType::Regular | FileType::CharDevice | FileType::BlockDevice => return None,
    })
}

/// The terminal's codes for colours, by file type and by the ending of a name.
struct Colors {
    types: HashMap<String, String>,
    ends: Vec<(String, String)>,
}

impl Colors {
    fn read(asked: &str) -> Colors {
        let mut colors = Colors {
            types: HashMap::new(),
            ends: Vec::new(),
        };
        let words = USUAL.split(':').chain(asked.split(':'));
        for (key, code) in words.filter_map(|word| word.split_once('=')) {
            if !code.bytes().all(|c| c.is_ascii_digit() || c == b';') {
                continue;
            }
            match key.strip_prefix('*') {
                Some(end) => colors.ends.push((end.to_owned(), code.to_owned())),
                None => drop(colors.types.insert(key.to_owned(), code.to_owned())),
            }
        }
        colors
    }

    fn of(&self, name: &[u8], inode: &Inode) -> Option<&str> {
        let has = |bits: u16| inode.mode & bits != 0;
        let key = match inode.file_type? {
            FileType::Directory if has(0o1000) && has(0o2) => "tw",
            FileType::Directory if has(0o2) => "ow",
            FileType::Directory if has(0o1000) => "st",
            FileType::Directory => "di",
            FileType::Symlink => "ln",
            FileType::Fifo => "pi",
            FileType::Socket => "so",
            FileType::BlockDevice => "bd",
            FileType::CharDevice => "cd",
            FileType::Regular if has(0o4000) => "su",
            FileType::Regular if has(0o2000) => "sg",
            FileType::Regular if has(0o111) => "ex",
            FileType::Regular => "fi",
        };
        // If several endings match, the last one of the variable counts.
        let mut ends = self.ends.iter().rev();
        let end = ends.find(|(end, _)| key == "fi" && name.ends_with(end.as_bytes()));
        let code = end.map(|(_, code)| code).or_else(|| self.types.get(key))?;
        // An empty code, or one with only zeros, means no colour.
        code.bytes()
            .any(|c| matches!(c, b'1'..=b'9'))
            .then_some(code)
    }
}
