//! A worker whose device fails reports it to the requests of its batch, and goes on.

use std::sync::Arc;

use peregrine_decode::batching::{BatchSize, Batching, Policy, Priority, Queue, Waiting};
use peregrine_decode::{Counters, Event, Failure, Job, Member, Settings, Worker, Workplace};
use peregrine_model::{Dialect, Search};
use peregrine_nn::{Fault, Prepared};

use super::*;

/// What comes of `count` sentences. On a device whose kernels do nothing all end at once.
fn translate(worker: &mut Worker, count: u64) -> Vec<Result<(), Failure>> {
    let queue = Queue::new(Policy::Auto, usize::MAX, 1);
    let search = Search { beam: 1, ..Search::of(Dialect::Marian) };
    let settings = Arc::new(Settings::new(search, 0, None));
    let source = queue.open(Priority::Interactive);
    for ticket in 0..count {
        let job = Job::new(vec![5, 6, 7, 0], &settings, &Arc::default());
        queue.push(source, Waiting { ticket, job });
    }
    queue.close();
    let batching = Batching::new(Policy::Auto, BatchSize { sentences: 4, tokens: 1000 });
    let counters = Counters::default();
    let place = Workplace { queue: &queue, batching: &batching, counters: &counters };
    let mut results = vec![None; count as usize];
    worker.serve(place, None, &mut |event| {
        let (ticket, result) = match event {
            Event::Done(done) => (done.ticket, Ok(())),
            Event::Failed { ticket, failure } => (ticket, Err(failure)),
            Event::Token { .. } => unreachable!("nobody asked for words"),
        };
        assert!(results[ticket as usize].replace(result).is_none(), "answered once");
    });
    results.into_iter().map(|result| result.expect("answered")).collect()
}

#[test]
fn a_device_that_fails_is_told_to_the_requests_it_concerns() {
    let fake = Fake::new(1 << 30);
    let gpu = Cuda::on(Device::on_fake(&fake, GpuPrecision::Float16).expect("a device"));
    let model = made_up_model(preset("student", Some(200)).expect("a shape"), 1).expect("a model");
    let member = &model.members[0];
    let network: Arc<dyn Prepared> =
        prepare(gpu, &member.architecture, &member.weights).expect("all weights");
    let mut worker =
        Worker::new(move || vec![Member { network: Arc::clone(&network).session(), weight: 1.0 }]);
    assert!(translate(&mut worker, 9).iter().all(Result::is_ok));
    fake.world(|world| world.broken = true);
    let failed = |result: &Result<(), Failure>| {
        matches!(result, Err(Failure::Device(Fault { reason, out_of_memory: false }))
            if reason.contains("CUDA error 700"))
    };
    let results = translate(&mut worker, 9);
    assert!(results.iter().all(failed), "{results:?}");
    // An error that leaves the context alone is over with its batch.
    fake.world(|world| world.broken = false);
    assert!(translate(&mut worker, 3).iter().all(Result::is_ok));
    // One that ends it is not: the model must be opened again.
    fake.world(|world| world.dead = true);
    for _ in 0..2 {
        let results = translate(&mut worker, 3);
        assert!(results.iter().all(failed), "{results:?}");
    }
}
