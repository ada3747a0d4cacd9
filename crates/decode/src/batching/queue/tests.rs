use std::sync::Arc;

use super::*;
use crate::{Job, Settings};
use peregrine_model::{Dialect, Search};

fn waiting(ticket: u64, tokens: usize) -> Waiting {
    called(ticket, tokens, &Arc::default())
}

fn called(ticket: u64, tokens: usize, call: &Arc<Call>) -> Waiting {
    let settings = Arc::new(Settings::new(Search::of(Dialect::Marian), 0, None));
    Waiting { ticket, job: Job::new(vec![1; tokens], &settings, call) }
}

fn tickets(taken: &[Waiting]) -> Vec<u64> {
    taken.iter().map(|w| w.ticket).collect()
}

fn filled(policy: Policy, read_ahead: usize, lengths: &[usize]) -> (Queue, SourceId) {
    let queue = Queue::new(policy, read_ahead, 1);
    let source = queue.open_read_ahead(None);
    for (i, &tokens) in lengths.iter().enumerate() {
        queue.push(source, waiting(i as u64, tokens));
    }
    (queue, source)
}

fn take(queue: &Queue, size: BatchSize, haste: Haste) -> Vec<u64> {
    tickets(&queue.take(Priority::Bulk, size, haste))
}

const TWO: BatchSize = BatchSize { sentences: 2, tokens: 10 };
const MANY: BatchSize = BatchSize { sentences: 64, tokens: 100 };

#[test]
fn in_order_of_arrival() {
    let (queue, source) = filled(Policy::Shrink, 1, &[1, 9, 5]);
    queue.close_source(source);
    assert_eq!(take(&queue, TWO, Haste::Busy), [0, 1]);
    assert_eq!(take(&queue, TWO, Haste::Busy), [2]);
    queue.close();
    assert_eq!(queue.wait(TWO, None), Wake::End);
}

#[test]
fn the_longest_of_a_window_first() {
    let (queue, source) = filled(Policy::Sorted, 3, &[1, 9, 5]);
    queue.push(source, waiting(3, 50));
    assert_eq!(take(&queue, TWO, Haste::Busy), [3]);
    assert_eq!(take(&queue, TWO, Haste::Busy), [1]);
    queue.push(source, waiting(4, 7));
    assert_eq!(take(&queue, TWO, Haste::Busy), [2, 0], "a window is used up first");
    assert!(take(&queue, TWO, Haste::Busy).is_empty(), "nothing has been read ahead");
    assert_eq!(take(&queue, TWO, Haste::Eager), [4]);
}

#[test]
fn busy_workers_wait_for_a_window() {
    let (queue, source) = filled(Policy::Auto, 100, &[3, 4]);
    assert!(take(&queue, TWO, Haste::Busy).is_empty());
    queue.set_stalled(source, true);
    assert_eq!(take(&queue, TWO, Haste::Busy), [1, 0]);
}

#[test]
fn an_idle_worker_begins_when_the_reader_is_quiet() {
    let (queue, _) = filled(Policy::Sorted, 100, &[4]);
    assert!(take(&queue, TWO, Haste::Busy).is_empty());
    assert_eq!(queue.wait(TWO, None), Wake::Work);
    assert_eq!(take(&queue, TWO, Haste::Busy), [0]);
    assert_eq!(queue.wait(TWO, Some(Duration::from_millis(1))), Wake::Idle);
}

#[test]
fn a_paced_window_leaves_the_rest_for_later() {
    let queue = Queue::new(Policy::Sorted, 100, 1);
    let source = queue.open_read_ahead(Some(2));
    (0..5).for_each(|i| queue.push(source, waiting(i, 1 + i as usize)));
    // The longest of the first two, not of all.
    assert_eq!(take(&queue, MANY, Haste::Busy), [1, 0]);
    assert_eq!(queue.len(), 3);
}

#[test]
fn workers_get_equal_shares() {
    let queue = Queue::new(Policy::Shrink, 1, 3);
    let source = queue.open(Priority::Bulk);
    (0..6).for_each(|i| queue.push(source, waiting(i, 1)));
    assert_eq!(take(&queue, MANY, Haste::Busy).len(), 2);
}

#[test]
fn a_stopped_queue_is_empty() {
    let (queue, source) = filled(Policy::TopUp, 1, &[1, 2]);
    queue.stop();
    assert!(take(&queue, TWO, Haste::Eager).is_empty());
    assert!(queue.is_empty() && queue.is_stopped());
    assert_eq!(queue.try_push(source, vec![waiting(3, 1)]), Err(Refusal::Closed));
    queue.put_back(Priority::Bulk, vec![waiting(4, 1)]);
    assert!(queue.is_empty());
    assert_eq!(queue.wait(TWO, None), Wake::End);
}

