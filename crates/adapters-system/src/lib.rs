//! The system clock, UUID v7 ids and the in-process bus: the only callers of the operating system's clock.
