//! A server in this process, and a client that knows nothing of HTTP but what is written here.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::OnceLock;
use std::time::Duration;

use peregrine_server::{Config, Server};
use serde_json::Value;

/// A server that runs until it is dropped.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// Starts a server with these options and the built-in model, and waits until it is ready.
pub(crate) fn start(options: &[(&str, &str)]) -> Running {
    let mut flags: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in
        [("port", "0"), ("log", "off"), ("threads", "1"), ("device", "cpu")].iter().chain(options)
    {
        let values = flags.entry((*name).to_owned()).or_default();
        if *name != "model" && *name != "key" {
            values.clear();
        }
        values.push((*value).to_owned());
    }
    let config = Config::read(None, |_| None, &flags).unwrap();
    let prefix = config.url_prefix.clone();
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let (send, receive) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let server = Server::bind(config).await.unwrap();
            send.send(server.address().unwrap()).unwrap();
            server.run(async { drop(stopped.await) }).await.unwrap();
        });
        runtime.shutdown_timeout(Duration::from_millis(100));
    });
    let running =
        Running { address: receive.recv().unwrap(), stop: Some(stop), thread: Some(thread) };
    for _ in 0..600 {
        if running.get(&format!("{prefix}/readyz")).status == 200 {
            return running;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("the server does not get ready");
}

/// A server that the tests of a program share.
pub(crate) fn shared() -> &'static Running {
    static SERVER: OnceLock<Running> = OnceLock::new();
    SERVER.get_or_init(|| start(&[]))
}

impl Running {
    /// Asks the server to end, and waits until it has.
    pub(crate) fn stop(mut self) {
        self.end();
    }

    /// Asks the server to end.
    pub(crate) fn begin_stop(&mut self) {
        drop(self.stop.take());
    }

    fn end(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], b"")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(
            "POST",
            path,
            &[("content-type", "application/json")],
            body.to_string().as_bytes(),
        )
    }

    pub(crate) fn form(&self, path: &str, body: &str) -> Answer {
        self.send(
            "POST",
            path,
            &[("content-type", "application/x-www-form-urlencoded")],
            body.as_bytes(),
        )
    }

    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        let mut stream = self.connect();
        stream.write_all(&request(method, path, headers, body)).unwrap();
        Answer::read(&mut stream)
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    /// The value of a metric without labels, or the sum over all labels.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let page = self.get("/metrics").text();
        let lines = page.lines().filter(|line| {
            line.starts_with(&format!("{name} ")) || line.starts_with(&format!("{name}{{"))
        });
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// The bytes of a request.
pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if method != "GET" || !body.is_empty() {
        head.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    head.push_str("\r\n");
    [head.as_bytes(), body].concat()
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// Reads until the connection ends.
    pub(crate) fn read(stream: &mut TcpStream) -> Answer {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").expect("a head");
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers: BTreeMap<String, String> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let body = bytes[end + 4..].to_vec();
        let body = match headers.get("transfer-encoding").map(String::as_str) {
            Some("chunked") => unchunk(&body),
            _ => body,
        };
        Answer { status, headers, body }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }
}

fn unchunk(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(end) = body.windows(2).position(|window| window == b"\r\n") {
        let length =
            usize::from_str_radix(std::str::from_utf8(&body[..end]).unwrap().trim(), 16).unwrap();
        if length == 0 {
            break;
        }
        whole.extend_from_slice(&body[end + 2..end + 2 + length]);
        body = &body[end + 4 + length..];
    }
    whole
}
