//! Drawing what was measured.

/// What can be drawn.
#[derive(Debug, Default)]
pub(crate) struct Plots {
    /// How late timers and bare sleeps were, in milliseconds.
    pub(crate) lateness: Option<(Vec<f64>, Vec<f64>)>,
}
