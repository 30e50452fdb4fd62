use super::*;
use rustix::fs::{MemfdFlags, SealFlags, ftruncate, memfd_create};

const BOTH: Access = Access {
    read: true,
    write: true,
};
const PAGES: u64 = PAGE as u64;

fn memfd(pages: u64, flags: MemfdFlags) -> OwnedFd {
    let fd = memfd_create("test", flags).unwrap();
    ftruncate(&fd, pages * PAGES).unwrap();
    fd
}

fn same(fd: &OwnedFd) -> Option<OwnedFd> {
    Some(fd.try_clone().unwrap())
}

#[test]
fn accesses_reach_the_file_at_its_offset_whether_mapped_or_not() {
    for flags in [MemfdFlags::ALLOW_SEALING, MemfdFlags::empty()] {
        let fd = memfd(4, flags);
        let mut maps = Foreign::default();
        maps.map(0x10_0000, 2 * PAGES, same(&fd), PAGES, BOTH, 9)
            .unwrap();
        let mapped = maps
            .files
            .values()
            .all(|file| matches!(*file.upgrade().unwrap(), Backing::Mapped(_)));
        assert_eq!(mapped, flags == MemfdFlags::ALLOW_SEALING);
        for (at, data) in [(5, &b"abc"[..]), (8, b"0123456789abcdef"), (4096, b"z")] {
            assert!(maps.covers(0x10_0000 + at, data.len()));
            assert!(maps.write(0x10_0000 + at, data));
            let mut out = vec![0; data.len()];
            assert!(maps.read(0x10_0000 + at, &mut out));
            assert_eq!(out, data);
            File::from(fd.try_clone().unwrap())
                .read_exact_at(&mut out, PAGES + at)
                .unwrap();
            assert_eq!(out, data);
        }
        let end = 0x10_0000 + 2 * PAGES;
        assert!(!maps.read(end - 1, &mut [0; 2]));
        assert!(!maps.write(end, &[0; 1]));
        assert!(!maps.read(0x10_0000 - 1, &mut [0; 2]));
        assert!(!maps.read(u64::MAX, &mut [0; 2]));
    }
}

#[test]
fn a_file_that_shrinks_is_an_error_and_no_signal() {
    let fd = memfd(2, MemfdFlags::empty());
    let mut maps = Foreign::default();
    maps.map(0, 2 * PAGES, same(&fd), 0, BOTH, 9).unwrap();
    ftruncate(&fd, PAGES).unwrap();
    assert!(!maps.read(PAGES, &mut [0; 8]));
    assert!(!maps.write(PAGES, &[0; 8]));
    assert!(maps.write(PAGES - 8, &[1; 8]));
    assert_eq!(
        fstat(&fd).unwrap().st_size,
        PAGE as i64,
        "the card made it grow"
    );
    let fd = memfd(2, MemfdFlags::ALLOW_SEALING);
    maps.map(0x10_0000, 2 * PAGES, same(&fd), 0, BOTH, 9)
        .unwrap();
    assert!(
        rustix::fs::fcntl_get_seals(&fd)
            .unwrap()
            .contains(SealFlags::SHRINK)
    );
    assert!(ftruncate(&fd, PAGES).is_err());
}

#[test]
fn permissions_hold() {
    let fd = memfd(1, MemfdFlags::ALLOW_SEALING);
    let mut maps = Foreign::default();
    let (read, write) = (
        Access {
            write: false,
            ..BOTH
        },
        Access {
            read: false,
            ..BOTH
        },
    );
    maps.map(0, PAGES, same(&fd), 0, read, 9).unwrap();
    maps.map(PAGES, PAGES, same(&fd), 0, write, 9).unwrap();
    maps.map(2 * PAGES, PAGES, None, 0, BOTH, 9).unwrap();
    assert!(maps.read(0, &mut [0; 1]) && !maps.write(0, &[0; 1]) && !maps.covers(0, 1));
    assert!(!maps.read(PAGES, &mut [0; 1]) && maps.write(PAGES, &[0; 1]));
    assert!(!maps.read(2 * PAGES, &mut [0; 1]) && !maps.write(2 * PAGES, &[0; 1]));
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd));
    let only_read = OwnedFd::from(File::open(path).unwrap());
    let fresh = &mut Foreign::default();
    assert!(matches!(
        fresh.map(0, PAGES, same(&only_read), 0, BOTH, 9),
        Err(MapError::ReadOnly)
    ));
    fresh.map(0, PAGES, same(&only_read), 0, read, 9).unwrap();
    assert!(fresh.read(0, &mut [0; 1]) && !fresh.write(0, &[0; 1]));
    // The same file, now open for writing.
    fresh.map(PAGES, PAGES, same(&fd), 0, BOTH, 9).unwrap();
    assert!(fresh.write(PAGES, &[0; 1]));
}

