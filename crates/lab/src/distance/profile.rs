//! Named places: sites, and how far they are from each other.
//!
//! Owns: the shipped profiles with their sources, and how a file describes another.
//! Never: opens a link.
//! Start reading at [`Profile`].

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, bail, ensure};
use serde::Deserialize;

use super::stretch::Stretch;

/// Sites, and what is between every two of them and inside of each.
///
/// From a text in TOML:
///
/// ```toml
/// name = "paris-madrid"
/// source = "ping, a week in November 2026"
/// sites = ["paris", "madrid"]
/// inside = { rtt_ms = 0.4 }
///
/// [[between]]
/// sites = ["paris", "madrid"]
/// rtt_ms = 21.5
/// jitter_ms = 0.5
/// bandwidth_mbit = 1000
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    name: String,
    source: String,
    sites: Vec<String>,
    inside: Stretch,
    /// One for each two sites, the earlier site first: (0, 1), (0, 2), (1, 2) …
    between: Vec<Stretch>,
}

/// The profiles that need no file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[cfg_attr(feature = "bench", derive(clap::ValueEnum))]
pub enum Shipped {
    /// All on one machine: no distance
    OneHost,
    /// Machines of one data centre
    OneDataCentre,
    /// Three zones of one region
    OneRegion,
    /// Two data centres of one city and one of another, as the cost model's one continent
    TwoCities,
    /// Three cities of one continent
    OneContinent,
    /// A city on each of three continents
    ThreeContinents,
}

impl Shipped {
    /// Near ones first.
    pub const ALL: [Self; 6] = [
        Self::OneHost,
        Self::OneDataCentre,
        Self::OneRegion,
        Self::TwoCities,
        Self::OneContinent,
        Self::ThreeContinents,
    ];

    /// As it is written on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::OneHost => "one-host",
            Self::OneDataCentre => "one-data-centre",
            Self::OneRegion => "one-region",
            Self::TwoCities => "two-cities",
            Self::OneContinent => "one-continent",
            Self::ThreeContinents => "three-continents",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::OneHost => include_str!("profiles/one-host.toml"),
            Self::OneDataCentre => include_str!("profiles/one-data-centre.toml"),
            Self::OneRegion => include_str!("profiles/one-region.toml"),
            Self::TwoCities => include_str!("profiles/two-cities.toml"),
            Self::OneContinent => include_str!("profiles/one-continent.toml"),
            Self::ThreeContinents => include_str!("profiles/three-continents.toml"),
        }
    }

    /// Its figures.
    pub fn profile(self) -> Profile {
        // A test reads them all.
        Profile::from_toml(self.text()).expect("a shipped profile is right")
    }
}

impl fmt::Display for Shipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Shipped {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|it| it.name() == name).with_context(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            format!("no profile is called {name:?}; there are {known}")
        })
    }
}

/// A name of a shipped profile, or the path of a file: what has a `.` or a `/`.
impl FromStr for Profile {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.contains(['.', '/']) {
            Self::read(Path::new(text))
        } else {
            Shipped::from_str(text).map(Shipped::profile)
        }
    }
}

/// As it stands in a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    source: String,
    sites: Vec<String>,
    inside: Stretch,
    #[serde(default)]
    between: Vec<WrittenPair>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenPair {
    sites: [String; 2],
    rtt_ms: f64,
    #[serde(default)]
    jitter_ms: f64,
    bandwidth_mbit: Option<f64>,
}

