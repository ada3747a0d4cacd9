//! Listening, and graceful shutdown.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use peregrine::Request;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::app::App;
use crate::config::{Config, ConfigError};
use crate::http;

/// Why a server cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// A value of the configuration that cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An address that cannot be listened on, or an exhausted system resource.
    #[error("{0}")]
    System(String),
    /// None of the models can be used.
    #[error("no model can be used: {0}")]
    NoModel(String),
}

/// A server that listens but does not serve yet.
pub struct Server {
    app: Arc<App>,
    listener: TcpListener,
}

impl Server {
    /// Listens on the configured address. Models are not opened yet.
    pub async fn bind(config: Config) -> Result<Server, ServeError> {
        let address = SocketAddr::new(config.host, config.port);
        let app = Arc::new(App::new(config)?);
        let listener = TcpListener::bind(address).await;
        let listener =
            listener.map_err(|error| ServeError::System(format!("{address}: {error}")))?;
        Ok(Server { app, listener })
    }

    /// The address that the server listens on.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` completes, then finishes the accepted requests.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), ServeError> {
        let Server { app, listener } = self;
        let warming = Arc::clone(&app);
        let mut warm = tokio::task::spawn_blocking(move || warm_up(&warming));
        let mut is_warm = false;
        let router = http::router(&app);
        let graceful = GracefulShutdown::new();
        let places = Arc::new(Semaphore::new(app.config.max_connections));
        let mut stop = pin!(stop);
        loop {
            let accept = async {
                let place = Arc::clone(&places).acquire_owned().await;
                (place, listener.accept().await)
            };
            tokio::select! {
                () = &mut stop => break,
                warmed = &mut warm, if !is_warm => {
                    is_warm = true;
                    warmed.unwrap_or_else(|error| Err(ServeError::System(error.to_string())))?;
                }
                (place, accepted) = accept => match (place, accepted) {
                    (Ok(place), Ok((stream, peer))) => {
                        let connection = connection(&app, router.clone(), stream, peer);
                        let watched = graceful.watch(connection);
                        let app = Arc::clone(&app);
                        app.metrics.connections.fetch_add(1, Relaxed);
                        tokio::spawn(async move {
                            // A broken connection is not an error of the server.
                            let _ = watched.await;
                            app.metrics.connections.fetch_sub(1, Relaxed);
                            drop(place);
                        });
                    }
                    // For example no file descriptors are left: wait for connections to end.
                    _ => tokio::time::sleep(Duration::from_millis(50)).await,
                },
            }
        }
        drop(listener);
        app.stopping.store(true, Relaxed);
        let open = app.metrics.in_flight.load(Relaxed);
        app.log.info("ending: accepted requests are finished", &[("open", open.into())]);
        let drained = tokio::time::timeout(app.config.drain_timeout, graceful.shutdown()).await;
        if drained.is_err() {
            let left = app.metrics.in_flight.load(Relaxed);
            app.log.warning("the time to finish is over", &[("open", left.into())]);
        }
        Ok(())
    }
}

/// Serves one connection.
fn connection(
    app: &Arc<App>,
    router: Router,
    stream: TcpStream,
    peer: SocketAddr,
) -> impl hyper_util::server::graceful::GracefulConnection<Error = hyper::Error> + Send + 'static {
    // Answers are small and must not be delayed.
    let _ = stream.set_nodelay(true);
    let router = router.layer(axum::Extension(peer));
    let service = TowerToHyperService::new(router);
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(app.config.idle_timeout).max_headers(64);
    builder.serve_connection(TokioIo::new(stream), service)
}

/// Opens the models and translates a word with each, so that the first request is as fast as later
/// ones.
fn warm_up(app: &App) -> Result<(), ServeError> {
    let mut problems = Vec::new();
    let entries = app.registry.models();
    for state in entries.iter().filter(|_| app.config.preload) {
        let name = &state.entry.name;
        let warmed = app.registry.open(name).and_then(|model| {
            let mut request = Request::new(".");
            // A multilingual model needs languages, whichever.
            match (state.entry.pairs.first(), &state.entry.languages[..]) {
                (Some(pair), _) => request = request.between(&pair.from, &pair.to),
                (None, [from, to, ..]) => request = request.between(from, to),
                _ => {}
            }
            model.service.submit(&request)?.wait()?;
            Ok(model)
        });
        match warmed {
            Ok(model) => {
                let translator = model.service.translator();
                app.log.info(
                    "model ready",
                    &[
                        ("model", Value::from(name.as_str())),
                        ("pair", state.entry.pairs.first().map(ToString::to_string).into()),
                        ("precision", translator.precision().into()),
                        ("device", translator.device().into()),
                    ],
                );
            }
            Err(error) => {
                app.log.warning(
                    "a model cannot be used",
                    &[("model", name.as_str().into()), ("reason", error.to_string().into())],
                );
                problems.push(error.to_string());
            }
        }
    }
    if !problems.is_empty() && problems.len() == entries.len() {
        return Err(ServeError::NoModel(problems.join("; ")));
    }
    app.ready.store(true, Relaxed);
    app.log.info("ready", &[]);
    Ok(())
}

/// Runs a server until a signal ends it. On SIGTERM or SIGINT it finishes the accepted requests; a
/// second signal ends it at once. SIGHUP reloads the list of models. `started` is called with the
/// address.
pub fn run(config: Config, started: impl FnOnce(SocketAddr)) -> Result<(), ServeError> {
    let system = |error: std::io::Error| ServeError::System(error.to_string());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("http")
        .build()
        .map_err(system)?;
    runtime.block_on(async {
        let server = Server::bind(config).await?;
        started(server.address().map_err(system)?);
        let app = Arc::clone(&server.app);
        server.run(signals(app)).await
    })?;
    // Connections that exceed the drain timeout are dropped, which cancels their translations.
    runtime.shutdown_timeout(Duration::from_millis(100));
    Ok(())
}

/// Checks a configuration without serving: files, keys, models.
pub fn check(config: Config) -> Result<Vec<String>, ServeError> {
    let app = App::new(config)?;
    let mut report = Vec::new();
    let mut usable = 0;
    for state in app.registry.models() {
        let name = &state.entry.name;
        let mut pairs: Vec<String> = state.entry.pairs.iter().map(ToString::to_string).collect();
        if !state.entry.languages.is_empty() {
            pairs.push(format!("{} languages", state.entry.languages.len()));
        }
        match app.registry.open(name) {
            Ok(model) => {
                usable += 1;
                let translator = model.service.translator();
                report.push(format!(
                    "{name}: {}, {} on {}",
                    pairs.join(", "),
                    translator.precision(),
                    translator.device()
                ));
            }
            Err(error) => report.push(error.to_string()),
        }
    }
    match usable {
        0 => Err(ServeError::NoModel(report.join("; "))),
        _ => Ok(report),
    }
}

/// Waits for a signal to end; reloads on SIGHUP.
async fn signals(app: Arc<App>) {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut terminate), Ok(mut interrupt), Ok(mut hangup)) = (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
        signal(SignalKind::hangup()),
    ) else {
        return std::future::pending().await;
    };
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = hangup.recv() => match app.reload() {
                Ok(()) => app.log.info("the list of models was read again", &[]),
                Err(error) => app.log.warning("the list of models stays as it was", &[("reason", error.to_string().into())]),
            },
        }
    }
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        app.log.warning("ended at once by a second signal", &[]);
        std::process::exit(1);
    });
}
