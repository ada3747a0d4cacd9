//! Requests of many callers in one batch on a GPU: each must have the translation that it has
//! alone.

use std::time::Duration;

use peregrine::{
    BatchSize, Error, Guard, Options, Priority, Request, Service, ServiceOptions, Translation,
    Translator,
};

/// Number of concurrent callers.
const CALLERS: usize = 8;
/// Number of requests for each line.
const ROUNDS: usize = 4;

/// The comparison of requests in a service with the same requests alone.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Number of requests answered.
    pub(super) answered: usize,
    /// Number of requests whose translation differs from the one alone.
    pub(super) wrong: usize,
    /// Number of requests whose scores are all identical to the last bit.
    pub(super) exact: usize,
    /// Number of requests cancelled, or past their deadline.
    pub(super) given_up: usize,
}

/// Translates lines with settings that differ from line to line, each alone and all in one service,
/// where some are cancelled.
pub(super) fn compare_in_shared_batch(
    translator: &Translator,
    lines: &[String],
) -> Result<Outcome, Error> {
    let settings: Vec<Options> =
        (0..lines.len() * ROUNDS).map(|i| options(translator, i)).collect();
    let request = |i: usize| {
        let request = Request::new(&lines[i % lines.len()]).with_options(&settings[i]);
        request.with_priority(Priority::ALL[i % 2])
    };
    let alone: Result<Vec<Translation>, Error> = (0..settings.len())
        .map(|i| Ok(translator.translate_batch(&[request(i)], &settings[i])?.remove(0)))
        .collect();
    let alone = alone?;
    let batch = BatchSize { sentences: 96, tokens: 1 << 14 };
    let workers = translator.workers().with_batch(batch);
    let service = Service::new(translator, &ServiceOptions::new(workers));
    let outcomes: Result<Vec<Outcome>, Error> = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| {
                let (service, request, alone) = (&service, &request, &alone);
                scope.spawn(move || call(service, request, alone, caller))
            })
            .collect();
        let join = |caller: std::thread::ScopedJoinHandle<'_, Result<Outcome, Error>>| {
            caller.join().unwrap_or_else(|reason| std::panic::resume_unwind(reason))
        };
        callers.into_iter().map(join).collect()
    });
    service.finish();
    Ok(outcomes?.into_iter().fold(Outcome::default(), |sum, one| Outcome {
        answered: sum.answered + one.answered,
        wrong: sum.wrong + one.wrong,
        exact: sum.exact + one.exact,
        given_up: sum.given_up + one.given_up,
    }))
}

/// One caller: submits all its requests, then waits for the results.
fn call<'a>(
    service: &Service,
    request: impl Fn(usize) -> Request<'a>,
    alone: &[Translation],
    caller: usize,
) -> Result<Outcome, Error> {
    let mut outcome = Outcome::default();
    let mine = (caller..alone.len()).step_by(CALLERS);
    let pending: Result<Vec<_>, Error> = mine
        .map(|i| {
            let late = i % 11 == 5;
            let request = request(i);
            let request = if late { request.within(Duration::from_millis(5)) } else { request };
            Ok((i, service.submit(&request)))
        })
        .collect();
    for (i, pending) in pending? {
        if i % 7 == 3 {
            outcome.given_up += 1;
            continue;
        }
        match pending.and_then(|pending| pending.wait()) {
            Ok(translation) => {
                outcome.answered += 1;
                outcome.wrong += usize::from(words(&translation) != words(&alone[i]));
                outcome.exact += usize::from(scores(&translation) == scores(&alone[i]));
            }
            Err(Error::Deadline) => outcome.given_up += 1,
            Err(error) => return Err(error),
        }
    }
    Ok(outcome)
}

/// The settings of request `i`: most options differ between requests.
fn options(translator: &Translator, i: usize) -> Options {
    let beam = [1, 4, 1, 2, 6, 1, 3][i % 7];
    let mut options = translator.options().with_beam(beam);
    options.search.max_length_factor = Some(2.0);
    options.search.normalize = [1.0, 0.6][i / 2 % 2];
    options
        .with_n_best(if i.is_multiple_of(3) { beam } else { 1 })
        .with_scores(i % 5 < 2)
        .with_alignments(i % 13 == 1)
        .with_shortlist(!i.is_multiple_of(4))
        .with_guard((i % 6 == 1).then(Guard::default))
}

fn words(translation: &Translation) -> Vec<&[String]> {
    translation.alternatives.iter().map(|a| a.tokens.as_slice()).collect()
}

fn scores(translation: &Translation) -> Vec<Vec<u32>> {
    let bits = |scores: &Vec<f32>| scores.iter().map(|score| score.to_bits()).collect();
    translation.alternatives.iter().map(|a| bits(&a.token_scores)).collect()
}
