//! How far the broker has acknowledged our events, and whether it still has them.
//!
//! A broker may come back without the last messages that it had acknowledged: its default is to sync
//! to disk every two minutes, and an operator may restore a copy. So the highest sequence that was
//! acknowledged is remembered with the id of its message, and looked for after every connection. The
//! id tells more than the number: another publisher may have pushed the number past ours.
//!
//! What is published again after a loss is younger in the stream than it is itself. So it is
//! remembered, too, how old the oldest of it was: a second loss goes back as far.

use std::collections::BTreeMap;
use std::time::Duration;

use punctual_domain::Timestamp;
use punctual_ports::{BusPosition, DataLoss};

use crate::streams::KEEP_EVENTS;

/// How far back from the last acknowledgement a broker may have lost what it acknowledged.
const TAIL: Duration = Duration::from_mins(10);

/// By how much the broker's clock may differ from ours, and how much older than its message an event
/// may be that was published again without being remembered.
const MARGIN: Duration = TAIL;

/// What is published again and older than this is remembered.
const OLD: Duration = Duration::from_mins(5);

/// How long it may take from the making of an event to the beginning of its publish.
const BEFORE_PUBLISH: Duration = Duration::from_secs(2);

const MADE_ANEW: &str = "the stream of events was made anew";

/// What a stream says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StreamState {
    pub(crate) name: String,
    /// When the broker made it, in its own words.
    pub(crate) made_at: String,
    pub(crate) last_sequence: u64,
    /// When its last message came, or when it was made if it has none. What came after a loss was
    /// found is left out: see [`Looked::lost_since`].
    pub(crate) last_message_at: Timestamp,
}

/// What was known before the broker was asked. Its answer says nothing of what was acknowledged
/// meanwhile: messages are published all the time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Looked {
    known: Option<Known>,
    is_suspicious: bool,
}

impl Looked {
    /// The place of the last message that was acknowledged.
    pub(crate) fn sequence(&self) -> Option<u64> {
        self.known.as_ref().map(|known| known.sequence)
    }

    /// Whether the broker has lost something, and the instant before which a message in its stream
    /// tells how far a copy goes. Later ones may have come after the loss.
    pub(crate) fn lost_since(&self, stream: &StreamState, found: &Found) -> Option<Timestamp> {
        let known = self.known.as_ref()?;
        self.reason(stream, found)?;
        Some(known.acknowledged_at.saturating_sub(TAIL))
    }

    fn reason(&self, stream: &StreamState, found: &Found) -> Option<&'static str> {
        let known = self.known.as_ref()?;
        let is_another = |id: &String| !known.message_id.is_empty() && *id != known.message_id;
        if known.made_at != stream.made_at {
            Some(MADE_ANEW)
        } else if stream.last_sequence < known.sequence {
            Some("the stream of events went back")
        } else if matches!(found, Found::Message(id) if is_another(id)) {
            Some("the stream of events has another message in place of ours")
        } else if self.is_suspicious {
            Some("the stream of events gave out a number again")
        } else {
            None
        }
    }
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
    /// Empty if the message is nobody's that we know: then only its place counts.
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
    to_keep: ToKeep,
    /// Whether an acknowledgement came that cannot be: nothing is noted until the broker was asked.
    is_suspicious: bool,
    /// Publishes under way, by number, with the earliest event in each.
    under_way: BTreeMap<u64, Timestamp>,
    next_number: u64,
    loss: Option<DataLoss>,
    losses: u64,
    /// Whatever of the loss is from before this instant was published again.
    recovered_until: Option<Timestamp>,
    republished: Option<Republished>,
    /// The same as it is kept.
    kept_republished: Option<Republished>,
    /// Its name, and when it was made.
    stream: Option<(String, String)>,
    has_recalled: bool,
}

/// Events that were published again.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Republished {
    /// From when the oldest of them may be.
    since: Timestamp,
    /// When the last of them was published.
    last_at: Timestamp,
}

impl Republished {
    const fn of(position: &BusPosition) -> Self {
        Self {
            since: position.covers_until,
            last_at: position.acknowledged_at,
        }
    }
}

/// Under which name it is kept how old the events were that were published again: no stream can
/// have it. The times of that position are those of [`Republished`].
pub(crate) fn republished(stream: &str) -> String {
    format!("{stream} (republished)")
}

