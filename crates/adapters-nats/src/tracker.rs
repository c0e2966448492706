//! How far the broker has acknowledged our events, and whether it still has them.
//!
//! A broker may come back without the last messages that it had acknowledged: its default is to sync
//! to disk every two minutes, and an operator may restore a copy. So the highest sequence that was
//! acknowledged is remembered with the id of its message, and looked for after every connection. The
//! id tells more than the number: another publisher may have pushed the number past ours.

use std::collections::BTreeMap;
use std::time::Duration;

use punctual_domain::Timestamp;
use punctual_ports::{BusPosition, Loss};

/// How far back from the last acknowledgement a broker may have lost what it acknowledged.
const TAIL: Duration = Duration::from_mins(10);

/// By how much the broker's clock may differ from ours.
const CLOCK_MARGIN: Duration = Duration::from_mins(1);

/// How long it may take from the making of an event to the beginning of its publish.
const BEFORE_PUBLISH: Duration = Duration::from_secs(2);

/// What a stream says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StreamState {
    pub(crate) name: String,
    /// When the broker made it, in its own words.
    pub(crate) made_at: String,
    pub(crate) last_sequence: u64,
    /// When its last message came, or when it was made if it has none.
    pub(crate) last_message_at: Timestamp,
}

/// What the broker has in the place of the last message that it acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// A message with this id.
    Message(String),
    /// Nothing: it was too old and is gone, or somebody removed it.
    Nothing,
}

/// The last message that was acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) made_at: String,
    pub(crate) sequence: u64,
    pub(crate) message_id: String,
    acknowledged_at: Timestamp,
    /// What an earlier process has noted.
    covers_until: Timestamp,
    /// Whether this process has seen the acknowledgement, or another one before it.
    is_our_own: bool,
}

/// Remembers acknowledgements of one stream.
#[derive(Debug, Default)]
pub(crate) struct Tracker {
    known: Option<Known>,
    /// Whether `known` is to be kept.
    has_news: bool,
    /// Whether an acknowledgement came that cannot be: nothing is noted until the broker was asked.
    is_suspicious: bool,
    /// Publishes under way, by number, with the earliest event in each.
    under_way: BTreeMap<u64, Timestamp>,
    next_number: u64,
    loss: Option<Loss>,
    losses: u64,
    /// Its name, and when it was made.
    stream: Option<(String, String)>,
    has_recalled: bool,
}

/// A publish under way.
#[derive(Debug)]
pub(crate) struct Ticket {
    number: u64,
    /// The highest sequence when it began: what is stored now gets a higher one.
    highest: u64,
}

impl Tracker {
    /// Notes that a publish begins, and of which time its earliest event is.
    pub(crate) fn begin(&mut self, earliest: Timestamp) -> Ticket {
        let number = self.next_number;
        self.next_number += 1;
        self.under_way.insert(number, earliest);
        let highest = self.known.as_ref().map_or(0, |known| known.sequence);
        Ticket { number, highest }
    }

    /// Notes that it has ended, however.
    pub(crate) fn end(&mut self, ticket: &Ticket) {
        self.under_way.remove(&ticket.number);
    }

    /// Notes an acknowledgement; answers whether the broker must have forgotten something.
    pub(crate) fn acknowledged(
        &mut self,
        ticket: &Ticket,
        sequence: u64,
        is_duplicate: bool,
        message_id: &str,
        now: Timestamp,
    ) -> bool {
        let is_first = !self.is_suspicious;
        self.is_suspicious |= !is_duplicate && sequence <= ticket.highest;
        if self.is_suspicious {
            return is_first;
        }
        let Some((_, made_at)) = &self.stream else {
            return false;
        };
        if self
            .known
            .as_ref()
            .is_none_or(|known| sequence > known.sequence)
        {
            self.known = Some(Known {
                made_at: made_at.clone(),
                sequence,
                message_id: message_id.to_owned(),
                acknowledged_at: now,
                covers_until: now,
                is_our_own: true,
            });
        }
        self.has_news = true;
        false
    }

