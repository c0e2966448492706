//! What several rounds of one measurement come to: the median, and how far the rounds lie apart.
//!
//! A machine that others use too is noisy in both directions, and one lucky round must not decide.
//! So a figure is the median of the rounds, and it is never shown without its spread.

use std::time::Duration;

use crate::Outcome;

/// The rounds of one measurement.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rounds(Vec<f64>);

impl Rounds {
    /// Fails without a single round, or if one of them is no number.
    pub(crate) fn new(values: Vec<f64>) -> Outcome<Self> {
        if values.is_empty() || !values.iter().all(|value| value.is_finite()) {
            return Err("rounds are missing, or one of them is no number".into());
        }
        Ok(Self(values))
    }

    /// The rounds of a measurement that have one figure for each of many things.
    pub(crate) fn of<T>(rounds: &[T], figure: impl Fn(&T) -> Outcome<f64>) -> Outcome<Self> {
        Self::new(rounds.iter().map(figure).collect::<Outcome<_>>()?)
    }

    /// Combines each round with the same round of another measurement; fails if one of them has
    /// rounds that the other has not.
    ///
    /// What disturbs a round disturbs both sides of it, so round by round is how they are compared.
    pub(crate) fn against(&self, other: &Self, combine: fn(f64, f64) -> f64) -> Outcome<Self> {
        if self.0.len() != other.0.len() {
            return Err("one side has rounds that the other has not".into());
        }
        let pairs = self.0.iter().zip(&other.0);
        Self::new(pairs.map(|(mine, its)| combine(*mine, *its)).collect())
    }

    /// Each round divided by the same round of another measurement.
    pub(crate) fn ratio(&self, other: &Self) -> Outcome<Self> {
        self.against(other, |mine, its| mine / its)
    }

    /// The middle one; of an even number, the mean of the two in the middle.
    pub(crate) fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        }
    }

    pub(crate) fn min(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }

    pub(crate) fn max(&self) -> f64 {
        self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }

    pub(crate) fn values(&self) -> &[f64] {
        &self.0
    }
}

/// A number of things, to calculate with.
#[expect(
    clippy::cast_precision_loss,
    reason = "numbers here are far below what a double holds exactly"
)]
pub(crate) const fn float(number: u64) -> f64 {
    number as f64
}

/// How many a second.
pub(crate) fn rate(count: usize, took: Duration) -> f64 {
    float(count as u64) / took.as_secs_f64()
}

/// How long each took, in microseconds.
pub(crate) fn micros(count: usize, took: Duration) -> f64 {
    1e6 / rate(count, took)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(values: &[f64]) -> Rounds {
        Rounds::new(values.to_vec()).unwrap()
    }

    fn close(left: f64, right: f64) -> bool {
        (left - right).abs() < 1e-12
    }

    #[test]
    fn the_median_is_the_middle_whatever_the_order() {
        assert!(close(rounds(&[9.0, 1.0, 5.0]).median(), 5.0));
        assert!(close(rounds(&[4.0]).median(), 4.0));
    }

    #[test]
    fn the_median_of_an_even_number_is_between_the_two_in_the_middle() {
        assert!(close(rounds(&[8.0, 1.0, 3.0, 5.0]).median(), 4.0));
    }

    #[test]
    fn one_wild_round_moves_the_spread_and_not_the_median() {
        let noisy = rounds(&[1.0, 1.1, 0.9, 1.0, 70.0]);
        assert!(close(noisy.median(), 1.0));
        assert!(close(noisy.min(), 0.9));
        assert!(close(noisy.max(), 70.0));
    }

    #[test]
    fn a_ratio_is_taken_round_by_round() {
        // In the second round the machine was half as fast for both.
        let ours = rounds(&[80.0, 40.0, 90.0]);
        let bare = rounds(&[100.0, 50.0, 100.0]);
        let ratio = ours.ratio(&bare).unwrap();
        assert!(close(ratio.median(), 0.8));
        assert!(close(ratio.min(), 0.8));
        assert!(close(ratio.max(), 0.9));
    }

    #[test]
    fn sides_with_unequal_rounds_are_not_compared() {
        assert!(rounds(&[1.0, 2.0]).ratio(&rounds(&[1.0])).is_err());
    }

    #[test]
    fn what_is_no_number_is_no_result() {
        assert!(Rounds::new(Vec::new()).is_err());
        assert!(Rounds::new(vec![1.0, f64::NAN]).is_err());
        assert!(rounds(&[1.0]).ratio(&rounds(&[0.0])).is_err());
    }
}
