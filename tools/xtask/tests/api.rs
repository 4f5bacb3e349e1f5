//! What programs name of the libraries may grow: a new field of options, or a new kind of error, breaks no program.
//!
//! Options and flags with public fields, and enums that say why something failed, are `#[non_exhaustive]`. Options have a setter for each
//! field (`diorite_block::setters!`), as no other crate can write them as a literal. What a README says to begin with has an example.

use std::path::{Path, PathBuf};

/// A type that may not grow, with the reason: a change of it is to break programs.
const EXCEPTIONS: &[(&str, &str)] = &[];

/// The sources of the crates that are libraries, without tests of their own.
fn sources() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    for folder in ["crates", "frontends"] {
        for krate in std::fs::read_dir(root.join(folder)).expect("a folder of the project") {
            let src = krate.expect("an entry").path().join("src");
            if src.join("lib.rs").exists() {
                below(&src, &mut files);
            }
        }
    }
    files
}

fn below(dir: &Path, files: &mut Vec<(PathBuf, String)>) {
    for entry in std::fs::read_dir(dir).expect("a folder of the project") {
        let path = entry.expect("an entry").path();
        let is_tests = path
            .file_stem()
            .is_some_and(|stem| stem == "tests" || stem.to_string_lossy().ends_with("_tests"));
        match path.is_dir() {
            _ if is_tests => {}
            true => below(&path, files),
            false if path.extension().is_some_and(|end| end == "rs") => {
                let text = std::fs::read_to_string(&path).expect("text");
                files.push((path, text));
            }
            false => {}
        }
    }
}

/// A public type, as its source has it.
struct Type<'a> {
    name: &'a str,
    is_enum: bool,
    /// The lines before it: documentation and attributes.
    head: Vec<&'a str>,
    /// The lines up to its closing brace; none if it has no braces.
    body: Vec<&'a str>,
}

impl Type<'_> {
    fn may_grow(&self) -> bool {
        self.head.contains(&"#[non_exhaustive]")
    }

    fn has_public_fields(&self) -> bool {
        self.body.iter().any(|line| line.starts_with("    pub "))
    }

    /// Whether it says why something failed: by its name, its derives, an impl in the same file, or the first word of its documentation.
    fn is_error(&self, text: &str) -> bool {
        let of_std = format!("Error for {} {{", self.name);
        self.name.ends_with("Error")
            || self.name.ends_with("ErrorKind")
            || text.contains(&of_std)
            || self.head.iter().any(|line| {
                line.starts_with("/// Why ")
                    || line.starts_with("#[derive(") && line.ends_with("Error)]")
            })
    }
}

/// The public types of a source at the top level of its module.
fn types(text: &str) -> Vec<Type<'_>> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let named = line.strip_prefix("pub struct ").map(|rest| (rest, false));
        let named = named.or_else(|| line.strip_prefix("pub enum ").map(|rest| (rest, true)));
        let Some((rest, is_enum)) = named else {
            continue;
        };
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
        let head = lines[..at].iter().rev();
        let head = head.take_while(|line| line.starts_with("///") || line.starts_with("#["));
        let body = lines[at + 1..].iter().take_while(|line| **line != "}");
        found.push(Type {
            name: &rest[..end.unwrap_or(rest.len())],
            is_enum,
            head: head.copied().collect(),
            body: match line.ends_with('{') {
                true => body.copied().collect(),
                false => Vec::new(),
            },
        });
    }
    found
}

/// Whether the source has setters of this type.
fn has_setters(text: &str, name: &str) -> bool {
    text.split("setters!").skip(1).any(|call| {
        let call = call.trim_start_matches(['(', '{', ' ', '\n']);
        let call = call.strip_prefix("const ").unwrap_or(call);
        call.strip_prefix(name).is_some_and(|c| c.starts_with(" {"))
    })
}

/// What is wrong in a source, each with the name of the type.
fn faults(text: &str) -> Vec<(String, &'static str)> {
    let mut faults = Vec::new();
    for of in types(text) {
        // C sees their layout, and they grow by the size that its program has set.
        if of.head.contains(&"#[repr(C)]") {
            continue;
        }
        let is_choice = of.name.ends_with("Options") || of.name.ends_with("Flags");
        let setters = has_setters(text, of.name);
        let fault = match of.is_enum {
            true if of.is_error(text) && !of.may_grow() => "an error that is not non_exhaustive",
            false if (is_choice || setters) && of.has_public_fields() => match of.may_grow() {
                false => "options that are not non_exhaustive",
                true if !setters => "options without setters",
                true => continue,
            },
            _ => continue,
        };
        faults.push((of.name.to_owned(), fault));
    }
    faults
}

