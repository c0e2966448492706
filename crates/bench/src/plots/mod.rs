//! Drawing what was measured, as SVG files without any library.

mod cost;
mod lateness;
mod svg;

use std::fs;
use std::path::Path;

use crate::Outcome;

pub(crate) use cost::Cost;

/// What can be drawn.
#[derive(Debug, Default)]
pub(crate) struct Plots {
    /// How late timers and bare sleeps were, in milliseconds.
    pub(crate) lateness: Option<(Vec<f64>, Vec<f64>)>,
    /// What things cost.
    pub(crate) costs: Vec<Cost>,
}

impl Plots {
    /// Writes a file for each measurement, and returns their names.
    pub(crate) fn write(&self, folder: &Path, source: &str) -> Outcome<Vec<&'static str>> {
        fs::create_dir_all(folder)?;
        let mut written = Vec::new();
        if let Some((ours, bare)) = &self.lateness {
            let name = "lateness.svg";
            fs::write(folder.join(name), lateness::draw(ours, bare, source)?)?;
            written.push(name);
        }
        if !self.costs.is_empty() {
            let name = "cost.svg";
            fs::write(folder.join(name), cost::draw(&self.costs, source))?;
            written.push(name);
        }
        Ok(written)
    }
}
