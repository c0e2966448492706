//! What things cost on files of different sizes.

use super::svg::{Axis, BOTTOM, COLOURS, LEFT, RIGHT, Svg, TOP};
use crate::grouped;
use crate::stats::float;

/// The price of one thing on files of different sizes, in microseconds.
#[derive(Debug, Clone)]
pub(crate) struct Cost {
    pub(crate) what: &'static str,
    /// On how many rows, what it costs us, and the bare loop.
    pub(crate) points: Vec<(usize, f64, f64)>,
}

const NAMED: [(f64, &str); 5] = [
    (1.0, "1 µs"),
    (10.0, "10 µs"),
    (100.0, "100 µs"),
    (1_000.0, "1 ms"),
    (10_000.0, "10 ms"),
];

/// Draws the prices over the sizes.
pub(super) fn draw(costs: &[Cost], source: &str) -> String {
    let mut svg = Svg::new("What it costs, by how much is pending", source);
    let sizes = costs.iter().flat_map(|cost| &cost.points);
    let sizes: Vec<f64> = sizes.map(|(rows, ..)| float(*rows as u64)).collect();
    let least = sizes.iter().copied().fold(f64::INFINITY, f64::min);
    let most = sizes.iter().copied().fold(1.0, f64::max);
    let first = costs.first().map_or(&[][..], |cost| &cost.points);
    let across = Axis::logarithmic((least / 1.6, most * 1.6), (LEFT, RIGHT)).with_ticks(
        first
            .iter()
            .map(|(rows, ..)| (float(*rows as u64), grouped(*rows))),
    );
    let upwards = Axis::logarithmic((1.0, 10_000.0), (BOTTOM, TOP))
        .with_ticks(NAMED.map(|(value, label)| (value, label.to_owned())));
    svg.axes(&across, "timers in the file", &upwards, "each, on average");
    for (place, cost) in costs.iter().enumerate() {
        let colour = COLOURS[place % COLOURS.len()];
        let line = |value: fn(&(usize, f64, f64)) -> f64| -> Vec<(f64, f64)> {
            let points = cost.points.iter();
            points
                .map(|point| (across.at(float(point.0 as u64)), upwards.at(value(point))))
                .collect()
        };
        let ours = line(|point| point.1);
        svg.line(&ours, colour, "stroke-width=\"2.4\"");
        svg.line(
            &line(|point| point.2),
            colour,
            "stroke-width=\"1.4\" stroke-dasharray=\"5 4\"",
        );
        for point in ours {
            svg.dot(point, colour);
        }
        let values = cost.points.iter().map(|(_, ours, _)| format!("{ours:.0}"));
        let values = values.collect::<Vec<_>>().join(" / ");
        svg.legend(place, &format!("{}: {values} µs", cost.what));
    }
    svg.remark("dashed: a bare loop on the plain driver that does the same");
    svg.finished()
}
