#!/usr/bin/env python3
"""A long run of mixed requests on `peregrine serve`: memory must stay flat, nothing may fail.

  tests/serve/soak.py BINARY [--minutes 20] [--clients 12] [-- further options of serve]

Clients speak all dialects, send short and long texts, lists, streams and nonsense, and one in ten leaves before its answer.
Prints resident memory, connections, queue and counts every half minute, and a summary. Exit code 1 if a request failed that
should not, or if memory at the end is more than a tenth above that after the first fifth of the time.
"""
import argparse, http.client, json, random, socket, subprocess, sys, threading, time
from urllib.parse import urlparse

WORDS = "the old man walked along river village morning dogs snow station people water house city year day".split()


def text(random, sentences):
    one = lambda: " ".join(random.choices(WORDS, k=random.randint(2, 30))).capitalize() + random.choice([".", "!", "?", " 🦀.", "\n\n"])
    return " ".join(one() for _ in range(sentences))


def request(random):
    """Path, body as JSON, and whether 200 is wanted."""
    size = random.choice([1, 1, 1, 1, 2, 5, 40])
    kind = random.randrange(9)
    if kind == 0:
        return "/translate", {"q": text(random, size), "source": "auto", "target": "pt", "alternatives": random.choice([0, 2])}, True
    if kind == 1:
        return "/translate", {"q": [text(random, 1) for _ in range(random.randint(1, 50))], "source": "en", "target": "pt"}, True
    if kind == 2:
        return "/v2/translate", {"text": [text(random, size)], "target_lang": "PT-BR"}, True
    if kind == 3:
        return "/language/translate/v2", {"q": [text(random, size)], "target": "pt", "format": "text"}, True
    if kind == 4:
        return "/v1/translate", {"text": text(random, size), "to": "pt", "alignments": True, "scores": True, "n_best": random.choice([1, 3])}, True
    if kind == 5:
        return "/v1/translate", {"text": text(random, size), "to": "pt", "stream": True, "beam": random.choice([1, 4])}, True
    if kind == 6:
        return "/imme", {"source_lang": "en", "target_lang": "pt", "text_list": [text(random, 1)] * 3}, True
    if kind == 7:
        return "/v1/detect", {"text": text(random, 1)}, True
    return random.choice(["/v1/translate", "/translate", "/v2/translate", "/none"]), random.choice([{}, {"q": 1}, {"text": "a", "to": "xx"}]), False


def client(address, seed, stop, counts):
    chance = random.Random(seed)
    connection = None
    while not stop.is_set():
        path, body, wanted = request(chance)
        body = json.dumps(body).encode()
        try:
            if chance.random() < 0.1:
                with socket.create_connection(address, timeout=60) as raw:
                    head = f"POST {path} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
                    raw.sendall(head.encode() + body)
                    time.sleep(chance.random() * 0.05)
                counts["left"] += 1
                continue
            connection = connection or http.client.HTTPConnection(*address, timeout=120)
            connection.request("POST", path, body, {"content-type": "application/json"})
            answer = connection.getresponse()
            data = answer.read()
            if (answer.status == 200) != wanted or b"event: error" in data or answer.status >= 500:
                counts["wrong"] += 1
                print("wrong:", path, answer.status, data[:200], file=sys.stderr)
            counts["answered"] += 1
        except (OSError, http.client.HTTPException) as error:
            connection = None
            if not stop.is_set():
                counts["broken"] += 1
                print("broken:", path, repr(error), file=sys.stderr)


def resident(pid):
    with open(f"/proc/{pid}/status") as status:
        return int(next(line for line in status if line.startswith("VmRSS")).split()[1]) // 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--clients", type=int, default=12)
    arguments, options = parser.parse_known_args()
    server = subprocess.Popen([arguments.binary, "serve", "--port", "0", "--log", "off", *[o for o in options if o != "--"]], stdout=subprocess.PIPE)
    url = urlparse(server.stdout.readline().decode().strip())
    address = (url.hostname, url.port)
    stop, counts = threading.Event(), {"answered": 0, "left": 0, "wrong": 0, "broken": 0}
    threads = [threading.Thread(target=client, args=(address, seed, stop, counts)) for seed in range(arguments.clients)]
    for thread in threads:
        thread.start()
    start, curve = time.time(), []
    while time.time() - start < arguments.minutes * 60:
        time.sleep(min(30, arguments.minutes * 6))
        connection = http.client.HTTPConnection(*address, timeout=60)
        connection.request("GET", "/metrics")
        page = connection.getresponse().read().decode()
        value = lambda name: sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(name) and line[len(name)] in " {")
        curve.append(resident(server.pid))
        print(f"{time.time() - start:6.0f} s  {curve[-1]:5d} MB  connections {value('peregrine_connections'):.0f}  queue "
              f"{value('peregrine_queue_depth'):.0f}  cancelled {value('peregrine_cancelled_total'):.0f}  panics "
              f"{value('peregrine_panics_total'):.0f}  {counts}", flush=True)
    stop.set()
    for thread in threads:
        thread.join()
    server.terminate()
    code = server.wait(60)
    early = max(curve[:max(1, len(curve) // 5)])
    print(f"memory after the first fifth {early} MB, at the end {curve[-1]} MB, most {max(curve)} MB; exit code {code}; {counts}")
    sys.exit(int(counts["wrong"] + counts["broken"] > 0 or code != 0 or curve[-1] > early * 1.1))


main()
