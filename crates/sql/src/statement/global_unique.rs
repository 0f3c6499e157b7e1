//! `WITH (tutti.global_unique)` of CREATE INDEX, taken out before a node sees it.
//!
//! Owns: the spelling of the wish, and the errors of a wrong one.
//! Never: decides whether it can be met; it only says what was asked for.

use pg_query::NodeEnum;
use pg_query::protobuf::{DefElem, Node};

use crate::refusal::Refusal;

/// What our storage parameters begin with.
const NAMESPACE: &str = "tutti";
/// The only one.
const PARAMETER: &str = "global_unique";

/// Takes the wish out of a CREATE INDEX; the statement without it, if there was one, and whether it was on.
pub(super) fn take_wish(tree: &mut NodeEnum) -> Result<Option<(String, bool)>, Refusal> {
    let NodeEnum::IndexStmt(index) = tree else { return Ok(None) };
    if !index.options.iter().any(is_ours) {
        return Ok(None);
    }
    let (ours, others) = std::mem::take(&mut index.options).into_iter().partition(is_ours);
    index.options = others;
    let mut is_wanted = false;
    let ours: Vec<Node> = ours;
    for option in &ours {
        let Some(NodeEnum::DefElem(option)) = &option.node else { continue };
        if option.defname != PARAMETER {
            let message = format!("unrecognized parameter \"{NAMESPACE}.{}\"", option.defname);
            return Err(Refusal::postgres("22023", message)
                .with_hint("CREATE UNIQUE INDEX … WITH (tutti.global_unique)"));
        }
        is_wanted = is_on(option)?;
    }
    let text = tree.deparse(pg_query::DeparseOptions::default()).map_err(|error| {
        let message = format!("a statement could not be written out again: {error}");
        Refusal::postgres("XX000", message)
    })?;
    Ok(Some((text, is_wanted)))
}

fn is_ours(option: &Node) -> bool {
    matches!(&option.node, Some(NodeEnum::DefElem(option)) if option.defnamespace == NAMESPACE)
}

fn is_on(option: &DefElem) -> Result<bool, Refusal> {
    let value = match option.arg.as_ref().and_then(|value| value.node.as_ref()) {
        None => return Ok(true),
        Some(NodeEnum::String(value)) => value.sval.to_ascii_lowercase(),
        Some(NodeEnum::Integer(value)) => value.ival.to_string(),
        Some(NodeEnum::TypeName(name)) => match name.names.last().map(|name| &name.node) {
            Some(Some(NodeEnum::String(name))) => name.sval.to_ascii_lowercase(),
            _ => String::new(),
        },
        Some(_) => String::new(),
    };
    match value.as_str() {
        "true" | "on" | "yes" | "1" => Ok(true),
        "false" | "off" | "no" | "0" => Ok(false),
        value => {
            let message =
                format!("invalid value for boolean option \"{NAMESPACE}.{PARAMETER}\": {value}");
            Err(Refusal::postgres("22023", message))
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::statement::parse;

    #[test]
    fn the_wish_is_taken_out() {
        let taken = |text: &str| {
            let statement = parse(text).unwrap().remove(0);
            (statement.text, statement.global_unique)
        };
        for with in
            ["tutti.global_unique", "tutti.global_unique = true", "tutti.global_unique = on"]
        {
            let taken = taken(&format!("CREATE UNIQUE INDEX i ON t (email) WITH ({with})"));
            assert_eq!(taken, ("CREATE UNIQUE INDEX i ON t USING btree (email)".to_owned(), true));
        }
        let (text, is_wanted) = taken(
            "CREATE UNIQUE INDEX i ON t (email) WITH (fillfactor = 70, tutti.global_unique = off)",
        );
        assert!(text.contains("fillfactor") && !text.contains("tutti") && !is_wanted, "{text}");
        let plain = "CREATE UNIQUE INDEX i ON t  (email) WITH (fillfactor = 70)";
        assert_eq!(taken(plain), (plain.to_owned(), false));
        let refused = parse("CREATE UNIQUE INDEX i ON t (email) WITH (tutti.local_unique)");
        assert_eq!(refused.unwrap_err().sqlstate, "22023");
    }
}
