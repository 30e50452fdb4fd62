//! A vector of reusable places: ids for what is in flight, found without hashing.

/// Values by place; a removed value's place is used again.
pub struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Slab<T> {
    /// Empty.
    pub fn new() -> Self {
        Slab {
            places: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Keeps a value; its place.
    pub fn insert(&mut self, value: T) -> usize {
        match self.free.pop() {
            Some(place) => {
                self.places[place] = Some(value);
                place
            }
            None => {
                self.places.push(Some(value));
                self.places.len() - 1
            }
        }
    }

    /// Takes a value out; None if the place is empty.
    pub fn remove(&mut self, place: usize) -> Option<T> {
        let value = self.places.get_mut(place)?.take();
        if value.is_some() {
            self.free.push(place);
        }
        value
    }

    /// The value at a place; None if it is empty.
    pub fn get(&mut self, place: usize) -> Option<&mut T> {
        self.places.get_mut(place)?.as_mut()
    }

    /// Every value.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().flatten()
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }
}
