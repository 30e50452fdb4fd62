//! Which I/O, in which order: as fio 3.33 logged it (write_iolog) for the same job text.
