use super::*;
use diorite_block::{BioErrorKind, BioOp, Fault, FaultDevice, FaultPlan, MemDevice, When};

fn holding(size: u64, pieces: &[(u64, &[u8])]) -> Option<Found> {
    let seen = look(&made(size, pieces));
    assert!(!seen.is_partial);
    seen.found
}

fn made(size: u64, pieces: &[(u64, &[u8])]) -> Arc<dyn Device> {
    let device: Arc<dyn Device> = Arc::new(MemDevice::new(size));
    for (at, bytes) in pieces {
        let (start, end) = (
            at / 512 * 512,
            (at + bytes.len() as u64).div_ceil(512) * 512,
        );
        let blocking = Blocking::new(device.clone());
        let buf = Buf::zeroed((end - start) as usize);
        let mut buf = blocking.read(start, buf).expect("memory is read");
        buf.copy_in((at - start) as usize, bytes);
        let written = blocking.run(diorite_block::Bio::write(start, buf, 0));
        written.result.expect("memory is written");
    }
    device
}

/// One bad sector silenced every signature of the device.
#[test]
fn a_sector_that_cannot_be_read_hides_nothing_else() {
    let size = 4 << 20;
    for bad in [0, 300 << 10, size - 512] {
        let all: [(u64, &[u8], &str); 4] = [
            (0, b"XFSB", "xfs"),
            (16 << 10, b"SKUL\xba\xbe", "crypto_LUKS"),
            (1 << 20, b"\x0d\xd0\x01\xc0", "VMFS_volume_member"),
            (size - 512, b"EFI PART", "gpt"),
        ];
        for (at, bytes, kind) in all {
            let reads = Fault::new(BioErrorKind::Io, When::Every(1)).on(BioOp::Read);
            let plan = FaultPlan::new(vec![reads.within(bad..bad + 512)], 1);
            let device = FaultDevice::new(made(size, &[(at, bytes)]), plan);
            let device: Arc<dyn Device> = Arc::new(device);
            let seen = look(&device);
            assert!(seen.is_partial, "{bad}");
            let expected = (at != bad).then_some(kind);
            assert_eq!(seen.found.map(|found| found.kind), expected, "{bad}");
        }
    }
}

/// Every line of the tables is reached, alone on an empty device, and an empty device has nothing.
#[test]
fn each_signature_is_seen() {
    for size in [4096, 2 << 20, 100 << 20] {
        assert_eq!(holding(size, &[]), None, "{size}");
    }
    for (is_table, table) in [(false, KINDS), (true, TABLES)] {
        for magic in table {
            let found = holding(2 << 20, &[(magic.at as u64, magic.bytes)]);
            let found = found.unwrap_or_else(|| panic!("{} at {}", magic.kind, magic.at));
            // Two begin alike: what is told is one of them.
            assert_eq!(found.is_table, is_table, "{} {}", magic.kind, found.kind);
        }
    }
}

/// Signatures whose place follows from the size, or from the size of a page.
#[test]
fn places_that_depend_on_the_size() {
    let kind = |size, at, bytes: &[u8]| holding(size, &[(at, bytes)]).map(|found| found.kind);
    for page in [4096, 8192, 16384, 32768, 65536] {
        assert_eq!(kind(1 << 20, page - 10, b"SWAPSPACE2"), Some("swap"));
    }
    let size = (100 << 20) + 512 * 7;
    let v1_0 = (size / 512 - 16) / 8 * 8 * 512;
    let v0_90 = size / 65536 * 65536 - 65536;
    assert_eq!(kind(size, v1_0, MD), Some("linux_raid_member"));
    assert_eq!(kind(size, v0_90, MD), Some("linux_raid_member"));
    assert_eq!(kind(size, size - 512, b"EFI PART"), Some("gpt"));
    assert_eq!(kind(size, size - 4096, b"EFI PART"), Some("gpt"));
    let zfs = 0x00ba_b10c_u64;
    assert_eq!(
        kind(size, 200 << 10, &zfs.to_le_bytes()),
        Some("zfs_member")
    );
    assert_eq!(
        kind(size, 130 << 10, &zfs.to_be_bytes()),
        Some("zfs_member")
    );
}

/// A file system is told before the table that lies around it, and with its label.
#[test]
fn labels_and_order() {
    let found = holding(
        1 << 20,
        &[(82, b"FAT32   "), (71, b"BOOT       "), (510, b"\x55\xaa")],
    );
    let found = found.expect("a file system");
    assert_eq!((found.kind, &found.label[..]), ("vfat", "BOOT"));
    let gpt = holding(1 << 20, &[(510, b"\x55\xaa"), (512, b"EFI PART")]);
    assert_eq!(gpt.map(|found| found.kind), Some("gpt"));
    // The text goes to a terminal.
    let found = holding(1 << 20, &[(0, b"XFSB"), (108, b"a\x1b[2Jb")]);
    assert_eq!(found.expect("a file system").label, "a[2Jb");
}
