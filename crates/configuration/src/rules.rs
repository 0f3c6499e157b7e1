//! `[[rules]]`: which roles may connect from where, and how they must authenticate.
//!
//! Owns: what a rule says, and which is the first that matches.
//! Never: checks a proof. Start reading at [`Rule`]; PostgreSQL's `pg_hba.conf` is the model.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// One rule. The first that matches decides.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// With TLS, without, or either.
    #[serde(default, rename = "type")]
    pub connection: ConnectionKind,
    /// Databases; `all` means any.
    #[serde(default = "all")]
    pub databases: Vec<String>,
    /// Roles; `all` means any, `+name` the members of a role.
    #[serde(default = "all")]
    pub users: Vec<String>,
    /// Where from.
    #[serde(default)]
    pub address: Origin,
    /// What then.
    pub method: Method,
}

/// Which connections a rule is for.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ConnectionKind {
    /// Any.
    #[default]
    Host,
    /// With TLS.
    HostSsl,
    /// Without.
    HostNoSsl,
}

/// What a client must do.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Nothing.
    Trust,
    /// Prove that it knows the role's password.
    #[serde(rename = "scram-sha-256")]
    ScramSha256,
    /// Show a certificate that is made for the role.
    Cert,
    /// Go.
    Reject,
}

/// Where a client comes from.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(try_from = "String", into = "String")]
pub enum Origin {
    /// `all`.
    #[default]
    All,
    /// `loopback`: this machine, 127.0.0.0/8 and ::1.
    Loopback,
    /// `192.0.2.0/24`, `2001:db8::/32`, or one address.
    Network(IpNet),
}

impl Origin {
    fn contains(self, address: IpAddr) -> bool {
        match self {
            Self::All => true,
            Self::Loopback => address.is_loopback(),
            Self::Network(network) => network.contains(&address),
        }
    }

    /// Whether only this machine is in it.
    fn is_loopback(self) -> bool {
        match self {
            Self::All => false,
            Self::Loopback => true,
            Self::Network(network) => {
                network.network().is_loopback() && network.broadcast().is_loopback()
            }
        }
    }
}

impl FromStr for Origin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(Self::All),
            "loopback" => Ok(Self::Loopback),
            _ => text
                .parse()
                .or_else(|_| text.parse::<IpAddr>().map(IpNet::from))
                .map(Self::Network)
                .map_err(|_| {
                    format!(
                        "address must be \"all\", \"loopback\" or like 10.0.0.0/8, not {text:?}"
                    )
                }),
        }
    }
}

impl TryFrom<String> for Origin {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Origin> for String {
    fn from(origin: Origin) -> Self {
        origin.to_string()
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Loopback => f.write_str("loopback"),
            Self::Network(network) => network.fmt(f),
        }
    }
}

fn all() -> Vec<String> {
    vec!["all".to_owned()]
}

/// The client that connects.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// From where. An IPv4-mapped IPv6 address is an IPv4 address here.
    pub address: IpAddr,
    /// Over TLS.
    pub encrypted: bool,
    /// As which role.
    pub user: &'a str,
    /// To which database.
    pub database: &'a str,
    /// Roles that this one is a member of, itself included; asked for only where a rule names a
    /// group.
    pub groups: &'a [String],
}

impl Rule {
    /// Every client on this machine, without authentication: what `tutti up` writes down.
    pub fn trust_loopback() -> Self {
        Self {
            connection: ConnectionKind::Host,
            databases: all(),
            users: all(),
            address: Origin::Loopback,
            method: Method::Trust,
        }
    }

    /// Every client, from everywhere, without authentication. [`super::Config::allow_trust_off_loopback`]
    /// must be set.
    pub fn trust_everybody() -> Self {
        Self { address: Origin::All, ..Self::trust_loopback() }
    }

    /// Whether it lets in a client from another machine without authentication.
    pub(super) fn trusts_off_loopback(&self) -> bool {
        self.method == Method::Trust && !self.address.is_loopback()
    }

    fn names_group(&self) -> bool {
        self.users.iter().any(|user| user.starts_with('+'))
    }

