//! Steps begun before the last one is answered give the translations they would give after it, and sentences
//! encoded beside the steps of others those they would give in turn.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use peregrine_decode::batching::{BatchSize, Batching, Policy, Priority, Queue, Waiting};
use peregrine_decode::{
    Counters, Event, Guard, Hypothesis, Job, Member, Settings, Verdict, Worker, Workplace,
};
use peregrine_model::{AtLimit, Dialect, Finish, Search};
use peregrine_nn::{
    Choice, Choices, DeviceBeam, Network, Origin, Row, RowRequest, RunAhead, Sentence, Slot,
    TopKQuery,
};

const END: u32 = 0;
const WORDS: u32 = 40;
const SENTENCES: u64 = 60;

/// The next words depend on the source, the position and all words before them. What was found by the
/// last query is kept apart from what has been answered, as on a device.
struct Chain {
    /// Hash and allowed words of each source.
    slots: Vec<Option<(u32, Vec<u32>)>>,
    /// The slot of each row of the last step, and all it has seen.
    seen: Vec<(Slot, u32)>,
    /// Admitted since.
    new: Vec<Slot>,
    /// Who is at each place of the last query,
    places: Vec<Option<Place>>,
    /// and by a sentence's first place how many of it may go on.
    widths: HashMap<u32, usize>,
    /// The same by slot.
    width_of: HashMap<u32, usize>,
    unanswered: VecDeque<Choices>,
    ahead: RunAhead,
    counts: Arc<Counts>,
}

#[derive(Clone, Copy)]
struct Place {
    row: usize,
    token: u32,
    path: f32,
}

#[derive(Default)]
struct Counts {
    /// Questions without an answer at once, at most.
    unanswered: AtomicUsize,
    /// Rows that went on from places, and those of them that were empty.
    followed: AtomicUsize,
    empty: AtomicUsize,
    /// Sentences that joined others: just admitted, or before an earlier step.
    hasty: AtomicUsize,
    rested: AtomicUsize,
}

fn mixed(a: u32, b: u32) -> u32 {
    (a ^ b.wrapping_mul(0x9e37_79b9)).wrapping_mul(0x85eb_ca6b).rotate_left(13)
}

impl Chain {
    /// The best words of a row, by sorting all.
    fn best(&self, row: usize, request: &RowRequest<'_>) -> Vec<Choice> {
        let (slot, seen) = self.seen[row];
        let (source, words) = self.slots[slot.0 as usize].as_ref().expect("an admitted sentence");
        // Few different scores, so that many are equal. One source in four runs in circles, which guards
        // notice.
        let score = |word: u32| match source % 4 {
            0 if word == 3 => -0.125,
            0 => -50.0 - (mixed(seen, word) % 4) as f32,
            _ => -((mixed(seen, word) % 16) as f32) / 4.0 - 1.1,
        };
        let choice = |token: u32| Choice { token, score: score(token) };
        if let Some(word) = request.forced {
            return vec![choice(word)];
        }
        let allowed = words.iter().filter(|word| request.banned.binary_search(word).is_err());
        let mut best: Vec<Choice> = allowed.map(|&word| choice(word)).collect();
        best.sort_by(|a, b| b.score.total_cmp(&a.score));
        best.truncate(request.count);
        best
    }

