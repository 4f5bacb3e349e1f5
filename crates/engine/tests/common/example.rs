/// An empty ext4 volume in memory, for the examples in the documentation.
fn example_volume() -> std::sync::Arc<diorite::device::MemDevice> {
    let memory = std::sync::Arc::new(diorite::device::MemDevice::new(16 << 20));
    let device: std::sync::Arc<dyn diorite::Device> = memory.clone();
    // UUID, hash seed and time.
    let options = diorite::mkfs::MkfsOptions::new([1; 16], [2; 16], 1_700_000_000);
    diorite::mkfs::mkfs(&device, &options).expect("it has room");
    memory
}
