//! How late timers fire, as a distribution.

use super::svg::{Axis, BOTTOM, COLOURS, LEFT, RIGHT, Svg, TOP};
use crate::Outcome;
use crate::lateness::percentile;
use crate::stats::float;

/// From a hundredth of a millisecond to a tenth of a second.
const FROM: f64 = 0.01;
const TO: f64 = 100.0;
/// How many columns each ten times as much has.
const COLUMNS: u32 = 12;
/// How often that is, from one end to the other.
const DECADES: u32 = 4;

/// Draws ours beside a bare sleep.
pub(super) fn draw(ours: &[f64], bare: &[f64], source: &str) -> Outcome<String> {
    let mut svg = Svg::new("How late timers fire at 1 000 a second", source);
    let sides = [
        ("Punctual (SQLite, FULL)", ours),
        ("a bare tokio sleep", bare),
    ];
    let shares: Vec<_> = sides.iter().map(|(_, values)| shares(values)).collect();
    let highest = shares.iter().flatten().copied().fold(0.0, f64::max);
    let top = (highest * 10.0).ceil() / 10.0;
    let named = [0.01, 0.1, 1.0, 10.0, 100.0];
    let across = Axis::logarithmic((FROM, TO), (LEFT, RIGHT))
        .with_ticks(named.map(|value| (value, format!("{value}"))));
    let steps = (0..=5_u32).map(|step| top * f64::from(step) / 5.0);
    let upwards = Axis::linear((0.0, top), (BOTTOM, TOP))
        .with_ticks(steps.map(|share| (share, format!("{:.0} %", share * 100.0))));
    svg.axes(
        &across,
        "milliseconds after the due time (each step is ten times as long)",
        &upwards,
        "share of the timers",
    );
    for (place, (name, values)) in sides.iter().enumerate() {
        let colour = COLOURS[place];
        svg.area(&outline(&shares[place], &across, &upwards), colour);
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (half, most) = (percentile(&sorted, 0.5)?, percentile(&sorted, 0.99)?);
        for (value, dashes) in [(half, "6 3"), (most, "2 3")] {
            let x = across.at(value);
            let style = format!("stroke-width=\"1.6\" stroke-dasharray=\"{dashes}\"");
            svg.line(&[(x, TOP), (x, BOTTOM)], colour, &style);
        }
        let text = format!("{name}: half within {half:.2} ms, 99 % within {most:.2} ms");
        svg.legend(place, &text);
    }
    svg.remark("dashed: half of the timers; dotted: 99 % of them; none was early");
    Ok(svg.finished())
}

/// Where each column but the first begins, and the one before it ends.
fn bounds() -> impl Iterator<Item = f64> {
    (1..DECADES * COLUMNS).map(|column| FROM * 10_f64.powf(f64::from(column) / f64::from(COLUMNS)))
}

/// Which share of the values is in each column.
fn shares(values: &[f64]) -> Vec<f64> {
    let bounds: Vec<f64> = bounds().collect();
    let mut counts = vec![0; bounds.len() + 1];
    for value in values {
        counts[bounds.partition_point(|bound| bound <= value)] += 1;
    }
    let all = float(values.len().max(1) as u64);
    counts.into_iter().map(|count| float(count) / all).collect()
}

fn outline(shares: &[f64], across: &Axis, upwards: &Axis) -> Vec<(f64, f64)> {
    let mut points = vec![(across.at(FROM), upwards.at(0.0))];
    let lefts = [FROM].into_iter().chain(bounds());
    for ((left, right), share) in lefts.zip(bounds().chain([TO])).zip(shares) {
        let y = upwards.at(*share);
        points.extend([(across.at(left), y), (across.at(right), y)]);
    }
    points.push((across.at(TO), upwards.at(0.0)));
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_in_one_column() {
        let shares = shares(&[0.0, 0.01, 0.5, 0.5, 3.0, 1_000.0]);
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        assert!(
            (shares[0] - 2.0 / 6.0).abs() < 1e-9,
            "what is below is in the first"
        );
        assert!(
            (shares[47] - 1.0 / 6.0).abs() < 1e-9,
            "what is above is in the last"
        );
    }
}
