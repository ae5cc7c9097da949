//! Tests of the file system store.
