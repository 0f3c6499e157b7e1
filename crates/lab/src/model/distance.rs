//! Round trips and distances: which of the two a deployment is known by depends on who asks.
//!
//! The paper gives distances, teams know round trips; what lies between is light in fibre and the detours of cables.
//! Owns: what a round trip says of a distance, with its uncertainty. Never: measures either.

/// Kilometres that a round trip of 1 ms reaches at most: light in fibre makes about 200 km in a millisecond, there
/// and back 100.
pub const KM_PER_MS: f64 = 100.0;

/// What measured round trips typically are of that bound: 2.1 times the straight line's (the rule of thumb named in
/// Bozkurt et al., "Dissecting Latency in the Internet's Fiber Infrastructure", 2018).
pub const DETOUR_TYPICAL: f64 = 2.1;

/// The largest detour that is still taken for one. Half of all pairs have more than the typical one; that twice as
/// much is enough is our choice.
pub const DETOUR_MAX: f64 = 2.0 * DETOUR_TYPICAL;

/// A round trip that may be within one data centre, where it is switches and hosts, not distance. Our choice, from
/// above: within data centres it is some tenths of it.
pub const SAME_PLACE_MS: f64 = 1.0;

/// The least and the greatest distance, in kilometres, that may be behind a round trip.
pub fn possible_km(round_trip_ms: f64) -> (f64, f64) {
    let least =
        if round_trip_ms <= SAME_PLACE_MS { 0.0 } else { round_trip_ms * KM_PER_MS / DETOUR_MAX };
    (least, round_trip_ms * KM_PER_MS)
}

/// The mean distance between two of `nodes` nodes, whose distances are `total_km` over all pairs.
///
/// The paper's totals are such sums: 31,763 km is New York to London, London to Singapore and Singapore to New York.
pub fn mean_of_pairs_km(total_km: f64, nodes: u32) -> f64 {
    let pairs = f64::from(nodes) * (f64::from(nodes) - 1.0) / 2.0;
    if pairs == 0.0 { 0.0 } else { total_km / pairs }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_bounds_the_distance_on_both_sides() {
        assert_eq!(possible_km(0.4), (0.0, 40.0));
        let (least, most) = possible_km(42.0);
        assert!((least - 1000.0).abs() < 1e-9 && most == 4200.0, "{least} {most}");
    }

    #[test]
    fn distances_are_spread_over_pairs() {
        assert_eq!(mean_of_pairs_km(1500.0, 3), 500.0);
        assert_eq!(mean_of_pairs_km(1200.0, 4), 200.0);
        assert_eq!(mean_of_pairs_km(0.0, 0), 0.0);
    }
}
