//! `peregrine bench service`: throughput and latency of requests of many callers that share a
//! batch.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::bail;
use peregrine::{Error, Priority, Request, Service, ServiceOptions, Translator};
use serde_json::{Value, json};

use crate::measures::{read_lengths, requests};
use peregrine_args::console::show;
use peregrine_args::languages::PairArgs;
use peregrine_args::lines::Lines;
use peregrine_args::model::ModelArgs;
use peregrine_args::search::{SearchArgs, Setup};

/// Requests a second and how long each takes, from many callers at once
///
/// A closed loop: each caller submits a line, waits for its translation, and submits the next. The
/// same load is measured with a call of its own for each line, as many at a time as there are workers,
/// and the lines as one text. An open loop: lines come at a given rate, whoever waits. Last, a trickle
/// of interactive requests beside a bulk job, and each of them alone. All in turns, --repeat rounds.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArgs,

    #[command(flatten)]
    languages: PairArgs,

    #[command(flatten)]
    search: SearchArgs,

    /// Lines to translate
    #[arg(long, value_name = "FILE")]
    source: PathBuf,

    /// Give every line as many target tokens as the same line of this file has blank-separated words,
    /// or as the number it holds says: real lengths for random weights
    #[arg(long, value_name = "FILE")]
    lengths: Option<PathBuf>,

    /// Translate the first N lines
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    lines: u32,

    /// Callers of the closed loop
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,8,64")]
    callers: Vec<usize>,

    /// Requests a second of the open loop; none if left out
    #[arg(long, value_name = "N", value_delimiter = ',')]
    rates: Vec<f64>,

    /// Requests a second of the trickle beside a bulk job; none if left out
    #[arg(long, value_name = "N")]
    trickle: Option<f64>,

    /// Rounds; medians are reported, and the latencies of all rounds together
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,

    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

/// The measurements of one kind of load.
#[derive(Default)]
struct Measured {
    name: String,
    /// Requests a second of each round.
    speeds: Vec<f64>,
    /// The latency of each request in seconds.
    latencies: Vec<f64>,
    /// The mean number of sentences in the batch.
    fill: Option<f64>,
}

impl Measured {
    fn new(name: String) -> Measured {
        Measured { name, ..Measured::default() }
    }

    fn add(&mut self, Round { seconds, latencies, fill }: Round) {
        self.speeds.push(latencies.len() as f64 / seconds);
        self.latencies.extend(latencies);
        self.fill = fill.or(self.fill);
    }

    fn report(&mut self) -> Value {
        self.speeds.sort_by(f64::total_cmp);
        self.latencies.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let place = (share * self.latencies.len() as f64) as usize;
            self.latencies.get(place.min(self.latencies.len().saturating_sub(1))).copied()
        };
        json!({
            "name": self.name,
            "requests_per_second": self.speeds.get(self.speeds.len() / 2),
            "least": self.speeds.first(),
            "most": self.speeds.last(),
            "p50_ms": at(0.5).map(|s| 1e3 * s),
            "p95_ms": at(0.95).map(|s| 1e3 * s),
            "p99_ms": at(0.99).map(|s| 1e3 * s),
            "sentences_a_step": self.fill,
        })
    }
}

/// One round of one kind of load.
struct Round {
    seconds: f64,
    latencies: Vec<f64>,
    fill: Option<f64>,
}

/// A counting semaphore.
struct Gate {
    free: Mutex<usize>,
    changed: Condvar,
}

