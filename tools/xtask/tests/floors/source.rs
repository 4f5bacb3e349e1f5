//! A crate's sources as imports: which file takes which name from which other.
//!
//! Input: a crate's `src`. Output: [`Import`]s. Invariants: a name that a module passes on (`pub use`) is taken from the file that
//! defines it. Limits: reads `use` lines and paths that begin with `crate`, `self` or `super`; a path through a glob leads to the module.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// One file takes a name from another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Import {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) name: String,
}

/// The modules of a crate, by path (`a::b`; the root is empty).
pub(crate) struct Crate {
    modules: BTreeMap<Vec<String>, Module>,
}

struct Module {
    file: String,
    code: String,
    /// Names that it takes from elsewhere, with their absolute paths.
    names: BTreeMap<String, Vec<String>>,
}

impl Crate {
    pub(crate) fn read(src: &Path) -> Crate {
        let mut modules = BTreeMap::new();
        let root = ["lib.rs", "main.rs"]
            .into_iter()
            .find(|f| src.join(f).exists());
        read_module(src, root.expect("a crate has a root"), &[], &mut modules);
        let mut of = Crate { modules };
        let paths: Vec<Vec<String>> = of.modules.keys().cloned().collect();
        for path in paths {
            let uses = uses(&of.modules[&path].code);
            let names = uses
                .into_iter()
                .filter_map(|(target, name)| Some((name, of.absolute(&path, &target)?)))
                .collect();
            of.modules.get_mut(&path).expect("it was listed").names = names;
        }
        of
    }

    /// The files that were read.
    pub(crate) fn files(&self) -> BTreeSet<&str> {
        self.modules.values().map(|m| m.file.as_str()).collect()
    }

    /// Files that give the crate a name of its own: a path that begins with that is not seen.
    pub(crate) fn named_themselves(&self) -> Vec<&str> {
        let named = self.modules.values();
        let named = named.filter(|m| m.code.contains("extern crate self"));
        named.map(|m| m.file.as_str()).collect()
    }

    /// What each file takes from others, once each.
    pub(crate) fn imports(&self) -> Vec<Import> {
        let mut all = BTreeSet::new();
        for (path, module) in &self.modules {
            let used = uses(&module.code).into_iter().map(|(target, _)| target);
            for target in used.chain(inline_paths(&module.code)) {
                let Some(absolute) = self.absolute(path, &target) else {
                    continue;
                };
                let (to, name) = self.defined_in(&absolute, 0);
                if *to != module.file && !passes_on(path, &absolute) {
                    all.insert(Import {
                        from: module.file.clone(),
                        to: to.clone(),
                        name,
                    });
                }
            }
        }
        all.into_iter().collect()
    }

    /// The files with inherent `impl`s, each with its type's name and the files that define a type of that name: the file itself if a
    /// macro does.
    pub(crate) fn inherent_impls(&self) -> Vec<(&str, &str, Vec<&str>)> {
        let mut defined: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for module in self.modules.values() {
            for name in module.code.lines().filter_map(defined_type) {
                defined.entry(name).or_default().push(&module.file);
            }
        }
        let impls = self.modules.values().flat_map(|module| {
            let types = module.code.lines().filter_map(inherent_impl);
            types.map(|name| (module.file.as_str(), name))
        });
        impls
            .map(|(file, name)| (file, name, defined.get(name).cloned().unwrap_or(vec![file])))
            .collect()
    }

    /// A path as it stands in a module, from the crate's root; none if it leads out of the crate.
    fn absolute(&self, of: &[String], path: &[String]) -> Option<Vec<String>> {
        let mut base = of.to_vec();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => {
                base.clear();
                rest = &path[1..];
            }
            "self" | "super" => {
                if path[0] == "self" {
                    rest = &path[1..];
                }
                while rest.first().is_some_and(|s| s == "super") {
                    base.pop();
                    rest = &rest[1..];
                }
            }
            first => {
                // A module of this one, in the 2018 way.
                base.push(first.to_owned());
                if !self.modules.contains_key(&base) {
                    return None;
                }
                base.pop();
            }
        }
        base.extend(rest.iter().cloned());
        Some(base)
    }

    /// The file in which a path ends, and the name there.
    fn defined_in(&self, path: &[String], depth: usize) -> (&String, String) {
        let known = |n: &usize| self.modules.contains_key(&path[..*n]);
        let longest = (0..=path.len()).rev().find(known).expect("the root is one");
        let module = &self.modules[&path[..longest]];
        let name = path.get(longest).cloned().unwrap_or_default();
        match module.names.get(&name) {
            Some(elsewhere) if depth < 8 && elsewhere[..] != path[..] => {
                self.defined_in(elsewhere, depth + 1)
            }
            _ => (&module.file, name),
        }
    }
}

/// A module that names its own children takes nothing from them.
fn passes_on(of: &[String], path: &[String]) -> bool {
    path.len() > of.len() && path[..of.len()] == *of
}