impl Profile {
    /// Reads a description.
    ///
    /// Errors: what is not right, in the words of the file.
    pub fn from_toml(text: &str) -> anyhow::Result<Self> {
        let Written { name, source, sites, inside, between: written } =
            toml::from_str(text).context("this is no profile")?;
        ensure!(!sites.is_empty(), "profile {name:?} has no site");
        let distinct: BTreeSet<&String> = sites.iter().collect();
        ensure!(distinct.len() == sites.len(), "profile {name:?} names a site twice");

        let mut between = vec![None; sites.len() * (sites.len() - 1) / 2];
        for pair in written {
            let [a, b] = &pair.sites;
            let number = |site: &String| {
                let found = sites.iter().position(|it| it == site);
                found.with_context(|| format!("profile {name:?} has no site {site:?}"))
            };
            let (from, to) = (number(a)?, number(b)?);
            let stretch = Stretch::new(pair.rtt_ms, pair.jitter_ms, pair.bandwidth_mbit)
                .with_context(|| format!("between {a:?} and {b:?}"))?;
            let Some(at) = pair_index(from, to) else {
                bail!("between {a:?} and itself is what is `inside`");
            };
            ensure!(
                between[at].replace(stretch).is_none(),
                "profile {name:?} says twice what is between {a:?} and {b:?}"
            );
        }
        let complete = |from: usize, to: usize, stretch: Option<Stretch>| {
            stretch.with_context(|| {
                let (from, to) = (&sites[from], &sites[to]);
                format!("profile {name:?} does not say what is between {from:?} and {to:?}")
            })
        };
        let between = pairs(sites.len())
            .zip(between)
            .map(|((from, to), stretch)| complete(from, to, stretch))
            .collect::<anyhow::Result<_>>()?;
        Ok(Self { name, source, sites, inside, between })
    }

    /// Reads a file.
    ///
    /// Errors: it cannot be read, or as [`Self::from_toml`].
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path)
            .with_context(|| format!("cannot read the profile {}", path.display()))?;
        Self::from_toml(&text).with_context(|| path.display().to_string())
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where its figures are from.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The names of its sites.
    pub fn sites(&self) -> &[String] {
        &self.sites
    }

    /// The number of the site of the machine with a number, where machines are dealt out in turn.
    pub fn site_of(&self, machine: usize) -> usize {
        machine % self.sites.len()
    }

    /// What is between two sites by their numbers, or between two machines of one site.
    ///
    /// `None`: there is no site with that number.
    pub fn between(&self, from: usize, to: usize) -> Option<Stretch> {
        if self.sites.len() <= from.max(to) {
            return None;
        }
        match pair_index(from, to) {
            Some(at) => self.between.get(at).copied(),
            None => Some(self.inside),
        }
    }

    /// Between two machines of one site.
    pub fn inside(&self) -> Stretch {
        self.inside
    }

    /// Every two sites by name, and what is between them.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str, Stretch)> {
        pairs(self.sites.len())
            .zip(&self.between)
            .map(|((from, to), stretch)| (&*self.sites[from], &*self.sites[to], *stretch))
    }
}

/// Every two of so many, in the order of [`pair_index`].
fn pairs(count: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..count).flat_map(|to| (0..to).map(move |from| (from, to)))
}

