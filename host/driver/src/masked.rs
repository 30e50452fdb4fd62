//! A table whose index is masked instead of checked. One of the crate's files with `unsafe` code.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ptr::NonNull;

/// A power of two of `T`s, whose size is one too; an index is taken modulo their number, which costs one instruction
/// and no branch.
pub(crate) struct Masked<T> {
    /// A leaked box of them.
    items: NonNull<T>,
    /// Bytes of all items but one: the bits of a byte offset that say which item.
    mask: usize,
    owned: PhantomData<T>,
}

// SAFETY: it is the only way to its items.
unsafe impl<T: Send> Send for Masked<T> {}

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
            items: NonNull::from(Box::leak(items)).cast(),
            owned: PhantomData,
        }
    }

    fn all(&self) -> NonNull<[T]> {
        NonNull::slice_from_raw_parts(self.items, (self.mask >> Self::SHIFT) + 1)
    }

    /// The item at byte `bytes`, of which only the bits that say which item count.
    #[inline]
    pub(crate) fn offset(&mut self, bytes: usize) -> &mut T {
        // SAFETY: `mask` is the number of items less one, a power of two less one, times the size of an item, so that a
        // masked offset is that of an item inside.
        unsafe { self.items.byte_add(bytes & self.mask).as_mut() }
    }

    /// A copy of what it takes to find an item, for a loop that stores to other places too.
    #[inline]
    pub(crate) fn view(&mut self) -> View<'_, T> {
        View {
            items: self.items,
            mask: self.mask,
            table: PhantomData,
        }
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, T> {
        // SAFETY: as many as were made, borrowed as `self` is.
        unsafe { self.all().as_ref() }.iter()
    }

    /// The item of index `at`, when there is one.
    pub(crate) fn get(&self, at: u32) -> Option<&T> {
        self.iter().as_slice().get(at as usize)
    }

    /// As [`get`](Masked::get), by the item's byte offset, which the caller has in a register anyway.
    #[inline]
    pub(crate) fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        let bytes = (at as usize) << Self::SHIFT;
        if bytes > self.mask {
            return None;
        }
        // SAFETY: the offset of an item, and not beyond the last one's.
        Some(unsafe { self.items.byte_add(bytes).as_mut() })
    }

    /// As many items more as make the next power of two that has room for index `at`.
    pub(crate) fn grow(&mut self, at: u32)
    where
        T: Clone + Default,
    {
        if self.get(at).is_none() {
            let mut items: Vec<T> = self.iter().cloned().collect();
            items.resize_with((at as usize + 1).next_power_of_two(), T::default);
            *self = Masked::new(items.into_boxed_slice());
        }
    }
}

impl<T> Drop for Masked<T> {
    fn drop(&mut self) {
        // SAFETY: the box that `new` leaked.
        drop(unsafe { Box::from_raw(self.all().as_ptr()) });
    }
}

/// See [`Masked::view`].
pub(crate) struct View<'m, T> {
    items: NonNull<T>,
    mask: usize,
    table: PhantomData<&'m mut [T]>,
}

impl<T> View<'_, T> {
    /// The item at byte `bytes`, of which only the bits that say which item count.
    #[inline]
    pub(crate) fn offset(&mut self, bytes: usize) -> &mut T {
        // SAFETY: as for `Masked`, which is borrowed meanwhile.
        unsafe { self.items.byte_add(bytes & self.mask).as_mut() }
    }
}
