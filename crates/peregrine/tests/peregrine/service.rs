//! Contract 2 where requests of many callers meet in one batch: each answer is, to the bit, the one the
//! request gets alone.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{AAN, SSRU, listed, nonsense, recurrent};
use peregrine::model::Autoregression;
use peregrine::{
    BatchSize, Compute, Error, Guard, Options, Priority, Progress, Request, Scored, Service,
    ServiceOptions, Split, Translation, Translator,
};

fn service(translator: &Translator, threads: usize) -> Service {
    let batch = BatchSize { sentences: 12, tokens: 400 };
    let workers = translator.workers().with_batch(batch).with_threads(threads);
    Service::new(translator, &ServiceOptions::new(workers))
}

/// Numbers that look random, the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    fn words(&mut self, most: u64) -> String {
        let words = (0..1 + self.below(most)).map(|_| format!("w{}", self.below(70)));
        words.collect::<Vec<_>>().join(" ")
    }
}

/// A request and all that it may have of its own.
struct Asked {
    text: String,
    prefix: Option<String>,
    options: Options,
    priority: Priority,
    tokens: bool,
}

impl Asked {
    fn random(translator: &Translator, random: &mut Random) -> Asked {
        let beam = [1, 1, 2, 4, 6][random.below(5) as usize];
        let n_best = if random.one_in(3) { beam } else { 1 };
        let mut options = translator.options().with_beam(beam).with_n_best(n_best);
        options.search.normalize = [0.0, 1.0, 0.6][random.below(3) as usize];
        options.search.allow_unk = random.one_in(2);
        options.search.min_length = [0, 0, 4][random.below(3) as usize];
        let options = options
            .with_scores(random.one_in(2))
            .with_alignments(random.one_in(3))
            .with_shortlist(random.one_in(2))
            .with_guard(random.one_in(3).then(Guard::default))
            .with_split([Split::None, Split::Sentence][random.below(2) as usize]);
        let sentences = (0..1 + random.below(3)).map(|_| random.words(12));
        let text = sentences.collect::<Vec<_>>().join(". W5 ");
        let prefix = random.one_in(4).then(|| random.words(3));
        let priority = Priority::ALL[random.below(2) as usize];
        Asked { text, prefix, options, priority, tokens: random.one_in(4) }
    }

    fn request(&self) -> Request<'_> {
        let request = Request::new(&self.text).with_options(&self.options);
        let request = request.with_priority(self.priority);
        let request = if self.tokens { request.with_tokens() } else { request };
        match &self.prefix {
            Some(prefix) => request.with_prefix(prefix),
            None => request,
        }
    }

    fn alone(&self, translator: &Translator) -> Vec<Bits> {
        let options = translator.options();
        let translations = translator.translate_batch(&[self.request()], &options);
        bits(&translations.expect("nothing can fail")[0])
    }
}

/// What counts of an alternative, numbers to the last bit.
type Bits = (String, Vec<String>, u32, Vec<u32>, Vec<Vec<u32>>, bool);

fn bits(translation: &Translation) -> Vec<Bits> {
    let of = |numbers: &[f32]| numbers.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
    let alternatives = translation.alternatives.iter().enumerate();
    let one = |(rank, a): (usize, &peregrine::Alternative)| {
        let alignment = translation.alignment(rank).iter().map(|row| of(row)).collect();
        let score = a.score.to_bits();
        (a.text.clone(), a.tokens.clone(), score, of(&a.token_scores), alignment, a.ended)
    };
    alternatives.map(one).collect()
}

