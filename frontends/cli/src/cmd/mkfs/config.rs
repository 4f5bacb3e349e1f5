//! Defaults of a new file system: those of today, or those of a file in the format of mke2fs.conf.
//!
//! Input: text in sections. Output: a [`Config`], asked by key for a list of types. Invariants: of several types that set a value the last
//! one counts, of equal keys and equal types the first; a line that cannot be read is an error with its number. Limits: sections are two
//! deep, as mke2fs.conf has them. Source: man 5 mke2fs.conf; the figures are those of /etc/mke2fs.conf of 1.47.0, with the features that
//! newer releases have by default; the defaults where a file sets nothing: by experiment with mke2fs 1.47.0.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Where the host has its own.
const OF_HOST: &str = "/etc/mke2fs.conf";

/// What mke2fs takes where a file says nothing.
const COMPILED_IN: [(&str, &str); 5] = [
    (
        "base_features",
        "sparse_super,large_file,filetype,resize_inode,dir_index",
    ),
    ("default_mntopts", "acl,user_xattr"),
    ("blocksize", "4096"),
    ("inode_size", "128"),
    ("inode_ratio", "8192"),
];

type Settings = BTreeMap<String, String>;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Config {
    defaults: Settings,
    types: BTreeMap<String, Settings>,
}

impl Config {
    /// Today's defaults, whatever the host has.
    pub(crate) fn today() -> Config {
        let settings = |all: &[(&str, &str)]| -> Settings {
            all.iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect()
        };
        let base = "sparse_super,large_file,filetype,resize_inode,dir_index,ext_attr";
        let of_ext4 = "has_journal,extent,huge_file,flex_bg,metadata_csum,metadata_csum_seed,64bit,dir_nlink,extra_isize,orphan_file";
        let ratio = |bytes| settings(&[("inode_ratio", bytes)]);
        let with_1k = |bytes| settings(&[("blocksize", "1024"), ("inode_ratio", bytes)]);
        let any_block = |bytes| settings(&[("blocksize", "-1"), ("inode_ratio", bytes)]);
        let types = [
            ("ext3", settings(&[("features", "has_journal")])),
            ("ext4", settings(&[("features", of_ext4)])),
            ("small", with_1k("4096")),
            ("floppy", with_1k("8192")),
            ("big", ratio("32768")),
            ("huge", ratio("65536")),
            ("news", ratio("4096")),
            ("largefile", any_block("1048576")),
            ("largefile4", any_block("4194304")),
            (
                "hurd",
                settings(&[("blocksize", "4096"), ("inode_size", "128")]),
            ),
        ];
        Config {
            defaults: settings(&[
                ("base_features", base),
                ("default_mntopts", "acl,user_xattr"),
                ("blocksize", "4096"),
                ("inode_size", "256"),
                ("inode_ratio", "16384"),
            ]),
            types: types
                .into_iter()
                .map(|(name, all)| (name.to_owned(), all))
                .collect(),
        }
    }

    /// The file that mke2fs would read on this host, if there is one.
    pub(crate) fn path_of_host() -> Option<PathBuf> {
        let named = std::env::var_os("MKE2FS_CONFIG").map(PathBuf::from);
        let path = named.unwrap_or_else(|| PathBuf::from(OF_HOST));
        path.exists().then_some(path)
    }

    pub(crate) fn read(path: &Path) -> Result<Config, String> {
        let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        Config::parse(&text).map_err(|why| format!("{}: {why}", path.display()))
    }

    fn parse(text: &str) -> Result<Config, String> {
        let mut config = Config::default();
        let (mut section, mut kind) = (None::<&str>, None::<Open>);
        for (n, line) in text.lines().enumerate() {
            let line = line.trim();
            let wrong = |why: &str| Err(format!("line {}: {why}: {line}", n + 1));
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            if let Some((name, _)) = line.strip_prefix('[').and_then(|l| l.split_once(']')) {
                if kind.is_some() {
                    return wrong("a section begins inside a type");
                }
                section = Some(name);
                continue;
            }
            // What is before all sections is read over.
            let Some(section) = section else {
                continue;
            };
            if line.starts_with('}') {
                if kind.take().is_none() {
                    return wrong("there is nothing to end");
                }
            } else if let Some((key, value)) = setting(line) {
                let key = key.to_owned();
                match (&kind, value) {
                    (None, "{") => {
                        let is_type = section == "fs_types" && !config.types.contains_key(&key);
                        if is_type {
                            config.types.insert(key.clone(), Settings::new());
                        }
                        kind = Some(Open { name: key, is_type });
                    }
                    (Some(_), "{") => return wrong("a type inside a type"),
                    (None, _) if section == "defaults" => set(&mut config.defaults, key, value),
                    (Some(open), _) if open.is_type => {
                        set(
                            config.types.entry(open.name.clone()).or_default(),
                            key,
                            value,
                        );
                    }
                    // Options of the program itself, of other programs, and of a type that was there before.
                    _ => {}
                }
            } else {
                return wrong("neither a section nor 'key = value'");
            }
        }
        // The last type may lack its end.
        Ok(config)
    }

    pub(crate) fn has_type(&self, name: &str) -> bool {
        self.types.contains_key(name)
    }

