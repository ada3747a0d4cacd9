//! Nothing is left behind: not by requests, whether they are answered or given up, not by a service, and
//! not by a model.

#![cfg(feature = "builtin")]

#[path = "peregrine/common.rs"]
#[expect(dead_code, reason = "for many tests, of which this is one")]
mod common;

use std::time::Duration;

use common::{SSRU, listed};
use peregrine::{Compute, Request, Service, ServiceOptions, Translator};

/// A number of /proc/self/status; none where there is no such file.
fn status(name: &str) -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

fn resident_kilobytes() -> usize {
    status("VmRSS").unwrap_or(0)
}

/// The threads of services. Others are those of the tests.
fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).ok();
    tasks.filter_map(name).filter(|name| name.starts_with("peregrine")).count()
}

/// The numbers are of the whole process: one test at a time.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// What a process of this size may gain by chance: pages of the allocator's own.
const CHANCE: usize = 4096;

/// 5,000 requests, a tenth of them given up; as many as `PEREGRINE_REQUESTS` says by hand, with the
/// curve.
#[test]
fn requests_leave_nothing_behind() {
    let _alone = alone();
    let wanted = std::env::var("PEREGRINE_REQUESTS").ok().and_then(|count| count.parse().ok());
    let count: usize = wanted.unwrap_or(5000);
    let translator = listed(SSRU, &Compute::int8());
    let service =
        Service::new(&translator, &ServiceOptions::new(translator.workers().with_threads(2)));
    let beam = translator.options().with_beam(4).with_n_best(4);
    let mut warm = 0;
    for round in 0..10 {
        std::thread::scope(|scope| {
            for caller in 0..8 {
                let (service, beam) = (&service, &beam);
                scope.spawn(move || {
                    for i in 0..count / 80 {
                        let text = format!("w{} w{} w{}", (caller + i) % 60, i % 50, i % 7);
                        let request = Request::new(&text);
                        let request = if i % 3 == 0 { request.with_options(beam) } else { request };
                        let pending = service.submit(&request).expect("there is room");
                        if i % 10 != caller {
                            pending.wait().expect("a translation");
                        }
                    }
                });
            }
        });
        let now = resident_kilobytes();
        if wanted.is_some() {
            println!("{:7} requests {:6} kB", (round + 1) * (count / 10), now);
        }
        if round == 2 {
            warm = now;
        }
    }
    let grown = resident_kilobytes().saturating_sub(warm);
    assert!(grown < CHANCE, "{grown} kB more after the warm-up");
    let stats = service.stats();
    assert_eq!((stats.open, stats.waiting_bytes), (0, 0));
    assert_eq!(stats.accepted, stats.answered + stats.cancelled);
    assert!(threads() == 2 || !std::path::Path::new("/proc/self/task").exists());
    drop(service);
    assert_eq!(threads(), 0, "all threads have ended");
}

#[test]
fn models_leave_nothing_behind() {
    let _alone = alone();
    let mut warm = 0;
    for round in 0..200 {
        let translator = Translator::builtin().expect("the built-in model");
        let service = Service::new(&translator, &ServiceOptions::new(translator.workers()));
        assert!(!service.translate("Good morning!").expect("a translation").is_empty());
        // A model lives as long as somebody has it.
        drop(translator);
        assert!(!service.translate("Thank you.").expect("a translation").is_empty());
        drop(service);
        if round == 20 {
            warm = resident_kilobytes();
        }
    }
    let grown = resident_kilobytes().saturating_sub(warm);
    assert!(grown < 2 * CHANCE, "{grown} kB more than after 20 models");
    assert_eq!(threads(), 0);
}

/// What a large request took is given back when nobody wants anything for a while.
#[test]
fn idle_workers_give_their_memory_back() {
    let _alone = alone();
    let translator = Translator::builtin().expect("the built-in model");
    let service = Service::new(&translator, &ServiceOptions::new(translator.workers()));
    service.translate("Good morning!").expect("a translation");
    let before = resident_kilobytes();
    let options = translator.options().with_beam(12);
    let line = "The quick brown fox jumps over the lazy dog and runs into the forest. ".repeat(3);
    let requests = vec![Request::new(&line).with_options(&options); 64];
    service.translate_batch(&requests).expect("translations");
    let large = resident_kilobytes();
    if large == 0 {
        return println!("skipped: this system does not tell how large a process is");
    }
    assert!(large > before + CHANCE, "{before} kB, {large} kB: the request was not large");
    for _ in 0..100 {
        std::thread::sleep(Duration::from_millis(100));
        if resident_kilobytes() < before + (large - before) / 2 {
            return;
        }
    }
    panic!("{before} kB before, {large} kB with a large request, {} after", resident_kilobytes());
}
