//! When a gateway that follows takes the lead, as a pure state machine.
//!
//! Owns: what it means that nobody has the lock, that the one who has it says nothing, and that node 1 does not
//! answer.
//! Never: makes a takeover safe (the fence on each node does, `docs/protocol/one-gateway.md`: whoever is taken for
//! dead and is not can do nothing wrong), nor reads a clock: time is counted in looks.
//! Start reading at [`Following::look`].

/// After so many looks at node 1 in a row that found no leader, one takes the lead: it may just be taking its lock
/// again.
const VACANT_LOOKS: u32 = 2;
/// The same after node 1 was away: the leader has noticed that it is back no earlier than we have.
const VACANT_LOOKS_AFTER_SILENCE: u32 = 15;

/// What node 1 says of the gateway that leads.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Seen {
    /// Nobody has the lock.
    Nobody,
    /// Somebody has.
    Leader {
        /// The session that has the lock.
        session: (i32, i64),
        /// The time by node 1's clock at which it last said something, in microseconds. Compared for equality
        /// only.
        said: i64,
    },
    /// Node 1 did not answer in time.
    Silence,
}

/// What is to be done before the next look.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Next {
    /// Nothing.
    Follow,
    /// The leader has said nothing for the lease: the session that has its lock is to be ended, so that the lock is
    /// free.
    Depose {
        /// Whose.
        session: (i32, i64),
    },
    /// The lock is to be taken.
    Lead,
}

/// One gateway's.
#[derive(Clone, Debug)]
pub struct Following {
    /// Looks that make a lease.
    lease: u32,
    /// The last leader that was seen, and for how many looks it has said nothing since.
    leader: Option<((i32, i64), i64, u32)>,
    /// Looks in a row that found nobody.
    vacant: u32,
    /// How many there must be.
    vacant_enough: u32,
}

impl Following {
    /// A gateway begins to follow. A leader that says nothing for `lease` looks is taken for dead.
    pub fn begin(lease: u32) -> Self {
        Self { lease: lease.max(1), leader: None, vacant: 0, vacant_enough: VACANT_LOOKS }
    }

    /// Takes what one look has found. Looks come at even intervals.
    pub fn look(&mut self, seen: Seen) -> Next {
        match seen {
            Seen::Silence => {
                // A leader cannot have said anything to a node that answers nobody.
                self.leader = None;
                (self.vacant, self.vacant_enough) = (0, VACANT_LOOKS_AFTER_SILENCE);
                Next::Follow
            }
            Seen::Nobody => {
                self.leader = None;
                self.vacant += 1;
                if self.vacant < self.vacant_enough { Next::Follow } else { Next::Lead }
            }
            Seen::Leader { session, said } => {
                (self.vacant, self.vacant_enough) = (0, VACANT_LOOKS);
                let silent = match self.leader {
                    Some((known, last, silent)) if (known, last) == (session, said) => silent + 1,
                    _ => 0,
                };
                self.leader = Some((session, said, silent));
                if silent < self.lease {
                    return Next::Follow;
                }
                // Once; then it is a matter of the lock, until the next lease is over.
                self.leader = None;
                Next::Depose { session }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: (i32, i64) = (7, 100);
    const OTHER: (i32, i64) = (8, 100);

    fn leader(session: (i32, i64), said: i64) -> Seen {
        Seen::Leader { session, said }
    }

    fn after(seen: &[Seen]) -> Next {
        let mut following = Following::begin(3);
        seen.iter().fold(Next::Follow, |_, seen| following.look(*seen))
    }

    #[test]
    fn who_says_something_is_followed() {
        let mut following = Following::begin(3);
        for said in 0..50 {
            // Every third look is late: nothing new.
            for _ in 0..3 {
                assert_eq!(following.look(leader(ONE, said)), Next::Follow);
            }
        }
    }

    #[test]
    fn who_says_nothing_for_a_lease_is_deposed_once_in_a_lease() {
        let mut following = Following::begin(3);
        let looks: Vec<_> = (0..9).map(|_| following.look(leader(ONE, 1))).collect();
        let deposed = Next::Depose { session: ONE };
        let follow = Next::Follow;
        assert_eq!(looks[..3], [follow; 3]);
        assert_eq!(looks.iter().filter(|next| **next == deposed).count(), 2);
    }

    #[test]
    fn another_session_has_a_lease_of_its_own() {
        let seen = [leader(ONE, 1), leader(ONE, 1), leader(ONE, 1), leader(OTHER, 1)];
        assert_eq!(after(&seen), Next::Follow);
    }

    #[test]
    fn silence_of_node_1_is_not_the_leaders() {
        let quiet = [leader(ONE, 1); 3];
        let silence = [Seen::Silence];
        assert_eq!(after(&[&quiet[..], &silence, &quiet].concat()), Next::Follow);
        // And its leader gets time to take its lock again.
        let nobody = [Seen::Nobody; VACANT_LOOKS_AFTER_SILENCE as usize];
        assert_eq!(after(&[&silence[..], &nobody[1..]].concat()), Next::Follow);
        assert_eq!(after(&[&silence[..], &nobody].concat()), Next::Lead);
    }

    #[test]
    fn a_lock_that_nobody_has_is_taken_at_the_second_look() {
        assert_eq!(after(&[Seen::Nobody]), Next::Follow);
        assert_eq!(after(&[Seen::Nobody; 2]), Next::Lead);
        assert_eq!(after(&[Seen::Nobody, leader(ONE, 1), Seen::Nobody]), Next::Follow);
    }

    /// Every order of so many things that can be seen.
    #[test]
    fn nobody_leads_beside_a_leader_that_speaks_nor_waits_for_ever() {
        let all = [Seen::Nobody, leader(ONE, 1), leader(ONE, 2), leader(OTHER, 1), Seen::Silence];
        const LOOKS: u32 = 8;
        for case in 0..all.len().pow(LOOKS) {
            let mut rest = case;
            let mut seen = Vec::new();
            let mut following = Following::begin(3);
            for _ in 0..LOOKS {
                seen.push(all[rest % all.len()]);
                rest /= all.len();
                let next = following.look(seen[seen.len() - 1]);
                let last = |count: usize| &seen[seen.len().saturating_sub(count)..];
                match next {
                    Next::Lead => assert_eq!(last(2), [Seen::Nobody; 2], "{seen:?}"),
                    Next::Depose { session } => {
                        let is_its = |one: &Seen| matches!(one, Seen::Leader { session: of, .. } if *of == session);
                        let told = last(4);
                        assert!(
                            told.len() == 4
                                && told.iter().all(|one| *one == told[0] && is_its(one)),
                            "{seen:?}"
                        );
                    }
                    Next::Follow => (),
                }
            }
            // Whatever there was: a vacant lock is taken in the end.
            let vacant = (0..VACANT_LOOKS_AFTER_SILENCE).map(|_| following.look(Seen::Nobody));
            assert!(vacant.into_iter().any(|next| next == Next::Lead), "{seen:?}");
        }
    }
}
