//! What is recorded, submitted, kept and given back, on the fake driver.

use std::sync::mpsc;

use super::submit::MOST_GRAPHS;
use super::*;
use crate::fake::{Fake, Launched};
use crate::kernel;
use crate::memory::Buffer;

const ROOM: usize = 64 << 20;

impl Device {
    /// A device of the fake driver.
    pub(crate) fn on_fake(fake: &Fake, precision: GpuPrecision) -> Result<Device, Error> {
        Device::on_fake_driver(fake.driver(), 0, precision)
    }
}

fn open(fake: &Fake) -> Arc<Device> {
    Arc::new(Device::on_fake(fake, GpuPrecision::Float16).expect("a device"))
}

/// Two kernels that are given a number, for so many rows.
fn work(device: &Device, number: u32, rows: usize) {
    let recorded = device.record(|segment| {
        let from = segment.stage(&[number])?;
        let copy = kernel::CopyWords { from, ..Default::default() };
        segment.launch_rows(kernel::copy_words, rows, &copy)?;
        let clear = kernel::ClearRows { rows: from, ..Default::default() };
        segment.launch_rows(kernel::clear_rows, rows, &clear)
    });
    recorded.expect("recorded");
}

#[test]
fn buckets_are_few_and_large_enough() {
    let all: Vec<usize> = (1..=4096).map(bucket).collect();
    assert!(all.iter().enumerate().all(|(i, &b)| b > i));
    assert!(all.is_sorted());
    let mut different = all;
    different.dedup();
    assert_eq!(different[..9], [1, 2, 4, 8, 16, 24, 32, 48, 64]);
    assert!(different.len() < 24);
}

#[test]
fn nothing_runs_before_it_is_sent() {
    let fake = Fake::new(ROOM);
    let device = open(&fake);
    work(&device, 1, 8);
    assert!(fake.ran().is_empty());
    device.new_segment(false).expect("sent");
    assert_eq!(fake.ran(), ["copy_words", "clear_rows"]);
    device.new_segment(false).expect("nothing to send");
    assert!(fake.ran().is_empty());
}

#[test]
fn a_step_that_looks_places_up_is_one_segment() {
    let fake = Fake::new(ROOM);
    let device = open(&fake);
    for (follows, sent) in [(true, 0), (true, 0), (false, 4), (true, 2), (false, 2), (false, 2)] {
        device.new_segment(follows).expect("sent");
        assert_eq!(fake.ran().len(), sent);
        work(&device, 1, 8);
    }
}

#[test]
fn what_is_recorded_alike_is_replayed() {
    let fake = Fake::new(ROOM);
    let device = open(&fake);
    let sent = |rows: usize| {
        let before = fake.world(|w| (w.launches, w.replays));
        work(&device, 1, rows);
        device.finish().expect("finished");
        let after = fake.world(|w| (w.launches, w.replays));
        (after.0 - before.0, after.1 - before.1)
    };
    // A stage or two take turns; each must have been seen.
    let first: Vec<_> = (0..4).map(|_| sent(100)).collect();
    assert_eq!(first[0], (2, 0), "the first time nothing is known");
    assert_eq!(first[3], (0, 1), "seen often enough");
    // 97 and 128 rows are rounded to the same number, 129 are not.
    assert_eq!((sent(97), sent(128)), ((0, 1), (0, 1)));
    assert_eq!(sent(129), (2, 0));
    assert_eq!(fake.ran().len(), 2 * 7);
}

#[test]
fn a_replayed_graph_sees_the_numbers_of_its_step() {
    let fake = Fake::new(ROOM);
    let device = open(&fake);
    for step in 0..8 {
        work(&device, 1000 + step, 8);
        device.finish().expect("finished");
        let seen = fake.world(|w| {
            let (_, launched) = w.ran.last().expect("a kernel").clone();
            w.word(launched.address(0))
        });
        assert_eq!(seen, 1000 + step);
    }
    assert!(fake.world(|w| w.replays) >= 4);
}