#[test]
fn options_and_errors_may_grow() {
    let mut wrong = Vec::new();
    let mut needed = Vec::new();
    let mut read = 0;
    for (path, text) in sources() {
        read += types(&text).len();
        for (name, fault) in faults(&text) {
            match EXCEPTIONS.iter().find(|(exception, _)| *exception == name) {
                Some((exception, _)) => needed.push(*exception),
                None => wrong.push(format!("{}: {name}: {fault}", path.display())),
            }
        }
    }
    assert!(read > 300, "only {read} public types were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for (exception, why) in EXCEPTIONS {
        assert!(
            needed.contains(exception),
            "{exception} ({why}) needs no exception"
        );
    }
}

/// The rows of a README's table of what to begin with: the names in each.
fn begins(readme: &str) -> Vec<Vec<&str>> {
    let rows = readme
        .lines()
        .skip_while(|line| *line != "| begin with | for |");
    let rows = rows.skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let first = row.trim_start_matches('|').split('|').next();
        first.unwrap_or("").split('`').skip(1).step_by(2).collect()
    })
    .collect()
}

/// Whether the documentation of a type, trait or function of this name, or the header of a module of this name, has an example.
fn has_example(sources: &[(PathBuf, String)], name: &str) -> bool {
    sources.iter().any(|(path, text)| {
        let is_module = path.file_stem().is_some_and(|stem| stem == name)
            || path.ends_with(Path::new(name).join("mod.rs"));
        let mut head_has = false;
        for line in text.lines() {
            let item = line.strip_prefix("pub ").and_then(|item| {
                let kinds = ["struct ", "enum ", "trait ", "fn "];
                kinds.iter().find_map(|kind| item.strip_prefix(kind))
            });
            let is_named = item
                .and_then(|item| item.strip_prefix(name))
                .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'));
            if head_has && (is_named || is_module && item.is_some()) {
                return true;
            }
            match line.starts_with("//") || line.starts_with("#[") {
                true => head_has |= line.contains("```"),
                false => head_has = false,
            }
        }
        is_module && text.lines().any(|line| line.starts_with("//! ```"))
    })
}

#[test]
fn what_programs_begin_with_has_an_example() {
    let sources = sources();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut without = Vec::new();
    let mut rows = 0;
    for folder in ["crates", "frontends"] {
        for krate in std::fs::read_dir(root.join(folder)).expect("a folder of the project") {
            let path = krate.expect("an entry").path().join("README.md");
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            for names in begins(&text) {
                rows += 1;
                if !names.iter().any(|name| has_example(&sources, name)) {
                    without.push(format!("{}: {names:?}", path.display()));
                }
            }
        }
    }
    assert!(rows > 20, "only {rows} rows were read");
    assert!(without.is_empty(), "no example of:\n{}", without.join("\n"));
}

/// What the test finds, and what it does not take for a fault.
#[test]
fn what_may_not_grow_is_found() {
    let named = |text: &str| -> Vec<String> {
        let faults = faults(text).into_iter();
        faults.map(|(name, _)| name).collect()
    };
    let bad = [
        "pub struct PutOptions {\n    pub deep: bool,\n}\n",
        "#[non_exhaustive]\npub struct PutOptions {\n    pub deep: bool,\n}\n",
        "pub struct Puts {\n    pub deep: bool,\n}\nsetters! {\n    Puts {\n        deep: bool,\n    }\n}\n",
        "pub enum PutError {\n    Io,\n}\n",
        "#[derive(Debug, thiserror::Error)]\npub enum Unput {\n    Io,\n}\n",
        "/// Why it was not put.\npub enum Unput {\n    Io,\n}\n",
        "pub enum Unput {\n    Io,\n}\nimpl std::error::Error for Unput {}\n",
    ];
    for text in bad {
        assert_eq!(named(text).len(), 1, "{text}");
    }
    let good = [
        "#[non_exhaustive]\npub struct PutFlags {\n    pub deep: bool,\n}\nsetters!(const PutFlags {\n    deep: bool,\n});\n",
        "pub struct PutFlags(u16);\n",
        "pub struct PutOptions {\n    deep: bool,\n}\n",
        "#[non_exhaustive]\npub enum PutError {\n    Io,\n}\n",
        "pub(crate) enum PutError {\n    Io,\n}\n",
        "/// How it is put.\npub enum Way {\n    Whole,\n}\n",
    ];
    for text in good {
        assert!(named(text).is_empty(), "{text}");
    }
}
