//! What each user has of a server, and who was refused what.
//!
//! Requests are counted by a bucket for each user that fills at the quota's rate and holds a second of it. Accounts stay
//! when a user goes, so that coming again fills no bucket; there are no more of them than users of the host.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use hotset_core::bytes::human;
use hotset_core::{Error, Result};

use super::quota::Quota;
use crate::lock::Lock;

/// Why something was refused; the label of the metric.
pub(crate) const REASONS: [&str; 7] =
    ["user", "connections", "requests", "jobs", "memory", "frames", "content"];

/// What users have, and what was refused.
pub(crate) struct Accounts {
    quota: Quota,
    books: Lock<Books>,
}

#[derive(Default)]
struct Books {
    users: HashMap<u32, Account>,
    refused: BTreeMap<&'static str, u64>,
}

/// What one user has.
struct Account {
    connections: u64,
    /// Requests that it may make now, and when that was worked out.
    allowance: f64,
    since: Instant,
    jobs: HashMap<String, Job>,
}

/// A job, by who opened it.
struct Job {
    bytes: u64,
    /// Whether it is not open yet.
    opening: bool,
}

/// A connection of a user, from its coming to its going.
pub(crate) struct Visit {
    accounts: Arc<Accounts>,
    pub(crate) user: u32,
}

impl Accounts {
    pub(crate) fn new(quota: Quota) -> Self {
        Self { quota, books: Lock::default() }
    }

    /// Counts something that was refused.
    pub(crate) fn refuse(&self, reason: &'static str) {
        *self.books.lock().refused.entry(reason).or_default() += 1;
    }

    /// How often something was refused, by its reason.
    pub(crate) fn refused(&self) -> BTreeMap<&'static str, u64> {
        self.books.lock().refused.clone()
    }

    /// A user connects.
    pub(crate) fn connect(self: &Arc<Self>, user: u32, now: Instant) -> Result<Visit> {
        let mut books = self.books.lock();
        let account = books.account(user, self.quota, now);
        if let Some(most) = self.quota.connections
            && account.connections >= most
        {
            return Err(books.refuse("connections", user, &format!("{most} connections at a time")));
        }
        account.connections += 1;
        Ok(Visit { accounts: Arc::clone(self), user })
    }

    /// A user makes a request. False if it must wait.
    pub(crate) fn request(&self, user: u32, now: Instant) -> bool {
        let Some(most) = self.quota.requests else { return true };
        let mut books = self.books.lock();
        let account = books.account(user, self.quota, now);
        let earned = now.saturating_duration_since(account.since).as_secs_f64() * most as f64;
        (account.allowance, account.since) = ((account.allowance + earned).min(most as f64), now);
        let allowed = account.allowance >= 1.0;
        if allowed {
            account.allowance -= 1.0;
        }
        allowed
    }

    /// Whether a job stands on the account of another user.
    pub(crate) fn is_of_another(&self, user: u32, job: &str) -> bool {
        let books = self.books.lock();
        books.users.iter().any(|(&other, account)| other != user && account.jobs.contains_key(job))
    }

    /// A user is about to open a job with a cache of so many bytes; `exists` says of its others whether they are still
    /// there. What comes of it is told to [`Self::opened`].
    pub(crate) fn opens(
        &self,
        user: u32,
        job: &str,
        bytes: u64,
        exists: impl Fn(&str) -> bool,
    ) -> Result<()> {
        let mut books = self.books.lock();
        // A job of that name that another user had is over.
        let others = books.users.iter_mut().filter(|(other, _)| **other != user);
        others.for_each(|(_, account)| {
            account.jobs.remove(job);
        });
        let account = books.account(user, self.quota, Instant::now());
        account.jobs.retain(|name, job| job.opening || exists(name));
        let others = account.jobs.iter().filter(|(name, _)| *name != job);
        let (count, held) =
            others.fold((0, 0u64), |(count, held), (_, other)| (count + 1, held.saturating_add(other.bytes)));
        if let Some(most) = self.quota.jobs
            && count >= most
        {
            return Err(books.refuse("jobs", user, &format!("{most} jobs")));
        }
        if let Some(most) = self.quota.memory
            && bytes.saturating_add(held) > most
        {
            let what = format!("{} of `cache=` over all its jobs", human(most));
            return Err(books.refuse("memory", user, &what));
        }
        // Two may open it at once, and only one does.
        let beside = account.jobs.get(job).filter(|job| job.opening).map_or(0, |job| job.bytes);
        account.jobs.insert(job.to_owned(), Job { bytes: bytes.max(beside), opening: true });
        Ok(())
    }

    /// The job is open, or could not be opened.
    pub(crate) fn opened(&self, user: u32, job: &str, open: bool) {
        let mut books = self.books.lock();
        let Some(account) = books.users.get_mut(&user) else { return };
        match account.jobs.get_mut(job) {
            Some(job) if open => job.opening = false,
            _ => {
                account.jobs.remove(job);
            }
        }
    }
}