    /// Whether it has yet to be told what an earlier process has kept. Later that is old: what is
    /// known since may have been lost and given up on.
    pub(crate) const fn wants_to_recall(&self) -> bool {
        !self.has_recalled
    }

    /// What an earlier process has kept, unless this one knows better.
    pub(crate) fn recall(&mut self, kept: Option<BusPosition>) {
        let is_first = !std::mem::replace(&mut self.has_recalled, true);
        if is_first && self.known.is_none() {
            self.known = kept.map(|kept| Known {
                made_at: kept.made_at,
                sequence: kept.last_sequence,
                message_id: kept.last_message_id,
                acknowledged_at: kept.acknowledged_at,
                covers_until: kept.covers_until,
                is_our_own: false,
            });
        }
    }

    pub(crate) const fn known(&self) -> Option<&Known> {
        self.known.as_ref()
    }

    /// Compares what is known with what the broker has, and goes on from there.
    pub(crate) fn compare(&mut self, stream: &StreamState, found: &Found) {
        self.stream = Some((stream.name.clone(), stream.made_at.clone()));
        self.is_suspicious = false;
        let Some(known) = &mut self.known else {
            return;
        };
        // Not from now: the broker may have been away for hours.
        let tail = known.acknowledged_at.saturating_sub(TAIL);
        let of_copy = stream.last_message_at.saturating_sub(CLOCK_MARGIN);
        let (since, reason) = if known.made_at != stream.made_at {
            (tail, "the stream of events was made anew")
        } else if stream.last_sequence < known.sequence {
            (tail.min(of_copy), "the stream of events went back")
        } else if matches!(found, Found::Message(id) if *id != known.message_id) {
            (
                tail.min(of_copy),
                "the stream of events has another message in place of ours",
            )
        } else {
            if !known.is_our_own {
                // What was acknowledged after the last note was noted nowhere.
                known.is_our_own = true;
                let in_doubt = known.covers_until;
                self.lose(
                    in_doubt,
                    "what was acknowledged after the last note of the last run",
                );
            }
            return;
        };
        self.known = None;
        self.lose(since, reason);
    }

    /// Takes the end of the stream for the last acknowledgement, if none is known: otherwise what is
    /// published before the first note would be missed by nobody when process and broker lose it.
    pub(crate) fn begin_at(&mut self, stream: &StreamState, found: &Found, now: Timestamp) {
        if self.known.is_some() {
            return;
        }
        let message_id = match found {
            Found::Message(id) => id.clone(),
            Found::Nothing => String::new(),
        };
        self.known = Some(Known {
            made_at: stream.made_at.clone(),
            sequence: stream.last_sequence,
            message_id,
            acknowledged_at: now,
            covers_until: now,
            is_our_own: true,
        });
        self.has_news = true;
    }

    fn lose(&mut self, since: Timestamp, reason: &str) {
        self.losses += 1;
        let earlier = self.loss.take();
        self.loss = Some(Loss {
            number: self.losses,
            since: earlier.map_or(since, |earlier| earlier.since.min(since)),
            reason: reason.to_owned(),
        });
    }

    pub(crate) fn loss(&self) -> Option<Loss> {
        self.loss.clone()
    }

    /// Everything of a loss was published again; answers whether that was news.
    pub(crate) fn made_good(&mut self, loss: &Loss) -> bool {
        let is_it = self
            .loss
            .as_ref()
            .is_some_and(|it| it.number == loss.number);
        if is_it {
            self.loss = None;
            self.has_news = true;
        }
        is_it
    }

