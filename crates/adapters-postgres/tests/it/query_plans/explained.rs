//! A plan that was carried out, as `EXPLAIN (ANALYZE, BUFFERS)` prints it.

use std::collections::BTreeSet;

/// What a plan has done.
#[derive(Debug, Default)]
pub(super) struct Explained {
    pub(super) text: String,
    /// The indexes through which tables are read.
    pub(super) indexes: BTreeSet<String>,
    /// Scans of whole tables, and bitmaps, which read all that match before the first row.
    pub(super) whole_scans: Vec<String>,
    /// The most rows that one node has read, given away or passed over.
    pub(super) most_rows: u64,
    /// Pages of tables and indexes that were read or written.
    pub(super) pages: u64,
}

impl Explained {
    pub(super) fn parse(lines: &[String]) -> Self {
        let mut explained = Self {
            text: lines.join("\n"),
            ..Self::default()
        };
        let mut loops = 1;
        let mut has_pages = false;
        let of_plan = |line: &&String| !line.starts_with("Planning");
        for line in lines.iter().take_while(of_plan) {
            let text = line.trim().trim_start_matches("->").trim();
            if let Some(actual) = after(text, "(actual ") {
                loops = number(actual, "loops=");
                let rows = number(actual, "rows=") * loops;
                explained.most_rows = explained.most_rows.max(rows);
                explained.node(text);
            } else if let Some(removed) = after(text, "Rows Removed by ") {
                let removed = removed.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
                explained.most_rows = explained.most_rows.max(removed * loops);
            } else if let Some(buffers) = text.strip_prefix("Buffers: ").filter(|_| !has_pages) {
                // The first line is that of the root, which has the pages of all others.
                has_pages = true;
                explained.pages = ["hit=", "read="]
                    .into_iter()
                    .map(|kind| sum_of(buffers, kind))
                    .sum();
            }
        }
        explained
    }

    fn node(&mut self, text: &str) {
        let name = text.split("  (").next().unwrap_or(text);
        if name.contains("Bitmap") || name.starts_with("Seq Scan") || name.contains("Parallel Seq")
        {
            self.whole_scans.push(name.to_owned());
        }
        if let Some(index) = after(name, " using ") {
            let index = index.split(' ').next().unwrap_or(index);
            self.indexes.insert(index.to_owned());
        }
    }
}

fn after<'a>(text: &'a str, words: &str) -> Option<&'a str> {
    text.split_once(words).map(|(_, rest)| rest)
}

/// The number behind a word; zero if there is none.
fn number(text: &str, word: &str) -> u64 {
    after(text, word).map_or(0, |rest| {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap()
    })
}

/// All numbers behind a word: pages are counted for permanent, local and temporary tables.
fn sum_of(text: &str, word: &str) -> u64 {
    text.match_indices(word)
        .map(|(at, _)| number(&text[at..], word))
        .sum()
}
