//! Physical Region Pages (section 4.3): arithmetic of entries and a plain walker, the reference that builders and
//! gateware are tested against.
//!
//! A transfer is PRP1 (any dword-aligned offset), then full pages. With two pages PRP2 is the second; with more it
//! points to a list of 8-byte entries, which may start anywhere 8-aligned in a page; when a list reaches the last
//! entry of its page and more than one page is still to name, that entry points to the next list, which starts a page:
//! entries of a list have no offset.

use crate::PAGE_SIZE;

/// Bytes of a list entry.
pub const ENTRY_SIZE: usize = 8;
/// Entries of a whole page of a list.
pub const ENTRIES_PER_PAGE: usize = PAGE_SIZE / ENTRY_SIZE;

/// Offset of `address` in its page.
pub const fn page_offset(address: u64) -> usize {
    address as usize & (PAGE_SIZE - 1)
}

/// Pages that `len` bytes from `address` touch.
pub const fn page_count(address: u64, len: usize) -> usize {
    (page_offset(address) + len).div_ceil(PAGE_SIZE)
}

/// Bytes of PRP1's page that a transfer of `len` bytes uses.
pub const fn first_len(prp1: u64, len: usize) -> usize {
    let room = PAGE_SIZE - page_offset(prp1);
    if len < room { len } else { room }
}

/// List entries that a list of `count` page addresses takes when it starts `offset` bytes into its page: the pages and
/// one pointer for each page of the list that is left.
pub const fn list_entries(offset: usize, count: usize) -> usize {
    let mut room = (PAGE_SIZE - offset) / ENTRY_SIZE;
    let (mut left, mut total) = (count, 0);
    while left > room {
        total += room;
        left -= room - 1;
        room = ENTRIES_PER_PAGE;
    }
    total + left
}

/// Why a walk failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkError<E> {
    /// An entry, with its value, that is not dword-aligned (PRP1), 8-aligned (PRP2 as a list pointer) or page-aligned.
    Misaligned(u64),
    /// A list entry could not be read.
    Read(E),
}

/// Visits, in order, the pieces (address, bytes) of a transfer of `len` bytes; `read` fetches the list entry at an
/// address. No piece crosses a page.
pub fn walk<E>(
    prp1: u64,
    prp2: u64,
    len: usize,
    mut read: impl FnMut(u64) -> Result<u64, E>,
    mut visit: impl FnMut(u64, usize),
) -> Result<(), WalkError<E>> {
    if prp1 & 3 != 0 {
        return Err(WalkError::Misaligned(prp1));
    }
    let first = first_len(prp1, len);
    if first > 0 {
        visit(prp1, first);
    }
    let mut left = len - first;
    if left == 0 {
        return Ok(());
    }
    if left <= PAGE_SIZE {
        if page_offset(prp2) != 0 {
            return Err(WalkError::Misaligned(prp2));
        }
        visit(prp2, left);
        return Ok(());
    }
    if prp2 & 7 != 0 {
        return Err(WalkError::Misaligned(prp2));
    }
    let mut entry = prp2;
    while left > 0 {
        let value = read(entry).map_err(WalkError::Read)?;
        if page_offset(value) != 0 {
            return Err(WalkError::Misaligned(value));
        }
        if page_offset(entry) == PAGE_SIZE - ENTRY_SIZE && left > PAGE_SIZE {
            entry = value;
            continue;
        }
        let piece = left.min(PAGE_SIZE);
        visit(value, piece);
        left -= piece;
        entry += ENTRY_SIZE as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    extern crate std;
    use std::{vec, vec::Vec};

    fn pieces(
        prp1: u64,
        prp2: u64,
        len: usize,
        list: impl Fn(u64) -> Option<u64>,
    ) -> Result<Vec<(u64, usize)>, WalkError<()>> {
        let mut out = Vec::new();
        walk(
            prp1,
            prp2,
            len,
            |a| list(a).ok_or(()),
            |a, n| out.push((a, n)),
        )?;
        Ok(out)
    }

    #[test]
    fn one_two_and_many_pages() {
        let none = |_| None;
        assert_eq!(pieces(0x1204, 0, 0x100, none), Ok(vec![(0x1204, 0x100)]));
        assert_eq!(
            pieces(0x1E00, 0x5000, 0x1000, none),
            Ok(vec![(0x1E00, 0x200), (0x5000, 0xE00)])
        );
        let list = |a| match a {
            0x9FF8 => Some(0xB000),
            0x9FE8 | 0x9FF0 | 0xB000 | 0xB008 => Some(a << 12),
            _ => None,
        };
        let got = pieces(0x1000, 0x9FE8, 0x1000 * 5, list).unwrap();
        let want = [
            0x1000,
            0x9FE8 << 12,
            0x9FF0 << 12,
            0xB000 << 12,
            0xB008 << 12,
        ];
        assert_eq!(got, want.map(|a| (a, 0x1000)));
        // The last entry of a page is a page, not a pointer, when one page is left.
        let got = pieces(0x1000, 0x9FF0, 0x3000, |a| {
            Some(if a == 0x9FF8 { 0x7000 } else { 0x6000 })
        })
        .unwrap();
        assert_eq!(got, [(0x1000, 0x1000), (0x6000, 0x1000), (0x7000, 0x1000)]);
    }

    #[test]
    fn bad_entries_are_named() {
        assert_eq!(
            pieces(0x1002, 0, 4, |_| None),
            Err(WalkError::Misaligned(0x1002))
        );
        assert_eq!(
            pieces(0x1000, 0x2200, 0x2000, |_| None),
            Err(WalkError::Misaligned(0x2200))
        );
        assert_eq!(
            pieces(0x1000, 0x2004, 0x3000, |_| None),
            Err(WalkError::Misaligned(0x2004))
        );
        assert_eq!(
            pieces(0x1000, 0x2000, 0x3000, |_| None),
            Err(WalkError::Read(()))
        );
        assert_eq!(
            pieces(0x1000, 0x2000, 0x3000, |_| Some(0x3010)),
            Err(WalkError::Misaligned(0x3010))
        );
        // A pointer to itself would never end.
        assert_eq!(
            pieces(0x1000, 0x9FF8, 0x4000, |_| Some(0x9FF8)),
            Err(WalkError::Misaligned(0x9FF8))
        );
    }

    #[test]
    fn list_lengths() {
        assert_eq!(list_entries(0, 32), 32);
        assert_eq!(list_entries(0, 512), 512);
        assert_eq!(list_entries(0, 513), 514);
        assert_eq!(list_entries(4096 - 8, 1), 1);
        assert_eq!(list_entries(4096 - 8, 2), 3);
        assert_eq!(list_entries(4096 - 16, 5), 6);
        assert_eq!(page_count(0xFFF, 2), 2);
    }
}
