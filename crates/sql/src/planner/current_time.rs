//! Texts and literals that mean the time at which they are read.
//!
//! Owns: the words that the input functions of dates and times know. Never: decides what follows from one.
//! Start reading at [`names_current_time`].

use pg_query::NodeEnum;
use pg_query::protobuf::Node;

use crate::walk;

/// Whether an expression, as a node prints it, has a constant of a date or time. Each node has read it
/// when the object was made, and it may have said `now`.
pub(super) fn has_time_of_making(printed: &str) -> bool {
    ["::date", "::time"].iter().any(|of| printed.contains(of))
}

/// How many literals there are that the input functions of dates and times read as the current time:
/// `'now'::timestamptz` is a literal to the grammar, and another value on each node.
pub(super) fn current_times(tree: &NodeEnum) -> usize {
    use pg_query::protobuf::a_const::Val;
    if let NodeEnum::AConst(constant) = tree
        && let Some(Val::Sval(text)) = &constant.val
    {
        return usize::from(names_current_time(&text.sval));
    }
    let mut found = 0;
    walk::read::children(tree, &mut |child| {
        found += child.node.as_ref().map_or(0, current_times);
    });
    found
}

/// Whether there is one.
pub(super) fn says_now(node: &Node) -> bool {
    node.node.as_ref().is_some_and(|node| current_times(node) != 0)
}

/// Whether the input functions of dates and times may read this text as the current time.
pub fn names_current_time(text: &str) -> bool {
    const WORDS: [&str; 4] = ["now", "today", "tomorrow", "yesterday"];
    text.split(|character: char| !character.is_ascii_alphabetic())
        .any(|word| WORDS.iter().any(|current| word.eq_ignore_ascii_case(current)))
}

/// Whether it is nothing but that, with a time of day or a zone at most: `tomorrow 10:00`.
pub(super) fn is_current_time(text: &str) -> bool {
    let mut words = text.split_ascii_whitespace();
    let is_part = |word: &str| {
        word.eq_ignore_ascii_case("allballs")
            || word.starts_with(|first: char| first.is_ascii_digit() || "+-".contains(first))
    };
    words.next().is_some_and(names_current_time) && words.all(is_part)
}
