//! How much memory there is for this process and its children: what the machine has, or a lower limit of its control
//! group or of one above that (`MemoryMax=` of systemd, a container's), if it sees these groups: `ip netns exec` hides them.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// In bytes, a few mebibytes at least.
pub fn limit() -> u64 {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let [machine, mounts, groups] = ["meminfo", "self/mountinfo", "self/cgroup"]
        .map(|file| read(&Path::new("/proc").join(file)).unwrap_or_default());
    let limit = of_machine(&machine).min(of_groups(&mounts, &groups, read));
    limit.max(LEAST)
}

/// With a lower limit (`MemoryHigh=0`) nothing runs that needs a stack.
const LEAST: u64 = 8 << 20;

/// By a text like `/proc/meminfo`.
fn of_machine(text: &str) -> u64 {
    let total = text.lines().find_map(|line| {
        let kibibytes = line.strip_prefix("MemTotal:")?.strip_suffix("kB")?;
        kibibytes.trim().parse::<u64>().ok()
    });
    total.map_or(u64::MAX, |kibibytes| kibibytes.saturating_mul(1024))
}

/// A hierarchy of control groups that can limit memory: cgroups(7), version 2 or 1.
struct Hierarchy {
    /// Where it is mounted, and which group of it is there.
    mount: PathBuf,
    root: PathBuf,
    is_unified: bool,
}

impl Hierarchy {
    /// Of a line of `/proc/self/mountinfo`, see proc_pid_mountinfo(5).
    fn of(line: &str) -> Option<Hierarchy> {
        let (front, back) = line.split_once(" - ")?;
        let mut front = front.split(' ').skip(3);
        let (root, mount) = (path_of(front.next()?), path_of(front.next()?));
        let mut back = back.split(' ');
        let kind = back.next()?;
        let options = back.nth(1)?;
        let is_unified = kind == "cgroup2";
        let is_memory = kind == "cgroup" && options.split(',').any(|option| option == "memory");
        (is_unified || is_memory).then_some(Hierarchy {
            mount,
            root,
            is_unified,
        })
    }

    /// The group of it that the process is in: of the lines of `/proc/self/cgroup`, each `ID:CONTROLLERS:PATH`.
    fn group<'a>(&self, groups: &'a str) -> Option<&'a Path> {
        groups.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?);
            let is_here = match self.is_unified {
                true => controllers.is_empty(),
                false => controllers.split(',').any(|one| one == "memory"),
            };
            is_here.then(|| Path::new(path))
        })
    }
}

/// A path of `/proc/self/mountinfo`, where some bytes are written in octal (`\\134` is a backslash).
fn path_of(text: &str) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        let digits = more.get(..3).filter(|_| *first == b'\\');
        let digits = digits.and_then(|digits| str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &more[3..] } else { more };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// The lowest limit of all groups that the process is in; [`u64::MAX`] if there is none.
fn of_groups(mounts: &str, groups: &str, read: impl Fn(&Path) -> Option<String>) -> u64 {
    let mut lowest = u64::MAX;
    for hierarchy in mounts.lines().filter_map(Hierarchy::of) {
        let Some(group) = hierarchy.group(groups) else {
            continue;
        };
        // In a container what is mounted may begin with its own group. What is elsewhere isn't ours.
        let Ok(group) = group.strip_prefix(&hierarchy.root) else {
            continue;
        };
        let files: &[&str] = match hierarchy.is_unified {
            true => &["memory.max", "memory.high"],
            false => &["memory.limit_in_bytes"],
        };
        for group in group.ancestors() {
            let folder = hierarchy.mount.join(group);
            let limits = files.iter().filter_map(|file| read(&folder.join(file)));
            // "max" is none.
            let limits = limits.filter_map(|limit| limit.trim().parse().ok());
            lowest = limits.fold(lowest, u64::min);
        }
    }
    lowest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(mounts: &str, groups: &str, files: &[(&str, &str)]) -> u64 {
        of_groups(mounts, groups, |path| {
            let file = files.iter().find(|(name, _)| Path::new(name) == path);
            file.map(|(_, text)| (*text).to_owned())
        })
    }

    const UNIFIED: &str = "\
21 1 8:1 / / rw - ext4 /dev/sda1 rw
24 21 0:22 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate
";

    #[test]
    fn the_lowest_limit_of_the_group_and_those_above_it_counts() {
        let groups = "0::/system.slice/skink.service\n";
        let files = [
            (
                "/sys/fs/cgroup/system.slice/skink.service/memory.max",
                "max\n",
            ),
            (
                "/sys/fs/cgroup/system.slice/skink.service/memory.high",
                "900\n",
            ),
            ("/sys/fs/cgroup/system.slice/memory.max", "700\n"),
            ("/sys/fs/cgroup/other.slice/memory.max", "5\n"),
        ];
        assert_eq!(of(UNIFIED, groups, &files), 700);
        assert_eq!(of(UNIFIED, groups, &files[..2]), 900);
        assert_eq!(of(UNIFIED, groups, &files[..1]), u64::MAX);
    }

    #[test]
    fn a_container_sees_its_own_group_at_the_top() {
        let files = [("/sys/fs/cgroup/memory.max", "4096\n")];
        assert_eq!(of(UNIFIED, "0::/\n", &files), 4096);
        let bound = UNIFIED.replace("0:22 / ", "0:22 /docker/1f ");
        assert_eq!(of(&bound, "0::/docker/1f\n", &files), 4096);
    }

    #[test]
    fn what_is_mounted_of_other_groups_limits_nobody_here() {
        let files = [("/sys/fs/cgroup/memory.max", "4096\n")];
        let other = UNIFIED.replace("0:22 / ", "0:22 /other ");
        assert_eq!(of(&other, "0::/mine\n", &files), u64::MAX);
        // systemd's names.
        let odd = UNIFIED.replace("0:22 / ", "0:22 /a\\134x2db ");
        assert_eq!(of(&odd, "0::/a\\x2db\n", &files), 4096);
    }

    #[test]
    fn the_first_version_has_a_hierarchy_for_memory() {
        let mounts = "\
30 24 0:27 / /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu
31 24 0:28 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory
32 24 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
";
        let groups = "5:memory:/a/b\n1:cpu:/a\n0::/\n";
        let files = [
            (
                "/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes",
                "9223372036854771712\n",
            ),
            ("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "8192\n"),
            ("/sys/fs/cgroup/cpu/a/memory.limit_in_bytes", "1\n"),
        ];
        assert_eq!(of(mounts, groups, &files), 8192);
    }

    #[test]
    fn the_machine_has_so_much() {
        let text = "MemTotal:       24576 kB\nMemFree:        5 kB\n";
        assert_eq!(of_machine(text), 24 << 20);
    }

    #[test]
    fn nonsense_limits_nothing() {
        assert_eq!(of_machine("MemTotal: much kB\n"), u64::MAX);
        for mounts in [
            "",
            " - ",
            "1 2 3 - cgroup2",
            "1 2 3 4 5 6 - cgroup2 x",
            UNIFIED,
        ] {
            for groups in ["", "0", "0:", "0::", ":::", "x:memory"] {
                assert_eq!(of(mounts, groups, &[]), u64::MAX);
            }
        }
    }
}
