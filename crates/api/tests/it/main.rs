//! The API as its clients see it, over adapters in memory.

mod access;
mod calls;
mod contract;
mod edges;
mod limits;
mod problems;
mod serving;
mod timers;
mod world;
