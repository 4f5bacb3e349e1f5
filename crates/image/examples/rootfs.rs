//! Makes an image of sources, one above the other, as small as they need and with 64 MiB free:
//!
//!     cargo run -p diorite-image --example rootfs -- base.tar.gz overlay/ root.img
#![allow(clippy::print_stdout)]

use diorite::mkfs::MkfsOptions;
use diorite_image::{Error, ImageBuilder, Size};
use std::fs::File;

const HEADROOM: u64 = 64 << 20;

fn main() -> Result<(), Error> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let Some(image) = words.pop().filter(|_| !words.is_empty()) else {
        println!("usage: rootfs SOURCE... IMG");
        return Ok(());
    };
    // The same UUID, seed and time make the same bytes; a real program draws them, or derives them from its input.
    let options = MkfsOptions::new([0x17; 16], [0x42; 16], 1_700_000_000);
    let mut builder = ImageBuilder::new(options);
    for source in &words {
        builder.add(source.parse()?)?;
    }
    let plan = builder.plan(Size::Auto { headroom: HEADROOM })?;
    let file = File::create(&image)?;
    file.set_len(plan.bytes())?;
    let locator = diorite::Locator::parse(&image).map_err(diorite::Error::from)?;
    let device = diorite::open_device(&locator, &diorite::OpenOptions::writable())?;
    let made = plan.write(&device, &|bytes| {
        print!("\r{bytes} bytes");
        true
    })?;
    println!(
        "\n{image}: {} of {} blocks free",
        made.free_blocks, made.blocks
    );
    Ok(())
}
