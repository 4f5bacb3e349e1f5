//! A partition as the command line says it: `IMAGE,type=esp,name=boot,size=512M`.
//!
//! Input: one word. Output: a [`Word`]. Invariant: what is not understood is refused by name. Limits: two commas stand for one comma of a
//! value, as in qemu's options; a first field that is a size, or `+`, is never the name of a file.

use diorite_block::PartSize;
use diorite_block::locator::parse_size;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    /// What is put into it: a locator.
    pub(super) image: Option<String>,
    /// How large it is to be; by default as its image.
    pub(super) size: Option<PartSize>,
    pub(super) kind: Option<String>,
    pub(super) name: Option<String>,
    pub(super) uuid: Option<String>,
    pub(super) bootable: bool,
}

impl Word {
    /// Reads a word.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub(super) fn parse(text: &str) -> Result<Word, String> {
        let mut fields = fields(text).into_iter();
        let first = fields.next().unwrap_or_default();
        let mut word = Word {
            image: None,
            size: size(&first).ok(),
            kind: None,
            name: None,
            uuid: None,
            bootable: false,
        };
        if word.size.is_none() && !first.is_empty() {
            word.image = Some(first);
        }
        for field in fields {
            let set = word.set(&field);
            set.map_err(|why| format!("{text}: {why}"))?;
        }
        match (&word.image, word.size) {
            (None, None) => Err(format!("{text}: neither an image nor a size")),
            _ => Ok(word),
        }
    }

    fn set(&mut self, field: &str) -> Result<(), String> {
        let (key, value) = field
            .split_once('=')
            .map_or((field, None), |(key, value)| (key, Some(value)));
        let slot = match (key, value) {
            ("bootable", None) => {
                self.bootable = true;
                return Ok(());
            }
            ("size", Some(value)) if self.size.is_none() => {
                self.size = Some(size(value)?);
                return Ok(());
            }
            ("size", Some(_)) => return Err("its size is there twice".to_owned()),
            ("type", Some(_)) => &mut self.kind,
            ("name", Some(_)) => &mut self.name,
            ("uuid", Some(_)) => &mut self.uuid,
            ("type" | "name" | "uuid" | "size", None) => {
                return Err(format!("{key} needs a value: {key}=..."));
            }
            _ => {
                return Err(format!(
                    "unknown field {field:?}: type=, name=, uuid=, size=, bootable; write a comma of a name as two"
                ));
            }
        };
        match slot.replace(value.unwrap_or_default().to_owned()) {
            Some(_) => Err(format!("{key} is there twice")),
            None => Ok(()),
        }
    }
}

/// `+` is what the others leave.
fn size(text: &str) -> Result<PartSize, String> {
    match text {
        "+" => Ok(PartSize::Rest(0)),
        _ => parse_size(text).map(PartSize::Bytes),
    }
}

/// Divides at single commas.
fn fields(text: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        if c == ',' && rest.next_if_eq(&',').is_none() {
            fields.push(String::new());
        } else {
            fields.last_mut().expect("there is always one").push(c);
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read() {
        let word =
            Word::parse("a,,b.img?part=2,name=x,,y,type=esp,bootable,size=5M").expect("a word");
        assert_eq!(word.image.as_deref(), Some("a,b.img?part=2"));
        assert_eq!(
            (word.name.as_deref(), word.kind.as_deref()),
            (Some("x,y"), Some("esp"))
        );
        assert_eq!(
            (word.size, word.bootable),
            (Some(PartSize::Bytes(5 << 20)), true)
        );
        for (text, image, size) in [
            ("512M", None, Some(PartSize::Bytes(512 << 20))),
            ("+", None, Some(PartSize::Rest(0))),
            (",size=+", None, Some(PartSize::Rest(0))),
            ("./512M", Some("./512M"), None),
            ("x,size=+,name=", Some("x"), Some(PartSize::Rest(0))),
        ] {
            let word = Word::parse(text).expect(text);
            assert_eq!((word.image.as_deref(), word.size), (image, size), "{text}");
        }
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for (text, why) in [
            ("", "neither an image nor a size"),
            (",type=esp", "neither an image nor a size"),
            ("x,tpye=esp", "unknown field \"tpye=esp\""),
            ("x,", "unknown field \"\""),
            ("x,type", "type needs a value"),
            ("x,type=a,type=b", "type is there twice"),
            ("1M,size=2M", "its size is there twice"),
            ("x,size=much", "is not a size"),
            ("x,bootable=1", "unknown field"),
        ] {
            let said = Word::parse(text).expect_err(text);
            assert!(said.contains(why), "{said}");
        }
    }
}