    /// What is to be kept now, if anything is. While something is lost nothing is: the next process
    /// has to find the same.
    pub(crate) fn news(&mut self, now: Timestamp, is_the_end: bool) -> Option<BusPosition> {
        if self.loss.is_some() || self.is_suspicious || !(self.has_news || is_the_end) {
            return None;
        }
        let covers_until = if is_the_end && self.under_way.is_empty() {
            now
        } else {
            self.covers_until(now)
        };
        let (known, (stream, _)) = (self.known.as_mut()?, self.stream.as_ref()?);
        self.has_news = false;
        Some(BusPosition {
            stream: stream.clone(),
            made_at: known.made_at.clone(),
            last_sequence: known.sequence,
            last_message_id: known.message_id.clone(),
            acknowledged_at: known.acknowledged_at,
            covers_until,
        })
    }

    /// It could not be kept.
    pub(crate) const fn keep_again(&mut self) {
        self.has_news = true;
    }

    /// Whatever was published before this instant has its acknowledgement noted, or none.
    fn covers_until(&self, now: Timestamp) -> Timestamp {
        let earliest = self.under_way.values().min().copied().unwrap_or(now);
        earliest.min(now).saturating_sub(BEFORE_PUBLISH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000).unwrap()
    }

    const NOW: i64 = 100_000;

    fn stream(made_at: &str, last_sequence: u64) -> StreamState {
        StreamState {
            name: "EVENTS".to_owned(),
            made_at: made_at.to_owned(),
            last_sequence,
            last_message_at: at(NOW - 7_200),
        }
    }

    fn ours() -> Found {
        Found::Message("id-10".to_owned())
    }

    /// A tracker that has seen message 10 acknowledged.
    fn seasoned() -> Tracker {
        let mut tracker = Tracker::default();
        tracker.compare(&stream("m", 9), &Found::Nothing);
        let ticket = tracker.begin(at(NOW - 60));
        assert!(!tracker.acknowledged(&ticket, 10, false, "id-10", at(NOW - 50)));
        tracker.end(&ticket);
        tracker
    }

    fn kept(tracker: &mut Tracker) -> BusPosition {
        tracker.news(at(NOW), false).unwrap()
    }

    #[test]
    fn a_broker_that_has_our_last_message_has_lost_nothing() {
        for (last, found) in [(10, ours()), (500, ours()), (500, Found::Nothing)] {
            let mut tracker = seasoned();
            tracker.compare(&stream("m", last), &found);
            assert_eq!(tracker.loss(), None);
        }
    }

    #[test]
    fn a_broker_that_went_back_was_made_anew_or_has_anothers_message_has_lost_its_tail() {
        let copied_at = at(NOW - 7_200 - 60);
        let tail = at(NOW - 50 - 600);
        for (state, found, since) in [
            (stream("m", 9), Found::Nothing, copied_at),
            (stream("m", 12), Found::Message("x".to_owned()), copied_at),
            (stream("other", 12), ours(), tail),
        ] {
            let mut tracker = seasoned();
            tracker.compare(&state, &found);
            assert_eq!(tracker.loss().unwrap().since, since, "{state:?}");
        }
    }

    #[test]
    fn nothing_is_kept_until_a_loss_is_made_good() {
        let mut tracker = seasoned();
        tracker.compare(&stream("m", 9), &Found::Nothing);
        let loss = tracker.loss().unwrap();
        let ticket = tracker.begin(at(NOW));
        assert!(!tracker.acknowledged(&ticket, 10, false, "again", at(NOW)));
        assert_eq!(tracker.news(at(NOW), false), None);
        assert_eq!(tracker.news(at(NOW), true), None, "nor at the end");
        assert!(tracker.made_good(&loss));
        assert!(!tracker.made_good(&loss));
        assert_eq!(kept(&mut tracker).last_message_id, "again");
    }

    #[test]
    fn a_second_loss_goes_as_far_back_as_the_first() {
        let mut tracker = seasoned();
        tracker.compare(&stream("m", 9), &Found::Nothing);
        let first = tracker.loss().unwrap();
        let ticket = tracker.begin(at(NOW));
        tracker.acknowledged(&ticket, 10, false, "id-10", at(NOW));
        tracker.compare(&stream("other", 0), &Found::Nothing);
        let second = tracker.loss().unwrap();
        assert_eq!(second.since, first.since);
        assert!(
            !tracker.made_good(&first),
            "the second is not made good by the first"
        );
        assert!(tracker.made_good(&second));
    }

