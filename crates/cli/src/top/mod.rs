//! `hotset top`: what servers and jobs do, in a terminal.
//!
//! A thread asks the servers every so often and hands their answers over a channel ([`asker`]), so that a server that answers
//! late stops neither keys nor drawing. The [`model`] takes answers and keys and remembers what is gone; of it a [`view`] is
//! made, which is all that [`draw`] sees. Figures and words are those of `hotset stats`.

mod asker;
mod columns;
mod draw;
mod model;
mod view;

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use hotset_core::{Error, Result};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use signal_hook::consts::SIGTERM;

use crate::servers::{Servers, pause};
use draw::Palette;
use model::{Asked, Model};

/// How long a key or an answer may lie before it is seen.
const LOOK_UP: Duration = Duration::from_millis(100);

/// Watch what servers and jobs of this host do, in the terminal.
///
/// One line for each job: the epoch under way, how far it is, samples a second, and how the samples of this epoch came: as
/// hits, in packages or by a read of their own. A wider terminal also shows time left, waiting, reads and bytes. Below it is
/// all that `hotset stats` says of the selected job, with the waiting of each rank; above it the memory of its server.
/// A job that has ended stays for a minute. A server that is gone is asked on. Rates are those of the last ten seconds.
#[derive(Args)]
#[command(after_help = "\
Keys: arrows or j and k select a job, s sorts by another figure, q quits.
Colours are left out where NO_COLOR is set.

Examples:
  hotset top                            # every server of this user, private ones of trainings too
  hotset top --job imagenet --every 5
  hotset top --server /run/hotset/server.sock --user hotset
Into a file or a pipe: `hotset stats --watch`, for programs `hotset stats --json --watch`.")]
pub(crate) struct Top {
    #[command(flatten)]
    servers: Servers,
    /// Ask every so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    every: f64,
}

impl Top {
    pub(crate) fn run(self) -> Result<()> {
        let every = pause("every", self.every)?;
        let dumb = std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
        needs_a_terminal(std::io::stdout().is_terminal() && !dumb)?;
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        // Who ends it otherwise finds the terminal as it was, too.
        let ended = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGTERM, Arc::clone(&ended)).map_err(|error| unusable(&error))?;
        let mut terminal = ratatui::try_init().map_err(|error| unusable(&error))?;
        let done = self.show(&mut terminal, every, Palette { colour: !plain }, &ended);
        ratatui::restore();
        done
    }

    fn show(
        &self,
        terminal: &mut DefaultTerminal,
        every: Duration,
        palette: Palette,
        ended: &AtomicBool,
    ) -> Result<()> {
        let started = Instant::now();
        let answers = asker::start(self.servers.clone(), every);
        let mut model = Model::new(&self.servers, every);
        let mut stale = true;
        let mut second = 0;
        while !ended.load(Ordering::Relaxed) {
            for asked in answers.try_iter() {
                model.take(asked, started.elapsed());
                stale = true;
            }
            // What ended says how long ago.
            let now = started.elapsed();
            stale |= now.as_secs() != second;
            second = now.as_secs();
            if std::mem::take(&mut stale) {
                let view = model.view(now);
                terminal.draw(|frame| draw::draw(frame, &view, palette)).map_err(|error| unusable(&error))?;
            }
            if event::poll(LOOK_UP).map_err(|error| unusable(&error))? {
                match event::read().map_err(|error| unusable(&error))? {
                    Event::Key(key) if key.kind != KeyEventKind::Release => match command(key) {
                        Some(Command::Quit) => return Ok(()),
                        Some(Command::Model(asked)) => model.act(asked),
                        None => {}
                    },
                    _ => {}
                }
                stale = true;
            }
        }
        Ok(())
    }
}

/// What a key asks for.
#[derive(Debug, PartialEq, Eq)]
enum Command {
    Quit,
    Model(Asked),
}

fn command(key: KeyEvent) -> Option<Command> {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c') if control => Some(Command::Quit),
        KeyCode::Char('q') | KeyCode::Esc => Some(Command::Quit),
        KeyCode::Up | KeyCode::Char('k') => Some(Command::Model(Asked::Up)),
        KeyCode::Down | KeyCode::Char('j') => Some(Command::Model(Asked::Down)),
        KeyCode::Char('s') => Some(Command::Model(Asked::Sort)),
        _ => None,
    }
}

fn needs_a_terminal(there: bool) -> Result<()> {
    if there {
        return Ok(());
    }
    Err(Error::invalid(
        "`hotset top` draws in a terminal, and its output is none: use `hotset stats --watch`, or `hotset stats --json \
         --watch` for a program",
    ))
}

fn unusable(error: &std::io::Error) -> Error {
    Error::unavailable(format!("the terminal cannot be used: {error}; use `hotset stats --watch`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_terminal_it_says_what_to_use() {
        let refused = needs_a_terminal(false).unwrap_err().message;
        assert!(refused.contains("`hotset stats --watch`") && refused.contains("--json"), "{refused}");
        assert!(needs_a_terminal(true).is_ok());
    }

    #[test]
    fn keys_do_what_the_help_says() {
        let pressed = |code| command(KeyEvent::new(code, KeyModifiers::NONE));
        assert_eq!(pressed(KeyCode::Char('q')), Some(Command::Quit));
        assert_eq!(pressed(KeyCode::Esc), Some(Command::Quit));
        for (code, asked) in [
            (KeyCode::Up, Asked::Up),
            (KeyCode::Char('k'), Asked::Up),
            (KeyCode::Down, Asked::Down),
            (KeyCode::Char('j'), Asked::Down),
            (KeyCode::Char('s'), Asked::Sort),
        ] {
            assert_eq!(pressed(code), Some(Command::Model(asked)));
        }
        assert_eq!(pressed(KeyCode::Char('c')), None);
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(command(interrupt), Some(Command::Quit), "a raw terminal sends no signal");
    }
}
