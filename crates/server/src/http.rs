//! From a request to a handler and back: bodies with a limit, keys, request ids, logs, counts, CORS.

use std::net::{IpAddr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{RawPathParams, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, header};
use axum::response::Response;
use axum::routing::any;
use futures_util::FutureExt;
use http_body_util::BodyExt;
use serde_json::Value;

use crate::api::{Context, Dialect, ROUTES, Route, bytes_answer};
use crate::app::App;
use crate::params::Params;
use crate::problem::{Kind, Outcome, Problem};

static LAST_ID: AtomicU64 = AtomicU64::new(0);

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The router of all paths, under the prefix.
pub(crate) fn router(app: &Arc<App>) -> Router {
    let mut paths: Vec<&'static str> = ROUTES.iter().map(|route| route.path).collect();
    paths.sort_unstable();
    paths.dedup();
    let mut router = Router::new();
    for path in paths {
        let answer = move |State(app): State<Arc<App>>,
                           params: RawPathParams,
                           request: Request<Body>| async move {
            let variables =
                params.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
            answer(app, path, variables, request).await
        };
        router = router.route(path, any(answer));
    }
    let missing =
        |State(app): State<Arc<App>>, request: Request<Body>| answer(app, "", Vec::new(), request);
    let prefix = app.config.url_prefix.clone();
    let router = match prefix.as_str() {
        "" => router.fallback(missing),
        // `nest` does not match `prefix/`, the address of the page.
        prefix => {
            let page = move |State(app): State<Arc<App>>, request: Request<Body>| {
                answer(app, "/", Vec::new(), request)
            };
            let place = format!("{prefix}/");
            // The page has relative links, which need the final slash.
            let redirect = move || std::future::ready(axum::response::Redirect::permanent(&place));
            let inner = Router::new().nest(prefix, router).route(&format!("{prefix}/"), any(page));
            inner.route(prefix, axum::routing::get(redirect)).fallback(missing)
        }
    };
    router.with_state(Arc::clone(app))
}

/// A request that is being answered. If it is dropped before the answer, the client has
/// disconnected.
struct InFlight {
    app: Arc<App>,
    answered: bool,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.app.metrics.in_flight.fetch_sub(1, Relaxed);
        if !self.answered {
            self.app.metrics.abandoned.fetch_add(1, Relaxed);
        }
    }
}

/// Answers a request to a path of the table; the path is empty if it is not in the table.
async fn answer(
    app: Arc<App>,
    path: &'static str,
    variables: Vec<(String, String)>,
    request: Request<Body>,
) -> Response {
    let start = Instant::now();
    app.metrics.in_flight.fetch_add(1, Relaxed);
    let mut in_flight = InFlight { app: Arc::clone(&app), answered: false };
    let id = request_id(request.headers());
    let (method, bytes) = (request.method().clone(), content_length(request.headers()));
    let mut dialect = match ROUTES.iter().find(|route| route.path == path) {
        Some(route) => route.dialect,
        None => Dialect::of_path(request.uri().path()),
    };
    let outcome = match method == Method::OPTIONS {
        true => Ok(bytes_answer(204, "text/plain", Bytes::new())),
        false => {
            let handled = handle(&app, path, variables, request, &mut dialect);
            AssertUnwindSafe(handled).catch_unwind().await.unwrap_or_else(|_| {
                app.metrics.panics.fetch_add(1, Relaxed);
                Err(Problem::new(Kind::Internal, "An internal error: this is a bug"))
            })
        }
    };
    in_flight.answered = true;
    let mut response = outcome.unwrap_or_else(|problem| {
        if dialect != Dialect::Operations {
            app.metrics.rejected(problem.kind.name());
        }
        if problem.kind == Kind::Internal {
            let fields =
                [("id", Value::from(id.as_str())), ("reason", problem.message.as_str().into())];
            app.log.warning("a request failed", &fields);
        }
        dialect.problem(&problem, &id)
    });
    add_headers(&app, &mut response, &id);
    let (status, time) = (response.status().as_u16(), start.elapsed());
    let route = if path.is_empty() { "other" } else { path };
    app.metrics.answered(dialect.name(), route, status, time);
    if dialect != Dialect::Operations {
        let milliseconds = (time.as_secs_f64() * 1e4).round() / 10.0;
        app.log.info(
            "request",
            &[
                ("id", id.as_str().into()),
                ("api", dialect.name().into()),
                ("method", method.as_str().into()),
                ("route", route.into()),
                ("status", status.into()),
                ("ms", milliseconds.into()),
                ("bytes", bytes.into()),
            ],
        );
    }
    response
}

