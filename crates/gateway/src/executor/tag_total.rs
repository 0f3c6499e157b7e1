//! One command tag of the tags of several nodes.
//!
//! Owns: adding up their counts. Never: writes one to a client.

/// Adds up command tags of one statement that ran on several nodes.
#[derive(Debug, Default)]
pub(super) struct TagTotal {
    words: String,
    count: Option<u64>,
}

impl TagTotal {
    pub(super) fn add(&mut self, tag: &str) {
        match tag.rsplit_once(' ').map(|(words, count)| (words, count.parse::<u64>())) {
            Some((words, Ok(count))) => {
                words.clone_into(&mut self.words);
                *self.count.get_or_insert(0) += count;
            }
            _ => tag.clone_into(&mut self.words),
        }
    }

    pub(super) fn tag(self) -> String {
        match self.count {
            Some(count) => format!("{} {count}", self.words),
            None => self.words,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::TagTotal;

    #[test]
    fn row_counts_are_added_up() {
        let mut total = TagTotal::default();
        total.add("INSERT 0 2");
        total.add("INSERT 0 3");
        assert_eq!(total.tag(), "INSERT 0 5");
        let mut total = TagTotal::default();
        total.add("CREATE TABLE");
        assert_eq!(total.tag(), "CREATE TABLE");
    }
}