/// Whether the position is to be kept.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum ToKeep {
    #[default]
    Nothing,
    Soon,
    /// Before anything is published, because nothing was ever kept of this stream.
    First,
}

/// What was acknowledged of a publish.
#[derive(Debug)]
pub(crate) struct Acknowledged {
    /// The highest sequence.
    pub(crate) sequence: u64,
    /// The id of the message that has it.
    pub(crate) message_id: String,
    /// The lowest sequence that was given out, if any was: not those of messages that were there
    /// already.
    pub(crate) lowest_new: Option<u64>,
}

/// A publish under way.
#[derive(Debug)]
pub(crate) struct Ticket {
    number: u64,
    /// The last message when it began: what is stored now gets a higher sequence.
    before: Option<Known>,
}

impl Tracker {
    /// Notes that a publish begins, and of which time its earliest event is.
    pub(crate) fn begin(&mut self, earliest: Timestamp) -> Ticket {
        let number = self.next_number;
        self.next_number += 1;
        self.under_way.insert(number, earliest);
        let before = self.known.clone();
        Ticket { number, before }
    }

    /// Notes that it has ended, however.
    pub(crate) fn end(&mut self, ticket: &Ticket) {
        self.under_way.remove(&ticket.number);
    }

    /// Notes what was acknowledged of a publish; answers whether the broker must have forgotten
    /// something.
    pub(crate) fn acknowledged(
        &mut self,
        ticket: &Ticket,
        news: Acknowledged,
        now: Timestamp,
    ) -> bool {
        if self.is_suspicious {
            return false;
        }
        let highest = ticket.before.as_ref().map_or(0, |known| known.sequence);
        if news.lowest_new.is_some_and(|lowest| lowest <= highest) {
            // Answers come in any order: a later number may be noted already, and be there.
            self.known.clone_from(&ticket.before);
            self.is_suspicious = true;
            return true;
        }
        let Some((_, made_at)) = &self.stream else {
            return false;
        };
        if self
            .known
            .as_ref()
            .is_none_or(|known| news.sequence > known.sequence)
        {
            self.known = Some(Known {
                made_at: made_at.clone(),
                sequence: news.sequence,
                message_id: news.message_id,
                acknowledged_at: now,
                covers_until: now,
                is_our_own: true,
            });
        }
        self.keep_again();
        false
    }

    /// Whether it has yet to be told what an earlier process has kept. Later that is old: what is
    /// known since may have been lost and given up on.
    pub(crate) const fn wants_to_recall(&self) -> bool {
        !self.has_recalled
    }

