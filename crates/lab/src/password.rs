//! Passwords in what is kept and shown: command lines and addresses of databases.
//!
//! Owns: finding them in the forms that clients take. Never: connects.
//! Start reading at [`hidden`].

/// What stands for one.
const HIDDEN: &str = "***";
/// The option's name in an address's query (`?password=…`) and among words (`password=… host=…`).
const OPTION: &str = "password";

/// A text with every password in it replaced. Rather hides too much than too little: what looks like one goes.
pub(crate) fn hidden(text: &str) -> String {
    hidden_options(&hidden_credentials(text))
}

/// An address as runs are named by it: without its password at all.
pub(crate) fn without_password(url: &str) -> String {
    let Some((before, after)) = url.split_once("://") else { return hidden(url) };
    let Some((who, place)) = after.rsplit_once('@') else { return hidden(url) };
    let user = who.split(':').next().unwrap_or_default();
    hidden(&format!("{before}://{user}@{place}"))
}

/// `://user:password@host`, in each word: a password with a space in it is none of an address.
fn hidden_credentials(text: &str) -> String {
    let hide = |word: &str| -> Option<String> {
        let (before, after) = word.split_once("://")?;
        let (who, place) = after.rsplit_once('@')?;
        let (user, _) = who.split_once(':')?;
        Some(format!("{before}://{user}:{HIDDEN}@{place}"))
    };
    let words = text.split(' ').map(|word| hide(word).unwrap_or_else(|| word.to_owned()));
    words.collect::<Vec<_>>().join(" ")
}

/// `password=…`, and `password = '…'` with a backslash before a quote that is part of it.
fn hidden_options(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some(place) = rest.to_ascii_lowercase().find(OPTION) {
        let (before, after) = rest.split_at(place + OPTION.len());
        shown.push_str(before);
        rest = after;
        let Some(value) = after.trim_start().strip_prefix('=') else { continue };
        let value = value.trim_start();
        shown.push_str(&after[..after.len() - value.len()]);
        shown.push_str(HIDDEN);
        rest = &value[length_of_value(value)..];
    }
    shown + rest
}

/// Bytes.
fn length_of_value(value: &str) -> usize {
    let Some(quoted) = value.strip_prefix('\'') else {
        return value.find([' ', '&', '\t', '\n', '#']).unwrap_or(value.len());
    };
    let mut is_escaped = false;
    for (place, character) in quoted.char_indices() {
        match character {
            '\'' if !is_escaped => return place + 2,
            _ => is_escaped = character == '\\' && !is_escaped,
        }
    }
    value.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_replaced_in_every_form() {
        for (text, shown) in [
            ("--url postgres://me:secret@host:5432/db", "--url postgres://me:***@host:5432/db"),
            (
                "--url=postgres://me:se@cr:et@host/db --quick",
                "--url=postgres://me:***@host/db --quick",
            ),
            (
                "postgres://host/db?user=me&password=secret&a=b",
                "postgres://host/db?user=me&password=***&a=b",
            ),
            ("host=here password=secret dbname=db", "host=here password=*** dbname=db"),
            ("password = 'se cr\\'et' host=here", "password = *** host=here"),
            ("PASSWORD=secret", "PASSWORD=***"),
            ("password='never closed", "password=***"),
        ] {
            assert_eq!(hidden(text), shown);
        }
    }

    #[test]
    fn what_has_none_stays() {
        for text in [
            "tutti-lab transfer --url postgres://me@host:5432/db --out a:b@c",
            "a password is not here",
            "--url postgres://host:5432/db",
        ] {
            assert_eq!(hidden(text), text);
        }
    }

    #[test]
    fn an_address_is_named_without_it() {
        assert_eq!(without_password("postgres://me:secret@host/db"), "postgres://me@host/db");
        assert_eq!(without_password("postgres://me@host/db"), "postgres://me@host/db");
        assert_eq!(without_password("host=here"), "host=here");
        assert_eq!(without_password("host=here password=secret"), "host=here password=***");
        assert_eq!(
            without_password("postgres://me@host/db?password=secret"),
            "postgres://me@host/db?password=***"
        );
    }
}