    #[test]
    fn what_comes_before_the_first_note_is_in_doubt_too() {
        let first_look = || {
            let mut tracker = Tracker::default();
            tracker.recall(None);
            tracker.compare(&stream("m", 9), &Found::Nothing);
            tracker.begin_at(&stream("m", 9), &Found::Message("id-9".to_owned()), at(NOW));
            tracker
        };
        let position = kept(&mut first_look());
        assert_eq!(
            (position.last_sequence, position.last_message_id.as_str()),
            (9, "id-9")
        );
        for (state, found) in [
            (stream("m", 12), Found::Message("id-9".to_owned())),
            (stream("m", 8), Found::Nothing),
            (stream("other", 0), Found::Nothing),
        ] {
            let mut next = Tracker::default();
            next.recall(Some(kept(&mut first_look())));
            next.compare(&state, &found);
            assert!(next.loss().unwrap().since < at(NOW), "{state:?}");
        }
        let mut known = seasoned();
        known.begin_at(&stream("m", 12), &Found::Nothing, at(NOW));
        assert_eq!(known.known().unwrap().sequence, 10, "what is known stays");
    }

    #[test]
    fn what_is_under_way_is_not_covered() {
        let mut tracker = seasoned();
        let ticket = tracker.begin(at(NOW - 50));
        assert_eq!(kept(&mut tracker).covers_until, at(NOW - 52));
        tracker.acknowledged(&ticket, 11, false, "id-11", at(NOW));
        tracker.end(&ticket);
        assert_eq!(kept(&mut tracker).covers_until, at(NOW - 2));
        assert_eq!(tracker.news(at(NOW), false), None, "it is said once");
        let end = tracker.news(at(NOW), true).unwrap();
        assert_eq!((end.covers_until, end.last_sequence), (at(NOW), 11));
    }

    #[test]
    fn after_a_run_without_a_last_word_the_time_since_its_last_note_is_in_doubt() {
        let position = kept(&mut seasoned());
        let covers_until = position.covers_until;
        let mut next = Tracker::default();
        next.recall(Some(position.clone()));
        next.compare(&stream("m", 12), &ours());
        assert_eq!(next.loss().unwrap().since, covers_until);

        let mut next = Tracker::default();
        next.recall(Some(position));
        next.compare(&stream("m", 9), &Found::Nothing);
        let since = next.loss().unwrap().since;
        assert_eq!(
            since,
            at(NOW - 7_200 - 60),
            "counted from the copy, not from now"
        );
    }

    #[test]
    fn an_acknowledgement_of_a_sequence_that_was_given_before_is_suspicious() {
        let mut tracker = seasoned();
        let ticket = tracker.begin(at(NOW));
        assert!(
            !tracker.acknowledged(&ticket, 3, true, "id-3", at(NOW)),
            "a duplicate"
        );
        assert!(tracker.acknowledged(&ticket, 10, false, "new", at(NOW)));
        assert!(
            !tracker.acknowledged(&ticket, 11, false, "next", at(NOW)),
            "said once"
        );
        assert_eq!(
            tracker.known().unwrap().message_id,
            "id-10",
            "until it is asked"
        );
        assert_eq!(tracker.news(at(NOW), false), None);
        tracker.compare(&stream("m", 11), &Found::Message("new".to_owned()));
        assert!(tracker.loss().is_some());
    }

    #[test]
    fn several_acknowledgements_of_one_publish_come_in_any_order() {
        let mut tracker = seasoned();
        let ticket = tracker.begin(at(NOW));
        assert!(!tracker.acknowledged(&ticket, 13, false, "id-13", at(NOW)));
        assert!(!tracker.acknowledged(&ticket, 11, false, "id-11", at(NOW)));
        assert_eq!(tracker.known().unwrap().sequence, 13);
    }
}
