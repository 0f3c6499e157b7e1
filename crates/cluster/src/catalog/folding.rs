//! What of a stored expression a server computes before it has a row.
//!
//! Owns: reading the form that PostgreSQL keeps expressions in (`pg_node_tree`).
//! Never: knows what the code does that is called.
//! Start reading at [`folds_code`].
//!
//! PostgreSQL folds what is constant whenever it plans with an expression, or builds an index by it
//! (`eval_const_expressions`; `RelationGetIndexExpressions`, `get_relation_constraints`,
//! `get_relation_statistics`): it calls the functions there, once on each server and process.

use tutti_link::translation::FIRST_NORMAL_OID;

/// A node whose end has not been reached.
#[derive(Debug, Default)]
struct Open<'t> {
    kind: &'t str,
    /// It holds a column, a parameter or the like.
    varies: bool,
    /// It holds a call of code that is not PostgreSQL's, or makes a value of such a type.
    runs_code: bool,
}

/// Whether a tree has a part that holds no column and calls code of users'.
pub(super) fn folds_code(tree: &str) -> bool {
    let mut open: Vec<Open<'_>> = Vec::new();
    let mut field = "";
    let mut rest = tree;
    while let Some(first) = rest.chars().next() {
        match first {
            '{' => {
                let kind = word(&rest[1..]);
                rest = &rest[1 + kind.len()..];
                let varies =
                    matches!(kind, "VAR" | "PARAM" | "COERCETODOMAINVALUE" | "SETTODEFAULT");
                open.push(Open { kind, varies, runs_code: false });
                continue;
            }
            '}' => {
                let Some(node) = open.pop() else { return true };
                if node.runs_code && !node.varies && is_computed(node.kind) {
                    return true;
                }
                if let Some(outer) = open.last_mut() {
                    outer.varies |= node.varies;
                    outer.runs_code |= node.runs_code;
                }
            }
            ':' => {
                field = word(&rest[1..]);
                rest = &rest[1 + field.len()..];
                continue;
            }
            '0'..='9' => {
                let digits = word(rest);
                if names_code(field)
                    && digits.parse().is_ok_and(|oid: u32| FIRST_NORMAL_OID <= oid)
                    && let Some(node) = open.last_mut()
                {
                    node.runs_code = true;
                }
                rest = &rest[digits.len()..];
                continue;
            }
            _ if !(first.is_whitespace() || matches!(first, '(' | ')')) => {
                rest = &rest[word(rest).len().max(first.len_utf8())..];
                continue;
            }
            _ => (),
        }
        rest = &rest[first.len_utf8()..];
    }
    // One that ends too early is not understood.
    !open.is_empty()
}

/// Up to what ends a word, which a backslash takes the meaning of.
fn word(text: &str) -> &str {
    let mut is_escaped = false;
    let ends = |letter: char| {
        let ends =
            !is_escaped && (letter.is_whitespace() || matches!(letter, '{' | '}' | '(' | ')'));
        is_escaped = !is_escaped && letter == '\\';
        ends
    };
    &text[..text.find(ends).unwrap_or(text.len())]
}

/// Whether a server replaces such a node by its value where all in it is constant. A value of a domain with checks
/// it does not make then; one that is relabelled, it only calls otherwise.
fn is_computed(kind: &str) -> bool {
    !matches!(kind, "CONST" | "RELABELTYPE" | "COERCETODOMAIN" | "COLLATEEXPR")
}

/// Fields that hold numbers of functions, operators and the types of what they make.
fn names_code(field: &str) -> bool {
    matches!(
        field,
        "funcid" | "opfuncid" | "opno" | "opnos" | "opfamilies" | "minmaxtype" | "aggfnoid"
    ) || (field.ends_with("resulttype") || field.ends_with("_typeid"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMN: &str = "{VAR :varno 1 :varattno 2 :vartype 23 :location 40}";
    const FIVE: &str = "{CONST :consttype 23 :constisnull false :constvalue 4 [ 5 0 0 0 0 0 0 0 ]}";

    fn call(function: u32, argument: &str) -> String {
        format!(
            "{{FUNCEXPR :funcid {function} :funcresulttype 23 :args ({argument}) :location 16400}}"
        )
    }

    fn sum(left: &str, right: &str) -> String {
        format!(
            "({{OPEXPR :opno 551 :opfuncid 177 :opresulttype 23 :args ({left} {right}) :location 30}})"
        )
    }

    #[test]
    fn only_what_holds_no_column_is_folded() {
        assert!(folds_code(&sum(&call(16_500, FIVE), COLUMN)));
        assert!(folds_code(&call(16_500, &call(16_501, FIVE))));
        assert!(folds_code(&sum(COLUMN, &call(177, &call(16_500, "")))));
        assert!(!folds_code(&call(16_500, COLUMN)));
        assert!(!folds_code(&sum(&call(16_500, COLUMN), &call(177, FIVE))));
        assert!(!folds_code(&call(16_500, &format!("{FIVE} {COLUMN}"))));
    }

    #[test]
    fn values_of_types_of_users_are_made_by_their_code() {
        let cast = |of: &str| format!("{{COERCEVIAIO :arg {of} :resulttype 16600 :location 5}}");
        assert!(folds_code(&sum(&cast(FIVE), COLUMN)));
        assert!(!folds_code(&sum(&cast(COLUMN), FIVE)));
        // One that is kept as it is: it was made when the expression was stored.
        let kept = FIVE.replace("consttype 23", "consttype 16600");
        assert!(!folds_code(&sum(&kept, COLUMN)));
    }

    #[test]
    fn names_with_braces_are_names() {
        let named = r"{NAMEDARGEXPR :name a\}\ \{b :arg ".to_owned() + COLUMN + "}";
        assert!(!folds_code(&call(16_500, &named)));
        // What is not understood counts as folded.
        assert!(folds_code("{FUNCEXPR :funcid 16500"));
        assert!(folds_code("}"));
    }
}
