//! Tests of the whole: job text in, results out.

mod engine;
mod jobs;
mod model;
mod order;