impl Gate {
    fn pass<R>(&self, work: impl FnOnce() -> R) -> R {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        while *free == 0 {
            free = self.changed.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
        *free -= 1;
        drop(free);
        let result = work();
        *self.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_one();
        result
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut lines = Lines::read_all(&args.source)?;
    lines.truncate(args.lines as usize);
    let lengths = args.lengths.as_deref().map(read_lengths).transpose()?;
    if lines.is_empty() || lengths.as_ref().is_some_and(|lengths| lengths.len() < lines.len()) {
        bail!("{}: {} lines, and not as many lengths", args.source.display(), lines.len());
    }
    let translator = args.languages.apply(args.model.open()?)?;
    let setup = args.search.setup(&translator, &args.model.settings());
    let requests: Vec<Request<'_>> = requests(&lines, &lengths.unwrap_or_default())
        .into_iter()
        .map(|request| request.with_options(&setup.options))
        .collect();
    let load = Load { translator: &translator, setup: &setup, requests: &requests };
    let results = load.measure(args)?;
    if args.json {
        show!("{}", json!({ "device": translator.device(), "results": results }));
        return Ok(());
    }
    show!(
        "{:24} {:>10} {:>17} {:>9} {:>9} {:>9} {:>9}",
        "load",
        "requests/s",
        "range",
        "p50 ms",
        "p95 ms",
        "p99 ms",
        "in a step"
    );
    for result in &results {
        let number = |name: &str| result[name].as_f64().unwrap_or(f64::NAN);
        let range = format!("{:.1}-{:.1}", number("least"), number("most"));
        show!(
            "{:24} {:10.1} {range:>17} {:9.1} {:9.1} {:9.1} {:9.1}",
            result["name"].as_str().unwrap_or_default(),
            number("requests_per_second"),
            number("p50_ms"),
            number("p95_ms"),
            number("p99_ms"),
            number("sentences_a_step")
        );
    }
    Ok(())
}

/// The requests of a load, and how they are translated.
struct Load<'a> {
    translator: &'a Translator,
    setup: &'a Setup,
    requests: &'a [Request<'a>],
}

