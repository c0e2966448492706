//! Where a question in PostgreSQL's protocol ends: what has to arrive whole to be carried out.

/// How many bytes say how long a message is. They count themselves.
const LENGTH: usize = 4;

/// The messages of a client after which a server answers without waiting for more: a password, a
/// query, a sync, a call of a function, and the farewell.
const LAST_OF_A_QUESTION: &[u8] = b"pQSFX";

/// Follows what one client sends, piece by piece.
///
/// A message begins with a letter, and with its length. The first ones have no letter, and their
/// length begins with a zero.
#[derive(Debug, Default)]
pub(super) struct Questions {
    /// Letter and length of the message that is arriving.
    head: Vec<u8>,
    /// How much of its body is still to come.
    missing: usize,
}

impl Questions {
    /// The places in the next piece at which a question is complete.
    pub(super) fn ends_in(&mut self, piece: &[u8]) -> Vec<usize> {
        let mut ends = Vec::new();
        let mut at = 0;
        while at < piece.len() {
            if self.missing == 0 {
                self.head.push(piece[at]);
                at += 1;
                self.missing = self.body_length();
            } else {
                let arrived = self.missing.min(piece.len() - at);
                self.missing -= arrived;
                at += arrived;
            }
            if self.has_head() && self.missing == 0 {
                if self.is_last_of_a_question() {
                    ends.push(at);
                }
                self.head.clear();
            }
        }
        ends
    }

    /// Whether the message has no letter: the start of a session, or what is asked before it.
    fn is_first(&self) -> bool {
        self.head.first() == Some(&0)
    }

    fn has_head(&self) -> bool {
        let letter = usize::from(!self.is_first());
        self.head.len() == letter + LENGTH
    }

    fn is_last_of_a_question(&self) -> bool {
        self.is_first() || LAST_OF_A_QUESTION.contains(&self.head[0])
    }

    /// How long the body is, once that is known.
    fn body_length(&self) -> usize {
        match self.head.last_chunk::<LENGTH>() {
            Some(length) if self.has_head() => {
                let length = usize::try_from(u32::from_be_bytes(*length)).unwrap();
                length.saturating_sub(LENGTH)
            }
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The start of a session, a query, and a statement with its sync.
    fn conversation() -> (Vec<u8>, Vec<usize>) {
        let start = [&[0, 0, 0, 12, 0, 3, 0, 0][..], b"u\0x\0"].concat();
        let query = b"Q\0\0\0\x0bCOMMIT\0".to_vec();
        let statement = b"P\0\0\0\x0e\0COMMIT\0\0\0E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04".to_vec();
        let ends = [12, 12 + 12, 12 + 12 + 30];
        ([start, query, statement].concat(), ends.to_vec())
    }

    #[test]
    fn a_question_ends_with_its_query_or_its_sync() {
        let (sent, ends) = conversation();
        assert_eq!(Questions::default().ends_in(&sent), ends);
    }

    #[test]
    fn the_pieces_in_which_it_arrives_make_no_difference() {
        let (sent, ends) = conversation();
        for size in 1..sent.len() {
            let mut questions = Questions::default();
            let mut found = Vec::new();
            for (number, piece) in sent.chunks(size).enumerate() {
                let in_piece = questions.ends_in(piece);
                found.extend(in_piece.into_iter().map(|end| number * size + end));
            }
            assert_eq!(found, ends, "{size}");
        }
    }
}
