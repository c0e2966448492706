//! Tracks the position up to which the broker acknowledged events, and detects data loss.
//!
//! A broker may come back without the last messages that it acknowledged: by default it syncs to disk
//! every two minutes, and an operator may restore a backup. So the highest acknowledged sequence is saved
//! with the id of its message, and checked after every connect. The sequence alone is not enough: another
//! publisher may have advanced it past ours.
//!
//! A republished event is older than its position in the stream says. So the age of the oldest one is
//! saved, too: a second loss goes back as far.

use std::collections::BTreeMap;
use std::time::Duration;

use punctual_domain::Timestamp;
use punctual_ports::{BusPosition, DataLoss};

use crate::streams::KEEP_EVENTS;

/// Time before the last acknowledgement whose messages a broker may have lost.
const TAIL: Duration = Duration::from_mins(10);

/// Maximum difference between the clocks of broker and client, and maximum age that a republished event
/// may have without being recorded.
const MARGIN: Duration = TAIL;

/// Age from which republished events are recorded.
const OLD: Duration = Duration::from_mins(5);

/// Maximum time between the creation of an event and the start of its publish.
const BEFORE_PUBLISH: Duration = Duration::from_secs(2);

const RECREATED: &str = "the stream of events was made anew";

/// State of a stream, as the broker reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StreamState {
    pub(crate) name: String,
    /// When it was created, as the broker formats it.
    pub(crate) made_at: String,
    pub(crate) last_sequence: u64,
    /// Time of its last message, or of its creation if it has none. Messages after a detected loss are
    /// left out: see [`Snapshot::lost_since`].
    pub(crate) last_message_at: Timestamp,
}

/// State of the tracker before the broker is queried. The response does not cover messages acknowledged
/// meanwhile.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    known: Option<Known>,
    is_suspicious: bool,
}

impl Snapshot {
    /// The sequence of the last acknowledged message.
    pub(crate) fn sequence(&self) -> Option<u64> {
        self.known.as_ref().map(|known| known.sequence)
    }

    /// If the broker lost messages, the instant up to which the messages in its stream tell how old the
    /// restored backup is. Later ones may have arrived after the loss.
    pub(crate) fn lost_since(&self, stream: &StreamState, found: &Found) -> Option<Timestamp> {
        let known = self.known.as_ref()?;
        self.reason(stream, found)?;
        Some(known.acknowledged_at.saturating_sub(TAIL))
    }

    fn reason(&self, stream: &StreamState, found: &Found) -> Option<&'static str> {
        let known = self.known.as_ref()?;
        let is_another = |id: &String| !known.message_id.is_empty() && *id != known.message_id;
        if known.made_at != stream.made_at {
            Some(RECREATED)
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

/// What the broker has at the sequence of the last acknowledged message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// A message with this id.
    Message(String),
    /// Nothing: the message expired or was deleted.
    Nothing,
}

/// The last acknowledged message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) made_at: String,
    pub(crate) sequence: u64,
    /// Empty if the message is of another publisher: then only its sequence counts.
    pub(crate) message_id: String,
    acknowledged_at: Timestamp,
    /// As saved by an earlier process.
    covers_until: Timestamp,
    /// Whether this process received the acknowledgement, or an earlier one.
    is_our_own: bool,
}

/// Tracks the acknowledgements of one stream.
#[derive(Debug, Default)]
pub(crate) struct Tracker {
    known: Option<Known>,
    /// Whether `known` is to be saved.
    to_save: ToSave,
    /// Whether an impossible acknowledgement was received: nothing is recorded until the next check.
    is_suspicious: bool,
    /// Publishes in flight, by number, with the time of the earliest event in each.
    in_flight: BTreeMap<u64, Timestamp>,
    next_number: u64,
    loss: Option<DataLoss>,
    losses: u64,
    /// Messages of the loss from before this instant were published again.
    recovered_until: Option<Timestamp>,
    republished: Option<Republished>,
    /// The saved value of `republished`.
    kept_republished: Option<Republished>,
    /// Its name, and when it was created.
    stream: Option<(String, String)>,
    is_restored: bool,
}

