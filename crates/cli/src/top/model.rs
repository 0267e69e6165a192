//! What is known of servers and jobs, from their answers so far.
//!
//! A job that is in an answer no more has ended; a server that does not answer, or of which there is no socket any more, is
//! gone. Either stays as it was seen last for [`KEPT`], and is marked. A server that answers again is as it was; one that was
//! started anew at the same socket has jobs of its own.

use std::collections::BTreeMap;
use std::time::Duration;

use hotset_wire::proto::JobStats;

use super::view::{JobView, ServerView, Sort, State, View};
use crate::rates::Rates;
use crate::servers::{self, Found, Servers, none_is_running};

/// How long what has ended is shown.
const KEPT: Duration = Duration::from_secs(60);

/// What a key asks of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    Up,
    Down,
    Sort,
}

/// A job by its server's socket and its name.
type Name = (String, String);

pub(super) struct Model {
    asked: Servers,
    every: Duration,
    rates: Rates,
    servers: BTreeMap<String, Seen>,
    /// What is wrong with a server that was named and was never seen.
    trouble: Option<String>,
    /// Whether servers have been asked at all.
    answered: bool,
    sort: Sort,
    selected: Option<Name>,
}

/// A server as it answered last.
struct Seen {
    found: Found,
    /// Since when it is gone, and why.
    gone: Option<(Duration, String)>,
    /// Its jobs that have ended, and when.
    ended: BTreeMap<String, (JobStats, Duration)>,
}

impl Model {
    pub(super) fn new(asked: &Servers, every: Duration) -> Self {
        Self {
            asked: asked.clone(),
            every,
            rates: Rates::default(),
            servers: BTreeMap::new(),
            trouble: None,
            answered: false,
            sort: Sort::default(),
            selected: None,
        }
    }

    /// Takes in what servers answered at `now`.
    pub(super) fn take(&mut self, asked: Vec<servers::Asked>, now: Duration) {
        self.answered = true;
        self.trouble = None;
        let mut failed: BTreeMap<String, String> = BTreeMap::new();
        let mut answers = Vec::new();
        for (socket, answer) in asked {
            match answer {
                Ok(found) => answers.push(found),
                Err(error) => {
                    failed.insert(socket, error.message);
                }
            }
        }
        self.rates.take(&mut answers);
        for (socket, seen) in &mut self.servers {
            if answers.iter().any(|found| found.socket == *socket) {
                continue;
            }
            let why = failed.remove(socket).unwrap_or_else(|| "it has ended".into());
            let since = seen.gone.take().map_or(now, |(since, _)| since);
            seen.gone = Some((since, why));
            seen.found.rates.clear();
        }
        if self.asked.server.is_some() {
            self.trouble = failed.into_values().next();
        }
        for mut found in answers {
            found.stats.jobs.retain(|job| self.asked.is_of_job(&job.job));
            let before = self.servers.remove(&found.socket);
            self.servers.insert(found.socket.clone(), Seen::after(before, found, now));
        }
        self.servers
            .retain(|_, seen| seen.gone.as_ref().is_none_or(|(since, _)| now.saturating_sub(*since) < KEPT));
        for seen in self.servers.values_mut() {
            seen.ended.retain(|_, (_, at)| now.saturating_sub(*at) < KEPT);
        }
    }

    /// Does what a key asks for.
    pub(super) fn act(&mut self, asked: Asked) {
        match asked {
            Asked::Sort => self.sort = self.sort.next(),
            Asked::Up | Asked::Down => {
                let view = self.view(Duration::ZERO);
                let Some(at) = view.selected else { return };
                let last = view.jobs.len().saturating_sub(1);
                let next = if asked == Asked::Up { at.saturating_sub(1) } else { (at + 1).min(last) };
                self.selected = view.jobs.get(next).map(JobView::name);
            }
        }
    }

    /// All that is to be drawn at `now`.
    pub(super) fn view(&self, now: Duration) -> View {
        let ago = |since: Duration| now.saturating_sub(since).as_secs();
        let mut jobs = Vec::new();
        let mut servers = Vec::new();
        for (socket, seen) in &self.servers {
            let gone = seen.gone.as_ref().map(|(since, why)| (ago(*since), why.clone()));
            let live = seen.found.stats.jobs.iter().map(|job| {
                let state = gone.as_ref().map_or(State::Live, |(seconds, _)| State::Gone(*seconds));
                (job, state)
            });
            let ended = seen.ended.values().map(|(job, at)| (job, State::Ended(ago(*at))));
            jobs.extend(live.chain(ended).map(|(job, state)| JobView {
                socket: socket.clone(),
                job: job.clone(),
                rate: seen.found.rates.get(&job.job).copied().filter(|_| state == State::Live),
                state,
            }));
            servers.push(ServerView {
                socket: socket.clone(),
                stats: seen.found.stats.server.clone().unwrap_or_default(),
                gone,
            });
        }
        self.sort.sort(&mut jobs);
        let at = jobs.iter().position(|job| Some(job.name()) == self.selected);
        let selected = at.or_else(|| (!jobs.is_empty()).then_some(0));
        View { notice: self.notice(), every: self.every, servers, jobs, selected, sort: self.sort }
    }

    /// What is said where there is nothing to show.
    fn notice(&self) -> Option<String> {
        if !self.answered {
            return Some("asking the servers of this user".into());
        }
        let nothing = || self.servers.is_empty().then(none_is_running);
        self.trouble.clone().or_else(nothing)
    }
}

impl Seen {
    /// What is known of a server that has answered now.
    fn after(before: Option<Self>, found: Found, now: Duration) -> Self {
        let Some(before) = before else { return Self { found, gone: None, ended: BTreeMap::new() } };
        let mut ended = before.ended;
        ended.extend(before.found.stats.jobs.into_iter().map(|job| (job.job.clone(), (job, now))));
        for job in &found.stats.jobs {
            ended.remove(&job.job);
        }
        Self { found, gone: None, ended }
    }
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
