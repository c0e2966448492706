//! The examples are run, each to its end.
