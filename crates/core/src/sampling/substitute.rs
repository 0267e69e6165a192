//! Substitution: which id each slot of a selection serves when L-samples lie in packages (iCache III-C).
//!
//! H slots keep their ids. An L slot whose id is resident keeps it; every other L slot takes the next
//! L-sample that is not yet in this plan, package after package, in an order that is drawn anew each epoch,
//! shuffled within as many packages as the L region holds. What is served from packages forms one *stream*
//! through the slots that are not fixed:
//!
//! 1. first the selected L-samples that lie in the L region still, before any package pushes them out;
//! 2. then group after group of packages. A selected H-sample that is not resident and lies in one of a
//!    group's packages joins that group, so that it needs no read of its own.
//!
//! A package is read right before the first slot that serves one of its samples. Nobody is served twice. When
//! there are not enough packages, the slots that are left keep their own ids and are read singly.
//!
//! With [`Mode::High`] (iCache's table III) an L slot whose id is not resident serves a resident H-sample
//! instead, first those that are not in the plan, then any of them again.
//!
//! Differs from the paper: all of it is settled when the plan is made, not at a miss.

use std::sync::Arc;

use super::{Draw, Drawn, Event};
use crate::bits::Bits;
use crate::importance::Keys;
use crate::packages::Packages;
use crate::{Id, Rng};

/// What takes the slot of an L-sample that is not at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Off,
    Low,
    High,
}

/// Turns selected ids, of which the first `front` keep their slots, into what is served.
pub(super) fn substitute(
    ids: Vec<Id>,
    front: usize,
    keys: Arc<Keys>,
    draw: &Draw<'_>,
    mode: Mode,
    seed: u64,
) -> Drawn {
    let selected_high = ids.iter().filter(|&&id| keys.is_high(id)).count() as u64;
    let mut drawn = Drawn { ids, selected_high, keys: Some(keys), ..Drawn::default() };
    let mut rng = Rng::new(seed, draw.number(), "substitute");
    match (mode, draw.packages) {
        (Mode::Low, Some((packages, buffer))) if packages.living().next().is_some() => {
            by_low(&mut drawn, front, draw, packages, buffer, &mut rng);
        }
        (Mode::High, _) => by_high(&mut drawn, front, draw, &mut rng),
        _ => {}
    }
    drawn
}

/// Puts a resident H-sample into every L slot whose id is not resident.
fn by_high(drawn: &mut Drawn, front: usize, draw: &Draw<'_>, rng: &mut Rng) {
    let (Some(residents), Some(keys)) = (draw.residents, drawn.keys.clone()) else { return };
    let mut planned = Bits::new(keys.len());
    for &id in &drawn.ids {
        planned.insert(id);
    }
    let at_hand = |id: &Id| keys.is_high(*id) && residents.contains(*id);
    let all: Vec<Id> = (0..keys.len() as Id).filter(at_hand).collect();
    let mut unplanned: Vec<Id> = all.iter().copied().filter(|&id| !planned.contains(id)).collect();
    rng.shuffle(&mut unplanned);
    if all.is_empty() {
        return;
    }
    let mut substituted = vec![false; drawn.ids.len()];
    for (slot, id) in drawn.ids.iter_mut().enumerate().skip(front) {
        if keys.is_high(*id) || residents.contains(*id) {
            continue;
        }
        *id = unplanned.pop().unwrap_or_else(|| all[rng.below(all.len() as u64) as usize]);
        substituted[slot] = true;
    }
    drawn.substituted = substituted;
}