/// Republished events.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Republished {
    /// Earliest possible time of the oldest one.
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

/// Name under which the age of republished events is saved; no stream can have it. The times of that
/// position are those of [`Republished`].
pub(crate) fn republished(stream: &str) -> String {
    format!("{stream} (republished)")
}

/// Whether the position is to be saved.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum ToSave {
    #[default]
    Nothing,
    Soon,
    /// Before anything is published, because no position of this stream was ever saved.
    First,
}

/// Acknowledgements of a publish.
#[derive(Debug)]
pub(crate) struct Acknowledged {
    /// The highest sequence.
    pub(crate) sequence: u64,
    /// The id of the message with that sequence.
    pub(crate) message_id: String,
    /// The lowest newly assigned sequence, if any: duplicates keep theirs.
    pub(crate) lowest_new: Option<u64>,
}

/// A publish in flight.
#[derive(Debug)]
pub(crate) struct Ticket {
    number: u64,
    /// The last message when it started: later ones get a higher sequence.
    before: Option<Known>,
}

impl Tracker {
    /// Records the start of a publish, and the time of its earliest event.
    pub(crate) fn begin(&mut self, earliest: Timestamp) -> Ticket {
        let number = self.next_number;
        self.next_number += 1;
        self.in_flight.insert(number, earliest);
        let before = self.known.clone();
        Ticket { number, before }
    }

    /// Records the end of a publish, whatever its outcome.
    pub(crate) fn end(&mut self, ticket: &Ticket) {
        self.in_flight.remove(&ticket.number);
    }

    /// Records the acknowledgements of a publish; returns whether they prove a loss.
    pub(crate) fn acknowledged(
        &mut self,
        ticket: &Ticket,
        acks: Acknowledged,
        now: Timestamp,
    ) -> bool {
        if self.is_suspicious {
            return false;
        }
        let highest = ticket.before.as_ref().map_or(0, |known| known.sequence);
        if acks.lowest_new.is_some_and(|lowest| lowest <= highest) {
            // Acknowledgements arrive in any order: a higher sequence may be recorded already, and exist.
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
            .is_none_or(|known| acks.sequence > known.sequence)
        {
            self.known = Some(Known {
                made_at: made_at.clone(),
                sequence: acks.sequence,
                message_id: acks.message_id,
                acknowledged_at: now,
                covers_until: now,
                is_our_own: true,
            });
        }
        self.save_again();
        false
    }

    /// Whether the position of an earlier process has yet to be restored. Later it would be outdated: a
    /// newer one may have been lost and abandoned.
    pub(crate) const fn needs_restore(&self) -> bool {
        !self.is_restored
    }

    /// Restores the position of an earlier process, unless this one has a newer one.
    pub(crate) fn restore(&mut self, kept: Option<BusPosition>, republished: Option<&BusPosition>) {
        let is_first = !std::mem::replace(&mut self.is_restored, true);
        if is_first {
            self.republished = republished.map(Republished::of);
            self.kept_republished.clone_from(&self.republished);
        }
        if is_first && self.known.is_none() {
            self.known = kept.map(|kept| Known {
                made_at: kept.stream_created_at,
                sequence: kept.last_sequence,
                message_id: kept.last_message_id,
                acknowledged_at: kept.acknowledged_at,
                covers_until: kept.covers_until,
                is_our_own: false,
            });
        }
    }

    /// The state to compare with the response of the broker to a later query.
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot {
            known: self.known.clone(),
            is_suspicious: self.is_suspicious,
        }
    }