/// A book waits, and yet everybody else gets the next place but one.
#[test]
fn sources_take_turns() {
    let queue = Queue::new(Policy::Auto, 100, 1);
    let [book, first, second] = [(); 3].map(|()| queue.open(Priority::Bulk));
    (0..100).for_each(|i| queue.push(book, waiting(i, 1)));
    queue.push(first, waiting(200, 1));
    queue.push(second, waiting(300, 1));
    queue.push(second, waiting(301, 1));
    let size = BatchSize { sentences: 7, tokens: 100 };
    assert_eq!(take(&queue, size, Haste::Busy), [0, 200, 300, 1, 301, 2, 3]);
}

#[test]
fn callers_take_turns_and_so_do_their_requests() {
    let queue = Queue::new(Policy::TopUp, usize::MAX, 1);
    let busy = queue.open(Priority::Interactive);
    let long = queue.open_beside(busy, Priority::Interactive);
    let short = queue.open_beside(busy, Priority::Interactive);
    let other = queue.open(Priority::Interactive);
    (0..4).for_each(|ticket| queue.push(long, waiting(ticket, 1)));
    queue.push(short, waiting(10, 1));
    (20..23).for_each(|ticket| queue.push(other, waiting(ticket, 1)));
    [busy, long, short].into_iter().for_each(|source| queue.close_source(source));
    let all = BatchSize { sentences: 100, tokens: 1000 };
    let taken = queue.take(Priority::Interactive, all, Haste::Eager);
    assert_eq!(tickets(&taken), [0, 20, 10, 21, 1, 22, 2, 3]);
    // A group comes back with its next request.
    queue.push(queue.open_beside(busy, Priority::Interactive), waiting(30, 1));
    assert_eq!(tickets(&queue.take(Priority::Interactive, all, Haste::Eager)), [30]);
}

#[test]
fn priorities_are_apart() {
    let queue = Queue::new(Policy::Auto, 100, 1);
    let [bulk, interactive] = [Priority::Bulk, Priority::Interactive].map(|p| queue.open(p));
    queue.push(bulk, waiting(1, 1));
    queue.push(interactive, waiting(2, 1));
    assert_eq!(tickets(&queue.take(Priority::Interactive, MANY, Haste::Busy)), [2]);
    assert!(queue.take(Priority::Interactive, MANY, Haste::Busy).is_empty());
    assert_eq!(tickets(&queue.take(Priority::Bulk, MANY, Haste::Busy)), [1]);
}

#[test]
fn a_full_queue_says_so() {
    let bound = Bound { sentences: 3, bytes: usize::MAX };
    let queue = Queue::new(Policy::Auto, 100, 1).bounded(bound);
    let source = queue.open(Priority::Bulk);
    let some = |count: u64| (0..count).map(|i| waiting(i, 1)).collect::<Vec<_>>();
    // What is too large for any room is let in alone.
    assert_eq!(queue.try_push(source, some(5)), Ok(()));
    assert_eq!(queue.try_push(source, some(1)), Err(Refusal::Full));
    let soon = Some(crate::clock::now() + Duration::from_millis(1));
    assert_eq!(queue.push_when_room(source, some(1), soon), Err(Refusal::Deadline));
    assert_eq!(take(&queue, TWO, Haste::Busy).len(), 2);
    assert_eq!(queue.try_push(source, some(1)), Err(Refusal::Full));
    assert_eq!(take(&queue, TWO, Haste::Busy).len(), 2);
    assert_eq!(queue.push_when_room(source, some(2), None), Ok(()));
    let other = queue.open(Priority::Interactive);
    assert_eq!(queue.try_push(other, some(3)), Ok(()), "each priority has its own room");
}

#[test]
fn what_nobody_waits_for_leaves() {
    let queue = Queue::new(Policy::Auto, 100, 1);
    let now = crate::clock::now();
    let source = queue.open(Priority::Bulk);
    let [late, cancelled] = [Some(now), None].map(|end| Arc::new(Call::new(end, false)));
    queue.push(source, waiting(1, 1));
    queue.push(source, called(2, 1, &late));
    queue.push(source, called(3, 1, &cancelled));
    assert_eq!(queue.expire(now - Duration::from_secs(1)), []);
    assert_eq!(queue.expire(now), [(2, Failure::Deadline)]);
    cancelled.cancel();
    queue.forget(source, &cancelled);
    assert_eq!((queue.len(), take(&queue, MANY, Haste::Busy)), (1, vec![1]));
    // A source that was emptied has one turn, not two.
    queue.push(source, waiting(4, 1));
    assert_eq!(take(&queue, MANY, Haste::Busy), [4]);
}