#[test]
fn only_what_may_overlap_does() {
    for (capability, expected) in [((9, 0), [false, true]), ((8, 0), [false, false])] {
        let fake = Fake::new(ROOM);
        fake.world(|w| w.capability = capability);
        let device = open(&fake);
        work(&device, 1, 8);
        device.finish().expect("finished");
        let overlapped =
            fake.world(|w| w.ran.iter().map(|(_, l)| l.overlapped).collect::<Vec<_>>());
        assert_eq!(overlapped, expected, "{capability:?}");
    }
}

#[test]
fn graphs_are_forgotten_when_there_are_too_many() {
    let fake = Fake::new(ROOM);
    let device = open(&fake);
    let mut most = 0;
    for kind in 0..2 * MOST_GRAPHS {
        for _ in 0..3 {
            let parameters = kernel::Element { kind, ..Default::default() };
            let one =
                |segment: &mut Segment<'_>| segment.launch_rows(kernel::element, 1, &parameters);
            device.record(one).expect("recorded");
            device.finish().expect("finished");
        }
        most = most.max(fake.world(|w| w.graphs()));
    }
    assert!((1..=MOST_GRAPHS).contains(&most), "{most}");
    assert_eq!(fake.ran().len(), 6 * MOST_GRAPHS);
}

#[test]
fn where_there_is_no_memory_for_graphs_kernels_run_without() {
    let fake = Fake::new(ROOM);
    let device = open(&fake);
    fake.world(|w| w.no_graphs = true);
    for number in 0..4 {
        work(&device, number, 8);
        device.finish().expect("finished");
    }
    assert_eq!(fake.ran().len(), 8);
    assert_eq!(fake.world(|w| w.graphs()), 0);
}

#[test]
fn what_is_abandoned_never_runs_and_keeps_no_memory() {
    let fake = Fake::new(ROOM);
    let device = open(&fake);
    drop(Buffer::new(&device, 40 << 20).expect("memory"));
    work(&device, 1, 8);
    device
        .run_on_side_stream(|| drop(Buffer::new(&device, 10 << 20).expect("memory")))
        .expect("side work");
    work(&device, 2, 8);
    device.abandon().expect("abandoned");
    work(&device, 3, 8);
    device.finish().expect("finished");
    assert_eq!(fake.ran().len(), 4, "the second never ran");
    assert!(device.new_memory(60 << 20).is_ok(), "nothing was kept");
}

/// The launches since the last call: the stream of each, and how many kernels of the other stream it waited for.
fn waits(fake: &Fake, other: usize) -> Vec<(usize, usize)> {
    fake.world(|w| {
        let of = |(stream, launched): (usize, Launched)| {
            (stream, launched.after.get(&other).copied().unwrap_or(0))
        };
        w.ran.drain(..).map(of).collect()
    })
}

#[test]
fn side_work_is_waited_for_where_it_is_joined() {
    let fake = Fake::new(ROOM);
    let device = open(&fake);
    let own = device.stream().expect("a stream").handle as usize;
    work(&device, 1, 8);
    let side_work = device.run_on_side_stream(|| work(&device, 2, 8)).expect("side work");
    let other = fake.world(|w| w.ran.last().expect("a kernel").0);
    assert_ne!(own, other);
    let twice = |stream, waited| vec![(stream, waited); 2];
    // It goes off at once, after all that was recorded before.
    assert_eq!(waits(&fake, own), [(own, 0), (own, 1), (other, 2), (other, 2)]);
    let step = |number| {
        work(&device, number, 8);
        device.finish().expect("finished");
        waits(&fake, other)
    };
    assert_eq!(step(3), twice(own, 0), "nobody has joined it");
    device.join(&side_work).expect("joined");
    assert_eq!(step(4), twice(own, 2));
    // The next is not waited for by those who join the first.
    let _next = device.run_on_side_stream(|| work(&device, 5, 8)).expect("side work");
    waits(&fake, other);
    device.join(&side_work).expect("joined");
    assert_eq!(step(6), twice(own, 2));
    device.join_side_stream().expect("joined");
    assert_eq!(step(7), twice(own, 4));
}

