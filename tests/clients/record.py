"""A proxy that writes down what clients send and what the server answers.

Each recorded line is a JSON object: `client` and `call` (as the tests name them), `server` (open, keyed or limited), `method`,
`path`, `headers` (those that matter), `body`, and the `status` and `answer` that came back. What differs from run to run is
replaced: the key by KEY, the boundary of a form by BOUNDARY, a document's id and key by DOCUMENT_ID and DOCUMENT_KEY, a glossary's
id by GLOSSARY_ID, the port by PORT. A request that was sent before is not recorded again, but for those about documents and glossaries.
"""

import http.client
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HEADERS = ["accept", "authorization", "content-type", "x-goog-api-key"]
# Headers about one connection, or that the proxy writes itself.
OWN = {"connection", "content-length", "date", "host", "keep-alive", "transfer-encoding"}
MARK = "/-/mark"


class Recorder:
    """The lines recorded so far, and the call that is being made."""

    def __init__(self, key):
        self.lines = {}
        self.mark = {"client": "", "call": ""}
        self.names = [(key, "KEY")]
        self.lock = threading.Lock()

    def add(self, server, method, path, headers, body, status, answer):
        kept = {name: headers[name] for name in HEADERS if headers.get(name, "*/*") != "*/*"}
        text = answer.decode("utf-8", "replace")
        try:
            answer = json.loads(text)
        except ValueError:
            answer = text
        boundary = re.search(r"boundary=([^\s;]+)", kept.get("content-type", ""))
        with self.lock:
            if isinstance(answer, dict) and "document_key" in answer:
                self.names += [(answer["document_id"], "DOCUMENT_ID"), (answer["document_key"], "DOCUMENT_KEY")]
            if isinstance(answer, dict) and "glossary_id" in answer:
                self.names.append((answer["glossary_id"], "GLOSSARY_ID"))
            names = self.names + ([(boundary[1].strip('"'), "BOUNDARY")] if boundary else [])
            line = self.mark | {"server": server, "method": method, "path": path, "headers": kept,
                                "body": body.decode("utf-8", "replace"), "status": status, "answer": answer}
            line = json.dumps(line, ensure_ascii=False, separators=(",", ":"))
            for value, name in names:
                line = line.replace(value, name)
            line = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", line)
            request = (server, method, path, str(kept), body)
            once = "/document" in path or "/glossaries" in path or "GLOSSARY_ID" in line
            self.lines[line if once else request] = self.lines.get(request, line)


def proxy(recorder, name, target):
    """Starts a proxy before the server at `target` (host:port); its address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def forward(self):
            body = self.body()
            if self.path == MARK:
                recorder.mark = json.loads(body)
                return self.answer(204, [], b"")
            connection = http.client.HTTPConnection(target, timeout=60)
            headers = {key: value for key, value in self.headers.items() if key.lower() not in OWN}
            connection.request(self.command, self.path, body or None, headers | {"Host": target, "Content-Length": str(len(body))})
            response = connection.getresponse()
            answer = response.read()
            connection.close()
            sent = {key.lower(): value for key, value in self.headers.items()}
            if self.path != "/metrics":
                recorder.add(name, self.command, self.path, sent, body, response.status, answer)
            self.answer(response.status, [pair for pair in response.getheaders() if pair[0].lower() not in OWN], answer)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = forward

        def body(self):
            if "chunked" not in self.headers.get("Transfer-Encoding", "").lower():
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
            return b"".join(parts)

        def answer(self, status, headers, body):
            self.send_response_only(status)
            for key, value in headers:
                self.send_header(key, value)
            if status != 204:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"