/// 300 requests from 8 threads, some of which are given up or late.
fn many_callers(name: &str, translator: &Translator, seed: u64) {
    let mut random = Random(seed);
    let asked: Vec<Asked> = (0..300).map(|_| Asked::random(translator, &mut random)).collect();
    let expected: Vec<Vec<Bits>> = asked.iter().map(|asked| asked.alone(translator)).collect();
    for threads in [1, 2] {
        let service = service(translator, threads);
        let (next, answered) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for caller in 0..8 {
                let (service, asked, expected) = (&service, &asked, &expected);
                let (next, answered) = (&next, &answered);
                scope.spawn(move || {
                    let mut random = Random(seed + 1000 + caller);
                    while let Some(first) = Some(next.fetch_add(4, Ordering::Relaxed)) {
                        if first >= asked.len() {
                            break;
                        }
                        // Several at a time, waited for in another order.
                        let mine = first..(first + 4).min(asked.len());
                        let mut pending: Vec<_> = mine
                            .map(|i| {
                                let request = asked[i].request();
                                let request = match random.one_in(10) {
                                    true => {
                                        request.within(Duration::from_micros(random.below(2000)))
                                    }
                                    false => request,
                                };
                                (i, service.submit(&request))
                            })
                            .collect();
                        while !pending.is_empty() {
                            let place = random.below(pending.len() as u64) as usize;
                            let (i, pending) = pending.swap_remove(place);
                            if random.one_in(10) {
                                continue;
                            }
                            match pending.and_then(|pending| pending.wait()) {
                                Ok(translation) => {
                                    assert_eq!(bits(&translation), expected[i], "{name}, {i}");
                                    answered.fetch_add(1, Ordering::Relaxed);
                                }
                                Err(Error::Deadline) => {}
                                Err(error) => panic!("{name}, request {i}: {error}"),
                            }
                        }
                    }
                });
            }
        });
        assert!(answered.into_inner() > 200, "{name}: most requests are answered");
        let stats = service.stats();
        assert_eq!((stats.open, stats.waiting_interactive, stats.waiting_bulk), (0, 0, 0));
        assert!(stats.cancelled > 0 && stats.counts.steps > 0, "{stats:?}");
        service.finish();
    }
}

#[test]
fn a_transformer_in_mixed_company() {
    let of = |compute| listed(Autoregression::SelfAttention, &compute);
    many_callers("transformer", &of(Compute::float32()), 1);
    many_callers("transformer in int8", &of(Compute::int8()), 2);
}

#[test]
fn an_ssru_in_mixed_company() {
    many_callers("SSRU", &listed(SSRU, &Compute::float32()), 3);
    many_callers("SSRU in int8", &listed(SSRU, &Compute::int8()), 4);
}

#[test]
fn an_average_attention_network_in_mixed_company() {
    many_callers("AAN", &listed(AAN, &Compute::float32()), 5);
    many_callers("AAN in int8", &listed(AAN, &Compute::int8()), 6);
}

#[test]
fn a_recurrent_network_in_mixed_company() {
    many_callers("recurrent", &recurrent(&Compute::float32()), 7);
    many_callers("recurrent in int8", &recurrent(&Compute::int8()), 8);
}

/// Threads may share a model, a service and what it gives out.
#[test]
fn what_threads_share() {
    fn shared<T: Send + Sync>() {}
    fn sent<T: Send>() {}
    shared::<Translator>();
    shared::<Service>();
    sent::<peregrine::Pending>();
    sent::<peregrine::Pending<Scored>>();
    shared::<Error>();
}