    fn matches(&self, arrival: &Arrival<'_>) -> bool {
        let by_connection = match self.connection {
            ConnectionKind::Host => true,
            ConnectionKind::HostSsl => arrival.encrypted,
            ConnectionKind::HostNoSsl => !arrival.encrypted,
        };
        let by_user = |user: &String| match user.strip_prefix('+') {
            Some(group) => arrival.groups.iter().any(|of| of == group),
            None => user == "all" || user == arrival.user,
        };
        by_connection
            && self.address.contains(arrival.address)
            && self.databases.iter().any(|name| name == "all" || name == arrival.database)
            && self.users.iter().any(by_user)
    }
}

/// Whether some rule must know of which roles a role is a member.
pub fn need_groups(rules: &[Rule]) -> bool {
    rules.iter().any(Rule::names_group)
}

/// What the client must do; `None`: no rule lets it in. Without any rule every client must prove that
/// it knows its password.
pub fn decide(rules: &[Rule], arrival: &Arrival<'_>) -> Option<Method> {
    if rules.is_empty() {
        return Some(Method::ScramSha256);
    }
    rules.iter().find(|rule| rule.matches(arrival)).map(|rule| rule.method)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct File {
        rules: Vec<Rule>,
    }

    const RULES: &str = r#"
        [[rules]]
        users = ["eve"]
        method = "reject"
        [[rules]]
        type = "hostssl"
        users = ["+staff"]
        address = "10.0.0.0/8"
        method = "cert"
        [[rules]]
        type = "hostssl"
        databases = ["shop"]
        address = "10.0.0.0/8"
        method = "scram-sha-256"
        [[rules]]
        type = "hostnossl"
        address = "192.0.2.7"
        method = "scram-sha-256"
        [[rules]]
        address = "loopback"
        method = "trust"
    "#;

    fn decided(address: &str, encrypted: bool, user: &str, database: &str) -> Option<Method> {
        let file: File = toml::from_str(RULES).unwrap();
        let groups =
            if user == "ann" { vec!["ann".to_owned(), "staff".to_owned()] } else { vec![] };
        let address = address.parse().unwrap();
        decide(&file.rules, &Arrival { address, encrypted, user, database, groups: &groups })
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        assert_eq!(decided("127.0.0.1", false, "eve", "shop"), Some(Method::Reject));
        assert_eq!(decided("127.0.0.1", false, "bob", "shop"), Some(Method::Trust));
        assert_eq!(decided("::1", true, "bob", "shop"), Some(Method::Trust));
        assert_eq!(decided("10.1.2.3", true, "ann", "shop"), Some(Method::Cert));
        assert_eq!(decided("10.1.2.3", true, "bob", "shop"), Some(Method::ScramSha256));
        assert_eq!(decided("192.0.2.7", false, "bob", "x"), Some(Method::ScramSha256));
    }

    #[test]
    fn who_matches_no_rule_is_not_let_in() {
        assert_eq!(decided("10.1.2.3", false, "bob", "shop"), None);
        assert_eq!(decided("10.1.2.3", true, "bob", "other"), None);
        assert_eq!(decided("192.0.2.7", true, "bob", "shop"), None);
        assert_eq!(decided("192.0.2.8", false, "bob", "shop"), None);
        assert_eq!(decided("2001:db8::1", true, "bob", "shop"), None);
    }

    #[test]
    fn without_rules_everybody_must_prove_themselves() {
        let address = "127.0.0.1".parse().unwrap();
        let arrival =
            Arrival { address, encrypted: false, user: "postgres", database: "x", groups: &[] };
        assert_eq!(decide(&[], &arrival), Some(Method::ScramSha256));
    }

    #[test]
    fn trust_reaches_beyond_this_machine_or_not() {
        let reaches = |address: &str| {
            let address = address.parse().unwrap();
            Rule { address, ..Rule::trust_loopback() }.trusts_off_loopback()
        };
        for inside in ["loopback", "127.0.0.1", "127.0.0.0/8", "127.1.0.0/16", "::1", "::1/128"] {
            assert!(!reaches(inside), "{inside}");
        }
        for beyond in ["all", "0.0.0.0/0", "127.0.0.0/7", "::/0", "::1/127", "10.0.0.1"] {
            assert!(reaches(beyond), "{beyond}");
        }
        assert!("10.0.0.0/33".parse::<Origin>().is_err());
        assert!("somewhere".parse::<Origin>().is_err());
    }
}
