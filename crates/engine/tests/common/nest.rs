//! Images inside images.
//!
//! Input: a directory to make them in. Output: a locator; then each image extracted and checked. Invariants: none of its own.
//! Limits: three levels.

use super::{Rng, fsck, image, run};
use std::path::Path;

/// Makes an image in an image in an image. The innermost has the file `/data`.
pub fn nested(dir: &Path) -> String {
    let mut data = vec![0; 2 << 20];
    Rng::new(7).fill(&mut data);
    let mut locator = String::new();
    for (level, size) in ["16M", "32M", "64M"].iter().enumerate() {
        let (source, out) = (dir.join(format!("s{level}")), dir.join(format!("l{level}")));
        std::fs::create_dir_all(&source).unwrap();
        std::fs::create_dir_all(&out).unwrap();
        if level == 0 {
            std::fs::write(source.join("data"), &data).unwrap();
        } else {
            std::fs::rename(
                dir.join(format!("l{}/image", level - 1)),
                source.join("inner"),
            )
            .unwrap();
        }
        let block = if level == 1 { "1024" } else { "4096" };
        let made = image(&out, size, &["-t", "ext4", "-b", block], &source);
        locator = made.to_str().unwrap().to_owned();
    }
    format!("{locator}!/inner!/inner")
}

/// Extracts each image with debugfs and checks it.
pub fn unnest(dir: &Path, locator: &str) {
    let mut image = locator.split('!').next().unwrap().to_owned();
    fsck(Path::new(&image));
    for level in 0..2 {
        let out = dir.join(format!("out{level}"));
        run(
            "debugfs",
            &["-R", &format!("dump /inner {}", out.display()), &image],
        );
        fsck(&out);
        image = out.to_str().unwrap().to_owned();
    }
}
