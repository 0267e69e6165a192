//! Substitution: which id each slot of a selection serves when L-samples lie in packages (iCache III-C).
//!
//! H slots keep their ids. An L slot whose id is resident keeps it; every other L slot takes the next
//! L-sample that is not yet in this plan, package after package, in an order that is drawn anew each epoch,
//! shuffled within as many packages as the L region holds. What is served from packages forms one *stream*
//! through the slots that are not fixed:
//!
//! 1. first the selected L-samples that lie in the L region still, before any package pushes them out;
//! 2. then group after group of packages. A selected H-sample that is not resident and lies in one of a
//!    group's packages joins that group, so that it needs no read of its own. Packages with many of those come sooner and packages of which much
//!    would be read in vain later, so that what is left unread is what is wasteful. Worn packages come after all
//!    others, the fullest first.
//!
//! A package is read right before the first slot that serves one of its samples, and not for a handful of slots. No id
//! is served twice. When there are not enough packages, the slots that are left keep their own ids and are read singly.
//!
//! With [`Mode::High`] (iCache's table III) an L slot whose id is not resident serves a resident H-sample
//! instead, first those that are not in the plan, then any of them again.
//!
//! Differs from the paper: all of it is settled when the plan is made, not at a miss.

use std::sync::Arc;

use super::{Draw, Drawn, Event};
use crate::bits::Bits;
use crate::importance::Keys;
use crate::packages::{FEW, Packages};
use crate::policy::Sizes;
use crate::{Id, Rng};

/// How much later a package comes by the share of its bytes that would be read in vain. Chance counts for 1.
const VAIN: f64 = 12.0;
/// How much sooner it comes by the share of selected H-samples that would have reads of their own without it.
const HARD: f64 = 8.0;

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
    (sizes, seed): (&dyn Sizes, u64),
) -> Drawn {
    let selected_high = ids.iter().filter(|&&id| keys.is_high(id)).count() as u64;
    let mut drawn = Drawn { ids, selected_high, keys: Some(keys), ..Drawn::default() };
    let mut rng = Rng::new(seed, draw.number(), "substitute");
    match (mode, draw.packages) {
        (Mode::Low, Some((packages, buffer))) if packages.living().next().is_some() => {
            let order = order(packages, (&drawn, front), draw, sizes, &mut rng);
            by_low(&mut drawn, front, draw, (packages, buffer, order), &mut rng);
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

/// The packages in the order in which slots are filled from them, and whether each is worn. The order is drawn anew each
/// epoch, by [`VAIN`] and [`HARD`]; worn ones come last, the fullest first. Those that do not wear come in random order:
/// otherwise the same ones would be left out in every epoch.
fn order(
    packages: &Packages,
    (drawn, front): (&Drawn, usize),
    draw: &Draw<'_>,
    sizes: &dyn Sizes,
    rng: &mut Rng,
) -> Vec<(u32, bool)> {
    if !packages.wear() {
        let mut all: Vec<(u32, bool)> = packages.living().map(|package| (package, false)).collect();
        rng.shuffle(&mut all);
        return all;
    }
    let resident = |id: Id| draw.residents.is_some_and(|residents| residents.contains(id));
    let high = |id: Id| drawn.keys.as_ref().is_some_and(|keys| keys.is_high(id));
    let mut selected = Bits::new(packages.samples());
    drawn.ids[front..].iter().for_each(|&id| {
        selected.insert(id);
    });
    let (mut good, mut worn) = (Vec::new(), Vec::new());
    for package in packages.living() {
        let wanted = packages.wanted(package, sizes, |id| !high(id) || !resident(id));
        if packages.is_worn(package, wanted) {
            worn.push((wanted, package));
            continue;
        }
        let bytes = packages.bytes(package).max(1) as f64;
        let easy = packages.wanted(package, sizes, |id| !high(id) && !resident(id)) as f64 / bytes;
        let joins = |id: Id| high(id) && selected.contains(id) && !resident(id);
        let hard = packages.wanted(package, sizes, joins) as f64 / bytes;
        good.push((VAIN * (1.0 - easy - hard) - HARD * hard + rng.unit(), package));
    }
    good.sort_by(|a, b| a.0.total_cmp(&b.0));
    worn.sort_unstable_by_key(|&(wanted, package)| (std::cmp::Reverse(wanted), package));
    let good = good.into_iter().map(|(_, package)| (package, false));
    good.chain(worn.into_iter().map(|(_, package)| (package, true))).collect()
}

/// The fewest slots that a package is read for: half of its samples, and for a worn one no handful.
fn least_slots(packages: &Packages, package: u32, worn: bool) -> usize {
    let half = packages.packed(package) as usize / 2;
    if worn { half.max(FEW) } else { half }
}

/// Serves L slots from packages, by their region.
fn by_low(
    drawn: &mut Drawn,
    front: usize,
    draw: &Draw<'_>,
    (packages, buffer, order): (&Packages, u64, Vec<(u32, bool)>),
    rng: &mut Rng,
) {
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

    let was = drawn.ids.clone();
    let mut moved = Bits::new(keys.len());
    let (mut group, mut group_bytes) = (Vec::new(), 0u64);
    for (package, worn) in order {
        if open == 0 {
            break;
        }
        let mut low: Vec<Id> = packages
            .members(package)
            .iter()
            .copied()
            .filter(|&id| !keys.is_high(id) && !planned.contains(id))
            .collect();
        // One of the first slots stays where it is, though its package is read.
        let joins = |id: &Id| {
            keys.is_high(*id) && selected.contains(*id) && !resident(*id) && !was[..front].contains(id)
        };
        let hard: Vec<Id> = packages.members(package).iter().copied().filter(joins).collect();
        let fresh = low.iter().filter(|id| !resident(**id)).count();
        if low.is_empty() || fresh.min(open) + hard.len() < least_slots(packages, package, worn) {
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
        hard.iter().for_each(|&id| {
            moved.insert(id);
        });
        group.extend(hard);
    }
    close(&mut stream, &mut group, rng);
    // Those in no package first: read for their slots, they can be packed.
    let keeps = |id: Id| !keys.is_high(id) && !resident(id) && !planned.contains(id);
    let (loose, lying): (Vec<Id>, Vec<Id>) = drawn
        .ids
        .iter()
        .skip(front)
        .copied()
        .filter(|&id| keeps(id))
        .partition(|&id| packages.of(id).is_none());
    let mut own = Bits::new(keys.len());
    loose.into_iter().chain(lying).take(open).for_each(|id| {
        own.insert(id);
    });
    place(drawn, front, &stream, &own, draw, &moved);
    let fresh = stream.split_off(claimed);
    drawn.substituted = drawn.ids.iter().zip(&was).map(|(id, was)| id != was).collect();
    drawn.ids.iter().for_each(|&id| selected.remove(id));
    drawn.unserved = (0..keys.len() as Id).filter(|&id| selected.contains(id)).collect();
    drawn.events = loads(&drawn.ids, &fresh, packages, keys.len());
}

/// Ends a group: its ids in random order join the stream.
fn close(stream: &mut Vec<Id>, group: &mut Vec<Id>, rng: &mut Rng) {
    rng.shuffle(group);
    stream.append(group);
}

/// Lets the stream run through the slots that are not fixed. L slots of `own` ids keep them.
fn place(drawn: &mut Drawn, front: usize, stream: &[Id], own: &Bits, draw: &Draw<'_>, moved: &Bits) {
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
            own.contains(*id)
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
