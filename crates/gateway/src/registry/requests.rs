//! Which sessions are executing which requests at the moment.
//!
//! Owns: the instances at work here, and which of them are over as soon as a later one of their family begins.
//! Never: ends a session (who begins the later one does), or knows what is kept of a family (its keeper does).

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tutti_cluster::requests::Instance;

/// Which session's, by process id.
type Sessions = BTreeMap<i64, i32>;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct RequestsAtWork(Mutex<HashMap<(String, String), Sessions>>);

/// Exists as long as the instance's transaction does.
#[derive(Debug)]
pub struct AtWork {
    all: Arc<RequestsAtWork>,
    instance: Instance,
}

/// Why an instance may not begin.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Busy {
    /// It is being executed by another session.
    Itself,
    /// A later one is.
    Later(i64),
}

impl RequestsAtWork {
    /// The instance begins in this session. Those that execute earlier ones must end ([`Self::earlier`]).
    ///
    /// Errors: it must not begin.
    pub fn begin(self: &Arc<Self>, instance: Instance, session: i32) -> Result<AtWork, Busy> {
        let mut families = self.families();
        let at_work =
            families.entry((instance.owner.clone(), instance.family.clone())).or_default();
        match at_work.last_key_value() {
            Some((latest, _)) if *latest == instance.number => return Err(Busy::Itself),
            Some((latest, _)) if instance.number < *latest => return Err(Busy::Later(*latest)),
            _ => (),
        }
        at_work.insert(instance.number, session);
        Ok(AtWork { all: self.clone(), instance })
    }

    /// The sessions that execute earlier instances of its family.
    pub fn earlier(&self, instance: &Instance) -> Vec<i32> {
        let families = self.families();
        let family = families.get(&(instance.owner.clone(), instance.family.clone()));
        let earlier = family.into_iter().flat_map(|it| it.range(..instance.number));
        earlier.map(|(_, session)| *session).collect()
    }

    fn families(&self) -> MutexGuard<'_, HashMap<(String, String), Sessions>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AtWork {
    /// Which instance it is.
    pub fn instance(&self) -> &Instance {
        &self.instance
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        let family = (self.instance.owner.clone(), self.instance.family.clone());
        let mut families = self.all.families();
        if let Some(at_work) = families.get_mut(&family) {
            at_work.remove(&self.instance.number);
            if at_work.is_empty() {
                families.remove(&family);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(family: &str, number: i64) -> Instance {
        Instance { owner: "shop".to_owned(), family: family.to_owned(), number }
    }

    #[test]
    fn earlier_instances_are_those_of_the_family_that_are_not_over() {
        let all = Arc::new(RequestsAtWork::default());
        let earlier = |at_work: &AtWork| all.earlier(at_work.instance());
        let one = all.begin(instance("a", 1), 11).expect("it is the first");
        assert!(earlier(&one).is_empty());
        assert_eq!(all.begin(instance("a", 1), 12).expect_err("it is at work"), Busy::Itself);
        let two = all.begin(instance("a", 2), 12).expect("it is later");
        assert_eq!(earlier(&two), [11]);
        assert_eq!(all.begin(instance("a", 1), 13).expect_err("too late"), Busy::Later(2));
        let other = all.begin(instance("b", 1), 14).expect("of another family");
        assert!(earlier(&other).is_empty());
        drop(one);
        let three = all.begin(instance("a", 3), 15).expect("it is later");
        assert_eq!(earlier(&three), [12], "the first is over");
    }

    #[test]
    fn what_is_over_is_forgotten() {
        let all = Arc::new(RequestsAtWork::default());
        let begun = all.begin(instance("a", 5), 1).expect("it is the first");
        drop(begun);
        assert!(all.families().is_empty());
        let again = all.begin(instance("a", 5), 2).expect("nobody is at work");
        assert!(all.earlier(again.instance()).is_empty());
    }
}
