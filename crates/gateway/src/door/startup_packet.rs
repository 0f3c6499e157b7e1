//! The packet that asks for a session.
//!
//! Owns: which of its parameters are settings, and how `options` is read.
//! Never: checks a setting's value; servers do.
//! Start reading at [`settings_of`].

use tutti_wire::error_fields::ErrorFields;

/// Parameters of a startup packet that are not settings.
const NOT_SETTINGS: [&str; 4] = ["user", "database", "replication", "options"];

/// Settings of a startup packet: its parameters except those that are not settings, and what
/// `options` says.
///
/// Errors: 42601 where `options` holds anything but settings.
pub(super) fn settings_of(
    parameters: Vec<(String, String)>,
) -> Result<Vec<(String, String)>, ErrorFields> {
    let mut settings: Vec<(String, String)> = Vec::new();
    let mut set = |name: &str, value: String| {
        let name = name.to_ascii_lowercase();
        settings.retain(|(known, _)| *known != name);
        settings.push((name, value));
    };
    // As PostgreSQL: `options` is applied first, the packet's own parameters win.
    if let Some((_, options)) = parameters.iter().find(|(name, _)| name == "options") {
        let mut words = split_options(options).into_iter();
        while let Some(word) = words.next() {
            let wrong = || {
                let message = format!("invalid command-line argument for server process: {word}");
                ErrorFields::fatal("42601", message)
            };
            let setting = match word.strip_prefix("-c") {
                Some("") => words.next().ok_or_else(wrong)?,
                Some(setting) => setting.to_owned(),
                None => word.strip_prefix("--").ok_or_else(wrong)?.to_owned(),
            };
            let (name, value) = setting.split_once('=').ok_or_else(wrong)?;
            set(&name.replace('-', "_"), value.to_owned());
        }
    }
    for (name, value) in parameters {
        if !NOT_SETTINGS.contains(&name.as_str()) {
            set(&name, value);
        }
    }
    Ok(settings)
}

/// Words separated by white space; a backslash keeps the character after it.
fn split_options(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character.is_ascii_whitespace() {
            words.extend(word.take());
            continue;
        }
        let kept = if character == '\\' { characters.next() } else { Some(character) };
        word.get_or_insert_default().extend(kept);
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(parameters: &[(&str, &str)]) -> Result<Vec<(String, String)>, String> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let parameters = parameters.iter().map(owned).collect();
        settings_of(parameters).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn the_packets_own_parameters_win_over_options() {
        let settings = read(&[
            ("user", "u"),
            ("DateStyle", "ISO"),
            ("options", r"-c geqo=off -cdatestyle=German --search-path=a\ b"),
        ]);
        let expected = [("geqo", "off"), ("search_path", "a b"), ("datestyle", "ISO")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(settings, Ok(expected.to_vec()));
    }

    #[test]
    fn options_that_are_no_settings_are_refused() {
        for options in ["-e", "-c", "-c geqo", "x=1"] {
            let refused = read(&[("options", options)]).expect_err("it is none");
            assert!(refused.starts_with("invalid command-line argument"), "{options}: {refused}");
        }
    }
}
