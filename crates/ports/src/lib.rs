//! The traits through which Punctual reaches clocks, stores and buses, with their contracts.
