//! From the options of a COPY statement to its format.
//!
//! Owns: the options that shape the data, and their defaults. Never: checks what only the server
//! needs to know; the nodes are given the same statement and refuse what PostgreSQL refuses.

use super::{CopyError, CopyFormat, CsvFormat, FieldSet, TextFormat};

impl CopyFormat {
    /// Reads the options of a COPY statement.
    ///
    /// `options` are pairs of a lower-case name and a value, strings decoded. A flag without a
    /// value (`HEADER`, or `CSV` in the old syntax, which is `format csv`) has the value `true`.
    /// `force_null` and `force_not_null` have one pair for each of their columns, or one with `*`.
    /// Other options (freeze, encoding, on_error …) do not shape rows and are passed over.
    ///
    /// `columns` are the names of the data's fields in their order.
    ///
    /// Errors: `InvalidOption`: PostgreSQL would refuse it too.
    pub fn from_options(options: &[(String, String)], columns: &[&str]) -> Result<Self, CopyError> {
        let last = |name: &str| {
            options.iter().rev().find(|(option, _)| option == name).map(|(_, value)| value.as_str())
        };
        let byte = |name: &str| match last(name) {
            None => Ok(None),
            Some(value) => match value.as_bytes() {
                [byte] => Ok(Some(*byte)),
                _ => Err(invalid(name, value)),
            },
        };
        let marker = |name: &str| last(name).map(|value| value.as_bytes().to_vec());
        let fields = |name: &str| field_set(options, name, columns);
        let header = last("header").map_or(Ok(false), header_line)?;

        match last("format").unwrap_or("text") {
            "text" => {
                let usual = TextFormat::default();
                Ok(Self::Text(TextFormat {
                    delimiter: byte("delimiter")?.unwrap_or(usual.delimiter),
                    null: marker("null").unwrap_or(usual.null),
                    default: marker("default"),
                    header,
                }))
            }
            "csv" => {
                let usual = CsvFormat::default();
                let quote = byte("quote")?.unwrap_or(usual.quote);
                Ok(Self::Csv(CsvFormat {
                    delimiter: byte("delimiter")?.unwrap_or(usual.delimiter),
                    quote,
                    escape: byte("escape")?.unwrap_or(quote),
                    null: marker("null").unwrap_or(usual.null),
                    default: marker("default"),
                    header,
                    force_null: fields("force_null")?,
                    force_not_null: fields("force_not_null")?,
                    end_marker: usual.end_marker,
                }))
            }
            "binary" => Ok(Self::Binary),
            other => Err(invalid("format", other)),
        }
    }
}

fn header_line(value: &str) -> Result<bool, CopyError> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "on" | "1" | "match" => Ok(true),
        "false" | "off" | "0" => Ok(false),
        _ => Err(invalid("header", value)),
    }
}

fn field_set(
    options: &[(String, String)],
    name: &str,
    columns: &[&str],
) -> Result<FieldSet, CopyError> {
    let mut indexes = Vec::new();
    for (_, value) in options.iter().filter(|(option, _)| option == name) {
        if value == "*" {
            return Ok(FieldSet::All);
        }
        let index = columns.iter().position(|column| column == value);
        indexes.push(index.ok_or_else(|| invalid(name, value))?);
    }
    Ok(if indexes.is_empty() { FieldSet::None } else { FieldSet::Indexes(indexes) })
}

fn invalid(name: &str, value: &str) -> CopyError {
    CopyError::InvalidOption { name: name.to_owned(), value: value.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(options: &[(&str, &str)]) -> Result<CopyFormat, CopyError> {
        let options: Vec<(String, String)> =
            options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        CopyFormat::from_options(&options, &["a", "b", "c"])
    }

    #[test]
    fn defaults_are_postgresqls() {
        assert_eq!(read(&[]), Ok(CopyFormat::Text(TextFormat::default())));
        assert_eq!(read(&[("format", "csv")]), Ok(CopyFormat::Csv(CsvFormat::default())));
        assert_eq!(read(&[("format", "binary"), ("freeze", "true")]), Ok(CopyFormat::Binary));
    }

    #[test]
    fn the_escape_follows_the_quote() {
        let expected = CsvFormat { quote: b'\'', escape: b'\'', ..CsvFormat::default() };
        assert_eq!(read(&[("format", "csv"), ("quote", "'")]), Ok(CopyFormat::Csv(expected)));
    }

    #[test]
    fn columns_are_named_one_by_one() {
        let expected = CsvFormat {
            header: true,
            force_null: FieldSet::Indexes(vec![2, 0]),
            force_not_null: FieldSet::All,
            ..CsvFormat::default()
        };
        let options = [
            ("format", "csv"),
            ("header", "MATCH"),
            ("force_null", "c"),
            ("force_null", "a"),
            ("force_not_null", "*"),
        ];
        assert_eq!(read(&options), Ok(CopyFormat::Csv(expected)));
    }

    #[test]
    fn nonsense_is_refused() {
        for option in
            [("format", "xml"), ("delimiter", "||"), ("header", "maybe"), ("delimiter", "")]
        {
            assert_eq!(read(&[option]), Err(invalid(option.0, option.1)));
        }
        assert_eq!(
            read(&[("format", "csv"), ("force_null", "z")]),
            Err(invalid("force_null", "z"))
        );
    }
}
