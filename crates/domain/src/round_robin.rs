//! Round-robin: tenants, or the hosts of a tenant, take turns, starting after the one that came last.

use std::collections::VecDeque;
use std::iter::from_fn;

/// One round over all members of an ordered set that is read step by step, starting after a given one.
#[derive(Debug)]
pub struct Cycle<K> {
    start: Option<K>,
    last: Option<K>,
    has_wrapped: bool,
}

impl<K: Ord + Clone> Cycle<K> {
    /// A round that starts after a member, or at the first one.
    pub fn after(start: Option<K>) -> Self {
        Self {
            last: start.clone(),
            has_wrapped: start.is_none(),
            start,
        }
    }

    /// The next member; `None` at the end of the round. `next_after` returns the first member after
    /// another one, or the first of all.
    pub fn next<E>(
        &mut self,
        mut next_after: impl FnMut(Option<&K>) -> Result<Option<K>, E>,
    ) -> Result<Option<K>, E> {
        loop {
            let next = next_after(self.last.as_ref())?;
            let is_after_start = next > self.start && self.start.is_some();
            match &next {
                Some(_) if self.has_wrapped && is_after_start => return Ok(None),
                None if self.has_wrapped => return Ok(None),
                Some(_) => {
                    self.last.clone_from(&next);
                    return Ok(next);
                }
                None => {
                    self.has_wrapped = true;
                    self.last = None;
                }
            }
        }
    }
}

/// Interleaves lists: the first of each, then the second of each, and so on.
///
/// ```
/// use punctual_domain::interleave;
/// let turns: Vec<_> = interleave([vec!["a1", "a2", "a3"], vec!["b1"], vec!["c1", "c2"]]).collect();
/// assert_eq!(turns, ["a1", "b1", "c1", "a2", "c2", "a3"]);
/// ```
pub fn interleave<L: IntoIterator>(
    lists: impl IntoIterator<Item = L>,
) -> impl Iterator<Item = L::Item> {
    let mut turns: VecDeque<_> = lists.into_iter().map(L::into_iter).collect();
    from_fn(move || {
        while let Some(mut list) = turns.pop_front() {
            if let Some(item) = list.next() {
                turns.push_back(list);
                return Some(item);
            }
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    #[test]
    fn a_round_visits_every_member_once_starting_after_the_last_one() {
        let next_after = |after: Option<&i32>| {
            let is_later = |it: &i32| after.is_none_or(|after| it > after);
            Ok::<_, Infallible>([2, 4, 6].into_iter().find(is_later))
        };
        for (start, expected) in [
            (None, [2, 4, 6]),
            (Some(0), [2, 4, 6]),
            (Some(2), [4, 6, 2]),
            (Some(3), [4, 6, 2]),
            (Some(6), [2, 4, 6]),
            (Some(9), [2, 4, 6]),
        ] {
            let mut cycle = Cycle::after(start);
            let round: Vec<_> = from_fn(|| cycle.next(next_after).ok().flatten()).collect();
            assert_eq!(round, expected, "{start:?}");
        }
    }
}
