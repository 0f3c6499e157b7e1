//! Passwords of roles in a statement.
//!
//! Owns: finding them, and writing the statement with something else in their place.
//! Never: knows what takes their place, or puts a password into an error.

use pg_query::protobuf::Node;
use pg_query::{DeparseOptions, NodeEnum};

use super::Statement;
use crate::refusal::Refusal;

/// Gives every password that CREATE ROLE or ALTER ROLE (USER, GROUP) sets to `replace`, and writes
/// what that returns in its place; `None` leaves it as it is. Other statements are not touched.
///
/// Errors: the statement cannot be written; it must not be sent as it is.
pub fn replace_passwords(
    statement: &mut Statement,
    mut replace: impl FnMut(&str) -> Option<String>,
) -> Result<(), Refusal> {
    let options = match &mut statement.tree {
        NodeEnum::CreateRoleStmt(create) => &mut create.options,
        NodeEnum::AlterRoleStmt(alter) => &mut alter.options,
        _ => return Ok(()),
    };
    let mut replaced = false;
    for password in options.iter_mut().filter_map(password_of) {
        if let Some(instead) = replace(password) {
            *password = instead;
            replaced = true;
        }
    }
    if replaced {
        statement.text = statement
            .tree
            .deparse(DeparseOptions::default())
            .map_err(|_| Refusal::postgres("XX000", "cannot write the statement anew"))?;
    }
    Ok(())
}

fn password_of(option: &mut Node) -> Option<&mut String> {
    let Some(NodeEnum::DefElem(option)) = &mut option.node else { return None };
    if option.defname != "password" {
        return None;
    }
    match &mut option.arg.as_mut()?.node {
        Some(NodeEnum::String(value)) => Some(&mut value.sval),
        // PASSWORD NULL.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::parse;

    fn replaced(text: &str) -> String {
        let mut statement = parse(text).unwrap().pop().unwrap();
        replace_passwords(&mut statement, |password| {
            (password != "stored").then(|| format!("<{password}>"))
        })
        .unwrap();
        statement.text
    }

    #[test]
    fn every_way_to_write_a_password_is_found() {
        for literal in [
            "'it''s'",
            "E'it\\'s'",
            "U&'it\\0027s'",
            "U&'it!0027s' UESCAPE '!'",
            "$$it's$$",
            "$x$it's$x$",
        ] {
            let text = replaced(&format!("ALTER ROLE ann /* it */ PASSWORD {literal}"));
            assert_eq!(text, "ALTER ROLE ann WITH PASSWORD '<it''s>'", "{literal}");
        }
    }

    #[test]
    fn the_rest_of_the_statement_stays() {
        let meaning = |text: &str| pg_query::fingerprint(text, 0, 0).unwrap().hex;
        for text in [
            "create user \"A b\" with encrypted password 'x' valid until '2030-01-01' in role r createdb",
            "ALTER USER CURRENT_USER PASSWORD 'x' NOLOGIN",
            "CREATE ROLE r LOGIN PASSWORD 'x' CONNECTION LIMIT 3 NOINHERIT",
            "CREATE GROUP g WITH ADMIN a, \"B\" PASSWORD 'x'",
        ] {
            let replaced = replaced(text);
            assert!(!replaced.contains("'x'"), "{replaced}");
            assert_eq!(meaning(&replaced), meaning(&text.replace("'x'", "'<x>'")), "{replaced}");
        }
    }

    #[test]
    fn what_holds_no_password_stays_as_written() {
        for text in [
            "ALTER ROLE ann  PASSWORD NULL",
            "ALTER ROLE ann  PASSWORD 'stored'",
            "ALTER ROLE ann  LOGIN",
            "COMMENT ON ROLE ann  IS 'PASSWORD ''x'''",
            "SELECT 'ALTER ROLE ann PASSWORD'",
        ] {
            assert_eq!(replaced(text), text);
        }
    }
}
