//! What becomes of state files.

use super::*;

#[test]
fn what_was_not_used_for_a_month_goes_and_what_is_not_ours_stays() {
    let place = tempfile::tempdir().unwrap();
    for name in ["a.state", "a.log", "b.aside", "notes.txt"] {
        fs::write(place.path().join(name), "x").unwrap();
    }
    drop_old(place.path(), SystemTime::now());
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 4);
    drop_old(place.path(), SystemTime::now() + KEPT + Duration::from_secs(60));
    let left: Vec<_> = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["notes.txt"]);
}

#[test]
fn a_damaged_state_is_listed_with_its_reason() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("a.state"), "garbage").unwrap();
    let found = list(place.path());
    assert!(found[0].1.as_ref().unwrap_err().message.contains("damaged"));
}