    /// What the last of these types says that says something, or else the defaults.
    pub(crate) fn get(&self, types: &[String], key: &str) -> Option<&str> {
        let said = |name: &String| self.types.get(name)?.get(key);
        let of_types = types.iter().rev().find_map(said);
        let said = of_types.or_else(|| self.defaults.get(key));
        let compiled_in = || COMPILED_IN.iter().find(|(known, _)| *known == key);
        said.map(String::as_str)
            .or_else(|| compiled_in().map(|(_, value)| *value))
    }

    /// What the last of these types says, whatever the defaults say.
    pub(crate) fn of_types(&self, types: &[String], key: &str) -> Option<&str> {
        let said = |name: &String| self.types.get(name)?.get(key);
        types.iter().rev().find_map(said).map(String::as_str)
    }

    /// A boolean, in any of the words of mke2fs.
    pub(crate) fn flag(&self, types: &[String], key: &str, usual: bool) -> bool {
        self.get(types, key).map_or(usual, is_on)
    }

    /// As [`Config::get`], as a number.
    pub(crate) fn number(&self, types: &[String], key: &str) -> Result<Option<i64>, String> {
        let text = self.get(types, key);
        text.map(|text| {
            text.parse()
                .map_err(|_| format!("{key} = {text}: not a number"))
        })
        .transpose()
    }

    /// The lists of features, in the order in which they apply. `asked`: the command line has a list, which takes the place of the last.
    pub(crate) fn features<'a>(&'a self, types: &'a [String], asked: bool) -> Vec<&'a str> {
        let base = self.get(types, "base_features");
        let said = |name: &String| self.types.get(name)?.get("features").map(String::as_str);
        let of_types = types.iter().filter_map(said);
        let last = self.get(types, "default_features").filter(|_| !asked);
        base.into_iter().chain(of_types).chain(last).collect()
    }
}

/// A subsection that has begun.
struct Open {
    name: String,
    /// Its lines count.
    is_type: bool,
}

/// The key of a line and its value, in quotes or one word; a comment may follow.
fn setting(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once('=')?;
    let is_word = |text: &str| !text.contains(char::is_whitespace);
    let key = key.trim_end();
    let key = key.strip_suffix('*').unwrap_or(key);
    let value = value.trim_start();
    let value = match value.strip_prefix('"') {
        Some(quoted) => quoted.split_once('"').map_or("", |(value, _)| value),
        None => {
            let end = value.find(['#', ';']).unwrap_or(value.len());
            Some(value[..end].trim_end()).filter(|value| is_word(value))?
        }
    };
    (!key.is_empty() && is_word(key)).then_some((key, value))
}

/// Of equal keys the first one counts; a key without a value is not there.
fn set(settings: &mut Settings, key: String, value: &str) {
    if !value.is_empty() {
        settings.entry(key).or_insert_with(|| value.to_owned());
    }
}

/// Whether a word stands for yes.
pub(crate) fn is_on(text: &str) -> bool {
    !matches!(text, "0" | "n" | "no" | "false" | "off" | "f" | "nil")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As mke2fs: the first of equal keys and of equal types, sections that come again, and what is compiled in.
    #[test]
    fn the_first_counts_and_silence_is_filled() {
        let text = "[defaults]\nblocksize = 2048\nblocksize = 1024\ndefault_mntopts =\n[fs_types]\na = {\ninode_size = 512\n}\n\
            a = {\ninode_ratio = 4096\n}\n[defaults]\nerrors = panic\nblocksize = 8192\n";
        let config = Config::parse(text).expect("a configuration");
        let types = ["a".to_owned()];
        let get = |key| config.get(&types, key);
        assert_eq!(get("blocksize"), Some("2048"));
        assert_eq!(get("inode_size"), Some("512"));
        assert_eq!(get("inode_ratio"), Some("8192"));
        assert_eq!(get("errors"), Some("panic"));
        assert_eq!(get("default_mntopts"), Some("acl,user_xattr"));
        assert_eq!(config.get(&[], "inode_size"), Some("128"));
        assert_eq!(config.features(&[], false)[0], COMPILED_IN[0].1);
    }

    #[test]
    fn later_types_count() {
        let text = "[defaults]\n\tblocksize = 4096\n# x\n[fs_types]\n a = {\n blocksize = 1024\n features = x,y\n }\n \
            b = {\n blocksize = 2048\n }\n";
        let config = Config::parse(text).expect("a configuration");
        let types =
            |list: &[&str]| -> Vec<String> { list.iter().map(|t| (*t).to_owned()).collect() };
        assert_eq!(config.get(&types(&["a"]), "blocksize"), Some("1024"));
        assert_eq!(config.get(&types(&["a", "b"]), "blocksize"), Some("2048"));
        assert_eq!(config.get(&types(&["c"]), "blocksize"), Some("4096"));
        let base = COMPILED_IN[0].1;
        assert_eq!(config.features(&types(&["b", "a"]), false), [base, "x,y"]);
        assert!(config.has_type("a") && !config.has_type("c"));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        for (text, why) in [
            ("[defaults]\nnonsense\n", "line 2"),
            ("[defaults]\na = b c\n", "line 2"),
            ("[defaults]\n}\n", "nothing to end"),
            ("[fs_types]\na = {\n[defaults]\n", "inside a type"),
            ("[fs_types]\na = {\nb = {\n", "inside a type"),
        ] {
            let error = Config::parse(text).expect_err(text);
            assert!(error.contains(why), "{error}");
        }
    }
}