#[test]
fn ranges_are_checked_and_a_page_each_shares_its_file() {
    let fd = memfd(64, MemfdFlags::ALLOW_SEALING);
    let mut maps = Foreign::default();
    for n in 0..64 {
        maps.map(
            0x1000_0000 + n * PAGES,
            PAGES,
            same(&fd),
            (63 - n) * PAGES,
            BOTH,
            64,
        )
        .unwrap();
    }
    assert_eq!((maps.len(), maps.files.len()), (64, 1));
    let base = 0x1000_0000;
    let mut map = |iova, size, offset| maps.map(iova, size, same(&fd), offset, BOTH, 65).err();
    assert!(matches!(
        map(base + 512, PAGES, 0),
        Some(MapError::Range { .. })
    ));
    assert!(matches!(map(0, 0, 0), Some(MapError::Range { .. })));
    assert!(matches!(map(0, PAGES, 100), Some(MapError::Range { .. })));
    assert!(matches!(
        map(u64::MAX - PAGES + 1, 2 * PAGES, 0),
        Some(MapError::Range { .. })
    ));
    assert!(matches!(
        map(0, PAGES, u64::MAX - PAGES + 1),
        Some(MapError::Range { .. })
    ));
    assert!(
        matches!(map(base - PAGES, 2 * PAGES, 0), Some(MapError::Overlap { other, .. }) if other == base)
    );
    assert!(matches!(
        map(base + 5 * PAGES, PAGES, 0),
        Some(MapError::Overlap { .. })
    ));
    assert!(matches!(
        map(0, 65 * PAGES, 0),
        Some(MapError::Short { .. })
    ));
    assert!(map(0, 2 * PAGES, 0).is_none());
    assert!(matches!(map(0x10_0000, PAGES, 0), Some(MapError::Maps(65))));
    assert!(matches!(
        maps.unmap(PAGES, PAGES),
        Err(MapError::Part { other: 0, .. })
    ));
    assert!(matches!(
        maps.unmap(0, PAGES),
        Err(MapError::Part { other: 0, .. })
    ));
    assert!(matches!(maps.unmap(0, 0), Err(MapError::Range { .. })));
    maps.unmap(base + PAGES, 8 * PAGES).unwrap();
    assert_eq!(maps.len(), 57);
    assert!(
        maps.covers(base, 1) && !maps.covers(base + PAGES, 1) && maps.covers(base + 9 * PAGES, 1)
    );
    // The two halves of an address space, as an IOMMU takes it away.
    maps.unmap(0, 1 << 63).unwrap();
    maps.unmap(1 << 63, 1 << 63).unwrap();
    assert!(maps.is_empty() && maps.files.is_empty());
}

#[test]
fn what_is_no_memory_is_refused() {
    let mut maps = Foreign::default();
    let (pipe, _) = rustix::pipe::pipe().unwrap();
    let disk =
        OwnedFd::from(File::open(env!("CARGO_MANIFEST_DIR").to_owned() + "/Cargo.toml").unwrap());
    for fd in [pipe, disk] {
        let error = maps
            .map(
                0,
                PAGES,
                Some(fd),
                0,
                Access {
                    write: false,
                    ..BOTH
                },
                9,
            )
            .unwrap_err();
        assert!(
            matches!(error, MapError::NoMemory | MapError::Short { .. }),
            "{error}"
        );
    }
    let huge = memfd(1, MemfdFlags::empty());
    ftruncate(&huge, i64::MAX as u64 / PAGES * PAGES).unwrap();
    // Far more than any address space: a file reached by system calls does not mind.
    maps.map(0, 1 << 50, Some(huge), 0, BOTH, 9).unwrap();
    assert!(maps.write(1 << 49, b"x"));
}

#[test]
fn a_file_that_grows_again_and_again_is_counted_each_time() {
    let fd = memfd(1, MemfdFlags::ALLOW_SEALING);
    let mut maps = Foreign::default();
    for n in 0..MAX_FILES as u64 {
        ftruncate(&fd, (n + 1) * PAGES).unwrap();
        maps.map(n * PAGES, PAGES, same(&fd), n * PAGES, BOTH, usize::MAX)
            .unwrap();
    }
    let last = MAX_FILES as u64 * PAGES;
    ftruncate(&fd, last + PAGES).unwrap();
    let mut map = |offset| maps.map(last, PAGES, same(&fd), offset, BOTH, usize::MAX);
    assert!(matches!(map(last), Err(MapError::Files)));
    map(0).unwrap();
    maps.clear();
    maps.map(0, PAGES, same(&fd), last, BOTH, usize::MAX)
        .unwrap();
}
