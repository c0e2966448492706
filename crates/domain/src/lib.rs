//! The nouns of Punctual: ids, instants, timers and messages, with no I/O and no clock.
