//! Builds the PRP entries of a command (NVMe section 4.3), with lists in memory set aside for each slot of a queue.

use crate::memory::{Memory, Words};
use crate::pci::{AllocError, Pci};
use weir_nvme::PAGE_SIZE;
use weir_nvme::prp::{ENTRY_SIZE, list_entries, page_offset};

const PAGE: u64 = PAGE_SIZE as u64;

/// Room for one PRP list a slot.
///
/// A list takes consecutive 8-byte places from `offset` of its slot's area; where it passes the end of a page with more
/// than one page left to name, the last place of that page points to the next.
pub(crate) struct PrpLists<M> {
    words: Words<M>,
    /// Bytes from one slot's area to the next.
    stride: usize,
    /// Bytes from the start of an area to its list.
    offset: usize,
}

impl<M: Memory> PrpLists<M> {
    /// Room for `slots` lists for transfers of up to `max_transfer` bytes at any offset, each list `offset` bytes (a
    /// multiple of 8, below the page size) into a page; 0 packs them.
    pub(crate) fn new<P: Pci<Memory = M>>(
        pci: &P,
        slots: usize,
        max_transfer: usize,
        offset: usize,
    ) -> Result<PrpLists<M>, AllocError> {
        // A transfer that starts inside a page touches one page more; the first is PRP1's.
        let bytes = offset + list_entries(offset, max_transfer.div_ceil(PAGE_SIZE)) * ENTRY_SIZE;
        let stride = if offset == 0 && bytes <= PAGE_SIZE {
            bytes.next_power_of_two()
        } else {
            bytes.next_multiple_of(PAGE_SIZE)
        };
        Ok(PrpLists {
            words: Words::new(pci.alloc(slots * stride)?),
            stride,
            offset,
        })
    }

    /// PRP1 and PRP2 of the `len` bytes (at least 1) at `iova`; a list goes to the area of `slot`.
    #[inline]
    pub(crate) fn build(&mut self, slot: usize, iova: u64, len: usize) -> (u64, u64) {
        let first = PAGE_SIZE - page_offset(iova);
        if len <= first {
            return (iova, 0);
        }
        let second = (iova & !(PAGE - 1)) + PAGE;
        if len - first <= PAGE_SIZE {
            return (iova, second);
        }
        (
            iova,
            self.list(slot, second, (len - first).div_ceil(PAGE_SIZE)),
        )
    }

    /// Writes the list of `count` pages from `page` on, and returns its address.
    fn list(&mut self, slot: usize, mut page: u64, count: usize) -> u64 {
        let start = slot * self.stride + self.offset;
        let mut at = start;
        for left in (1..=count).rev() {
            if at % PAGE_SIZE == PAGE_SIZE - ENTRY_SIZE && left > 1 {
                self.words
                    .set(at, self.words.iova() + (at + ENTRY_SIZE) as u64);
                at += ENTRY_SIZE;
            }
            self.words.set(at, page);
            page += PAGE;
            at += ENTRY_SIZE;
        }
        self.words.iova() + start as u64
    }

    /// Gives up the memory without freeing it: the device may still read it.
    pub(crate) fn leak(&mut self) {
        self.words.leak();
    }
}