fn read_module(dir: &Path, file: &str, path: &[String], into: &mut BTreeMap<Vec<String>, Module>) {
    let text = fs::read_to_string(dir.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
    let code = without_tests(&without_comments(&text));
    let folder = match path {
        [] => String::new(),
        _ => format!("{}/", path.join("/")),
    };
    for name in children(&code) {
        let inner: Vec<String> = path.iter().cloned().chain([name.clone()]).collect();
        let places = [
            format!("{folder}{name}.rs"),
            format!("{folder}{name}/mod.rs"),
        ];
        let place = places.iter().find(|place| dir.join(place).exists());
        let place = place.unwrap_or_else(|| panic!("{file}: no file for its module {name}"));
        read_module(dir, place, &inner, into);
    }
    let module = Module {
        file: file.to_owned(),
        code,
        names: BTreeMap::new(),
    };
    into.insert(path.to_vec(), module);
}

/// Modules in files of their own.
fn children(code: &str) -> Vec<String> {
    let lines = code.lines().map(str::trim).filter_map(|line| {
        let line = after_visibility(line);
        let name = line.strip_prefix("mod ")?.strip_suffix(';')?;
        Some(name.trim().to_owned())
    });
    lines.collect()
}

/// The type that a line begins to define.
fn defined_type(line: &str) -> Option<&str> {
    let line = after_visibility(line);
    let kinds = ["struct ", "enum ", "union ", "trait "];
    let name = kinds.iter().find_map(|kind| line.strip_prefix(kind))?;
    Some(first_name(name))
}

/// The type of an inherent `impl` that a line begins.
fn inherent_impl(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("impl")?;
    if rest.contains(" for ") {
        return None;
    }
    let of = match rest.strip_prefix('<') {
        Some(_) => rest.split_once("> ")?.1,
        None => rest.strip_prefix(' ')?,
    };
    let of = of.trim_start_matches("dyn ");
    let path = of.split(['<', ' ', '{']).next().unwrap_or_default();
    Some(first_name(path.rsplit("::").next().unwrap_or_default()))
}

fn first_name(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');
    &text[..end.unwrap_or(text.len())]
}

fn after_visibility(line: &str) -> &str {
    let Some(rest) = line.strip_prefix("pub") else {
        return line;
    };
    if !rest.starts_with(['(', ' ']) {
        // A name that begins so.
        return line;
    }
    match rest.strip_prefix('(') {
        Some(inside) => inside
            .split_once(')')
            .map_or(rest, |(_, rest)| rest)
            .trim_start(),
        None => rest.trim_start(),
    }
}

fn without_comments(text: &str) -> String {
    let lines = text.lines().map(|line| match line.find("//") {
        Some(at) if !line[..at].contains('"') => &line[..at],
        _ => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Takes out what follows `#[cfg(test)]`, also with conditions more: an item, a field or an argument of one line, or one that ends with a
/// brace at the line's beginning. What is for tests among others stays.
fn without_tests(code: &str) -> String {
    let mut kept = Vec::new();
    let mut lines = code.lines();
    while let Some(line) = lines.next() {
        let attribute = line.trim_start();
        let is_test = ["#[cfg(test)]", "#[cfg(all(test,"];
        if !is_test.iter().any(|begin| attribute.starts_with(begin)) {
            kept.push(line);
            continue;
        }
        let indent = line.len() - line.trim_start().len();
        for line in lines.by_ref() {
            let is_attribute = line.trim_start().starts_with("#[");
            let ends_here = line.trim_end().ends_with([';', '}', ',']);
            if !is_attribute && ends_here && line.len() - line.trim_start().len() <= indent {
                break;
            }
        }
    }
    kept.join("\n")
}

/// The paths of `use` items, each with the name under which it is known.
fn uses(code: &str) -> Vec<(Vec<String>, String)> {
    let mut all = Vec::new();
    let mut item: Option<String> = None;
    for line in code.lines() {
        let start = after_visibility(line.trim());
        match &mut item {
            Some(item) => item.push_str(start),
            None if start.starts_with("use ") => item = Some(start[4..].to_owned()),
            None => {}
        }
        if let Some(whole) = item.take_if(|item| item.ends_with(';')) {
            expand(whole.trim_end_matches(';').trim(), &[], &mut all);
        }
    }
    all
}

fn expand(tree: &str, prefix: &[String], into: &mut Vec<(Vec<String>, String)>) {
    let mut path = prefix.to_vec();
    if let Some(open) = tree.find('{') {
        let steps = tree[..open].trim_end_matches("::").split("::");
        path.extend(
            steps
                .filter(|s| !s.trim().is_empty())
                .map(|s| s.trim().to_owned()),
        );
        let inner = &tree[open + 1..tree.rfind('}').unwrap_or(tree.len())];
        for part in split_at_commas(inner) {
            expand(part, &path, into);
        }
        return;
    }
    let (target, alias) = match tree.split_once(" as ") {
        Some((target, alias)) => (target.trim(), Some(alias.trim())),
        None => (tree.trim(), None),
    };
    path.extend(target.split("::").map(|s| s.trim().to_owned()));
    if path.last().is_some_and(|s| s == "self") && path.len() > 1 {
        path.pop();
    }
    let name = alias.map_or_else(|| path.last().cloned().unwrap_or_default(), str::to_owned);
    into.push((path, name));
}

fn split_at_commas(inner: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut from) = (Vec::new(), 0, 0);
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(inner[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(inner[from..].trim());
    parts.into_iter().filter(|p| !p.is_empty()).collect()
}

/// Paths outside of `use` items that begin at the crate, or at a module above.
fn inline_paths(code: &str) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    for start in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            let is_part = |c: char| !(c.is_alphanumeric() || c == '_' || c == ':');
            let path = code[at..].split(is_part).next().unwrap_or_default();
            let path = path.trim_end_matches(':').split("::").map(str::to_owned);
            all.push(path.collect());
        }
    }
    all
}