impl Books {
    fn account(&mut self, user: u32, quota: Quota, now: Instant) -> &mut Account {
        self.users.entry(user).or_insert_with(|| Account {
            connections: 0,
            allowance: quota.requests.unwrap_or_default() as f64,
            since: now,
            jobs: HashMap::new(),
        })
    }

    /// Counts what a quota does not allow, and names the quota.
    fn refuse(&mut self, quota: &'static str, user: u32, most: &str) -> Error {
        *self.refused.entry(quota).or_default() += 1;
        Error::invalid(format!(
            "user `{user}` may have {most} here: the server's `--quota {quota}=` says so, and its owner can raise it"
        ))
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut books = self.accounts.books.lock();
        if let Some(account) = books.users.get_mut(&self.user) {
            account.connections = account.connections.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn accounts(quota: &str) -> Arc<Accounts> {
        Arc::new(Accounts::new(Quota::parse(quota, 1 << 30).unwrap()))
    }

    #[test]
    fn a_user_that_has_all_its_connections_keeps_none_from_another() {
        let (accounts, now) = (accounts("connections=2"), Instant::now());
        let first = accounts.connect(7, now).unwrap();
        let _second = accounts.connect(7, now).unwrap();
        let refused = accounts.connect(7, now).err().unwrap();
        assert!(refused.message.contains("`--quota connections=`"), "{refused}");
        accounts.connect(8, now).unwrap();
        drop(first);
        accounts.connect(7, now).unwrap();
        assert_eq!(accounts.refused(), BTreeMap::from([("connections", 1)]));
    }

    #[test]
    fn requests_are_given_out_by_time_and_coming_again_gains_nothing() {
        let (accounts, now) = (accounts("requests=10"), Instant::now());
        assert!((0..10).all(|_| accounts.request(7, now)));
        assert!(!accounts.request(7, now));
        drop(accounts.connect(7, now).unwrap());
        assert!(!accounts.request(7, now));
        assert!(accounts.request(8, now));
        let later = now + Duration::from_millis(250);
        assert!(accounts.request(7, later) && accounts.request(7, later) && !accounts.request(7, later));
    }

    #[test]
    fn jobs_and_their_caches_count_while_they_are_there() {
        let accounts = accounts("jobs=2,memory=1MiB");
        let all = |_: &str| true;
        accounts.opens(7, "a", 600 << 10, all).unwrap();
        accounts.opened(7, "a", true);
        let refused = accounts.opens(7, "b", 600 << 10, all).unwrap_err();
        assert!(refused.message.contains("`--quota memory=`"), "{refused}");
        accounts.opens(7, "b", 100 << 10, all).unwrap();
        let refused = accounts.opens(7, "c", 0, all).unwrap_err();
        assert!(refused.message.contains("`--quota jobs=`"), "{refused}");
        accounts.opened(7, "b", false);
        accounts.opens(7, "c", 0, all).unwrap();
        accounts.opened(7, "c", true);
        accounts.opens(7, "d", 1 << 20, |name| name == "c").unwrap();
        accounts.opens(8, "a", 1 << 20, all).unwrap();
        assert!(accounts.is_of_another(7, "a") && !accounts.is_of_another(8, "a"));
        assert_eq!(accounts.refused(), BTreeMap::from([("jobs", 1), ("memory", 1)]));
    }

    #[test]
    fn what_is_asked_for_without_measure_is_counted_and_names_change_hands() {
        let accounts = accounts("jobs=9");
        for name in ["a", "b", "c"] {
            accounts.opens(7, name, u64::MAX, |_| true).unwrap();
            accounts.opened(7, name, true);
        }
        // Two open one job at once: what the loser is told takes nothing off.
        let accounts = Arc::new(Accounts::new(Quota::parse("memory=1MiB", 1 << 30).unwrap()));
        accounts.opens(7, "a", 1 << 20, |_| true).unwrap();
        accounts.opens(7, "a", 1 << 10, |_| true).unwrap();
        accounts.opened(7, "a", true);
        accounts.opens(7, "b", 1, |_| true).unwrap_err();
        // Another user has the name now.
        accounts.opens(8, "a", 1 << 20, |_| true).unwrap();
        accounts.opens(7, "b", 1 << 20, |_| true).unwrap();
    }
}
