//! Versions of PostgreSQL, as its programs say them.
//!
//! Owns: reading them. Never: runs a program, or judges a version.

use std::fmt;

/// A version as `postgres --version` prints it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Version {
    /// 15, 16, …
    pub major: u32,
    /// The minor release; 0 for a beta or development version.
    pub minor: u32,
}

impl Version {
    /// Reads `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)`, `… 19beta1`, `… 19devel`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let number = text.split_once("(PostgreSQL) ")?.1.split_whitespace().next()?;
        let digits = |text: &str| -> Option<u32> {
            let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
            text[..end].parse().ok()
        };
        let minor = number.split_once('.').and_then(|(_, minor)| digits(minor)).unwrap_or(0);
        Some(Self { major: digits(number)?, minor })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_releases_and_betas_are_read() {
        let version = |text| Version::parse(text).map(|version| version.to_string());
        let debian = "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n";
        assert_eq!(version(debian).as_deref(), Some("15.18"));
        assert_eq!(version("postgres (PostgreSQL) 19beta2").as_deref(), Some("19.0"));
        assert_eq!(version("postgres (PostgreSQL) 20devel").as_deref(), Some("20.0"));
        assert_eq!(version("mysqld 8"), None);
    }
}