#[test]
fn side_work_is_one_segment() {
    let fake = Fake::new(ROOM);
    let device = open(&fake);
    let parts = || {
        for part in 0..5 {
            device.new_segment(false).expect("goes on");
            work(&device, part, 8);
            assert!(fake.ran().is_empty());
        }
    };
    device.run_on_side_stream(parts).expect("side work");
    assert_eq!(fake.ran().len(), 2 * 5);
}

#[test]
fn side_work_is_replayed_too() {
    let fake = Fake::new(ROOM);
    let device = open(&fake);
    for number in 0..6 {
        device.run_on_side_stream(|| work(&device, number, 8)).expect("side work");
        work(&device, number, 8);
        device.finish().expect("finished");
    }
    let before = fake.world(|w| (w.launches, w.replays));
    device.run_on_side_stream(|| work(&device, 7, 8)).expect("side work");
    let after = fake.world(|w| (w.launches, w.replays));
    assert_eq!((after.0 - before.0, after.1 - before.1), (0, 1));
}

#[test]
fn memory_of_a_side_stream_goes_back_there() {
    let fake = Fake::new(ROOM);
    let device = open(&fake);
    let buffer = || Buffer::new(&device, 1 << 20).expect("memory");
    let mut taken = None;
    device.run_on_side_stream(|| taken = Some(buffer())).expect("side work");
    let taken = taken.map(|buffer| buffer.address).expect("memory");
    assert_ne!(buffer().address, taken, "side work may still use it");
    device.run_on_side_stream(|| assert_eq!(buffer().address, taken)).expect("side work");
    // Where memory is scarce all that is at rest goes, whichever stream it belongs to.
    drop(Buffer::new(&device, 63 << 20).expect("room was made"));
}

#[test]
fn side_work_that_fails_leaves_nothing_behind() {
    let fake = Fake::new(ROOM);
    let device = open(&fake);
    let fails = || {
        work(&device, 1, 8);
        std::panic::resume_unwind(Box::new("a fault"));
    };
    let failed =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| device.run_on_side_stream(fails)));
    assert!(failed.is_err());
    assert!(!device.is_on_side_stream());
    let own = device.stream().expect("a stream").handle as usize;
    work(&device, 2, 8);
    device.finish().expect("finished");
    device.run_on_side_stream(|| ()).expect("nothing to do");
    assert_eq!(waits(&fake, own), [(own, 0), (own, 1)]);
}

#[test]
fn every_thread_has_a_stream_and_leaves_it_to_the_next() {
    let fake = Fake::new(ROOM);
    let device = open(&fake);
    let stream_of_a_thread = || {
        let send = || {
            work(&device, 1, 8);
            device.finish().expect("finished");
        };
        std::thread::scope(|scope| scope.spawn(send).join().expect("a thread"));
        fake.world(|w| w.ran.last().map(|(stream, _)| *stream))
    };
    let first = stream_of_a_thread();
    assert_eq!(stream_of_a_thread(), first, "the stream of a thread that ended");
    // Two at a time.
    let (to_main, from_thread) = mpsc::channel();
    let (to_thread, from_main) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let device = &device;
        scope.spawn(move || {
            let stream = device.stream().expect("a stream");
            to_main.send(stream.handle as usize).expect("sent");
            from_main.recv().expect("told to end");
        });
        let theirs = from_thread.recv().expect("a stream");
        assert_ne!(device.stream().expect("a stream").handle as usize, theirs);
        to_thread.send(()).expect("sent");
    });
}

