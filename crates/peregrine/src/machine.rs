//! The machine's resources that this process may use.

use std::collections::BTreeSet;
use std::fs;
use std::thread;

/// The number of physical cores that this process may use, within its CPU affinity and cgroup
/// quotas. Hyper-threads of one core count once.
///
/// ```
/// assert!(peregrine::cores() >= 1);
/// ```
pub fn cores() -> usize {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let allowed = fs::read_to_string("/proc/self/status").ok().and_then(|status| {
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        cpus(list.trim())
    });
    allowed.and_then(physical).map_or(threads, |cores| cores.clamp(1, threads))
}

/// The bytes of memory that this process may use: the available memory of the machine, or the rest
/// of its cgroup's limit if that is less. `None` where the system does not report it.
pub fn available_memory() -> Option<u64> {
    let available = fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
    })?;
    let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let limit = number("/sys/fs/cgroup/memory.max");
    let left = limit.zip(number("/sys/fs/cgroup/memory.current"));
    Some(left.map_or(available, |(limit, used)| available.min(limit.saturating_sub(used))))
}

/// Parses a CPU list such as `0-3,8`.
fn cpus(list: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        cpus.extend(first.parse().ok()?..=last.parse::<usize>().ok()?);
    }
    Some(cpus)
}

/// The number of physical cores of these logical processors.
fn physical(cpus: Vec<usize>) -> Option<usize> {
    let siblings = |cpu: usize| {
        let topology = format!("/sys/devices/system/cpu/cpu{cpu}/topology");
        let read = |name: &str| fs::read_to_string(format!("{topology}/{name}")).ok();
        Some((read("physical_package_id")?, read("core_id")?))
    };
    cpus.into_iter().map(siblings).collect::<Option<BTreeSet<_>>>().map(|cores| cores.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors() {
        assert_eq!(cpus("0-3,8"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(cpus("5"), Some(vec![5]));
        assert_eq!(cpus("a-b"), None);
        assert_eq!(cpus(""), None);
    }

    #[test]
    fn cores_are_no_more_than_threads() {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        assert!((1..=threads).contains(&cores()));
        assert!(available_memory().is_none_or(|bytes| bytes > 1 << 20));
    }
}
