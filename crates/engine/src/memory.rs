//! How much memory this machine has, control groups counted.
//!
//! The least of the machine's own memory and every limit on the way from our control group to the root,
//! version 2 (`memory.max`) or 1 (`memory.limit_in_bytes`).

use std::fs;
use std::path::{Path, PathBuf};

/// The bytes of memory that this process may use at most.
pub fn machine_memory() -> u64 {
    let physical = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total(&text)).unwrap_or(u64::MAX);
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    limits(&groups, Path::new("/sys/fs/cgroup")).fold(physical, u64::min)
}

fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// Every limit that applies, from the lines of `/proc/self/cgroup`.
fn limits<'a>(groups: &'a str, mount: &'a Path) -> impl Iterator<Item = u64> + 'a {
    let files = groups.lines().flat_map(move |line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let controllers = fields.next().unwrap_or_default();
        let group = fields.next().unwrap_or_default().trim_start_matches('/');
        let (root, name) = if controllers.is_empty() {
            (mount.to_owned(), "memory.max")
        } else if controllers.split(',').any(|controller| controller == "memory") {
            (mount.join("memory"), "memory.limit_in_bytes")
        } else {
            return Vec::new();
        };
        let group = root.join(group);
        group
            .ancestors()
            .take_while(|at| at.starts_with(&root))
            .map(|at| at.join(name))
            .collect::<Vec<PathBuf>>()
    });
    files.filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_on_the_way_to_the_root_counts() {
        let mount = tempfile::tempdir().unwrap();
        let group = mount.path().join("slice/pod");
        fs::create_dir_all(&group).unwrap();
        fs::write(mount.path().join("slice/memory.max"), "4096\n").unwrap();
        fs::write(group.join("memory.max"), "max\n").unwrap();
        assert_eq!(limits("0::/slice/pod\n", mount.path()).collect::<Vec<_>>(), [4096]);
        assert_eq!(limits("garbage\n", mount.path()).count(), 0);
    }

    #[test]
    fn the_older_version_is_read_too() {
        let mount = tempfile::tempdir().unwrap();
        let group = mount.path().join("memory/box");
        fs::create_dir_all(&group).unwrap();
        fs::write(group.join("memory.limit_in_bytes"), "1024").unwrap();
        let groups = "5:cpu:/box\n4:memory:/box\n";
        assert_eq!(limits(groups, mount.path()).collect::<Vec<_>>(), [1024]);
    }

    #[test]
    fn this_machine_has_some() {
        assert!(machine_memory() > 1 << 20);
        assert_eq!(total("MemTotal:       24 kB\nMemFree: 1 kB"), Some(24 * 1024));
    }
}