    /// Compares a snapshot with the state of the broker, and continues from there.
    pub(crate) fn compare(
        &mut self,
        snapshot: &Snapshot,
        stream: &StreamState,
        found: &Found,
        now: Timestamp,
    ) {
        self.stream = Some((stream.name.clone(), stream.made_at.clone()));
        let Some(known) = &snapshot.known else {
            if self.known.is_none() {
                self.start_at(stream, now);
                self.to_save = ToSave::First;
            }
            return;
        };
        if let Some(reason) = snapshot.reason(stream, found) {
            // Not relative to now: the broker may have been unavailable for hours.
            let tail = known.acknowledged_at.saturating_sub(TAIL);
            let further = if reason == RECREATED {
                // Unread messages are lost, too.
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
            self.start_at(stream, now);
            self.lose(since, reason);
        } else if !known.is_our_own {
            // Acknowledgements after the last saved position are not recorded anywhere.
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

    /// Starts at the current end of the stream. Otherwise a loss of the very first messages, before the
    /// first saved position, could not be detected.
    fn start_at(&mut self, stream: &StreamState, now: Timestamp) {
        self.known = Some(Known {
            made_at: stream.made_at.clone(),
            sequence: stream.last_sequence,
            message_id: String::new(),
            acknowledged_at: now,
            covers_until: now,
            is_our_own: true,
        });
        self.save_again();
    }

    fn lose(&mut self, since: Timestamp, reason: &str) {
        self.losses += 1;
        let earlier = self.loss.take();
        let stream = self.stream.as_ref().map(|(name, _)| name.clone());
        self.recovered_until = None;
        self.loss = Some(DataLoss {
            number: self.losses,
            stream: stream.unwrap_or_default(),
            since: earlier.map_or(since, |earlier| earlier.since.min(since)),
            reason: reason.to_owned(),
        });
    }

    pub(crate) fn loss(&self) -> Option<DataLoss> {
        self.loss.clone()
    }

    fn is_current(&self, loss: &DataLoss) -> bool {
        let current = self.loss.as_ref();
        current.is_some_and(|it| it.number == loss.number)
    }

    /// Records that all messages of a loss were published again; returns whether that was new.
    pub(crate) fn recovered(&mut self, loss: &DataLoss, now: Timestamp) -> bool {
        let is_current = self.is_current(loss);
        if is_current {
            self.record_republished(loss, now);
            self.loss = None;
            self.recovered_until = None;
            self.save_again();
        }
        is_current
    }

    /// Records that the messages from before an instant were published again.
    pub(crate) fn recovered_until(&mut self, loss: &DataLoss, until: Timestamp, now: Timestamp) {
        if self.is_current(loss) {
            self.record_republished(loss, now);
            self.recovered_until = Some(until);
            self.save_again();
        }
    }

    fn record_republished(&mut self, loss: &DataLoss, now: Timestamp) {
        if now.saturating_sub(OLD) <= loss.since {
            return;
        }
        // Expired events do not count.
        let earlier = self.republished.take();
        let earlier = earlier.filter(|it| it.last_at >= now.saturating_sub(KEEP_EVENTS));
        self.republished = Some(Republished {
            since: earlier.map_or(loss.since, |it| it.since.min(loss.since)),
            last_at: now,
        });
    }

    /// The age of republished events, to be saved before the position if it changed.
    pub(crate) fn republished(&self) -> Option<BusPosition> {
        let ((stream, made_at), it) = (self.stream.as_ref()?, self.republished.as_ref()?);
        let is_changed = self.kept_republished.as_ref() != Some(it);
        is_changed.then(|| BusPosition {
            stream: republished(stream),
            stream_created_at: made_at.clone(),
            last_sequence: 0,
            last_message_id: String::new(),
            acknowledged_at: it.last_at,
            covers_until: it.since,
        })
    }

    /// Records that the age of republished events was saved.
    pub(crate) fn kept_republished(&mut self, position: &BusPosition) {
        self.kept_republished = Some(Republished::of(position));
    }

    /// The position to save now, if any. While a loss is not recovered, the next process has to detect it
    /// again: only the progress of the recovery is saved.
    pub(crate) fn unsaved(&mut self, now: Timestamp, is_closing: bool) -> Option<BusPosition> {
        if self.is_suspicious || (self.to_save == ToSave::Nothing && !is_closing) {
            return None;
        }
        let covers_until = if self.loss.is_some() {
            // Publishes since the loss may have earlier events, and still be in flight.
            self.recovered_until?.min(self.covers_until(now))
        } else if is_closing && self.in_flight.is_empty() {
            now
        } else {
            self.covers_until(now)
        };
        let (known, (stream, _)) = (self.known.as_mut()?, self.stream.as_ref()?);
        if self.to_save == ToSave::Soon {
            self.to_save = ToSave::Nothing;
        }
        Some(BusPosition {
            stream: stream.clone(),
            stream_created_at: known.made_at.clone(),
            last_sequence: known.sequence,
            last_message_id: known.message_id.clone(),
            acknowledged_at: known.acknowledged_at,
            covers_until,
        })
    }

    /// Whether the position has to be saved before anything is published.
    pub(crate) fn must_be_saved_first(&self) -> bool {
        self.to_save == ToSave::First
    }

    /// Records that the position was saved.
    pub(crate) fn kept(&mut self) {
        if self.to_save == ToSave::First {
            self.to_save = ToSave::Nothing;
        }
    }

    /// Requests that the position is saved: it changed, or saving it failed.
    pub(crate) fn save_again(&mut self) {
        if self.to_save == ToSave::Nothing {
            self.to_save = ToSave::Soon;
        }
    }

    /// Every acknowledgement of a publish from before this instant is recorded.
    fn covers_until(&self, now: Timestamp) -> Timestamp {
        let earliest = self.in_flight.values().min().copied().unwrap_or(now);
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
        let snapshot = tracker.snapshot();
        tracker.compare(&snapshot, stream, found, at(NOW - 60));
    }

    fn ack(sequence: u64, is_duplicate: bool, id: &str) -> Acknowledged {
        Acknowledged {
            sequence,
            message_id: id.to_owned(),
            lowest_new: (!is_duplicate).then_some(sequence),
        }
    }

    fn message(id: &str) -> Found {
        Found::Message(id.to_owned())
    }

    fn ours() -> Found {
        message("id-10")
    }

    /// A tracker that has recorded the acknowledgement of message 10.
    fn seasoned() -> Tracker {
        let mut tracker = Tracker::default();
        compare(&mut tracker, &stream("m", 9), &Found::Nothing);
        let ticket = tracker.begin(at(NOW - 60));
        assert!(!tracker.acknowledged(&ticket, ack(10, false, "id-10"), at(NOW - 50)));
        tracker.end(&ticket);
        tracker
    }

    /// A tracker that has recorded the loss of message 10.
    fn with_loss() -> (Tracker, DataLoss) {
        let mut tracker = seasoned();
        compare(&mut tracker, &stream("m", 9), &Found::Nothing);
        let loss = tracker.loss().unwrap();
        (tracker, loss)
    }

    /// The loss that the next process finds, which has these positions.
    fn next_loss(
        position: &BusPosition,
        republished: Option<&BusPosition>,
        stream: &StreamState,
        found: &Found,
    ) -> Timestamp {
        let mut next = Tracker::default();
        next.restore(Some(position.clone()), republished);
        compare(&mut next, stream, found);
        next.loss().unwrap().since
    }

    fn kept(tracker: &mut Tracker) -> BusPosition {
        let position = tracker.unsaved(at(NOW), false).unwrap();
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
    fn a_broker_that_went_back_was_recreated_or_has_another_message_has_lost_its_tail() {
        let backup_at = at(NOW - 7_200 - 600);
        let a_week = at(NOW - 60).saturating_sub(KEEP_EVENTS);
        for (state, found, since) in [
            (stream("m", 9), Found::Nothing, backup_at),
            (stream("m", 12), message("x"), backup_at),
            (stream("other", 12), ours(), a_week),
            (stream("other", 0), Found::Nothing, a_week),
        ] {
            let mut tracker = seasoned();
            compare(&mut tracker, &state, &found);
            assert_eq!(tracker.loss().unwrap().since, since, "{state:?}");
        }
    }

    #[test]
    fn no_position_is_saved_until_a_loss_is_recovered() {
        let (mut tracker, loss) = with_loss();
        let ticket = tracker.begin(at(NOW));
        assert!(!tracker.acknowledged(&ticket, ack(10, false, "again"), at(NOW)));
        assert_eq!(tracker.unsaved(at(NOW), false), None);
        assert_eq!(tracker.unsaved(at(NOW), true), None, "nor at the end");
        assert!(tracker.recovered(&loss, at(NOW)));
        assert!(!tracker.recovered(&loss, at(NOW)));
        assert_eq!(kept(&mut tracker).last_message_id, "again");
    }

    #[test]
    fn a_second_loss_goes_as_far_back_as_the_first() {
        let (mut tracker, first) = with_loss();
        let ticket = tracker.begin(at(NOW));
        tracker.acknowledged(&ticket, ack(10, false, "id-10"), at(NOW));
        compare(&mut tracker, &stream("other", 0), &Found::Nothing);
        let second = tracker.loss().unwrap();
        assert!(second.since <= first.since);
        assert!(
            !tracker.recovered(&first, at(NOW)),
            "recovering the first does not recover the second"
        );
        assert!(tracker.recovered(&second, at(NOW)));
    }

    #[test]
    fn publishes_in_flight_are_not_covered() {
        let mut tracker = seasoned();
        let ticket = tracker.begin(at(NOW - 50));
        assert_eq!(kept(&mut tracker).covers_until, at(NOW - 52));
        tracker.acknowledged(&ticket, ack(11, false, "id-11"), at(NOW));
        tracker.end(&ticket);
        assert_eq!(kept(&mut tracker).covers_until, at(NOW - 2));
        assert_eq!(tracker.unsaved(at(NOW), false), None, "it is returned once");
        let end = tracker.unsaved(at(NOW), true).unwrap();
        assert_eq!((end.covers_until, end.last_sequence), (at(NOW), 11));
    }

    #[test]
    fn publishes_in_flight_are_not_covered_during_recovery_either() {
        let (mut tracker, loss) = with_loss();
        let ticket = tracker.begin(at(NOW - 50));
        tracker.recovered_until(&loss, at(NOW - 10), at(NOW));
        assert_eq!(kept(&mut tracker).covers_until, at(NOW - 52));
        tracker.end(&ticket);
        tracker.recovered_until(&loss, at(NOW - 10), at(NOW));
        assert_eq!(kept(&mut tracker).covers_until, at(NOW - 10));
    }

    #[test]
    fn after_a_crash_the_time_since_the_last_saved_position_is_in_doubt() {
        let position = kept(&mut seasoned());
        let since = next_loss(&position, None, &stream("m", 12), &ours());
        assert_eq!(since, position.covers_until);
        let since = next_loss(&position, None, &stream("m", 9), &Found::Nothing);
        let backup = at(NOW - 7_200 - 600);
        assert_eq!(since, backup, "counted from the backup, not from now");
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
            "reported once"
        );
        assert_eq!(
            tracker.known.as_ref().unwrap().message_id,
            "id-10",
            "until the check"
        );
        assert_eq!(tracker.unsaved(at(NOW), false), None);
        compare(&mut tracker, &stream("m", 11), &message("new"));
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
    fn a_reused_sequence_is_a_loss_even_if_a_higher_one_was_recorded_first() {
        let mut tracker = seasoned();
        let ticket = tracker.begin(at(NOW));
        assert!(!tracker.acknowledged(&ticket, ack(12, false, "id-12"), at(NOW)));
        assert!(tracker.acknowledged(&ticket, ack(9, false, "id-9"), at(NOW)));
        compare(&mut tracker, &stream("m", 12), &message("id-10b"));
        assert!(tracker.loss().unwrap().since <= at(NOW - 50 - 600));
        let mut tracker = seasoned();
        let ticket = tracker.begin(at(NOW));
        assert!(tracker.acknowledged(&ticket, ack(9, false, "id-9"), at(NOW)));
        compare(&mut tracker, &stream("m", 12), &Found::Nothing);
        assert!(tracker.loss().is_some(), "whatever has its sequence");
    }

    #[test]
    fn an_acknowledgement_during_a_check_is_no_loss() {
        let mut tracker = seasoned();
        let snapshot = tracker.snapshot();
        let ticket = tracker.begin(at(NOW));
        assert!(!tracker.acknowledged(&ticket, ack(20, false, "id-20"), at(NOW)));
        tracker.compare(&snapshot, &stream("m", 12), &ours(), at(NOW));
        assert_eq!(tracker.loss(), None);
        assert_eq!(kept(&mut tracker).last_sequence, 20);
    }

    #[test]
    fn a_reused_sequence_during_a_check_is_found_by_the_next_one() {
        let mut tracker = seasoned();
        let snapshot = tracker.snapshot();
        let ticket = tracker.begin(at(NOW));
        assert!(tracker.acknowledged(&ticket, ack(9, false, "id-9"), at(NOW)));
        tracker.compare(&snapshot, &stream("m", 12), &ours(), at(NOW));
        assert_eq!(tracker.unsaved(at(NOW), false), None);
        compare(&mut tracker, &stream("m", 9), &Found::Nothing);
        assert!(tracker.loss().is_some());
    }

    #[test]
    fn the_very_first_messages_are_in_doubt_too_after_a_crash() {
        let mut tracker = Tracker::default();
        tracker.restore(None, None);
        compare(&mut tracker, &stream("m", 500), &Found::Nothing);
        assert!(tracker.must_be_saved_first());
        let position = kept(&mut tracker);
        assert_eq!(position.last_sequence, 500);
        tracker.kept();
        assert!(!tracker.must_be_saved_first());
        let ticket = tracker.begin(at(NOW));
        assert!(!tracker.acknowledged(&ticket, ack(501, false, "id-501"), at(NOW)));
        // It ends here, and the broker has lost 501 again.
        let since = next_loss(&position, None, &stream("m", 500), &message("foreign"));
        assert!(since <= at(NOW));
    }

    #[test]
    fn the_next_process_continues_the_recovery() {
        let mut tracker = seasoned();
        compare(&mut tracker, &stream("other", 0), &Found::Nothing);
        let loss = tracker.loss().unwrap();
        assert_eq!(tracker.unsaved(at(NOW), true), None);
        let until = at(NOW - 90_000);
        tracker.recovered_until(&loss, until, at(NOW));
        let ticket = tracker.begin(at(NOW));
        tracker.acknowledged(&ticket, ack(1, false, "id-1"), at(NOW));
        tracker.end(&ticket);
        assert_eq!(tracker.loss().unwrap().since, loss.since);
        let (position, republished) = (kept(&mut tracker), tracker.republished());
        assert_eq!(position.covers_until, until);

        let republished = republished.as_ref();
        let since = next_loss(
            &position,
            republished,
            &stream("other", 1),
            &message("id-1"),
        );
        assert_eq!(since, until);
        // Republished events are lost again, however old they are.
        let since = next_loss(&position, republished, &stream("other", 0), &Found::Nothing);
        assert_eq!(since, loss.since);
    }

    #[test]
    fn republished_events_that_are_lost_again_are_published_a_third_time() {
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
