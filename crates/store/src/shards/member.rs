//! The members of one shard, put together to samples.

use hotset_core::{Error, Result};

use super::plan::{LabelAt, Plan};
use super::tar::{Member, Source, members};
use super::window::Window;
use crate::catalog::ABSENT;
use crate::listing::Object;
use crate::opened_place::OpenedPlace;
use crate::parallel::Wanted;

/// The longest member that is read for a label.
const LABEL: u64 = 1 << 20;

/// A sample of a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    /// Its members' name up to the first dot.
    pub(super) name: String,
    /// Where its first part begins in the shard.
    pub(super) offset: u64,
    /// From there to the end of its last part.
    pub(super) size: u64,
    /// Begin and length of every part in its bytes, [`ABSENT`] and 0 of one that is missing; empty for one part.
    pub(super) spans: Vec<u32>,
    pub(super) label: Option<String>,
}

/// The extensions of a shard's first sample, in their order.
pub(super) fn first(opened: &OpenedPlace, shard: &Object) -> Result<Vec<String>> {
    let mut name = None;
    let mut extensions = Vec::new();
    let mut window = Window::new(opened, shard, opened.is_remote());
    members(&shard.key, &mut window, &mut |member, _| {
        let Some((sample, extension)) = apart(&member.name) else { return Ok(true) };
        if name.get_or_insert_with(|| sample.to_owned()) != sample {
            return Ok(false);
        }
        extensions.push(extension);
        Ok(true)
    })?;
    Ok(extensions)
}

/// All samples of a shard, in their order.
pub(super) fn index(
    opened: &OpenedPlace,
    shard: &Object,
    plan: &Plan,
    wanted: &Wanted,
) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    let mut group = Group::default();
    let mut window = Window::new(opened, shard, opened.is_remote());
    members(&shard.key, &mut window, &mut |member, source| {
        wanted.check()?;
        let Some((sample, extension)) = apart(&member.name) else { return Ok(true) };
        if group.name != sample {
            let whole = std::mem::replace(&mut group, Group { name: sample.to_owned(), ..Group::default() });
            found.extend(whole.found(&shard.key, plan)?);
        }
        if let Some(to) = &member.link {
            if plan.takes(&extension) {
                return Err(linked(&shard.key, &member.name, to));
            }
            return Ok(true);
        }
        if let Some(at) = plan.label.as_ref().filter(|at| at.extension == extension) {
            group.label = Some(label(&shard.key, &member, at, source)?);
        }
        group.members.push((extension, member.offset, member.size));
        Ok(true)
    })?;
    found.extend(group.found(&shard.key, plan)?);
    Ok(found)
}

/// A link has no bytes of its own, and those of its target may lie anywhere in the shard or outside of it.
fn linked(shard: &str, name: &str, to: &str) -> Error {
    Error::invalid(format!(
        "`{name}` in the shard `{shard}` is a link to `{to}`, without bytes of its own; write the shard again with \
         `tar --dereference --hard-dereference`, or leave what it ends in out of `parts`"
    ))
}

/// Members of one name, as they come.
#[derive(Default)]
struct Group {
    name: String,
    members: Vec<(String, u64, u64)>,
    label: Option<String>,
}

impl Group {
    fn found(self, shard: &str, plan: &Plan) -> Result<Option<Found>> {
        if self.members.is_empty() {
            return Ok(None);
        }
        let wrong = |what: &str| {
            Error::invalid(format!("the sample `{}` of the shard `{shard}` has {what}", self.name))
        };
        let mut parts = Vec::with_capacity(plan.parts.len());
        for part in &plan.parts {
            let of = |extension: &String| self.members.iter().find(|(found, ..)| found == extension);
            let found = part.choices.iter().find_map(of).map(|(_, offset, size)| (*offset, *size));
            if found.is_none() && !part.optional {
                let name = part.name();
                return Err(wrong(&format!(
                    "no `{name}`; name what all samples have with `parts`, and what some are without as `{name}?`"
                )));
            }
            parts.push(found);
        }
        if let (Some(at), None) = (&plan.label, &self.label) {
            return Err(wrong(&format!(
                "no `{}`; name what all samples have with `label`, or `none`",
                at.extension
            )));
        }
        let Some(offset) = parts.iter().flatten().map(|(offset, _)| *offset).min() else {
            return Err(wrong("none of its `parts`; name one that all samples have, without `?`"));
        };
        let end = parts.iter().flatten().map(|(offset, size)| offset + size).max().unwrap_or(offset);
        let size = end - offset;
        if u32::try_from(size).is_err() {
            return Err(Error::invalid(format!(
                "the sample `{}` of the shard `{shard}` takes `{size}` bytes; samples of 4 GiB or more are not supported",
                self.name
            )));
        }
        let span = |part: &Option<(u64, u64)>| match part {
            Some((begin, length)) => [(begin - offset) as u32, *length as u32],
            None => [ABSENT, 0],
        };
        let spans = if parts.len() > 1 { parts.iter().flat_map(span).collect() } else { Vec::new() };
        Ok(Some(Found { name: self.name, offset, size, spans, label: self.label }))
    }
}

/// A member's name up to the first dot of its file name, and what follows it, in lower case. Hidden members and
/// those without a dot belong to no sample.
fn apart(name: &str) -> Option<(&str, String)> {
    let name = name.strip_prefix("./").unwrap_or(name);
    let file = name.rfind('/').map_or(0, |slash| slash + 1);
    let dot = file + name[file..].find('.').filter(|dot| *dot > 0)?;
    Some((&name[..dot], name[dot + 1..].to_lowercase()))
}

fn label<S: Source>(shard: &str, member: &Member, at: &LabelAt, source: &mut S) -> Result<String> {
    let refused = |why: &str| {
        Error::invalid(format!("the label `{}` of the shard `{shard}` {why}; see `label`", member.name))
    };
    if member.size > LABEL {
        return Err(refused(&format!("has `{}` bytes", member.size)));
    }
    let bytes = source.bytes(member.offset, member.size)?;
    let Some(field) = &at.field else {
        return String::from_utf8(bytes.to_vec()).map_err(|_| refused("is no text"));
    };
    let value: serde_json::Value =
        serde_json::from_slice(bytes).map_err(|error| refused(&format!("is no JSON: {error}")))?;
    match field.split('.').try_fold(&value, |value, name| value.get(name)) {
        Some(serde_json::Value::String(text)) => Ok(text.clone()),
        Some(value @ (serde_json::Value::Number(_) | serde_json::Value::Array(_))) => Ok(value.to_string()),
        Some(_) => Err(refused(&format!("has a `{field}` that is no number, no list and no text"))),
        None => Err(refused(&format!("has no `{field}`"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_at_the_first_dot_of_the_file_name() {
        assert_eq!(apart("a.b/c.seg.PNG"), Some(("a.b/c", "seg.png".into())));
        assert_eq!(apart("./x.jpg"), Some(("x", "jpg".into())));
        for none in ["a/.hidden.jpg", "README", "a.b/c", ""] {
            assert_eq!(apart(none), None);
        }
    }
}