impl Load<'_> {
    fn measure(&self, args: &Args) -> anyhow::Result<Vec<Value>> {
        // Warm up.
        self.whole()?;
        type Kind<'k> = Box<dyn Fn() -> Result<Round, Error> + 'k>;
        let mut kinds: Vec<(Measured, Kind<'_>)> = Vec::new();
        let named = |name: String| Measured::new(name);
        kinds.push((named("one text".to_owned()), Box::new(|| self.whole())));
        for &callers in &args.callers {
            let name = |how| named(format!("{callers} callers, {how}"));
            kinds.push((name("a call each"), Box::new(move || self.calls(callers))));
            kinds.push((name("service"), Box::new(move || self.closed(callers))));
        }
        for &rate in &args.rates {
            let name = named(format!("{rate} a second, service"));
            kinds.push((name, Box::new(move || self.open(rate))));
        }
        for _ in 0..args.repeat {
            for (measured, kind) in &mut kinds {
                measured.add(kind()?);
            }
        }
        let mut results: Vec<Value> =
            kinds.into_iter().map(|(mut measured, _)| measured.report()).collect();
        if let Some(rate) = args.trickle {
            let mut names = ["trickle alone", "bulk alone", "trickle beside", "bulk beside"]
                .map(|name| Measured::new(name.to_owned()));
            for _ in 0..args.repeat {
                let [trickle, bulk, trickle_beside, bulk_beside] = &mut names;
                trickle.add(self.trickle(rate)?);
                bulk.add(self.bulk(None)?.0);
                let (round, beside) = self.bulk(Some(rate))?;
                bulk_beside.add(round);
                trickle_beside.add(beside);
            }
            results.extend(names.iter_mut().map(Measured::report));
        }
        Ok(results)
    }

    fn service(&self) -> Service {
        Service::new(self.translator, &ServiceOptions::new(self.setup.workers.clone()))
    }

    /// Translates all lines as one text.
    fn whole(&self) -> Result<Round, Error> {
        let start = Instant::now();
        self.setup.translate(self.translator, self.requests)?;
        let seconds = start.elapsed().as_secs_f64();
        Ok(Round { seconds, latencies: vec![seconds; self.requests.len()], fill: None })
    }

    /// A closed loop in which every line is a call of its own, without a service.
    fn calls(&self, callers: usize) -> Result<Round, Error> {
        let threads = self.setup.workers.threads.max(1);
        let gate = Gate { free: Mutex::new(threads), changed: Condvar::new() };
        let workers = self.setup.workers.clone().with_threads(1);
        let setup = Setup { workers, ..self.setup.clone() };
        self.closed_loop(callers, |request| {
            gate.pass(|| setup.translate(self.translator, std::slice::from_ref(request))).map(drop)
        })
    }

    /// A closed loop over a service.
    fn closed(&self, callers: usize) -> Result<Round, Error> {
        let service = self.service();
        let round = self
            .closed_loop(callers, |request| service.submit(request)?.wait().map(drop))
            .map(|round| Round { fill: fill(&service), ..round });
        service.finish();
        round
    }

    fn closed_loop(
        &self,
        callers: usize,
        call: impl Fn(&Request<'_>) -> Result<(), Error> + Sync,
    ) -> Result<Round, Error> {
        let next = AtomicUsize::new(0);
        let start = Instant::now();
        let work = || {
            let mut latencies = Vec::new();
            while let Some(request) = self.requests.get(next.fetch_add(1, Ordering::Relaxed)) {
                let start = Instant::now();
                call(request)?;
                latencies.push(start.elapsed().as_secs_f64());
            }
            Ok(latencies)
        };
        let latencies = std::thread::scope(|scope| {
            let callers: Vec<_> = (0..callers.max(1)).map(|_| scope.spawn(work)).collect();
            callers.into_iter().map(|caller| joined(caller.join())).collect::<Result<Vec<_>, _>>()
        })?;
        let seconds = start.elapsed().as_secs_f64();
        Ok(Round { seconds, latencies: latencies.concat(), fill: None })
    }

    /// An open loop: lines arrive at a rate, with exponentially distributed gaps.
    fn open(&self, rate: f64) -> Result<Round, Error> {
        let service = self.service();
        let start = Instant::now();
        let mut random = 1_u64;
        let mut due = 0.0;
        let round = std::thread::scope(|scope| {
            let mut callers = Vec::new();
            for request in self.requests {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let share = ((random >> 33) as f64 + 0.5) / (1_u64 << 31) as f64;
                due -= share.ln() / rate.max(1e-3);
                sleep_until(start, due);
                let pending = service.submit(request)?;
                callers.push(scope.spawn(move || {
                    pending.wait()?;
                    Ok(start.elapsed().as_secs_f64() - due)
                }));
            }
            let latencies: Result<Vec<f64>, Error> =
                callers.into_iter().map(|caller| joined(caller.join())).collect();
            let seconds = start.elapsed().as_secs_f64();
            Ok(Round { seconds, latencies: latencies?, fill: fill(&service) })
        });
        service.finish();
        round
    }

    /// Interactive requests at a fixed rate, without other load.
    fn trickle(&self, rate: f64) -> Result<Round, Error> {
        let service = self.service();
        let enough = AtomicUsize::new(self.requests.len().min((20.0 * rate) as usize).max(1));
        let round = self.drip(&service, rate, || enough.fetch_sub(1, Ordering::Relaxed) > 0);
        service.finish();
        round
    }

    fn drip(&self, service: &Service, rate: f64, more: impl Fn() -> bool) -> Result<Round, Error> {
        let start = Instant::now();
        let mut latencies = Vec::new();
        for (i, request) in self.requests.iter().cycle().enumerate() {
            sleep_until(start, i as f64 / rate);
            if !more() {
                break;
            }
            let begun = Instant::now();
            service.submit(request)?.wait()?;
            latencies.push(begun.elapsed().as_secs_f64());
        }
        Ok(Round { seconds: start.elapsed().as_secs_f64(), latencies, fill: None })
    }

    /// All lines as bulk requests of one caller, with interactive requests beside them if a rate is
    /// given.
    fn bulk(&self, rate: Option<f64>) -> Result<(Round, Round), Error> {
        let service = self.service();
        let running = AtomicBool::new(true);
        let both = std::thread::scope(|scope| {
            let beside = rate.map(|rate| {
                let (service, running) = (&service, &running);
                scope.spawn(move || self.drip(service, rate, || running.load(Ordering::Relaxed)))
            });
            let start = Instant::now();
            let caller = service.caller(Priority::Bulk);
            let pending: Result<Vec<_>, Error> =
                self.requests.iter().map(|request| caller.submit(request)).collect();
            for pending in pending? {
                pending.wait()?;
            }
            let seconds = start.elapsed().as_secs_f64();
            running.store(false, Ordering::Relaxed);
            let latencies = vec![seconds; self.requests.len()];
            let fill = fill(&service);
            let nothing = Round { seconds: 1.0, latencies: Vec::new(), fill: None };
            let beside = match beside {
                Some(beside) => joined(beside.join())?,
                None => nothing,
            };
            Ok((Round { seconds, latencies, fill }, beside))
        });
        service.finish();
        both
    }
}

/// The mean number of sentences in the batch over all steps.
fn fill(service: &Service) -> Option<f64> {
    let counts = service.stats().counts;
    (counts.steps > 0).then(|| counts.sentences as f64 / counts.steps as f64)
}

fn joined<T>(result: std::thread::Result<Result<T, Error>>) -> Result<T, Error> {
    result.unwrap_or_else(|reason| std::panic::resume_unwind(reason))
}

fn sleep_until(start: Instant, seconds: f64) {
    let left = seconds - start.elapsed().as_secs_f64();
    if left > 0.0 {
        std::thread::sleep(Duration::from_secs_f64(left));
    }
}
