//! The documents of the project, as tests read them: blocks of commands, links, headings, rows of tables.
//! Input: the text of a Markdown file. Output: its parts, with the numbers of their lines. Invariant: what stands in a block is neither a
//! link nor a heading. Limits: the Markdown that the documents use: fences of three backticks, `[words](target)` in one line, headings
//! with `#`.

use std::path::{Path, PathBuf};

/// A fenced block.
pub struct Block {
    /// The line of its first fence, from 1.
    pub line: usize,
    /// What stands behind the fence: `sh run`.
    pub info: String,
    /// What is between the fences.
    pub text: String,
}

/// What a block of commands says about itself.
#[derive(Debug, PartialEq, Eq)]
pub enum Tag {
    /// A test runs it, if these are there: a program by its name; `fuse`, a mount; `root`.
    Run(Vec<String>),
    /// No test runs it, and why.
    NoRun(String),
    /// It is not commands of a shell.
    Other,
    /// It says neither.
    Missing,
}

impl Block {
    /// What it says about itself.
    #[must_use]
    pub fn tag(&self) -> Tag {
        let Some(words) = self.info.strip_prefix("sh") else {
            return Tag::Other;
        };
        let words = words.trim();
        if let Some(why) = words.strip_prefix("no-run:") {
            return match why.trim() {
                "" => Tag::Missing,
                why => Tag::NoRun(why.to_owned()),
            };
        }
        match words.strip_prefix("run") {
            Some("") => Tag::Run(Vec::new()),
            Some(needs) => match needs.trim().strip_prefix("needs ") {
                Some(needs) => Tag::Run(needs.split(", ").map(str::to_owned).collect()),
                None => Tag::Missing,
            },
            None => Tag::Missing,
        }
    }
}

/// The lines of a text that are not in a block, with their numbers.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut inside = false;
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            inside = !inside;
        } else if !inside {
            lines.push((number, line));
        }
    }
    lines
}

/// The fenced blocks of a text.
#[must_use]
pub fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut open: Option<(Block, usize)> = None;
    for (number, line) in (1..).zip(text.lines()) {
        let bare = line.trim_start();
        match (bare.strip_prefix("```"), open.take()) {
            (Some(info), None) => {
                let block = Block {
                    line: number,
                    info: info.trim().to_owned(),
                    text: String::new(),
                };
                open = Some((block, line.len() - bare.len()));
            }
            (Some(_), Some((block, _))) => blocks.push(block),
            (None, Some((mut block, indent))) => {
                let blank = line.len() - bare.len();
                block.text.push_str(&line[indent.min(blank)..]);
                block.text.push('\n');
                open = Some((block, indent));
            }
            (None, None) => {}
        }
    }
    blocks
}

/// The targets of links and pictures, with their lines.
#[must_use]
pub fn links(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    for (number, line) in prose(text) {
        // What is between single backticks is shown as it is.
        let shown: Vec<&str> = line.split('`').collect();
        let line = if shown.len() % 2 == 1 {
            let mut kept = String::new();
            for (n, part) in shown.iter().enumerate() {
                kept.push_str(if n % 2 == 0 { part } else { "code" });
            }
            kept
        } else {
            line.to_owned()
        };
        for part in line.split("](").skip(1) {
            if let Some((target, _)) = part.split_once(')') {
                links.push((number, target.to_owned()));
            }
        }
    }
    links
}

/// The anchors of a text's headings, as GitHub and mdBook make them.
#[must_use]
pub fn anchors(text: &str) -> Vec<String> {
    let headings = prose(text).into_iter().filter_map(|(_, line)| {
        let words = line.trim_start_matches('#');
        (words.len() < line.len() && words.starts_with(' ')).then(|| words.trim().to_owned())
    });
    let anchor = |words: String| {
        let kept = words.chars().filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => c.to_lowercase().next(),
            _ => None,
        });
        kept.collect()
    };
    headings.map(anchor).collect()
}

/// The cells of the rows of the first table behind a heading, without its head.
#[must_use]
pub fn table(text: &str, heading: &str) -> Vec<Vec<String>> {
    let mut lines = text.lines().skip_while(|line| *line != heading).skip(1);
    let rows = lines
        .by_ref()
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'))
        .skip(2);
    let cells = |line: &str| {
        let inner = line.trim_matches('|');
        inner
            .split('|')
            .map(|cell| cell.trim().to_owned())
            .collect()
    };
    rows.map(cells).collect()
}

/// What stands between backticks in the first cells of all tables.
#[must_use]
pub fn keys(text: &str) -> Vec<String> {
    let cells = prose(text).into_iter().filter_map(|(_, line)| {
        let (cell, _) = line.strip_prefix('|')?.split_once('|')?;
        Some(cell)
    });
    cells
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .map(str::to_owned)
        .collect()
}

/// The folder of the project.
#[must_use]
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// All Markdown files below a folder, sorted; what is built and what begins with a dot is left out.
#[must_use]
pub fn below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let hidden = name.to_string_lossy().starts_with('.');
            if entry.file_type().is_ok_and(|t| t.is_dir()) {
                if !hidden && !["target", "corpus", "artifacts"].iter().any(|n| name == *n) {
                    open.push(path);
                }
            } else if path.extension().is_some_and(|end| end == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# Of things: a `name`\n[one](a.md#b), `[no](c)` ![two](d.svg)\n\n\
```sh run needs mke2fs, fuse\n# [no](e)\nx\n```\n- in a list\n  ```sh\n  y\n    z\n  ```\n\
## Rows\n\n| a | b |\n|---|---|\n| 1 | 2 |\n| `c`, `d` | `e` |\n";

    #[test]
    fn parts_are_found() {
        let found = blocks(TEXT);
        let texts: Vec<&str> = found.iter().map(|b| b.text.as_str()).collect();
        assert_eq!(texts, ["# [no](e)\nx\n", "y\n  z\n"]);
        let needs = vec!["mke2fs".to_owned(), "fuse".to_owned()];
        assert_eq!(found[0].tag(), Tag::Run(needs));
        assert_eq!((found[0].line, found[1].tag()), (4, Tag::Missing));
        let expected = [(2, "a.md#b".to_owned()), (2, "d.svg".to_owned())];
        assert_eq!(links(TEXT), expected);
        assert_eq!(anchors(TEXT), ["of-things-a-name", "rows"]);
        assert_eq!(table(TEXT, "## Rows"), [["1", "2"], ["`c`, `d`", "`e`"]]);
        assert_eq!(keys(TEXT), ["c", "d"]);
    }

    #[test]
    fn a_block_says_why_it_is_not_run() {
        let tag = |info: &str| {
            let text = format!("```{info}\n```\n");
            blocks(&text)[0].tag()
        };
        assert_eq!(
            tag("sh no-run: needs root"),
            Tag::NoRun("needs root".to_owned())
        );
        assert_eq!(tag("sh no-run:"), Tag::Missing);
        assert_eq!(tag("sh run"), Tag::Run(Vec::new()));
        assert_eq!(tag("sh runs"), Tag::Missing);
        assert_eq!(tag("rust,no_run"), Tag::Other);
        assert_eq!(tag("ini"), Tag::Other);
    }
}