#[test]
fn what_a_thread_left_unsent_is_not_sent_by_the_next() {
    let fake = Fake::new(ROOM);
    let device = open(&fake);
    std::thread::scope(|scope| scope.spawn(|| work(&device, 1, 8)).join().expect("a thread"));
    std::thread::scope(|scope| {
        scope.spawn(|| device.finish().expect("finished")).join().expect("a thread");
    });
    assert!(fake.ran().is_empty());
}

/// A thread with a stream keeps memory in its pool; a thread without one returns it to the driver.
#[test]
fn memory_is_not_lost_with_the_thread_that_drops_it() {
    let fake = Fake::new(ROOM);
    let device = open(&fake);
    let buffer = || Buffer::new(&device, 1 << 20).expect("memory");
    let address = buffer().address;
    assert_eq!(buffer().address, address, "kept in the pool");
    let used = fake.world(|w| w.used());
    let elsewhere = buffer();
    std::thread::scope(|scope| scope.spawn(move || drop(elsewhere)).join().expect("a thread"));
    assert_eq!(fake.world(|w| w.used()), used - (1 << 20), "given back");
}

#[test]
fn memory_at_rest_makes_room_and_graphs_that_name_it_go() {
    let fake = Fake::new(ROOM);
    let device = open(&fake);
    for _ in 0..4 {
        work(&device, 1, 8);
        device.finish().expect("finished");
    }
    assert!(fake.world(|w| w.graphs()) > 0);
    drop(Buffer::new(&device, 40 << 20).expect("memory"));
    let used = fake.world(|w| w.used());
    // Another size: what is at rest does not fit it, and both do not fit the device.
    let buffer = Buffer::new(&device, 50 << 20).expect("room was made");
    assert_eq!(fake.world(|w| w.used()), used + (10 << 20));
    assert_eq!(fake.world(|w| w.graphs()), 0);
    drop(buffer);
    work(&device, 2, 8);
    device.finish().expect("the device goes on");
}

#[test]
fn full_memory_is_an_error_that_harms_nothing() {
    let fake = Fake::new(ROOM);
    let device = open(&fake);
    let held = Buffer::new(&device, 40 << 20).expect("memory");
    let used = fake.world(|w| w.used());
    assert_eq!(Buffer::new(&device, 40 << 20).err(), Some(Error::OutOfMemory));
    assert_eq!(fake.world(|w| w.used()), used);
    drop(held);
    Buffer::new(&device, 40 << 20).expect("there is room now");
}

#[test]
fn all_is_given_back_in_the_end() {
    let fake = Fake::new(ROOM);
    let device = open(&fake);
    let use_it = || {
        let buffer = Buffer::of_floats(&device, &[1.0; 5000]).expect("memory");
        let mut back = [0.0; 5000];
        device.download(buffer.address, &mut back).expect("read");
        assert_eq!(back, [1.0; 5000]);
        for _ in 0..4 {
            work(&device, 1, 8);
            device.finish().expect("finished");
        }
    };
    use_it();
    std::thread::scope(|scope| scope.spawn(use_it).join().expect("a thread"));
    work(&device, 1, 8);
    assert!(!fake.world(|w| w.is_empty()));
    drop(device);
    assert!(fake.world(|w| w.is_empty()));
}

#[test]
fn a_stage_that_grows_keeps_what_was_laid_into_it() {
    let fake = Fake::new(ROOM);
    let device = open(&fake);
    let long: Vec<u32> = (0..FIRST_STAGE as u32 / 4).collect();
    let recorded = device.record(|segment| {
        let (from, to) = (segment.stage(&[7, 8])?, segment.stage(&long)?);
        segment.launch_rows(kernel::copy_words, 1, &kernel::CopyWords { from, to, words: 0 })
    });
    recorded.expect("recorded");
    device.finish().expect("finished");
    let (early, late) = fake.world(|w| {
        let (_, launched) = w.ran.last().expect("a kernel").clone();
        (w.word(launched.address(0)), w.word(launched.address(8) + 40))
    });
    assert_eq!((early, late), (7, 10));
}

