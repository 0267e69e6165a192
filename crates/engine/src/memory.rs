//! How much memory this machine has, and how much of it is free, control groups counted.
//!
//! The least of the machine's own memory and every limit on the way from our control group to the root,
//! version 2 (`memory.max`) or 1 (`memory.limit_in_bytes`). What is free of a group's limit is what its processes do
//! not use; files in the page cache give way, and count as free.

use std::fs;
use std::path::Path;

/// The bytes of memory that this process may use at most.
pub fn machine_memory() -> u64 {
    groups(&own_groups(), Path::new(MOUNT)).map(|group| group.limit).fold(of_machine("MemTotal:"), u64::min)
}

/// The bytes of memory that this process and others of its control groups can still take.
pub fn available_memory() -> u64 {
    groups(&own_groups(), Path::new(MOUNT))
        .map(|group| group.free())
        .fold(of_machine("MemAvailable:"), u64::min)
}

/// Where control groups are mounted.
const MOUNT: &str = "/sys/fs/cgroup";

fn own_groups() -> String {
    fs::read_to_string("/proc/self/cgroup").unwrap_or_default()
}

fn of_machine(name: &str) -> u64 {
    fs::read_to_string("/proc/meminfo").ok().and_then(|text| line_of(&text, name)).unwrap_or(u64::MAX)
}

fn line_of(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// A control group that limits memory.
struct Group {
    limit: u64,
    used: u64,
    /// What of it gives way when memory is needed.
    files: u64,
}

impl Group {
    fn free(&self) -> u64 {
        self.limit.saturating_sub(self.used.saturating_sub(self.files))
    }

    /// The group at `at`, if it has a limit; its files are called as in version 1 or 2.
    fn read(at: &Path, second: bool) -> Option<Self> {
        let number = |name: &str| fs::read_to_string(at.join(name)).ok()?.trim().parse::<u64>().ok();
        let [limit, used] = if second {
            ["memory.max", "memory.current"]
        } else {
            ["memory.limit_in_bytes", "memory.usage_in_bytes"]
        };
        let statistics = fs::read_to_string(at.join("memory.stat")).unwrap_or_default();
        let prefix = if second { "" } else { "total_" };
        let files = ["inactive_file", "active_file"].map(|name| {
            let found = statistics
                .lines()
                .find_map(|line| line.strip_prefix(prefix)?.strip_prefix(name)?.strip_prefix(' '));
            found.and_then(|figure| figure.trim().parse::<u64>().ok()).unwrap_or(0)
        });
        Some(Self { limit: number(limit)?, used: number(used).unwrap_or(0), files: files.iter().sum() })
    }
}

/// Every group whose limit applies, from the lines of `/proc/self/cgroup`.
fn groups<'a>(groups: &'a str, mount: &'a Path) -> impl Iterator<Item = Group> + 'a {
    groups.lines().flat_map(move |line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let controllers = fields.next().unwrap_or_default();
        let group = fields.next().unwrap_or_default().trim_start_matches('/');
        let (root, second) = if controllers.is_empty() {
            (mount.to_owned(), true)
        } else if controllers.split(',').any(|controller| controller == "memory") {
            (mount.join("memory"), false)
        } else {
            return Vec::new();
        };
        let group = root.join(group);
        let ancestors = group.ancestors().take_while(|at| at.starts_with(&root));
        ancestors.filter_map(|at| Group::read(at, second)).collect()
    })
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
        let found: Vec<u64> = groups("0::/slice/pod\n", mount.path()).map(|group| group.limit).collect();
        assert_eq!(found, [4096]);
        assert_eq!(groups("garbage\n", mount.path()).count(), 0);
    }

    #[test]
    fn what_a_group_uses_is_not_free_but_files_give_way() {
        let mount = tempfile::tempdir().unwrap();
        let free = |lines: &str| groups(lines, mount.path()).map(|group| group.free()).collect::<Vec<_>>();
        let pod = mount.path().join("pod");
        fs::create_dir_all(&pod).unwrap();
        fs::write(pod.join("memory.max"), "700\n").unwrap();
        fs::write(pod.join("memory.current"), "450\n").unwrap();
        assert_eq!(free("0::/pod\n"), [250]);
        let statistics = "anon 300\nfile 150\ninactive_file 60\nactive_file 40\nworkingset_refault_file 9\n";
        fs::write(pod.join("memory.stat"), statistics).unwrap();
        assert_eq!(free("0::/pod\n"), [350]);
        fs::write(pod.join("memory.current"), "9000\n").unwrap();
        assert_eq!(free("0::/pod\n"), [0]);
        let old = mount.path().join("memory/pod");
        fs::create_dir_all(&old).unwrap();
        fs::write(old.join("memory.limit_in_bytes"), "700").unwrap();
        fs::write(old.join("memory.usage_in_bytes"), "500").unwrap();
        fs::write(old.join("memory.stat"), "inactive_file 1\ntotal_inactive_file 100\ntotal_active_file 0\n")
            .unwrap();
        assert_eq!(free("4:memory:/pod\n"), [300]);
    }

    #[test]
    fn the_older_version_is_read_too() {
        let mount = tempfile::tempdir().unwrap();
        let group = mount.path().join("memory/box");
        fs::create_dir_all(&group).unwrap();
        fs::write(group.join("memory.limit_in_bytes"), "1024").unwrap();
        let groups = "5:cpu:/box\n4:memory:/box\n";
        assert_eq!(super::groups(groups, mount.path()).map(|group| group.limit).collect::<Vec<_>>(), [1024]);
    }

    #[test]
    fn this_machine_has_some() {
        assert!(machine_memory() > 1 << 20);
        assert!(available_memory() > 1 << 20 && available_memory() <= machine_memory());
        assert_eq!(line_of("MemTotal:       24 kB\nMemFree: 1 kB", "MemTotal:"), Some(24 * 1024));
    }
}