/// A future, driven by nothing but a thread that sleeps until it is woken.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Waker(std::thread::Thread);
    impl std::task::Wake for Waker {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::task::Waker::from(std::sync::Arc::new(Waker(std::thread::current())));
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(output) => return output,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn an_answer_can_be_awaited_and_polled() {
    let translator = nonsense(Autoregression::SelfAttention);
    let expected = translator.translate("w1 w2 w3").expect("a translation");
    let service = service(&translator, 1);
    let request = Request::new("w1 w2 w3");
    let awaited = block_on(service.submit(&request).expect("there is room"));
    assert_eq!(awaited.expect("a translation").text(), expected);
    let mut polled = service.submit(&request).expect("there is room");
    let polled = loop {
        match polled.poll_ready() {
            Some(answer) => break answer,
            None => std::thread::yield_now(),
        }
    };
    assert_eq!(polled.expect("a translation").text(), expected);
    // Nothing to translate is an answer at once.
    assert_eq!(service.submit(&Request::new("")).expect("room").wait().expect("it").text(), "");
}

#[test]
fn scores_come_from_the_service_too() {
    let translator = nonsense(SSRU);
    let service = service(&translator, 1);
    let pairs = [("w1 w2", "w3"), ("w5", "w6 w7 w8"), ("", "w1")];
    let expected = translator.score(&pairs, &translator.options()).expect("scores");
    let pending = pairs.map(|(source, target)| service.submit_score(&Request::new(source), target));
    for (pending, expected) in pending.into_iter().zip(expected) {
        assert_eq!(pending.expect("room").wait().expect("a score"), expected);
    }
}

#[test]
fn sentences_and_words_are_told_as_they_come() {
    let translator = nonsense(Autoregression::SelfAttention);
    let service = service(&translator, 1);
    let options = translator.options().with_beam(1).with_split(Split::Sentence);
    let text = "W1 w2 w3. W4 w5. W6 w7 w8 w9.";
    let request = Request::new(text).with_options(&options).with_tokens();
    let mut pending = service.submit(&request).expect("room");
    let mut sentences = vec![String::new(); 3];
    let mut so_far = vec![String::new(); 3];
    let mut words = 0;
    while let Some(progress) = pending.next_progress() {
        match progress {
            Progress::Token { sentence, text } => {
                assert!(text.starts_with(&so_far[sentence]), "{text}");
                so_far[sentence] = text;
                words += 1;
            }
            Progress::Sentence { sentence, text } => sentences[sentence] = text,
            other => panic!("{other:?}"),
        }
    }
    let translation = pending.wait().expect("a translation");
    assert_eq!(translation.text(), sentences.join(" "));
    let tokens = translation.alternatives[0].tokens.len();
    assert!(words > 0 && words <= tokens, "{words} of {tokens} words");
    for (sentence, so_far) in sentences.iter().zip(&so_far) {
        assert!(sentence.starts_with(so_far.as_str()), "{sentence}: {so_far}");
    }
}

#[test]
fn a_service_that_is_full_says_so() {
    let translator = nonsense(Autoregression::SelfAttention);
    let options = ServiceOptions::new(translator.workers()).with_room(5);
    let service = Service::new(&translator, &options);
    let long = "w1 w2 w3 ".repeat(100);
    let mut pending = Vec::new();
    let refused = (0..10_000).find_map(|_| match service.try_submit(&Request::new(&long)) {
        Ok(accepted) => {
            pending.push(accepted);
            None
        }
        Err(error) => Some(error),
    });
    assert!(matches!(refused, Some(Error::Full)), "{refused:?}");
    // With patience there is room for all; a deadline ends patience.
    let soon = Request::new(&long).within(Duration::ZERO);
    assert!(matches!(service.submit(&soon).map(drop), Err(Error::Deadline) | Ok(())));
    let last = service.submit(&Request::new(&long)).expect("room, after a while");
    assert!(last.wait().is_ok());
    assert!(service.stats().refused > 0);
}

#[test]
fn a_request_past_its_deadline_is_told() {
    let translator = nonsense(Autoregression::SelfAttention);
    let service = service(&translator, 1);
    let request = Request::new("w1 w2").within(Duration::ZERO);
    let outcome = service.submit(&request).and_then(|pending| pending.wait());
    assert!(matches!(outcome, Err(Error::Deadline)), "{outcome:?}");
    let later = Request::new("w1 w2").within(Duration::from_secs(3600));
    assert!(service.submit(&later).expect("room").wait().is_ok());
}

#[test]
fn both_ends_of_a_service() {
    let translator = nonsense(Autoregression::SelfAttention);
    let text = "w1 w2 w3 w4 ".repeat(50);
    let submitted = |service: &Service| -> Vec<_> {
        (0..50).map(|_| service.submit(&Request::new(&text)).expect("room")).collect()
    };
    let finished = service(&translator, 2);
    let pending = submitted(&finished);
    finished.finish();
    assert!(pending.into_iter().all(|pending| pending.wait().is_ok()), "what was accepted is done");
    let stopped = service(&translator, 2);
    let pending = submitted(&stopped);
    stopped.stop();
    let outcomes: Vec<_> = pending.into_iter().map(|pending| pending.wait()).collect();
    assert!(outcomes.iter().any(|o| matches!(o, Err(Error::Stopped))), "{}", outcomes.len());
    assert!(outcomes.iter().all(|o| matches!(o, Ok(_) | Err(Error::Stopped))));
}

#[test]
fn what_is_too_long_can_be_refused() {
    let translator = nonsense(Autoregression::SelfAttention);
    let mut options = translator.options();
    options.search.max_source = 10;
    let text = "w1 w2 w3 w4 ".repeat(5);
    let request = [Request::new(&text)];
    let cut = translator.translate_batch(&request, &options).expect("a translation");
    assert!(cut[0].cut);
    options.refuse_long = true;
    let refused = translator.translate_batch(&request, &options);
    assert!(matches!(refused, Err(Error::TooLong { tokens: 21, most: 10 })), "{refused:?}");
}