    /// Who goes on, by sorting all candidates.
    fn race(
        &mut self,
        device_beams: &[DeviceBeam],
        requests: &[RowRequest<'_>],
        lists: &[Vec<Choice>],
    ) {
        let (places, widths) = (std::mem::take(&mut self.places), std::mem::take(&mut self.widths));
        let mut first_row = 0;
        for device_beam in device_beams {
            let beam = device_beam.beam as usize;
            let rows = first_row..first_row + device_beam.rows as usize;
            first_row = rows.end;
            let mut all = Vec::new();
            for (number, row) in rows.enumerate() {
                let path = match device_beam.follows {
                    Some(first) => places[first as usize + number].map(|place| place.path),
                    None => Some(requests[row].path),
                };
                let Some(path) = path else { continue };
                for choice in &lists[row] {
                    let score = if device_beam.free { 0.0 } else { choice.score };
                    all.push(Place { row, token: choice.token, path: path + score });
                }
            }
            all.sort_by(|a, b| b.path.total_cmp(&a.path));
            let Slot(slot) = self.seen[first_row - 1].0;
            let width = match device_beam.follows {
                Some(first) => widths[&first],
                None => device_beam.width as usize,
            };
            assert_eq!(width, self.width_of.get(&slot).copied().unwrap_or(beam));
            let mut width_left = width;
            let goes_on = |place: &&Place| place.token != END;
            let winners: Vec<Place> = match device_beam.finish {
                Finish::Shrink => {
                    all.truncate(width);
                    width_left -= all.iter().filter(|place| place.token == END).count();
                    all.iter().filter(goes_on).copied().collect()
                }
                Finish::FullBounded => {
                    all.iter().take(2 * beam).filter(goes_on).take(beam).copied().collect()
                }
                Finish::Full => {
                    let (best, rest) = all.split_at(beam.min(all.len()));
                    let mut rest = rest.iter().filter(goes_on);
                    let stand_in = |place| if goes_on(&place) { Some(place) } else { rest.next() };
                    best.iter().filter_map(stand_in).copied().collect()
                }
            };
            assert!(winners.len() <= beam);
            let empty = beam - winners.len();
            self.widths.insert(self.places.len() as u32, width_left);
            self.places.extend(winners.into_iter().map(Some));
            self.places.extend(std::iter::repeat_n(None, empty));
            self.width_of.insert(slot, width_left);
        }
        assert_eq!(first_row, requests.len(), "every row is somebody's");
    }
}

impl Network for Chain {
    fn admit(&mut self, sentences: &[Sentence<'_>]) -> Vec<Slot> {
        let mut add = |sentence: &Sentence<'_>| {
            let hash = sentence.source.iter().fold(7, |sum, &id| mixed(sum, id));
            let words = sentence.words.map_or_else(|| (0..WORDS).collect(), <[u32]>::to_vec);
            self.slots.push(Some((hash, words)));
            Slot(self.slots.len() as u32 - 1)
        };
        let slots: Vec<Slot> = sentences.iter().map(&mut add).collect();
        self.new.extend(&slots);
        slots
    }

    fn release(&mut self, slot: Slot) {
        assert!(self.slots[slot.0 as usize].take().is_some(), "released once");
    }

    fn reset(&mut self) {
        unreachable!("there is room for all");
    }

    fn step(&mut self, rows: &[Row], _: bool) {
        let start = |row: &&Row| matches!(row.from, Origin::Start(_));
        if !rows.iter().all(|row| start(&row)) {
            let (hasty, rested): (Vec<&Row>, Vec<&Row>) =
                rows.iter().filter(start).partition(|row| self.new.contains(&row.slot));
            self.counts.hasty.fetch_add(hasty.len(), Relaxed);
            self.counts.rested.fetch_add(rested.len(), Relaxed);
        }
        self.new.clear();
        let see = |row: &Row| {
            let (source, _) = *self.slots[row.slot.0 as usize].as_ref().expect("a sentence");
            let (before, word) = match row.from {
                Origin::Start(_) => {
                    self.width_of.remove(&row.slot.0);
                    (source, u32::MAX)
                }
                Origin::Row { row, token } => (self.seen[row as usize].1, token),
                Origin::Place(place) => {
                    assert!(self.ahead > RunAhead::No);
                    self.counts.followed.fetch_add(1, Relaxed);
                    match self.places[place as usize] {
                        Some(Place { row: from, token, .. }) => {
                            let (slot, before) = self.seen[from];
                            assert_eq!(slot, row.slot, "a place of the same sentence");
                            (before, token)
                        }
                        None => {
                            self.counts.empty.fetch_add(1, Relaxed);
                            (row.position, u32::MAX)
                        }
                    }
                }
            };
            (row.slot, mixed(mixed(before, word), row.position))
        };
        self.seen = rows.iter().map(see).collect();
    }

    fn top_k(&mut self, query: TopKQuery<'_>) {
        let requests = query.requests;
        let lists: Vec<_> = (0..requests.len()).map(|row| self.best(row, &requests[row])).collect();
        match query.device_beams {
            Some(device_beams) => self.race(device_beams, requests, &lists),
            // Everybody's best word.
            None => {
                let best = |(row, list): (usize, &Vec<Choice>)| {
                    list.first().map(|best| Place { row, token: best.token, path: 0.0 })
                };
                self.places = lists.iter().enumerate().map(best).collect();
            }
        }
        let mut found = Choices::default();
        lists.into_iter().for_each(|list| found.push(list));
        self.unanswered.push_back(found);
        self.counts.unanswered.fetch_max(self.unanswered.len(), Relaxed);
    }

