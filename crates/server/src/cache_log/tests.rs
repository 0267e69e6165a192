//! Logs that are written behind, on disks that are slow, full, or gone in the middle.

use std::fs;
use std::sync::mpsc::Receiver;

use hotset_core::log::Event;

use super::*;

fn events(path: &std::path::Path) -> (Vec<Event>, Ending) {
    let mut events = Vec::new();
    let ending = read(path, |event| events.push(event)).unwrap();
    (events, ending)
}

/// A disk that takes so many bytes, each write when it may.
struct Disk {
    left: usize,
    turns: Receiver<()>,
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.turns.recv().map_err(io::Error::other)?;
        let taken = bytes.len().min(self.left);
        self.left -= taken;
        if taken == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(taken) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A log that `create` opens, which is being written, and what is to be said of it.
fn begun(most: usize, create: Create) -> (Arc<Queue>, Log, Receiver<Errand>) {
    let (errands, receiver) = channel();
    let queue = Arc::new(Queue::new("log".into(), most, errands));
    Errand::Write(Arc::clone(&queue), create).run();
    (Arc::clone(&queue), Log(queue), receiver)
}

/// A log on such a disk, what lets it write, and what is to be said of it.
fn on_disk(left: usize, most: usize) -> (Arc<Queue>, Log, Sender<()>, Receiver<Errand>) {
    let (turn, turns) = channel();
    let disk = Disk { left, turns };
    let (queue, log, errands) = begun(most, Box::new(|| Ok(Box::new(disk))));
    (queue, log, turn, errands)
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

#[test]
fn a_log_that_ends_with_its_last_job_is_whole_and_one_that_is_cut_anywhere_is_read_until_there() {
    let place = tempfile::tempdir().unwrap();
    let logs = CacheLogs::new(place.path().to_owned()).unwrap();
    let log = logs.open("exp/7", "lru").unwrap();
    let noted: Vec<Event> = (0..5).map(Event::Joined).collect();
    noted.iter().for_each(|event| log.note(event.clone()));
    let queue = logs.open.lock()[0].upgrade().unwrap();
    drop(log);
    queue.wait_until_written(soon());
    let path = fs::read_dir(place.path()).unwrap().next().unwrap().unwrap().path();
    let name = path.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("exp_7-lru-") && name.ends_with(".log"), "{name}");
    let (mut found, ending) = events(&path);
    assert_eq!((found.pop(), ending), (Some(Event::End), Ending::Whole));
    assert_eq!(found, noted);
    let whole = fs::read(&path).unwrap();
    let each = 4 + hotset_core::log::encode(&noted[0]).len();
    for cut in file::HEAD.len()..whole.len() {
        fs::write(&path, &whole[..cut]).unwrap();
        let behind = cut - file::HEAD.len();
        let count = (behind / each).min(noted.len());
        let at = file::HEAD.len() + count * each;
        let ending = if cut > at { Ending::Torn(at as u64) } else { Ending::Early };
        assert_eq!(events(&path), (noted[..count].to_vec(), ending), "cut at {cut}");
    }
    let mut damaged = whole.clone();
    damaged[file::HEAD.len() + 2 * each + 5] ^= 4;
    fs::write(&path, &damaged).unwrap();
    assert_eq!(events(&path), (noted[..2].to_vec(), Ending::Torn((file::HEAD.len() + 2 * each) as u64)));
    damaged[11] += 1;
    fs::write(&path, &damaged).unwrap();
    assert!(read(&path, |_| {}).unwrap_err().message.contains("another version"));
    fs::write(&path, "garbage").unwrap();
    assert!(read(&path, |_| {}).unwrap_err().message.contains("is no log of a cache"));
}

#[test]
fn a_server_that_stops_ends_its_logs_before_it_goes() {
    let place = tempfile::tempdir().unwrap();
    let logs = CacheLogs::new(place.path().to_owned()).unwrap();
    let log = logs.open("job", "lru").unwrap();
    log.note(Event::Joined(0));
    logs.finish();
    let path = fs::read_dir(place.path()).unwrap().next().unwrap().unwrap().path();
    assert_eq!(events(&path), (vec![Event::Joined(0), Event::End], Ending::Whole));
    log.note(Event::Joined(1));
    assert_eq!(events(&path).0.len(), 2, "what comes later is not written");
}

#[test]
fn a_full_disk_ends_the_log_and_nobody_waits_for_it() {
    let (queue, log, turn, _errands) = on_disk(20, 1 << 20);
    (0..9).for_each(|_| turn.send(()).unwrap());
    (0..100).for_each(|member| log.note(Event::Joined(member)));
    queue.wait_until_written(soon());
    assert!(queue.is_stopped());
    (0..100).for_each(|member| log.note(Event::Joined(member)));
    assert_eq!(queue.len(), 0, "nothing is kept for a log that has ended");
}

#[test]
fn a_disk_that_takes_nothing_holds_no_more_than_was_allowed() {
    let (queue, log, turn, errands) = on_disk(1 << 20, 10_000);
    for member in 0..10_000 {
        log.note(Event::Joined(member));
        assert!(queue.len() * std::mem::size_of::<Event>() <= 10_000 + std::mem::size_of::<Event>());
    }
    assert!(queue.is_stopped());
    let told: Vec<Errand> = errands.try_iter().collect();
    assert!(
        matches!(&told[..], [Errand::Tell(_, why)] if why.contains("wait to be written")),
        "it is said once, by another thread than the one that notes"
    );
    // The disk may be gone before all of these.
    (0..9).for_each(|_| _ = turn.send(()));
    queue.wait_until_written(soon());
    assert_eq!(queue.len(), 0);
}

#[test]
fn one_event_that_is_larger_than_what_may_wait_is_written() {
    let (queue, log, turn, _errands) = on_disk(1 << 20, 1);
    (0..9).for_each(|_| _ = turn.send(()));
    log.note(Event::Joined(0));
    drop(log);
    queue.wait_until_written(soon());
    assert!(!queue.is_stopped());
}

#[test]
fn a_place_that_cannot_be_written_to_ends_the_log() {
    let (queue, log, _errands) = begun(1 << 20, Box::new(|| Err(io::ErrorKind::PermissionDenied.into())));
    queue.wait_until_written(soon());
    log.note(Event::Joined(0));
    assert!(queue.is_stopped() && queue.len() == 0);
}

#[test]
fn a_log_is_opened_before_its_thread_is_started() {
    let place = tempfile::tempdir().unwrap();
    let (errands, receiver) = channel();
    let logs = CacheLogs { directory: place.path().to_owned(), errands, open: Lock::default() };
    let log = logs.open("job", "lru").unwrap();
    log.note(Event::Joined(0));
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0, "whoever opens it touches no disk");
    receiver.try_recv().unwrap().run();
    logs.finish();
    let path = fs::read_dir(place.path()).unwrap().next().unwrap().unwrap().path();
    assert_eq!(events(&path), (vec![Event::Joined(0), Event::End], Ending::Whole));
}
