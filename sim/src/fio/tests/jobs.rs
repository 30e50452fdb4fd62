//! The job files of the repository, and malformed ones.
