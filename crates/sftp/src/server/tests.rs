//! Tests of the server engine.
