//! Defaults of a new file system: those of today, or those of a file in the format of mke2fs.conf.
//!
//! Input: text in sections. Output: a [`Config`], asked by key for a list of types. Invariants: of several types that say something the
//! last one counts; a line that cannot be read is an error with its number. Limits: sections are two deep, as mke2fs.conf has them.
//! Source: man 5 mke2fs.conf; the figures are those of /etc/mke2fs.conf of 1.47.0, with the features
//! that newer releases have by default.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Where the host has its own.
const OF_HOST: &str = "/etc/mke2fs.conf";

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
        named.or_else(|| Some(PathBuf::from(OF_HOST)).filter(|path| path.exists()))
    }

    pub(crate) fn read(path: &Path) -> Result<Config, String> {
        let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        Config::parse(&text).map_err(|why| format!("{}: {why}", path.display()))
    }

    fn parse(text: &str) -> Result<Config, String> {
        let mut config = Config::default();
        let (mut section, mut kind) = (String::new(), None::<String>);
        for (n, line) in text.lines().enumerate() {
            let line = line.trim();
            let wrong = |why: &str| Err(format!("line {}: {why}: {line}", n + 1));
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
                if kind.is_some() {
                    return wrong("a section begins inside a type");
                }
                name.clone_into(&mut section);
            } else if line.trim_end_matches('*') == "}" {
                if kind.take().is_none() {
                    return wrong("there is nothing to end");
                }
            } else if let Some((key, value)) = line.split_once('=') {
                let (key, value) = (key.trim().to_owned(), value.trim());
                let value = value.trim_matches('"');
                match (&kind, value) {
                    (None, "{") => kind = Some(key),
                    (Some(_), "{") => return wrong("a type inside a type"),
                    (None, _) if section == "defaults" => {
                        config.defaults.insert(key, value.to_owned());
                    }
                    (Some(name), _) if section == "fs_types" => {
                        let of_type = config.types.entry(name.clone()).or_default();
                        of_type.insert(key, value.to_owned());
                    }
                    // Options of the program itself, and of other programs.
                    _ => {}
                }
            } else {
                return wrong("neither a section nor 'key = value'");
            }
        }
        match kind {
            Some(name) => Err(format!("the type {name} does not end")),
            None => Ok(config),
        }
    }

    pub(crate) fn has_type(&self, name: &str) -> bool {
        self.types.contains_key(name)
    }

    /// What the last of these types says that says something, or else the defaults.
    pub(crate) fn get(&self, types: &[String], key: &str) -> Option<&str> {
        let said = |name: &String| self.types.get(name)?.get(key);
        let of_types = types.iter().rev().find_map(said);
        of_types
            .or_else(|| self.defaults.get(key))
            .map(String::as_str)
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

    /// The lists of features, in the order in which they apply.
    pub(crate) fn features<'a>(&'a self, types: &'a [String]) -> Vec<&'a str> {
        let base = self.get(types, "base_features");
        let said = |name: &String| self.types.get(name)?.get("features").map(String::as_str);
        let of_types: Vec<&str> = types.iter().filter_map(said).collect();
        let last = match of_types.is_empty() {
            true => self.defaults.get("default_features").map(String::as_str),
            false => None,
        };
        base.into_iter().chain(of_types).chain(last).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(config.features(&types(&["b", "a"])), ["x,y"]);
        assert!(config.has_type("a") && !config.has_type("c"));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        for (text, why) in [
            ("[defaults]\nnonsense\n", "line 2"),
            ("[fs_types]\na = {\n", "does not end"),
            ("}\n", "nothing to end"),
            ("[fs_types]\na = {\nb = {\n", "inside a type"),
        ] {
            let error = Config::parse(text).expect_err(text);
            assert!(error.contains(why), "{error}");
        }
    }
}