/// Blocks without a task read one all the same, and see that it has no rows.
#[test]
fn lists_of_structures_are_filled_up_with_empty_ones() {
    let fake = Fake::new(ROOM);
    let device = open(&fake);
    let recorded = device.record(|segment| {
        let task = kernel::Task { rows: 1, ..Default::default() };
        let lists = [segment.stage_all::<kernel::Task>(&[])?, segment.stage_all(&[task; 17])?];
        segment.launch_rows(kernel::copy_words, 1, &kernel::CopyWords::default())?;
        Ok((lists, segment.stage(&[1])?))
    });
    let (lists, behind) = recorded.expect("recorded");
    assert!(lists[1] - lists[0] >= 24 && behind - lists[1] >= 24 * 24);
    device.finish().expect("finished");
    let rows = |task: u64| fake.world(|w| w.word(lists[1] + 24 * task + 4));
    assert_eq!([16, 17, 23].map(rows), [1, 0, 0]);
}

#[test]
fn a_stage_that_cannot_grow_keeps_no_memory() {
    let fake = Fake::new(ROOM);
    let device = open(&fake);
    let staged = device.record(|segment| segment.stage_bytes(&[1], 2 * ROOM));
    assert_eq!(staged.err(), Some(Error::OutOfMemory));
    drop(device);
    assert!(fake.world(|w| w.is_empty()));
}

#[test]
fn failures_name_the_call() {
    let fake = Fake::new(ROOM);
    let device = open(&fake);
    work(&device, 1, 8);
    fake.world(|w| w.broken = true);
    let error = device.finish().expect_err("a broken device").to_string();
    assert!(error.contains("cuLaunchKernel") && error.contains("an illegal address"), "{error}");
}

#[test]
fn a_context_that_others_made_current_is_noticed() {
    let fake = Fake::new(ROOM);
    let device = open(&fake);
    for number in 0..4 {
        fake.use_other_context();
        work(&device, number, 8);
        fake.use_other_context();
        device.finish().expect("finished in the device's own context");
    }
    drop(Buffer::new(&device, 1 << 20).expect("memory"));
    fake.use_other_context();
    device.abandon().expect("abandoned");
    fake.use_other_context();
    drop(device);
    assert!(fake.world(|w| w.is_empty()));
}

#[test]
fn a_context_is_current_only_once_the_driver_has_said_so() {
    let fake = Fake::new(ROOM);
    let device = open(&fake);
    fake.use_other_context();
    fake.world(|w| w.unavailable = true);
    for _ in 0..2 {
        let error = device.finish().expect_err("another context is current").to_string();
        assert!(error.contains("cuCtxSetCurrent"), "{error}");
    }
    fake.world(|w| w.unavailable = false);
    device.finish().expect("current now");
}

/// A kernel that goes wrong takes the context with it: whatever is asked then is told so, and nothing that was
/// not computed is taken for an answer.
#[test]
fn after_a_failure_everything_fails() {
    let fake = Fake::new(ROOM);
    let device = open(&fake);
    let buffer = Buffer::new(&device, 4).expect("memory");
    let side_work = device.run_on_side_stream(|| work(&device, 1, 8)).expect("side work");
    let answer = device.record(|segment| {
        let answer = segment.answer(4)?;
        let copy = kernel::CopyWords { to: answer.address, ..Default::default() };
        segment.launch_rows(kernel::copy_words, 1, &copy)?;
        Ok(answer)
    });
    let sent = device.send(answer.expect("recorded")).expect("sent");
    fake.world(|w| w.dead = true);
    let fails = |result: Result<(), Error>| {
        let error = result.expect_err("the context is gone");
        assert!(matches!(error, Error::Driver { code: 700, .. }), "{error}");
    };
    fails(device.read(sent, 4, |_| ()));
    fails(device.finish());
    // Not even after the stream was waited for.
    fails(device.read(sent, 4, |_| ()));
    fails(device.upload(buffer.address, &[0; 4]));
    fails(device.download(buffer.address, &mut [0.0]));
    fails(device.join(&side_work));
    fails(device.join_side_stream());
    fails(device.run_on_side_stream(|| ()).map(drop));
    fails(device.abandon());
    fails(Buffer::new(&device, 1 << 20).map(drop));
    fails(device.record(|segment| segment.stage(&[1]).map(drop)));
    drop((buffer, side_work, device));
    assert!(fake.world(|w| w.is_empty()), "all goes with the context");
    let device = open(&fake);
    work(&device, 1, 8);
    device.finish().expect("a new context is sound");
}

