//! Health, readiness, metrics and the page.

use std::sync::atomic::Ordering::Relaxed;

use axum::body::Bytes;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use peregrine::Priority;

use super::{Context, bytes_answer};
use crate::metrics::Exposition;
use crate::problem::{Kind, Outcome, Problem};

/// The content security policy of the page: it may use this server only.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const INDEX: &str = include_str!("../../page/index.html");

/// The files of the page: name, type and content.
const FILES: &[(&str, &str, &str)] = &[
    ("app.js", "text/javascript; charset=utf-8", include_str!("../../page/app.js")),
    ("style.css", "text/css; charset=utf-8", include_str!("../../page/style.css")),
    ("icon.svg", "image/svg+xml", include_str!("../../page/icon.svg")),
];

pub(crate) async fn live(_: Context) -> Outcome<Response> {
    Ok(bytes_answer(200, "text/plain", Bytes::from_static(b"ok\n")))
}

pub(crate) async fn ready(context: Context) -> Outcome<Response> {
    let app = &context.app;
    match (app.stopping.load(Relaxed), app.ready.load(Relaxed)) {
        (false, true) => Ok(bytes_answer(200, "text/plain", Bytes::from_static(b"ready\n"))),
        (true, _) => Err(Problem::new(Kind::Stopping, "The server is ending")),
        (false, false) => Err(Problem::new(Kind::Busy, "Models are being loaded")),
    }
}

pub(crate) async fn page(context: Context) -> Outcome<Response> {
    if !context.app.config.page {
        return Err(Problem::new(Kind::NotFound, "This server has no page"));
    }
    let mut response =
        bytes_answer(200, "text/html; charset=utf-8", Bytes::from_static(INDEX.as_bytes()));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(response)
}

pub(crate) async fn page_file(context: Context) -> Outcome<Response> {
    let name = context.in_path("name");
    let file = FILES.iter().find(|(file, _, _)| *file == name && context.app.config.page);
    let (_, kind, content) =
        file.ok_or_else(|| Problem::new(Kind::NotFound, "There is no such file"))?;
    let mut response = bytes_answer(200, kind, Bytes::from_static(content.as_bytes()));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(response)
}

pub(crate) async fn metrics(context: Context) -> Outcome<Response> {
    let app = &context.app;
    let mut page = Exposition::default();
    page.family("peregrine_build_info", "gauge", "The version");
    page.sample("", &[("version", &env!("CARGO_PKG_VERSION"))], 1);
    app.metrics.write(&mut page);
    let models = app.registry.models();
    page.family("peregrine_model_loaded", "gauge", "Whether a model is open");
    for model in &models {
        page.sample("", &[("model", &model.entry.name)], u8::from(model.open.is_some()));
    }
    let open: Vec<_> = models.iter().filter_map(|model| model.open.as_ref()).collect();
    let all: Vec<_> =
        open.iter().map(|model| (model.name.as_str(), model.service.stats(), model)).collect();
    page.family("peregrine_model_bytes", "gauge", "Bytes of a model's weights");
    for (name, _, model) in &all {
        page.sample("", &[("model", name)], model.service.translator().weight_bytes());
    }
    page.family("peregrine_queue_depth", "gauge", "Sentences that wait for a place in the batch");
    for (name, stats, _) in &all {
        page.sample(
            "",
            &[("model", name), ("priority", &"interactive")],
            stats.waiting_interactive,
        );
        page.sample("", &[("model", name), ("priority", &"bulk")], stats.waiting_bulk);
    }
    page.family(
        "peregrine_expected_wait_seconds",
        "gauge",
        "How long a new request would wait for its turn",
    );
    for (name, _, model) in &all {
        let wait = app.expected_wait(model, Priority::Bulk).as_secs_f64();
        page.sample("", &[("model", name)], wait);
    }
    type Count = fn(&peregrine::ServiceStats) -> u64;
    let counts: [(&'static str, &str, Count); 12] = [
        ("peregrine_requests_total", "Texts accepted", |s| s.accepted),
        ("peregrine_answered_total", "Texts translated", |s| s.answered),
        ("peregrine_cancelled_total", "Texts whose caller left", |s| s.cancelled),
        ("peregrine_late_total", "Texts whose deadline passed", |s| s.late),
        ("peregrine_refused_total", "Texts refused because the queue was full", |s| s.refused),
        ("peregrine_failed_total", "Texts that failed otherwise", |s| s.failed),
        ("peregrine_steps_total", "Decoding steps", |s| s.counts.steps),
        (
            "peregrine_batch_rows_total",
            "Rows of all steps; by steps it is the mean number of rows",
            |s| s.counts.rows,
        ),
        (
            "peregrine_batch_sentences_total",
            "Sentences of all steps; by steps it is the batch fill",
            |s| s.counts.sentences,
        ),
        ("peregrine_source_tokens_total", "Source tokens encoded", |s| s.counts.source_tokens),
        ("peregrine_target_tokens_total", "Target tokens of finished sentences", |s| {
            s.counts.target_tokens
        }),
        ("peregrine_sentences_total", "Sentences translated", |s| s.counts.finished),
    ];
    for (metric, help, count) in counts {
        page.family(metric, "counter", help);
        for (name, stats, _) in &all {
            page.sample("", &[("model", name)], count(stats));
        }
    }
    page.family(
        "peregrine_text_seconds",
        "summary",
        "Time from accepting a text to its translation",
    );
    for (name, stats, _) in &all {
        for share in [0.5, 0.95, 0.99] {
            let time = stats.latencies.quantile(share).unwrap_or_default().as_secs_f64();
            page.sample("", &[("model", name), ("quantile", &share)], time);
        }
        page.sample("_count", &[("model", name)], stats.latencies.count());
    }
    if let Some(memory) = all.first().and_then(|(_, stats, _)| stats.memory) {
        page.family("process_resident_memory_bytes", "gauge", "Memory of this process");
        page.sample("", &[], memory);
    }
    Ok(bytes_answer(200, "text/plain; version=0.0.4; charset=utf-8", Bytes::from(page.finish())))
}