/// Where in that order two are, in whichever order they are given; `None` of one and itself.
fn pair_index(a: usize, b: usize) -> Option<usize> {
    let (from, to) = (a.min(b), a.max(b));
    (from != to).then(|| to * (to - 1) / 2 + from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Light in glass goes 200 km in a millisecond.
    const KM_PER_RTT_MS: f64 = 100.0;

    fn rtts_ms(profile: Shipped) -> Vec<f64> {
        profile.profile().pairs().map(|(_, _, stretch)| stretch.rtt_ms()).collect()
    }

    #[test]
    fn every_shipped_profile_is_right_and_says_where_it_is_from() {
        for shipped in Shipped::ALL {
            let profile = Profile::from_toml(shipped.text()).unwrap();
            assert_eq!(profile.name(), shipped.name());
            assert_eq!(shipped.name().parse::<Shipped>().unwrap(), shipped);
            assert!(20 < profile.source().len(), "{}", profile.source());
        }
    }

    #[cfg(feature = "bench")]
    #[test]
    fn the_command_line_calls_profiles_by_their_names() {
        for shipped in Shipped::ALL {
            let value = clap::ValueEnum::to_possible_value(&shipped).unwrap();
            assert_eq!(value.get_name(), shipped.name());
        }
    }

    #[test]
    fn farther_profiles_are_farther() {
        let mean = |shipped: Shipped| match &*rtts_ms(shipped) {
            [] => shipped.profile().inside().rtt_ms(),
            rtts => rtts.iter().sum::<f64>() / rtts.len() as f64,
        };
        let means = Shipped::ALL.map(mean);
        assert!(means.is_sorted_by(|near, far| near < far), "{means:?}");
    }

    /// The sum of the distances is in the paper's data, in kilometres (`TotalNetworkDistance`).
    #[test]
    fn nothing_is_faster_than_light() {
        let continents: f64 = rtts_ms(Shipped::ThreeContinents).iter().sum();
        assert!(31_763.0 / KM_PER_RTT_MS < continents, "{continents}");
        let cities: f64 = rtts_ms(Shipped::TwoCities).iter().sum();
        assert!(1_500.0 / KM_PER_RTT_MS < cities, "{cities}");
    }

    #[test]
    fn three_continents_are_pairwise_different() {
        let rtts = rtts_ms(Shipped::ThreeContinents);
        assert_eq!(rtts.len(), 3);
        assert!(rtts[0] != rtts[1] && rtts[1] != rtts[2] && rtts[0] != rtts[2], "{rtts:?}");
    }

    const TWO: &str =
        "name = 'two'\nsource = 'ping'\nsites = ['a', 'b']\ninside = { rtt_ms = 0.4 }\n";

    #[test]
    fn a_file_describes_another() {
        let text = format!(
            "{TWO}[[between]]\nsites = ['b', 'a']\nrtt_ms = 21.5\njitter_ms = 0.5\nbandwidth_mbit = 100\n"
        );
        let profile = Profile::from_toml(&text).unwrap();
        let far = Stretch::new(21.5, 0.5, Some(100.0)).unwrap();
        assert_eq!(profile.between(0, 1), Some(far));
        assert_eq!(profile.between(1, 0), Some(far));
        assert_eq!(profile.between(1, 1), Some(profile.inside()));
        assert_eq!(profile.between(1, 2), None);
        assert_eq!(profile.pairs().collect::<Vec<_>>(), [("a", "b", far)]);
        assert_eq!([0, 1, 2].map(|machine| profile.site_of(machine)), [0, 1, 0]);
    }

    #[test]
    fn every_two_sites_have_their_own_place() {
        let places: Vec<_> = pairs(5).map(|(from, to)| pair_index(to, from)).collect();
        assert_eq!(places, (0..10).map(Some).collect::<Vec<_>>());
        assert_eq!(pair_index(3, 3), None);
    }

    #[test]
    fn what_is_missing_or_wrong_is_said() {
        let between =
            |sites: &str, rtt: &str| format!("{TWO}[[between]]\nsites = {sites}\nrtt_ms = {rtt}\n");
        let twice = between("['a', 'b']", "1") + "[[between]]\nsites = ['b', 'a']\nrtt_ms = 2\n";
        for (text, expected) in [
            (TWO.to_owned(), "does not say what is between \"a\" and \"b\""),
            (between("['a', 'c']", "1"), "no site \"c\""),
            (between("['a', 'a']", "1"), "itself"),
            (between("['a', 'b']", "-1"), "a round trip takes 0 to 60000 ms, not -1"),
            (twice, "twice"),
            (TWO.replace("'b'", "'a'"), "twice"),
            (TWO.replace("'a', 'b'", ""), "no site"),
            (TWO.replace("0.4", "inf"), "a round trip takes"),
            (TWO.replace("rtt_ms", "rtt"), "rtt"),
        ] {
            let said = format!("{:#}", Profile::from_toml(&text).unwrap_err());
            assert!(said.contains(expected), "{said}");
        }
        let said = format!("{:#}", "one-planet".parse::<Profile>().unwrap_err());
        assert!(said.contains("one-host") && said.contains("three-continents"), "{said}");
    }
}
