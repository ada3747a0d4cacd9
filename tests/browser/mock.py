#!/usr/bin/env python3
"""A stand-in for `peregrine serve`: speaks the native API with invented translations, serves the page with its real headers.

mock.py PORT PAGE_FOLDER [URL_PREFIX]
POST /mock {"delay": s, "fail": [{"status":, "code":, "message":, "retry_after":}, ...], "key": "..."} sets what the next requests get.
"""
import json, random, re, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT, FOLDER = int(sys.argv[1]), sys.argv[2]
PREFIX = sys.argv[3] if len(sys.argv) > 3 else ""
CSP = ("default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
       "base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
LANGUAGES = [("ar", "Arabic", "العربية", True), ("zh", "Chinese", "中文", False), ("en", "English", "English", False),
             ("de", "German", "Deutsch", False), ("he", "Hebrew", "עברית", True), ("pt", "Portuguese", "Português", False)]
OTHERS = ["pt", "de", "ar", "he", "zh"]
CANNED = {
    "The harbour was quiet in the early morning.": {
        "pt": ("O porto estava calmo de manhã cedo.", [[0], [1], [2], [3], [4, 5], [7], [6]]),
        "ar": ("كان الميناء هادئًا في الصباح الباكر.", [[2], [0, 1], [3], [4], [5, 7], [6]]),
        "he": ("הנמל היה שקט בשעות הבוקר המוקדמות.", [[0, 1], [2], [3], [4], [5, 7], [6]]),
        "de": ("Der Hafen war am frühen Morgen still.", [[0], [1], [2], [4, 5], [6], [7], [3]])},
    "Two fishing boats had already left, and a third was waiting for the tide.": {
        "pt": ("Dois barcos de pesca já tinham partido e um terceiro esperava pela maré.", [[0], [2], [1], [1], [4], [3], [5], [6], [7], [8], [9, 10], [11, 12], [13]]),
        "ar": ("كان قاربا صيد قد غادرا بالفعل، وثالث ينتظر المد.", [[3], [0, 2], [1], [3], [5], [4], [6, 7, 8], [9, 10], [11, 12, 13]]),
        "he": ("שתי סירות דיג כבר יצאו, והשלישית חיכתה לגאות.", [[0], [2], [1], [4], [3, 5], [6, 7, 8], [9, 10], [11, 12, 13]])},
    "Nobody in the village remembered a winter as mild as this one.": {
        "pt": ("Ninguém na aldeia se lembrava de um inverno tão ameno como este.", [[0], [1, 2], [3], [4], [4], [4], [5], [6], [7], [8], [9], [10, 11]]),
        "ar": ("لم يتذكر أحد في القرية شتاءً معتدلًا كهذا.", [[0], [4], [0], [1], [2, 3], [5, 6], [8], [7, 9, 10, 11]]),
        "he": ("איש בכפר לא זכר חורף מתון כל כך.", [[0], [1, 2, 3], [0], [4], [5, 6], [8], [7], [9, 10, 11]])},
}
control = {"delay": 0.0, "step": 0.02, "fail": [], "key": None, "aborted": 0, "requests": []}
lock = threading.Lock()


def sentences(text):
    return [(m.start(), m.end()) for m in re.finditer(r"\S[^\n]*?(?:[.!?。！？؟]+(?=\s|$)|[。！？]|(?=\n)|$)", text)]


def words(text):
    if re.search(r"[\u4e00-\u9fff]", text):
        return [(i, i + 1) for i, c in enumerate(text) if not c.isspace()]
    return [(m.start(), m.end()) for m in re.finditer(r"\S+", text)]


def bare(text, span):
    """The word without the punctuation around it."""
    start, end = span
    while end - start > 1 and text[end - 1] in ".,;:!?؟،。": end -= 1
    return [start, end]


def fake(text, to, rank=0):
    """One sentence: (translation, [[source word of target word i], ...]); neighbours change places, so links cross."""
    canned = CANNED.get(text, {}).get(to)
    if canned and rank == 0:
        return canned
    if canned and to == "pt" and rank < 4 and text.startswith("Two"):
        return ["", "Dois barcos de pesca já haviam saído, e um terceiro aguardava a maré.", "Dois pesqueiros já tinham partido e um terceiro estava à espera da maré.", "Já tinham saído dois barcos de pesca e um terceiro esperava a maré."][rank], canned[1]
    if canned:
        ws = canned[0].split()
        ws[rank % len(ws)] = ws[rank % len(ws)] + "*"
        return " ".join(ws), canned[1]
    source = words(text)
    order = list(range(len(source)))
    for i in range(0, len(order) - 2, 2):
        order[i], order[i + 1] = order[i + 1], order[i]
    mark = {"pt": "o", "de": "en", "ar": "ة", "he": "ה", "zh": "字", "en": "ed"}[to]
    table = {"ar": "ابتثجحخدذرزسشصضطظعغفقكلمنهويء", "he": "אבגדהוזחטיכלמנסעפצקרש", "zh": "天地人山水火木金土日月年大小上下中国家学"}.get(to)
    out = []
    for i in order:
        a, b = source[i]
        w = text[a:b].rstrip(".,;:!?。！？؟،")
        if table:
            w = "".join(table[(ord(c) * 7) % len(table)] for c in w[: 2 if to == "zh" else 7])
        else:
            w = w + mark + ("x" * rank if i == 0 else "")
        out.append(w)
    end = "。" if to == "zh" else "."
    joined = ("" if to == "zh" else " ").join(out)
    if to == "zh":
        return joined + end, None if True else []
    return joined + end, [[i] for i in order]


def utf16(text, at):
    return len(text[:at].encode("utf-16-le")) // 2


def translate_text(text, source, to, want, rank=0):
    out, infos, last = "", [], 0
    seed = random.Random(text)
    for index, (a, b) in enumerate(sentences(text)):
        gap = text[last:a]
        out += ("" if to == "zh" and gap == " " else gap)
        piece = text[a:b]
        translated, links = fake(piece, to)
        sw = words(piece)
        tw = words(translated)
        if links is None:
            tw = [(i, i + 1) for i in range(len(translated))]
            links = [[min(i * len(sw) // max(1, len(tw)), len(sw) - 1)] for i in range(len(tw))]
        start = len(out)
        u = lambda base, s, e, whole: [utf16(whole, base + s), utf16(whole, base + e)]
        full = out + translated
        info = {"source": u(0, a, b, text), "target": u(0, start, start + len(translated), full), "score": -0.3}
        if want.get("scores"):
            info["words"] = [{"target": u(start, *bare(translated, t), full), "score": -round(seed.random() ** 3 * 3, 3)} for t in tw]
        if want.get("alignments"):
            info["alignments"] = [{"source": u(a, *bare(piece, sw[j]), text), "target": u(start, *bare(translated, tw[i]), full), "weight": 0.8}
                                  for i, js in enumerate(links[:len(tw)]) for j in js if j < len(sw)]
        infos.append(info)
        out, last = full, b
    out += text[last:]
    t = {"text": out, "from": source, "to": to, "model": source + to}
    if want.get("scores") or want.get("alignments") or want.get("n_best", 1) > 1: t["sentences"] = infos
    if want.get("n_best", 1) > 1:
        t["alternatives"] = [{"text": fake(text, to, r)[0], "score": -0.3 - r / 10} for r in range(want["n_best"])]
    if source not in ("en",) and to not in ("en",): t["through"] = ["en"]
    return t


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *a): pass

    def send(self, status, body, kind="application/json", extra=()):
        body = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        if kind.startswith("text/html"): self.send_header("Content-Security-Policy", CSP)
        for k, v in extra: self.send_header(k, v)
        self.end_headers()
        self.wfile.write(body)

    def error(self, status, code, message, retry=None):
        self.send(status, {"error": {"code": code, "message": message}}, extra=[("Retry-After", str(retry))] if retry else [])

    def path_here(self):
        path = self.path.split("?")[0]
        return path[len(PREFIX):] if path.startswith(PREFIX) else None

    def do_GET(self):
        path = self.path_here()
        files = {"/": ("index.html", "text/html; charset=utf-8"), "/page/app.js": ("app.js", "text/javascript; charset=utf-8"),
                 "/page/style.css": ("style.css", "text/css; charset=utf-8"), "/page/icon.svg": ("icon.svg", "image/svg+xml")}
        if path in files:
            name, kind = files[path]
            return self.send(200, open(f"{FOLDER}/{name}", "rb").read(), kind)
        if path == "/mock": return self.send(200, control)
        if path == "/v1/languages":
            if self.refused(): return
            pairs = [{"from": "en", "to": t, "model": "en" + t, "through": []} for t in OTHERS]
            pairs += [{"from": t, "to": "en", "model": t + "en", "through": []} for t in ("pt", "de", "ar", "he")]
            pairs += [{"from": "pt", "to": "de", "model": "pten", "through": ["en"]}]
            return self.send(200, {"languages": [dict(zip(("code", "name", "native", "rtl"), l)) for l in LANGUAGES], "pairs": pairs})
        self.error(404, "bad_request", "There is nothing at this address.")

    def refused(self):
        if control["key"] and self.headers.get("Authorization") != "Bearer " + control["key"]:
            self.error(401, "unauthorized", "This server needs an API key.")
            return True

    def document(self, form):
        """A document comes back as it is, under its new name; one that is no zip archive and should be is refused."""
        name = re.search(rb'filename="([^"]+)"', form).group(1).decode()
        if name.endswith(".docx"): return self.error(400, "bad_request", "no zip archive")
        attachment = f'attachment; filename="{name.replace(".", ".pt.")}"'
        self.send(200, b"ok", "application/octet-stream", [("Content-Disposition", attachment)])

    def do_POST(self):
        path = self.path_here()
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if path == "/mock":
            control.update(json.loads(body))
            return self.send(200, control)
        if path == "/translate_file": return self.error(501, "not_supported", "Documents are not supported.")
        if self.refused(): return
        if path == "/v1/documents": return self.document(body)
        request = json.loads(body)
        with lock:
            control["requests"] = control["requests"][-20:] + [request]
            fail = control["fail"].pop(0) if control["fail"] else None
        if fail: return self.error(fail["status"], fail["code"], fail.get("message", "No."), fail.get("retry_after"))
        text, source, to = request["text"], request.get("from", "auto"), request["to"]
        detected = None
        if source == "auto":
            source = "ar" if re.search("[\u0600-\u06ff]", text) else "he" if re.search("[\u0590-\u05ff]", text) else \
                "pt" if re.search("[ãçõ]| o | de ", text) else "en"
            detected = {"language": source, "confidence": 0.98, "reliable": len(text) > 12}
        if source == to: return self.error(400, "unknown_pair", "The text is already in this language.")
        time.sleep(control["delay"])
        t = translate_text(text, source, to, request)
        if detected: t["detected"] = detected
        answer = {"translations": [t], "took": 0.01}
        try:
            if request.get("stream"): return self.stream(text, to, answer)
            self.send(200, answer)
        except (BrokenPipeError, ConnectionResetError):
            control["aborted"] += 1

    def stream(self, text, to, answer):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        spans = list(enumerate(sentences(text)))
        for start in range(0, len(spans), 12):      # as a batch would: any order within a window
            window = spans[start:start + 12]
            random.shuffle(window)
            spans[start:start + 12] = window
        for index, (a, b) in spans:
            time.sleep(control["step"])
            self.event("sentence", {"text": 0, "sentence": index, "source": [utf16(text, a), utf16(text, b)], "translation": fake(text[a:b], to)[0]})
        self.event("done", answer)

    def event(self, name, data):
        self.wfile.write(f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode())
        self.wfile.flush()


class Server(ThreadingHTTPServer):
    daemon_threads = True
    def handle_error(self, *a): pass


Server(("127.0.0.1", PORT), Handler).serve_forever()
