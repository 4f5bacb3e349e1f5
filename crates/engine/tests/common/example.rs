/// An empty ext4 volume in memory, made by the installed mke2fs, for the examples in the documentation.
fn example_volume() -> std::sync::Arc<diorite::device::MemDevice> {
    let (process, thread) = (std::process::id(), std::thread::current().id());
    let path = std::env::temp_dir().join(format!("diorite-example-{process}-{thread:?}"));
    std::fs::File::create(&path)
        .and_then(|file| file.set_len(16 << 20))
        .expect("the temporary folder takes an image");
    let mut mke2fs = xtask::run::tool("mke2fs");
    let made = mke2fs.args(["-q", "-F", "-t", "ext4"]).arg(&path).status();
    assert!(made.expect("mke2fs is installed").success());
    let bytes = std::fs::read(&path).expect("mke2fs has written it");
    std::fs::remove_file(&path).expect("it is there");
    let device = diorite::device::MemDevice::new(bytes.len() as u64);
    device.write_at(0, &bytes);
    std::sync::Arc::new(device)
}