async fn handle(
    app: &Arc<App>,
    path: &'static str,
    variables: Vec<(String, String)>,
    request: Request<Body>,
    dialect: &mut Dialect,
) -> Outcome<Response> {
    let address = address(app, &request);
    let (parts, body) = request.into_parts();
    // Read the body first: a connection with an unread body cannot be reused.
    let routes: Vec<&'static Route> = ROUTES.iter().filter(|route| route.path == path).collect();
    let most = match routes.iter().any(|route| route.takes_file()) {
        true => app.config.max_file,
        false => app.config.max_body,
    };
    let body = read_body(app, &parts.headers, body, most).await?;
    if routes.is_empty() {
        return Err(Problem::new(Kind::NotFound, "Path not found"));
    }
    let method = match &parts.method {
        &Method::HEAD => "GET",
        method => method.as_str(),
    };
    let Some(route) = routes.iter().find(|route| route.method == method) else {
        let allowed: Vec<&str> = routes.iter().map(|route| route.method).collect();
        return Err(Problem::new(
            Kind::WrongMethod,
            format!("Method not allowed: use {}", allowed.join(" or ")),
        ));
    };
    let params = Params::read(parts.uri.query(), &parts.headers, body).await?;
    if path == "/translate" {
        *dialect = crate::api::extensions::dialect_of(&params);
    }
    let client = match route.open {
        true => crate::access::Client::Address(address),
        false => app.access.client(dialect.key(&params, &parts.headers).as_deref(), address)?,
    };
    let context = Context {
        app: Arc::clone(app),
        dialect: *dialect,
        params,
        client,
        headers: parts.headers,
        path: variables,
    };
    (route.handler)(context).await
}

/// The most bytes of a too long body that are read and dropped, and the most time for it.
const DRAINED: (usize, Duration) = (64 << 20, Duration::from_secs(5));

/// Reads the body, within the limits of length and time.
async fn read_body(app: &App, headers: &HeaderMap, mut body: Body, most: usize) -> Outcome<Bytes> {
    let mut read = Vec::new();
    let mut length = usize::try_from(content_length(headers)).unwrap_or(usize::MAX);
    let reading = async {
        while length <= most {
            match body.frame().await {
                None => return Ok(()),
                Some(Ok(frame)) => {
                    read.extend_from_slice(frame.data_ref().map_or(&[], |data| data))
                }
                Some(Err(_)) => return Err(Problem::bad("The body cannot be read")),
            }
            length = length.max(read.len());
        }
        Err(Problem::new(Kind::TooLarge, format!("The body is longer than {most} bytes")))
    };
    let outcome = tokio::time::timeout(app.config.idle_timeout, reading).await;
    let outcome = outcome.unwrap_or_else(|_| Err(Problem::bad("The body took too long")));
    if outcome.as_ref().is_err_and(|problem| problem.kind == Kind::TooLarge) {
        drain(body).await;
    }
    outcome.map(|()| Bytes::from(read))
}

/// Reads and drops the rest of a body: a client that is still sending would see a broken connection
/// instead of the answer.
async fn drain(mut body: Body) {
    let dropping = async {
        let mut left = DRAINED.0;
        while let (Some(Ok(frame)), true) = (body.frame().await, left > 0) {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
        }
    };
    let _ = tokio::time::timeout(DRAINED.1, dropping).await;
}

fn content_length(headers: &HeaderMap) -> u64 {
    let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    length.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// The client's address: that of the connection or, behind a trusted proxy, the one that the proxy
/// adds.
fn address(app: &App, request: &Request<Body>) -> IpAddr {
    let peer = request
        .extensions()
        .get::<SocketAddr>()
        .map_or(IpAddr::from([127, 0, 0, 1]), SocketAddr::ip);
    let forwarded = || {
        // The proxy appends the address; the client may have forged everything before it.
        let all = request.headers().get_all("x-forwarded-for").iter().next_back()?.to_str().ok()?;
        all.rsplit(',').next()?.trim().parse().ok()
    };
    if app.config.trust_proxy { forwarded().unwrap_or(peer) } else { peer }
}

/// The client's request id if it is valid, or a new one.
fn request_id(headers: &HeaderMap) -> String {
    let given = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok());
    let is_id = |id: &&str| {
        (1..=64).contains(&id.len())
            && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
    };
    match given.filter(is_id) {
        Some(id) => id.to_owned(),
        None => format!("{:x}-{:x}", std::process::id(), LAST_ID.fetch_add(1, Relaxed) + 1),
    }
}

fn add_headers(app: &App, response: &mut Response, id: &str) {
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(id) {
        headers.insert(REQUEST_ID, id);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let Some(origin) = &app.config.cors_origin else { return };
    if let Ok(origin) = HeaderValue::from_str(origin) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    }
    for (name, value) in [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, PUT, DELETE, OPTIONS"),
        (
            header::ACCESS_CONTROL_ALLOW_HEADERS,
            "Authorization, Content-Type, X-API-Token, X-Request-ID, X-Request-Timeout",
        ),
        (header::ACCESS_CONTROL_EXPOSE_HEADERS, "Retry-After, X-Request-ID"),
        (header::ACCESS_CONTROL_MAX_AGE, "86400"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}
