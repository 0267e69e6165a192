//! Pages about strategies and policies, made from the registries and from the heads of their files.
//!
//! `docs/strategies.md`, `docs/policies.md` and the table in the README, between its two marks, are written
//! anew by `HOTSET_DOCS=write cargo test -p hotset-sim --test documents`, and so are the examples of `CONTRIBUTING.md`,
//! from the files that the tests of `core` build; without that this test fails when one of them is stale.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may fail")]

use std::fmt::Write;
use std::path::{Path, PathBuf};

use hotset_core::settings::{Domain, Parameter};
use hotset_core::{policy, sampling};

const BEGIN: &str = "<!-- registry: begin -->";
const END: &str = "<!-- registry: end -->";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The file of a registered name: `folder/name.rs` or `folder/name/mod.rs`.
fn source(folder: &str, name: &str) -> String {
    let folder = root().join("crates/core/src").join(folder);
    let files = [folder.join(format!("{name}.rs")), folder.join(name).join("mod.rs")];
    let found = files.iter().find_map(|file| std::fs::read_to_string(file).ok());
    found.unwrap_or_else(|| panic!("`{name}` has no file of its own in `{}`", folder.display()))
}

/// The head of a file as a page's text.
fn head(source: &str) -> String {
    let lines = source.lines().map_while(|line| line.strip_prefix("//!"));
    lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect::<Vec<_>>().join("\n")
}

fn domain(domain: Domain) -> String {
    match domain {
        Domain::Number(low, high) => format!("{low} to {high}"),
        Domain::NumberOrAuto(low, high) => format!("{low} to {high}, or `auto`"),
        Domain::Whole(low, high) if high >= u64::from(u32::MAX) => format!("a whole number from {low}"),
        Domain::Whole(low, high) => format!("a whole number from {low} to {high}"),
        Domain::Switch => "`true` or `false`".into(),
        Domain::Word(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
    }
}

fn settings(parameters: &[Parameter]) -> String {
    if parameters.is_empty() {
        return "It takes no settings.\n".into();
    }
    let mut text = String::from("| setting | default | may be | meaning |\n| --- | --- | --- | --- |\n");
    for one in parameters {
        let (name, default, summary) = (one.name, one.default, one.summary);
        writeln!(text, "| `{name}` | `{default}` | {} | {summary} |", domain(one.domain)).unwrap();
    }
    text
}

const NOTE: &str = "<!-- Made from the heads of the files in `crates/core`; change those, then run\n\
`HOTSET_DOCS=write cargo test -p hotset-sim --test documents`. -->\n";

fn strategies() -> String {
    let mut text = format!("# Strategies: what is trained in an epoch\n\n{NOTE}\n");
    text.push_str("A strategy is chosen by name: `hotset.Sampler(train, strategy=\"iis\")`, or `hotset simulate --run iis`.\n");
    write!(text, "\nEvery strategy takes these too:\n\n{}", settings(sampling::COMMON)).unwrap();
    for entry in sampling::REGISTRY {
        write!(text, "\n## `{}`\n\n{}\n\n", entry.name, head(&source("sampling", entry.name))).unwrap();
        write!(
            text,
            "Its policy, unless another is named: `{}`.\n\n{}",
            entry.policy,
            settings(entry.parameters)
        )
        .unwrap();
    }
    text
}

fn policies() -> String {
    let mut text = format!("# Policies: what stays in the cache\n\n{NOTE}\n");
    text.push_str("Each strategy brings a policy of its own; `policy=\"lru\"` or `hotset simulate --run iis+lru` names another.\n");
    for entry in policy::REGISTRY {
        write!(text, "\n## `{}`\n\n{}\n\n", entry.name, head(&source("policy", entry.name))).unwrap();
        if entry.offline {
            text.push_str("It must know every plan beforehand, so that only the simulator runs it.\n\n");
        }
        if !entry.bounded {
            text.push_str("It does not keep within its capacity: a bound to compare with.\n\n");
        }
        text.push_str(&settings(entry.parameters));
    }
    text
}

/// The README's tables.
fn tables() -> String {
    let mut text = String::from("| strategy | what is trained | its policy |\n| --- | --- | --- |\n");
    for entry in sampling::REGISTRY {
        let (name, summary, policy) = (entry.name, entry.summary, entry.policy);
        writeln!(text, "| [`{name}`](docs/strategies.md#{name}) | {summary} | `{policy}` |").unwrap();
    }
    text.push_str("\n| policy | what stays |\n| --- | --- |\n");
    for entry in policy::REGISTRY {
        let (name, summary) = (entry.name, entry.summary);
        writeln!(text, "| [`{name}`](docs/policies.md#{name}) | {summary} |").unwrap();
    }
    text
}

/// Writes what a file should hold, or checks that it does.
fn settle(path: &Path, wanted: &str) {
    if std::env::var_os("HOTSET_DOCS").is_some_and(|value| value == "write") {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, wanted).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    let differs = kept.lines().zip(wanted.lines()).position(|(kept, wanted)| kept != wanted);
    let line = differs.unwrap_or_else(|| kept.lines().count().min(wanted.lines().count())) + 1;
    assert!(
        kept == wanted,
        "`{}` is stale from line {line} on: run `HOTSET_DOCS=write cargo test -p hotset-sim --test documents`",
        path.display()
    );
}

#[test]
fn the_page_of_strategies_is_fresh() {
    settle(&root().join("docs/strategies.md"), &strategies());
}

#[test]
fn the_page_of_policies_is_fresh() {
    settle(&root().join("docs/policies.md"), &policies());
}

#[test]
fn the_readmes_tables_are_fresh() {
    let path = root().join("README.md");
    let Ok(kept) = std::fs::read_to_string(&path) else { return };
    let parts = kept.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let Some((before, after)) = parts else {
        panic!("`README.md` has lost the marks of its generated tables")
    };
    settle(&path, &format!("{before}{BEGIN}\n{}{END}{after}", tables()));
}

#[test]
fn the_examples_of_contributing_are_files_that_tests_build() {
    let path = root().join("CONTRIBUTING.md");
    let mut page = std::fs::read_to_string(&path).unwrap();
    for (folder, name) in [("policy", "fifo"), ("sampling", "alternate")] {
        let begin = page.find(&format!("```rust\n//! `{name}`")).expect("the page has its example");
        let end = begin + page[begin..].find("\n```\n").expect("the example has an end");
        page.replace_range(begin..end, format!("```rust\n{}", source(folder, name)).trim_end());
    }
    settle(&path, &page);
}

#[test]
fn every_page_says_how_it_differs_or_what_it_is() {
    let names = sampling::REGISTRY.iter().map(|entry| ("sampling", entry.name));
    for (folder, name) in names.chain(policy::REGISTRY.iter().map(|entry| ("policy", entry.name))) {
        let head = head(&source(folder, name));
        assert!(head.starts_with(&format!("`{name}`")), "the head of `{name}` does not begin with its name");
        assert!(head.lines().count() >= 4, "the head of `{name}` says too little for a page");
    }
}