    /// What an earlier process has kept, unless this one knows better.
    pub(crate) fn recall(&mut self, kept: Option<BusPosition>, republished: Option<&BusPosition>) {
        let is_first = !std::mem::replace(&mut self.has_recalled, true);
        if is_first {
            self.republished = republished.map(Republished::of);
            self.kept_republished.clone_from(&self.republished);
        }
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

    /// What is known now, to be compared with what the broker answers to a question that is asked
    /// after this.
    pub(crate) fn look(&self) -> Looked {
        Looked {
            known: self.known.clone(),
            is_suspicious: self.is_suspicious,
        }
    }

    /// Compares what was known with what the broker has, and goes on from there.
    pub(crate) fn compare(
        &mut self,
        looked: &Looked,
        stream: &StreamState,
        found: &Found,
        now: Timestamp,
    ) {
        self.stream = Some((stream.name.clone(), stream.made_at.clone()));
        let Some(known) = &looked.known else {
            if self.known.is_none() {
                self.begin_at(stream, now);
                self.to_keep = ToKeep::First;
            }
            return;
        };
        if let Some(reason) = looked.reason(stream, found) {
            // Not from now: the broker may have been away for hours.
            let tail = known.acknowledged_at.saturating_sub(TAIL);
            let further = if reason == MADE_ANEW {
                // Nothing is left of what nobody has read yet.
                now.saturating_sub(KEEP_EVENTS)
            } else {
                stream.last_message_at.saturating_sub(MARGIN)
            };
            let mut since = tail.min(further).min(known.covers_until);
            if let Some(republished) = &self.republished
                && republished.last_at >= since
            {
                since = since.min(republished.since);
            }
            self.is_suspicious = false;
            self.begin_at(stream, now);
            self.lose(since, reason);
        } else if !known.is_our_own {
            // What was acknowledged after the last note was noted nowhere.
            let in_doubt = known.covers_until;
            if let Some(known) = &mut self.known {
                known.is_our_own = true;
            }
            self.lose(
                in_doubt,
                "what was acknowledged after the last note of the last run",
            );
        }
    }

    /// Counts from what is there now. Without this nobody could tell that the first messages of all
    /// were lost, if that happened before the first note.
    fn begin_at(&mut self, stream: &StreamState, now: Timestamp) {
        self.known = Some(Known {
            made_at: stream.made_at.clone(),
            sequence: stream.last_sequence,
            message_id: String::new(),
            acknowledged_at: now,
            covers_until: now,
            is_our_own: true,
        });
        self.keep_again();
    }

    fn lose(&mut self, since: Timestamp, reason: &str) {
        self.losses += 1;
        let earlier = self.loss.take();
        self.recovered_until = None;
        self.loss = Some(DataLoss {
            number: self.losses,
            since: earlier.map_or(since, |earlier| earlier.since.min(since)),
            reason: reason.to_owned(),
        });
    }

    pub(crate) fn loss(&self) -> Option<DataLoss> {
        self.loss.clone()
    }

    fn is_told(&self, loss: &DataLoss) -> bool {
        let told = self.loss.as_ref();
        told.is_some_and(|it| it.number == loss.number)
    }

    /// Everything of a loss was published again; answers whether that was news.
    pub(crate) fn recovered(&mut self, loss: &DataLoss, now: Timestamp) -> bool {
        let is_it = self.is_told(loss);
        if is_it {
            self.note_republished(loss, now);
            self.loss = None;
            self.recovered_until = None;
            self.keep_again();
        }
        is_it
    }

    /// What is from before an instant was published again.
    pub(crate) fn recovered_until(&mut self, loss: &DataLoss, until: Timestamp, now: Timestamp) {
        if self.is_told(loss) {
            self.note_republished(loss, now);
            self.recovered_until = Some(until);
            self.keep_again();
        }
    }

    fn note_republished(&mut self, loss: &DataLoss, now: Timestamp) {
        if now.saturating_sub(OLD) <= loss.since {
            return;
        }
        // What is no longer in any stream does not count.
        let earlier = self.republished.take();
        let earlier = earlier.filter(|it| it.last_at >= now.saturating_sub(KEEP_EVENTS));
        self.republished = Some(Republished {
            since: earlier.map_or(loss.since, |it| it.since.min(loss.since)),
            last_at: now,
        });
    }

    /// How old the events were that were published again, to be kept before the position if it is
    /// news.
    pub(crate) fn republished(&self) -> Option<BusPosition> {
        let ((stream, made_at), it) = (self.stream.as_ref()?, self.republished.as_ref()?);
        let is_news = self.kept_republished.as_ref() != Some(it);
        is_news.then(|| BusPosition {
            stream: republished(stream),
            made_at: made_at.clone(),
            last_sequence: 0,
            last_message_id: String::new(),
            acknowledged_at: it.last_at,
            covers_until: it.since,
        })
    }

    /// That was kept.
    pub(crate) fn kept_republished(&mut self, position: &BusPosition) {
        self.kept_republished = Some(Republished::of(position));
    }

    /// What is to be kept now, if anything is. While something is lost the next process has to find
    /// the same: nothing is kept but how much of it was published again.
    pub(crate) fn news(&mut self, now: Timestamp, is_the_end: bool) -> Option<BusPosition> {
        if self.is_suspicious || (self.to_keep == ToKeep::Nothing && !is_the_end) {
            return None;
        }
        let covers_until = if self.loss.is_some() {
            // What came since the loss may be older, and still be under way.
            self.recovered_until?.min(self.covers_until(now))
        } else if is_the_end && self.under_way.is_empty() {
            now
        } else {
            self.covers_until(now)
        };
        let (known, (stream, _)) = (self.known.as_mut()?, self.stream.as_ref()?);
        if self.to_keep == ToKeep::Soon {
            self.to_keep = ToKeep::Nothing;
        }
        Some(BusPosition {
            stream: stream.clone(),
            made_at: known.made_at.clone(),
            last_sequence: known.sequence,
            last_message_id: known.message_id.clone(),
            acknowledged_at: known.acknowledged_at,
            covers_until,
        })
    }

    /// Whether the position has to be kept before anything is published.
    pub(crate) fn has_to_be_kept(&self) -> bool {
        self.to_keep == ToKeep::First
    }

    /// It was kept.
    pub(crate) fn kept(&mut self) {
        if self.to_keep == ToKeep::First {
            self.to_keep = ToKeep::Nothing;
        }
    }

    /// There is something to keep: because it is new, or because it could not be kept.
    pub(crate) fn keep_again(&mut self) {
        if self.to_keep == ToKeep::Nothing {
            self.to_keep = ToKeep::Soon;
        }
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

    const NOW: i64 = 10_000_000;

    fn stream(made_at: &str, last_sequence: u64) -> StreamState {
        StreamState {
            name: "EVENTS".to_owned(),
            made_at: made_at.to_owned(),
            last_sequence,
            last_message_at: at(NOW - 7_200),
        }
    }

    fn compare(tracker: &mut Tracker, stream: &StreamState, found: &Found) {
        let looked = tracker.look();
        tracker.compare(&looked, stream, found, at(NOW - 60));
    }

    fn ack(sequence: u64, is_duplicate: bool, id: &str) -> Acknowledged {
        Acknowledged {
            sequence,
            message_id: id.to_owned(),
            lowest_new: (!is_duplicate).then_some(sequence),
        }
    }

    fn ours() -> Found {
        Found::Message("id-10".to_owned())
    }

    /// A tracker that has seen message 10 acknowledged.
    fn seasoned() -> Tracker {
        let mut tracker = Tracker::default();
        compare(&mut tracker, &stream("m", 9), &Found::Nothing);
        let ticket = tracker.begin(at(NOW - 60));
        assert!(!tracker.acknowledged(&ticket, ack(10, false, "id-10"), at(NOW - 50)));
        tracker.end(&ticket);
        tracker
    }

    fn kept(tracker: &mut Tracker) -> BusPosition {
        let position = tracker.news(at(NOW), false).unwrap();
        tracker.kept();
        position
    }

    #[test]
    fn a_broker_that_has_our_last_message_has_lost_nothing() {
        for (last, found) in [(10, ours()), (500, ours()), (500, Found::Nothing)] {
            let mut tracker = seasoned();
            compare(&mut tracker, &stream("m", last), &found);
            assert_eq!(tracker.loss(), None);
        }
    }

    #[test]
    fn a_broker_that_went_back_was_made_anew_or_has_anothers_message_has_lost_its_tail() {
        let copied_at = at(NOW - 7_200 - 600);
        let a_week = at(NOW - 60).saturating_sub(KEEP_EVENTS);
        for (state, found, since) in [
            (stream("m", 9), Found::Nothing, copied_at),
            (stream("m", 12), Found::Message("x".to_owned()), copied_at),
            (stream("other", 12), ours(), a_week),
        ] {
            let mut tracker = seasoned();
            compare(&mut tracker, &state, &found);
            assert_eq!(tracker.loss().unwrap().since, since, "{state:?}");
        }
    }

    #[test]
    fn nothing_is_kept_until_a_loss_is_made_good() {
        let mut tracker = seasoned();
        compare(&mut tracker, &stream("m", 9), &Found::Nothing);
        let loss = tracker.loss().unwrap();
        let ticket = tracker.begin(at(NOW));
        assert!(!tracker.acknowledged(&ticket, ack(10, false, "again"), at(NOW)));
        assert_eq!(tracker.news(at(NOW), false), None);
        assert_eq!(tracker.news(at(NOW), true), None, "nor at the end");
        assert!(tracker.recovered(&loss, at(NOW)));
        assert!(!tracker.recovered(&loss, at(NOW)));
        assert_eq!(kept(&mut tracker).last_message_id, "again");
    }

    #[test]
    fn a_second_loss_goes_as_far_back_as_the_first() {
        let mut tracker = seasoned();
        compare(&mut tracker, &stream("m", 9), &Found::Nothing);
        let first = tracker.loss().unwrap();
        let ticket = tracker.begin(at(NOW));
        tracker.acknowledged(&ticket, ack(10, false, "id-10"), at(NOW));
        compare(&mut tracker, &stream("other", 0), &Found::Nothing);
        let second = tracker.loss().unwrap();
        assert!(second.since <= first.since);
        assert!(
            !tracker.recovered(&first, at(NOW)),
            "the second is not made good by the first"
        );
        assert!(tracker.recovered(&second, at(NOW)));
    }

    #[test]
    fn what_is_under_way_is_not_covered() {
        let mut tracker = seasoned();
        let ticket = tracker.begin(at(NOW - 50));
        assert_eq!(kept(&mut tracker).covers_until, at(NOW - 52));
        tracker.acknowledged(&ticket, ack(11, false, "id-11"), at(NOW));
        tracker.end(&ticket);
        assert_eq!(kept(&mut tracker).covers_until, at(NOW - 2));
        assert_eq!(tracker.news(at(NOW), false), None, "it is said once");
        let end = tracker.news(at(NOW), true).unwrap();
        assert_eq!((end.covers_until, end.last_sequence), (at(NOW), 11));
    }

    #[test]
    fn what_is_under_way_is_not_covered_while_a_loss_is_made_good_either() {
        let mut tracker = seasoned();
        compare(&mut tracker, &stream("m", 9), &Found::Nothing);
        let loss = tracker.loss().unwrap();
        let ticket = tracker.begin(at(NOW - 50));
        tracker.recovered_until(&loss, at(NOW - 10), at(NOW));
        assert_eq!(kept(&mut tracker).covers_until, at(NOW - 52));
        tracker.end(&ticket);
        tracker.recovered_until(&loss, at(NOW - 10), at(NOW));
        assert_eq!(kept(&mut tracker).covers_until, at(NOW - 10));
    }

    #[test]
    fn after_a_run_without_a_last_word_the_time_since_its_last_note_is_in_doubt() {
        let position = kept(&mut seasoned());
        let covers_until = position.covers_until;
        let mut next = Tracker::default();
        next.recall(Some(position.clone()), None);
        compare(&mut next, &stream("m", 12), &ours());
        assert_eq!(next.loss().unwrap().since, covers_until);

        let mut next = Tracker::default();
        next.recall(Some(position), None);
        compare(&mut next, &stream("m", 9), &Found::Nothing);
        let since = next.loss().unwrap().since;
        assert_eq!(
            since,
            at(NOW - 7_200 - 600),
            "counted from the copy, not from now"
        );
    }

    #[test]
    fn an_acknowledgement_of_a_sequence_that_was_given_before_is_suspicious() {
        let mut tracker = seasoned();
        let ticket = tracker.begin(at(NOW));
        assert!(
            !tracker.acknowledged(&ticket, ack(3, true, "id-3"), at(NOW)),
            "a duplicate"
        );
        assert!(tracker.acknowledged(&ticket, ack(10, false, "new"), at(NOW)));
        assert!(
            !tracker.acknowledged(&ticket, ack(11, false, "next"), at(NOW)),
            "said once"
        );
        assert_eq!(
            tracker.known.as_ref().unwrap().message_id,
            "id-10",
            "until it is asked"
        );
        assert_eq!(tracker.news(at(NOW), false), None);
        compare(
            &mut tracker,
            &stream("m", 11),
            &Found::Message("new".to_owned()),
        );
        assert!(tracker.loss().is_some());
    }

    #[test]
    fn several_acknowledgements_of_one_publish_come_in_any_order() {
        let mut tracker = seasoned();
        let ticket = tracker.begin(at(NOW));
        assert!(!tracker.acknowledged(&ticket, ack(13, false, "id-13"), at(NOW)));
        assert!(!tracker.acknowledged(&ticket, ack(11, false, "id-11"), at(NOW)));
        assert_eq!(tracker.known.as_ref().unwrap().sequence, 13);
    }

    #[test]
    fn a_number_given_out_again_is_a_loss_although_a_higher_one_was_noted_first() {
        let mut tracker = seasoned();
        let ticket = tracker.begin(at(NOW));
        assert!(!tracker.acknowledged(&ticket, ack(12, false, "id-12"), at(NOW)));
        assert!(tracker.acknowledged(&ticket, ack(9, false, "id-9"), at(NOW)));
        compare(
            &mut tracker,
            &stream("m", 12),
            &Found::Message("id-10b".to_owned()),
        );
        assert!(tracker.loss().unwrap().since <= at(NOW - 50 - 600));
        let mut tracker = seasoned();
        let ticket = tracker.begin(at(NOW));
        assert!(tracker.acknowledged(&ticket, ack(9, false, "id-9"), at(NOW)));
        compare(&mut tracker, &stream("m", 12), &Found::Nothing);
        assert!(tracker.loss().is_some(), "whatever is in its place");
    }

    #[test]
    fn what_is_acknowledged_while_the_broker_is_asked_is_no_loss() {
        let mut tracker = seasoned();
        let looked = tracker.look();
        let ticket = tracker.begin(at(NOW));
        assert!(!tracker.acknowledged(&ticket, ack(20, false, "id-20"), at(NOW)));
        tracker.compare(&looked, &stream("m", 12), &ours(), at(NOW));
        assert_eq!(tracker.loss(), None);
        assert_eq!(kept(&mut tracker).last_sequence, 20);
    }

    #[test]
    fn an_oddity_that_comes_while_the_broker_is_asked_is_asked_about_next() {
        let mut tracker = seasoned();
        let looked = tracker.look();
        let ticket = tracker.begin(at(NOW));
        assert!(tracker.acknowledged(&ticket, ack(9, false, "id-9"), at(NOW)));
        tracker.compare(&looked, &stream("m", 12), &ours(), at(NOW));
        assert_eq!(tracker.news(at(NOW), false), None);
        compare(&mut tracker, &stream("m", 9), &Found::Nothing);
        assert!(tracker.loss().is_some());
    }

    #[test]
    fn what_is_published_first_of_all_is_in_doubt_too_after_a_run_without_a_last_word() {
        let mut tracker = Tracker::default();
        tracker.recall(None, None);
        compare(&mut tracker, &stream("m", 500), &Found::Nothing);
        assert!(tracker.has_to_be_kept());
        let position = kept(&mut tracker);
        assert_eq!(position.last_sequence, 500);
        tracker.kept();
        assert!(!tracker.has_to_be_kept());
        let ticket = tracker.begin(at(NOW));
        assert!(!tracker.acknowledged(&ticket, ack(501, false, "id-501"), at(NOW)));
        // It ends here, and the broker has lost 501 again.
        let mut next = Tracker::default();
        next.recall(Some(position), None);
        let foreign = Found::Message("foreign".to_owned());
        compare(&mut next, &stream("m", 500), &foreign);
        assert!(next.loss().unwrap().since <= at(NOW));
    }

    #[test]
    fn a_stream_made_anew_has_lost_whatever_it_would_still_have() {
        let mut tracker = seasoned();
        compare(&mut tracker, &stream("other", 0), &Found::Nothing);
        let a_week_ago = at(NOW - 60).saturating_sub(KEEP_EVENTS);
        assert_eq!(tracker.loss().unwrap().since, a_week_ago);
    }

    #[test]
    fn the_next_process_goes_on_where_this_one_ends() {
        let mut tracker = seasoned();
        compare(&mut tracker, &stream("other", 0), &Found::Nothing);
        let loss = tracker.loss().unwrap();
        assert_eq!(tracker.news(at(NOW), true), None);
        let until = at(NOW - 90_000);
        tracker.recovered_until(&loss, until, at(NOW));
        let ticket = tracker.begin(at(NOW));
        tracker.acknowledged(&ticket, ack(1, false, "id-1"), at(NOW));
        tracker.end(&ticket);
        assert_eq!(tracker.loss().unwrap().since, loss.since);
        let (position, republished) = (kept(&mut tracker), tracker.republished());
        assert_eq!(position.covers_until, until);

        let next = |stream: &StreamState, found: &Found| {
            let mut next = Tracker::default();
            next.recall(Some(position.clone()), republished.as_ref());
            compare(&mut next, stream, found);
            next.loss().unwrap().since
        };
        let same = stream("other", 1);
        assert_eq!(next(&same, &Found::Message("id-1".to_owned())), until);
        // What was published again is lost again, however old it is.
        let went_back = next(&stream("other", 0), &Found::Nothing);
        assert_eq!(went_back, loss.since);
    }

    #[test]
    fn what_was_published_again_and_is_lost_again_is_published_a_third_time() {
        let mut tracker = seasoned();
        compare(&mut tracker, &stream("other", 0), &Found::Nothing);
        let first = tracker.loss().unwrap();
        let ticket = tracker.begin(at(NOW));
        tracker.acknowledged(&ticket, ack(5, false, "old"), at(NOW));
        tracker.end(&ticket);
        assert!(tracker.recovered(&first, at(NOW)));
        compare(&mut tracker, &stream("other", 3), &Found::Nothing);
        assert_eq!(tracker.loss().unwrap().since, first.since);
    }
}
