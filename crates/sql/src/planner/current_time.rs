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

/// Whether a literal below is one that the input functions of dates and times read as the current
/// time: `'now'::timestamptz` is a literal to the grammar, and another value on each node.
pub(super) fn says_now(node: &Node) -> bool {
    use pg_query::protobuf::a_const::Val;
    let Some(node) = &node.node else { return false };
    if let NodeEnum::AConst(constant) = node
        && let Some(Val::Sval(text)) = &constant.val
    {
        return names_current_time(&text.sval);
    }
    let mut found = false;
    walk::read::children(node, &mut |child| found |= says_now(child));
    found
}

/// Whether the input functions of dates and times may read this text as the current time.
pub fn names_current_time(text: &str) -> bool {
    const WORDS: [&str; 4] = ["now", "today", "tomorrow", "yesterday"];
    text.split(|character: char| !character.is_ascii_alphabetic())
        .any(|word| WORDS.iter().any(|current| word.eq_ignore_ascii_case(current)))
}
