//! In-memory stores, a fake clock, sequential ids and fault injection, shipped so that users test with them.