/// See the module's head.
fn by_low(drawn: &mut Drawn, front: usize, draw: &Draw<'_>, packages: &Packages, buffer: u64, rng: &mut Rng) {
    let Some(keys) = drawn.keys.clone() else { return };
    let resident = |id: Id| draw.residents.is_some_and(|residents| residents.contains(id));
    let low_resident = |id: Id| draw.residents.is_some_and(|residents| residents.is_low(id));
    let mut selected = Bits::new(keys.len());
    let mut planned = Bits::new(keys.len());
    let mut stream: Vec<Id> = Vec::new();
    let mut open = 0usize;
    for (slot, &id) in drawn.ids.iter().enumerate() {
        selected.insert(id);
        if slot < front || keys.is_high(id) || resident(id) {
            planned.insert(id);
            if slot >= front && low_resident(id) {
                stream.push(id);
            }
        } else {
            open += 1;
        }
    }
    rng.shuffle(&mut stream);
    let claimed = stream.len();

    let mut order: Vec<u32> = packages.living().collect();
    rng.shuffle(&mut order);
    let mut moved = Bits::new(keys.len());
    let (mut group, mut group_bytes) = (Vec::new(), 0u64);
    for package in order {
        if open == 0 {
            break;
        }
        let mut low: Vec<Id> = packages
            .members(package)
            .iter()
            .copied()
            .filter(|&id| !keys.is_high(id) && !planned.contains(id))
            .collect();
        if low.is_empty() {
            continue;
        }
        rng.shuffle(&mut low);
        low.truncate(open);
        open -= low.len();
        let bytes = packages.bytes(package);
        if group_bytes + bytes > buffer {
            close(&mut stream, &mut group, rng);
            group_bytes = 0;
        }
        group_bytes += bytes;
        for &id in &low {
            planned.insert(id);
        }
        group.append(&mut low);
        let hard = packages.members(package).iter().copied();
        for id in hard.filter(|&id| keys.is_high(id) && selected.contains(id) && !resident(id)) {
            // One of the first slots stays where it is, though its package is read.
            if !drawn.ids[..front].contains(&id) {
                moved.insert(id);
                group.push(id);
            }
        }
    }
    close(&mut stream, &mut group, rng);
    place(drawn, front, &stream, open, draw, &moved, &planned);
    let fresh = stream.split_off(claimed);
    drawn.substituted = drawn.ids.iter().map(|&id| !selected.contains(id)).collect();
    drawn.ids.iter().for_each(|&id| selected.remove(id));
    drawn.unserved = (0..keys.len() as Id).filter(|&id| selected.contains(id)).collect();
    drawn.events = loads(&drawn.ids, &fresh, packages, keys.len());
}

/// Ends a group: its ids in random order join the stream.
fn close(stream: &mut Vec<Id>, group: &mut Vec<Id>, rng: &mut Rng) {
    rng.shuffle(group);
    stream.append(group);
}

/// Lets the stream run through the slots that are not fixed. `left` L slots keep their own ids.
fn place(
    drawn: &mut Drawn,
    front: usize,
    stream: &[Id],
    mut left: usize,
    draw: &Draw<'_>,
    moved: &Bits,
    planned: &Bits,
) {
    let Some(keys) = drawn.keys.clone() else { return };
    let resident = |id: Id| draw.residents.is_some_and(|residents| residents.contains(id));
    let low_resident = |id: Id| draw.residents.is_some_and(|residents| residents.is_low(id));
    let mut next = stream.iter().copied();
    for id in drawn.ids.iter_mut().skip(front) {
        let fixed = if keys.is_high(*id) {
            !moved.contains(*id) && !low_resident(*id)
        } else if resident(*id) {
            !low_resident(*id)
        } else {
            // Its own id is read singly, if no package serves it anyway.
            let own = left > 0 && !planned.contains(*id);
            left -= usize::from(own);
            own
        };
        if !fixed && let Some(streamed) = next.next() {
            *id = streamed;
        }
    }
}

/// When each package is read: right before the first slot that serves one of its `fresh` samples.
fn loads(ids: &[Id], fresh: &[Id], packages: &Packages, samples: usize) -> Vec<(u32, Event)> {
    let mut from_package = Bits::new(samples);
    for &id in fresh {
        from_package.insert(id);
    }
    let mut read = std::collections::BTreeSet::new();
    let mut events = Vec::new();
    for (slot, &id) in ids.iter().enumerate() {
        if from_package.contains(id)
            && let Some(package) = packages.of(id)
            && read.insert(package)
        {
            events.push((slot as u32, Event::Load(package)));
        }
    }
    events
}

#[cfg(test)]
#[path = "substitute_tests.rs"]
mod tests;
