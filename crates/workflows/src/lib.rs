//! The verbs of Punctual: scheduling, firing and retention, over ports only.