#[test]
fn what_no_grid_has_room_for_is_refused() {
    let fake = Fake::new(ROOM);
    let device = open(&fake);
    let clear = |width: usize| {
        let parameters = kernel::ClearRows::default();
        let work = |segment: &mut Segment<'_>| {
            segment.launch_columns(kernel::clear_rows, 1, width, &parameters)
        };
        device.record(work)
    };
    clear(256 * 65_535).expect("room");
    let error = clear(256 * 65_535 + 1).expect_err("no room").to_string();
    assert!(error.contains("clear_rows over 65536 blocks (at most 65535)"), "{error}");
    device.finish().expect("finished");
    assert_eq!(fake.ran().len(), 1);
}

#[test]
fn what_cannot_be_sent_is_forgotten() {
    let fake = Fake::new(ROOM);
    let device = open(&fake);
    work(&device, 1, 8);
    fake.world(|w| w.refuses_launches = true);
    device.finish().expect_err("no launches");
    fake.world(|w| w.refuses_launches = false);
    device.finish().expect("nothing to send");
    assert!(fake.ran().is_empty());
    work(&device, 2, 8);
    device.finish().expect("finished");
    assert_eq!(fake.ran(), ["copy_words", "clear_rows"]);
}

#[test]
fn a_graph_that_cannot_be_made_is_not_kept() {
    let fake = Fake::new(ROOM);
    let device = open(&fake);
    for _ in 0..2 {
        work(&device, 1, 8);
        device.finish().expect("finished");
    }
    work(&device, 1, 8);
    fake.world(|w| w.refuses_launches = true);
    device.finish().expect_err("no launches");
    assert_eq!(fake.world(|w| w.graphs()), 0);
}

#[test]
fn devices_that_will_not_do_are_refused() {
    let fake = Fake::new(ROOM);
    fake.world(|w| w.capability = (7, 5));
    let error = Device::on_fake(&fake, GpuPrecision::Float16).err();
    assert!(matches!(error, Some(Error::TooOld { .. })), "{error:?}");
    fake.world(|w| w.capability = (8, 6));
    let error = Device::on_fake(&fake, GpuPrecision::Fp8).err();
    assert!(matches!(error, Some(Error::TooOld { needed: "8.9", .. })), "{error:?}");
    fake.world(|w| w.missing = Some("attend"));
    let error = Device::on_fake(&fake, GpuPrecision::Int8).err();
    assert!(matches!(error, Some(Error::Driver { call: "cuModuleGetFunction", .. })), "{error:?}");
    fake.world(|w| w.unavailable = true);
    fake.use_other_context();
    let error = Device::on_fake(&fake, GpuPrecision::Int8).err();
    assert!(matches!(error, Some(Error::Driver { call: "cuCtxSetCurrent", .. })), "{error:?}");
    assert!(fake.world(|w| w.is_empty()), "nothing is kept of them");
    let none = |_: &Target| Err(Error::Compiler(String::new()));
    let error = Device::with_driver(fake.driver(), 3, GpuPrecision::Int8, none).err();
    assert_eq!(error, Some(Error::NoDevice { wanted: 3, found: 1 }));
}
