//! A table whose index is masked instead of checked. One of the crate's files with `unsafe` code.
#![allow(unsafe_code)]

/// A power of two of `T`s; an index is taken modulo their number, which costs one instruction and no branch.
pub(crate) struct Masked<T> {
    items: Box<[T]>,
    mask: usize,
}

impl<T> Masked<T> {
    /// # Panics
    /// When the number of `items` is no power of two.
    pub(crate) fn new(items: Box<[T]>) -> Masked<T> {
        assert!(items.len().is_power_of_two(), "{} items", items.len());
        Masked {
            mask: items.len() - 1,
            items,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.mask + 1
    }

    /// The item of index `at` modulo the number of items.
    #[inline]
    pub(crate) fn at(&mut self, at: usize) -> &mut T {
        // SAFETY: `mask` is the number of items less one, a power of two less one, and `items` never changes its length,
        // so that a masked index is inside.
        unsafe { self.items.get_unchecked_mut(at & self.mask) }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.items.iter_mut()
    }
}
