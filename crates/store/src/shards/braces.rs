//! Many names in one: `train-{000..099}.tar`, `{a,b}/x.tar`.

use hotset_core::{Error, Result};

/// The most names a pattern may stand for.
const MOST: usize = 1 << 20;

/// The names that `pattern` stands for, in its order.
pub(super) fn expand(pattern: &str) -> Result<Vec<String>> {
    let refused = |why: &str| {
        Error::invalid(format!("the pattern `{pattern}` {why}; write it like `train-{{000..099}}.tar`"))
    };
    let mut names = vec![String::new()];
    let mut rest = pattern;
    while let Some((before, after)) = rest.split_once('{') {
        let (inside, after) =
            after.split_once('}').ok_or_else(|| refused("opens a brace that it does not close"))?;
        if before.contains('}') || inside.contains('{') {
            return Err(refused("has braces inside braces"));
        }
        let choices = choices(inside).ok_or_else(|| refused("has braces that are no range and no list"))?;
        if names.len().saturating_mul(choices.len()) > MOST {
            return Err(refused(&format!("stands for more than `{MOST}` names")));
        }
        let every =
            |name: &String| choices.iter().map(|choice| [name, before, choice].concat()).collect::<Vec<_>>();
        names = names.iter().flat_map(every).collect();
        rest = after;
    }
    if rest.contains('}') {
        return Err(refused("closes a brace that it does not open"));
    }
    names.iter_mut().for_each(|name| name.push_str(rest));
    Ok(names)
}

/// What braces hold: a range of numbers, padded as its longer end is, or a list.
fn choices(inside: &str) -> Option<Vec<String>> {
    let Some((first, last)) = inside.split_once("..") else {
        let list: Vec<String> = inside.split(',').map(str::to_owned).collect();
        return (list.len() > 1).then_some(list);
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(first) || !digits(last) {
        return None;
    }
    let padded = first.starts_with('0') && first.len() > 1 || last.starts_with('0') && last.len() > 1;
    let width = if padded { first.len().max(last.len()) } else { 1 };
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    if first.abs_diff(last) as usize >= MOST {
        return None;
    }
    let name = |number: u64| format!("{number:0width$}");
    Some(if first <= last {
        (first..=last).map(name).collect()
    } else {
        (last..=first).rev().map(name).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_and_lists_are_expanded_in_their_order() {
        assert_eq!(expand("t-{08..11}.tar").unwrap(), ["t-08.tar", "t-09.tar", "t-10.tar", "t-11.tar"]);
        assert_eq!(expand("{2..0}").unwrap(), ["2", "1", "0"]);
        assert_eq!(expand("{9..10}").unwrap(), ["9", "10"]);
        assert_eq!(expand("{a,b}-{0..1}").unwrap(), ["a-0", "a-1", "b-0", "b-1"]);
        assert_eq!(expand("plain.tar").unwrap(), ["plain.tar"]);
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for wrong in
            ["{", "}", "a{0..1", "{x}", "{}", "{a..b}", "{{0..1}}", "{0..9999999}", "{0..}", "{-1..2}"]
        {
            assert!(expand(wrong).unwrap_err().message.contains(&format!("`{wrong}`")));
        }
        assert!(expand("{000..999}{000..999}{000..999}").is_err());
    }

    proptest! {
        #[test]
        fn no_pattern_makes_it_panic(pattern in "[a{},.0-9]{0,16}") {
            let _ = expand(&pattern);
        }
    }
}
