//! A table whose index is masked instead of checked. One of the crate's files with `unsafe` code.
#![allow(unsafe_code)]

use std::marker::PhantomData;

/// A power of two of `T`s, whose size is one too; an index is taken modulo their number, which costs one instruction
/// and no branch.
pub(crate) struct Masked<T> {
    items: Box<[T]>,
    /// Bytes of all items but one: the bits of a byte offset that say which item.
    mask: usize,
}

impl<T> Masked<T> {
    /// An item is 2^SHIFT bytes.
    pub(crate) const SHIFT: u32 = {
        assert!(size_of::<T>().is_power_of_two());
        size_of::<T>().trailing_zeros()
    };

    /// # Panics
    /// When the number of `items` is no power of two.
    pub(crate) fn new(items: Box<[T]>) -> Masked<T> {
        assert!(items.len().is_power_of_two(), "{} items", items.len());
        Masked {
            mask: (items.len() - 1) << Self::SHIFT,
            items,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// The item of index `at` modulo the number of items.
    #[inline]
    pub(crate) fn at(&mut self, at: usize) -> &mut T {
        self.offset(at << Self::SHIFT)
    }

    /// The item at byte `bytes`, of which only the bits that say which item count.
    #[inline]
    pub(crate) fn offset(&mut self, bytes: usize) -> &mut T {
        // SAFETY: `mask` is the number of items less one, a power of two less one, times the size of an item, and `items`
        // never changes its length, so that a masked offset is that of an item inside.
        unsafe { &mut *self.items.as_mut_ptr().byte_add(bytes & self.mask) }
    }

    /// A copy of what it takes to find an item, for a loop that stores to other places too.
    #[inline]
    pub(crate) fn view(&mut self) -> View<'_, T> {
        View {
            items: self.items.as_mut_ptr(),
            mask: self.mask,
            table: PhantomData,
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.iter()
    }

    /// The item of index `at`, when there is one.
    pub(crate) fn get(&self, at: usize) -> Option<&T> {
        self.items.get(at)
    }

    /// As many items more as make the next power of two that has room for index `at`.
    pub(crate) fn grow(&mut self, at: usize)
    where
        T: Default,
    {
        if at >= self.items.len() {
            let mut items = std::mem::take(&mut self.items).into_vec();
            items.resize_with((at + 1).next_power_of_two(), T::default);
            *self = Masked::new(items.into_boxed_slice());
        }
    }
}

/// See [`Masked::view`].
pub(crate) struct View<'m, T> {
    items: *mut T,
    mask: usize,
    table: PhantomData<&'m mut [T]>,
}

impl<T> View<'_, T> {
    /// The item at byte `bytes`, of which only the bits that say which item count.
    #[inline]
    pub(crate) fn offset(&mut self, bytes: usize) -> &mut T {
        // SAFETY: as for `Masked`, which is borrowed meanwhile.
        unsafe { &mut *self.items.byte_add(bytes & self.mask) }
    }
}