    fn take_top_k(&mut self, answer: &mut Choices) {
        *answer = self.unanswered.pop_front().expect("a query was asked");
    }

    fn run_ahead(&self) -> RunAhead {
        self.ahead
    }

    fn encodes_on_side_stream(&self) -> bool {
        self.ahead > RunAhead::No
    }

    fn logits(&mut self, _: &[bool], _: &mut Vec<f32>) {
        unreachable!("one network answers by itself");
    }

    fn alignment(&self, _: usize) -> &[f32] {
        &[]
    }

    fn target_words(&self) -> usize {
        WORDS as usize
    }

    fn position_limit(&self) -> usize {
        60
    }
}

fn job(ticket: u64, settings: &Arc<Settings>) -> Job {
    let source: Vec<u32> = (0..1 + ticket % 9).map(|i| (3 * ticket + i) as u32).collect();
    // Words that every list has: some lists are shorter than a beam is wide.
    let prefix = (0..ticket % 3).map(|i| 11 + i as u32).collect();
    let words =
        (ticket % 4 == 3).then(|| [END, 11, 12].into_iter().chain(20..20 + ticket as u32 % 7));
    let words = words.map(|words| words.collect());
    let length = (ticket % 5 == 4).then_some(1 + ticket as usize % 12);
    Job { prefix, words, length, ..Job::new(source, settings, &Arc::default()) }
}

/// All translations of every sentence, and what its guards found.
fn translate(
    settings: &Arc<Settings>,
    policy: Policy,
    ahead: RunAhead,
) -> (Vec<(Vec<Hypothesis>, Verdict)>, Arc<Counts>) {
    translate_each(|_| Arc::clone(settings), policy, ahead, 8)
}

/// The same where each sentence has settings of its own, in batches of so many.
fn translate_each(
    settings: impl Fn(u64) -> Arc<Settings>,
    policy: Policy,
    ahead: RunAhead,
    sentences: usize,
) -> (Vec<(Vec<Hypothesis>, Verdict)>, Arc<Counts>) {
    let counts = Arc::<Counts>::default();
    let of_chain = Arc::clone(&counts);
    let mut worker = Worker::new(move || {
        let chain = Chain {
            slots: Vec::new(),
            seen: Vec::new(),
            new: Vec::new(),
            places: Vec::new(),
            widths: HashMap::new(),
            width_of: HashMap::new(),
            unanswered: VecDeque::new(),
            ahead,
            counts: Arc::clone(&of_chain),
        };
        vec![Member { network: Box::new(chain), weight: 1.0 }]
    });
    let queue = Queue::new(policy, usize::MAX, 1);
    let source = queue.open(Priority::Bulk);
    for ticket in 0..SENTENCES {
        queue.push(source, Waiting { ticket, job: job(ticket, &settings(ticket)) });
    }
    queue.close();
    let mut batching = Batching::new(policy, BatchSize { sentences, tokens: 1000 });
    batching.encode_tokens = 10;
    let mut results = vec![None; SENTENCES as usize];
    let mut tell = |event: Event| {
        let Event::Done(done) = event else { panic!("{event:?}") };
        let before = results[done.ticket as usize].replace((done.hypotheses, done.verdict));
        assert!(before.is_none(), "answered once");
    };
    let counters = Counters::default();
    let place = Workplace { queue: &queue, batching: &batching, counters: &counters };
    worker.serve(place, None, &mut tell);
    let results = results.into_iter().map(|result| result.expect("every sentence is answered"));
    (results.collect(), counts)
}

/// Settings that differ in all a search may differ in.
fn settings(beam: usize, number: usize) -> Arc<Settings> {
    let finish = [Finish::Shrink, Finish::Full, Finish::FullBounded][number % 3];
    let search = Search {
        beam,
        finish,
        normalize: [0.0, 1.0, 0.6][number / 3 % 3],
        at_limit: [AtLimit::Cut, AtLimit::ForceEnd][number % 2],
        min_length: [0, 3][number / 2 % 2],
        score_prefix: number % 4 < 2,
        early_stop: [None, None, Some(4.0)][number / 5 % 3],
        max_length_factor: [Some(3.0), None][number / 3 % 2],
        ..Search::of(Dialect::Marian)
    };
    // Long enough that loops are noticed on the way.
    let guard = (number / 3 % 2 == 1).then_some(Guard { loops: true, length_ratio: None });
    let n_best = if number.is_multiple_of(2) { beam } else { 1 };
    let mut settings = Settings::new(search, END, Some(1));
    settings.scores = true;
    settings.n_best = n_best;
    settings.guard = guard;
    Arc::new(settings)
}

#[test]
fn running_ahead_changes_nothing() {
    for beam in [1, 2, 3, 5, 8] {
        for number in 0..18 {
            for policy in [Policy::ALL[number % 5], Policy::TopUp] {
                let what = format!("beam {beam}, settings {number}, {policy}");
                let settings = settings(beam, number);
                let (expected, slow) = translate(&settings, policy, RunAhead::No);
                let (found, fast) = translate(&settings, policy, RunAhead::Beams);
                assert!(found == expected, "{what}");
                let looped = found.iter().any(|(_, verdict)| verdict.looped);
                let shrinks = settings.search.finish == Finish::Shrink;
                assert!(looped || settings.guard.is_none() || !shrinks, "{what}");
                // The naive policy computes on what has ended, and must know what has.
                let most = if policy == Policy::Naive { 1 } else { 2 };
                let unanswered = [&slow, &fast].map(|counts| counts.unanswered.load(Relaxed));
                assert_eq!(unanswered, [1, most], "{what}");
                assert_eq!(fast.followed.load(Relaxed) > 0, most == 2, "{what}");
            }
        }
    }
}

/// Places are empty now and then, and not as a rule.
#[test]
fn some_places_are_empty() {
    for number in 0..3 {
        let (_, counts) = translate(&settings(4, number), Policy::TopUp, RunAhead::Beams);
        let (followed, empty) = (counts.followed.load(Relaxed), counts.empty.load(Relaxed));
        assert!(0 < empty && 2 * empty < followed, "{number}: {empty} of {followed}");
    }
}

/// With encoders that work beside, a step has to wait for few.
#[test]
fn sentences_are_encoded_before_there_is_a_place_for_them() {
    for policy in [Policy::TopUp, Policy::Auto] {
        let joined = |ahead: RunAhead| {
            let (_, counts) = translate(&settings(3, 0), policy, ahead);
            (counts.hasty.load(Relaxed), counts.rested.load(Relaxed))
        };
        let ((hasty, rested), in_turn) = (joined(RunAhead::Beams), joined(RunAhead::No));
        assert!(10 * hasty < rested, "{policy}: {hasty}, {rested}");
        assert!(in_turn.0 > in_turn.1, "{policy}: {in_turn:?}");
    }
}

/// What can only run ahead greedily does so, and waits where there are beams.
#[test]
fn a_network_is_not_asked_for_more_than_it_can() {
    for (beam, ahead, most) in
        [(1, RunAhead::Greedy, 2), (4, RunAhead::Greedy, 1), (33, RunAhead::Beams, 1)]
    {
        let settings = settings(beam, 0);
        let (expected, _) = translate(&settings, Policy::TopUp, RunAhead::No);
        let (found, counts) = translate(&settings, Policy::TopUp, ahead);
        assert_eq!(found, expected, "beam {beam}");
        assert_eq!(counts.unanswered.load(Relaxed), most, "beam {beam}");
    }
}

/// Contract 2 where no two sentences of a batch search alike.
#[test]
fn sentences_with_settings_of_their_own_get_what_they_get_alone() {
    let of = |ticket: u64| {
        let number = ticket as usize * 7 + 3;
        // One too wide for a race now and then, which nobody may run ahead of.
        let beam = [1, 4, 2, 1, 6, 1, 3, 40][if ticket == 31 { 7 } else { number % 7 }];
        settings(beam, number % 18)
    };
    let (alone, _) = translate_each(of, Policy::Shrink, RunAhead::No, 1);
    for policy in Policy::ALL {
        for ahead in [RunAhead::No, RunAhead::Greedy, RunAhead::Beams] {
            let (found, counts) = translate_each(of, policy, ahead, 8);
            for (ticket, (found, alone)) in found.iter().zip(&alone).enumerate() {
                assert_eq!(found, alone, "sentence {ticket}, {policy}, {ahead:?}");
            }
            let ran_ahead = counts.unanswered.load(Relaxed) == 2;
            assert!(ran_ahead || ahead != RunAhead::Beams || policy == Policy::Naive, "{policy}");
        }
    }
}
