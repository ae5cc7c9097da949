//! The machine's secret randomness.
