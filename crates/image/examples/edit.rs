//! Puts a source into a directory of an image, and sets its host name; after a crash both are there or neither:
//!
//!     cargo run -p diorite-image --example edit -- root.img overlay.tar.gz / example.org
#![allow(clippy::print_stdout)]

use diorite_image::{Editor, Error, Rules};

fn main() -> Result<(), Error> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [image, source, dir, host] = &words[..] else {
        println!("usage: edit IMG SOURCE DIR HOSTNAME");
        return Ok(());
    };
    let source = source.parse()?;
    let mut editor = Editor::open(image)?;
    let files = editor.transaction(|editor| {
        let files = editor.put(&source, dir, Rules::default(), &|_| true)?;
        editor.make_dir("/etc", 0o755)?;
        editor.write_file("/etc/hostname", 0o644, &mut format!("{host}\n").as_bytes())?;
        Ok(files)
    })?;
    editor.close()?;
    println!("{image}: {files} files");
    Ok(())
}
