//! One family of a request's instances, as its keeper keeps it: at most one of them commits.
//!
//! Owns: which instance may still commit, which one has, and what is told to a later one.
//! Never: holds a lock or waits: an instance that begins never waits for an earlier one, whatever became of it.
//! Start reading at [`Family`]; `tutti.request` and its functions are the same on a node, which
//! `tests/tests/answers/request_family.rs` compares.
//!
//! After Multi-Instance-Precommit (Romano, Quaglia, "Integration and Evaluation of Multi-Instance-Precommit Schemes
//! within PostgreSQL", section 2), for servers whose locks cannot be shared by siblings: an instance that begins takes
//! from all earlier ones the right to commit (it *fences* them), and their locks are then released wherever they are.
//! `docs/protocol/exactly-once.md` says what that changes.

/// An instance's number in its family. The first one is 1.
pub type Instance = u64;

/// What is kept of one family.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct Family<R> {
    /// Instances with smaller numbers may not commit any more. 0: none was fenced.
    fence: Instance,
    committed: Option<(Instance, R)>,
}

/// What an instance that begins is told.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Begun<R> {
    /// It may go on: of those before it none has committed, and none will.
    GoOn,
    /// An instance has committed, with this result: there is nothing left to do.
    Committed {
        /// Which one.
        by: Instance,
        /// Its result.
        result: R,
    },
    /// A later instance has begun: this one could not commit.
    TooLate {
        /// The latest that has.
        latest: Instance,
    },
}

/// Why an instance may not commit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refused {
    /// Another has committed, or the same in another attempt.
    Committed(Instance),
    /// A later one has begun.
    Fenced(Instance),
}

impl<R: Clone> Family<R> {
    /// Instance `number` begins. The first one need not ask, for it fences nobody: it learns when it commits that
    /// another has, if so.
    pub fn begin(&mut self, number: Instance) -> Begun<R> {
        if let Some((by, result)) = &self.committed {
            return Begun::Committed { by: *by, result: result.clone() };
        }
        if number < self.fence {
            return Begun::TooLate { latest: self.fence };
        }
        self.fence = number;
        Begun::GoOn
    }

    /// Instance `number` commits with this result: if it may, with its decision, in one transaction of its keeper.
    ///
    /// Errors: why it may not; the transaction must be aborted.
    pub fn commit(&mut self, number: Instance, result: R) -> Result<(), Refused> {
        if let Some((by, _)) = &self.committed {
            return Err(Refused::Committed(*by));
        }
        if number < self.fence {
            return Err(Refused::Fenced(self.fence));
        }
        self.fence = number;
        self.committed = Some((number, result));
        Ok(())
    }

    /// The latest instance that has begun or committed, of those that the keeper was told of.
    pub fn fence(&self) -> Instance {
        self.fence
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// What one of the instances of a small world has done.
    #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
    enum Life {
        NotBegun,
        Running,
        Committed,
        Refused,
        /// It was told of a result.
        Told,
    }

    /// Every order in which four instances begin, commit, and try to commit again, each step's answer lost or not: at
    /// most one commits, whoever is told of a commit is told of that one, and the last to begin is never refused.
    #[test]
    fn at_most_one_of_a_family_commits_in_every_order() {
        let begun = (Family::<Instance>::default(), [Life::NotBegun; 4], Vec::<Instance>::new());
        let (mut seen, mut open) = (BTreeSet::new(), vec![begun]);
        let mut ends = 0_u32;
        while let Some((family, lives, told)) = open.pop() {
            let key = (family.fence, family.committed, lives, told.clone());
            if !seen.insert(key) {
                continue;
            }
            let commits: Vec<_> = lives.iter().filter(|life| **life == Life::Committed).collect();
            assert!(commits.len() <= 1, "{lives:?}");
            let by = family.committed.map(|(by, _)| by);
            assert!(told.iter().all(|one| Some(*one) == by), "{told:?} of {family:?}");
            let mut has_more = false;
            for index in 0..lives.len() {
                let number = Instance::try_from(index).expect("a small number") + 1;
                let (mut family, mut lives, mut told) = (family.clone(), lives, told.clone());
                match lives[index] {
                    // The first need not ask.
                    Life::NotBegun if number == 1 => lives[index] = Life::Running,
                    Life::NotBegun => match family.begin(number) {
                        Begun::GoOn => lives[index] = Life::Running,
                        Begun::Committed { result, .. } => {
                            told.push(result);
                            lives[index] = Life::Told;
                        }
                        Begun::TooLate { latest } => {
                            assert!(number < latest);
                            lives[index] = Life::Refused;
                        }
                    },
                    Life::Running => match family.commit(number, number) {
                        Ok(()) => lives[index] = Life::Committed,
                        Err(refused) => {
                            assert!(
                                matches!(refused, Refused::Committed(_))
                                    || lives[index + 1..].iter().any(|it| *it != Life::NotBegun),
                                "only a later instance keeps this one from its commit: {lives:?}"
                            );
                            lives[index] = Life::Refused;
                        }
                    },
                    // Its answer was lost, and it is sent again.
                    Life::Committed => {
                        assert_eq!(family.commit(number, number), Err(Refused::Committed(number)));
                        continue;
                    }
                    Life::Refused | Life::Told => continue,
                }
                has_more = true;
                open.push((family, lives, told));
            }
            if !has_more {
                ends += 1;
                // The latest that the keeper has let go on has committed, or another had before.
                assert!(family.committed.is_some() || lives.iter().all(|it| *it == Life::Refused));
            }
        }
        assert!(5 < ends && 100 < seen.len(), "{ends} ends in {} states", seen.len());
    }

    #[test]
    fn who_comes_too_late_is_told() {
        let mut family = Family::default();
        assert_eq!(family.begin(3), Begun::GoOn);
        assert_eq!(family.begin(2), Begun::TooLate { latest: 3 });
        assert_eq!(family.commit(1, "one"), Err(Refused::Fenced(3)));
        assert_eq!(family.commit(3, "three"), Ok(()));
        assert_eq!(family.begin(4), Begun::Committed { by: 3, result: "three" });
        assert_eq!(family.commit(4, "four"), Err(Refused::Committed(3)));
    }
}
