#!/usr/bin/env python3
"""What the server reaches under load: bench/server.py BUILD [-m MODEL.gguf]. See docs/bench.md.

The scripted server of the tests (its model costs next to nothing) shows the server's own costs; with -m,
`luce serve` on that model shows throughput and fairness. Prints a line for each figure with its bound, and
fails when a bound is missed."""
import argparse
import http.client
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time

FAILED = []


def line(name, value, unit, bound=None, least=False):
    good = bound is None or (value >= bound if least else value <= bound)
    limit = "" if bound is None else f" ({'at least' if least else 'at most'} {bound:g}{'' if good else ', MISSED'})"
    print(f"{name}: {value:.4g} {unit}{limit}", flush=True)
    if not good:
        FAILED.append(name)


class Stream:
    """A streamed completion on a socket of its own."""

    def __init__(self, port, prompt, **fields):
        body = json.dumps(dict({"prompt": prompt, "stream": True}, **fields)).encode()
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=120)
        head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
        self.socket.sendall(head + body)
        self.started = time.monotonic()

    def read(self):
        """(time of the first text, of the last, pieces of text)"""
        first, last, pieces, tail = None, None, 0, b""
        while b"[DONE]" not in tail:
            got = self.socket.recv(1 << 16)
            if not got:
                raise RuntimeError("the stream broke")
            found = (tail[-8:] + got).count(b'"text":"') - tail[-8:].count(b'"text":"')
            if found:
                last = time.monotonic()
                first, pieces = first or last, pieces + found
            tail = (tail + got)[-64:]
        self.socket.close()
        return first, last, pieces


def health(port, seconds):
    """Sorted times of GET /health, 50 a second."""
    times, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        start = time.monotonic()
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        c.request("GET", "/health")
        c.getresponse().read()
        c.close()
        times.append(time.monotonic() - start)
        time.sleep(max(0, 0.02 - times[-1]))
    return sorted(times)


def memory_kib(pid, *names):
    with open(f"/proc/{pid}/status") as file:
        fields = dict(row.split(":", 1) for row in file)
    return sum(int(fields[name].split()[0]) for name in names)


def overhead(Server, pieces):
    """From the request to its last token: parsing, step, sampling, queue, JSON, HTTP and the client's reading.
    Texts of 400 tokens, since attention over thousands would be the most of it even in this model."""
    def per_token(n):
        streams = [Stream(s.port, "[[long]]", max_tokens=400) for _ in range(n)]
        return (max(h.read()[1] for h in streams) - streams[0].started) / (400 * n) * 1e6
    with Server({"long": {"pieces": pieces("a"), "endless": True}}, context=1000, sequences=8) as s:
        for n in (1, 8):
            line(f"a token through engine and server, {n} at once", statistics.median(per_token(n) for _ in range(20)), "us", 50)


def idle_streams(Server, pieces):
    scripts = {"slow": {"pieces": pieces("a"), "endless": True, "pace_ms": 200}}
    with Server(scripts, context=8000, sequences=1, queue=4000) as s:
        before = memory_kib(s.process.pid, "VmRSS")
        held = [Stream(s.port, "[[slow]]") for _ in range(2000)]
        for h in held:
            assert h.socket.recv(4096).startswith(b"HTTP/1.1 200")
        time.sleep(5)
        line("2,000 idle streams, resident", memory_kib(s.process.pid, "VmRSS") / 1024, "MiB", 200)
        print(f"  before: {before / 1024:.1f} MiB")
        for h in held:
            h.socket.close()


def short_requests(Server, pieces):
    with Server({"short": {"pieces": pieces("Hello", " you", ".")}}, context=8000) as s:
        for i in range(5000):
            s.post("/v1/completions", {"prompt": "[[short]]" + str(i)})
            if i == 100:
                before = memory_kib(s.process.pid, "RssAnon", "VmSwap")
        grown = memory_kib(s.process.pid, "RssAnon", "VmSwap") - before
        line("5,000 short requests, growth since the 100th", grown / 1024, "MiB", 64)


def health_under_load(Server, pieces):
    scripts = {"long": {"pieces": pieces("a"), "endless": True}, "read": {"pieces": pieces("a"), "prefill_us": 300}}
    with Server(scripts, context=32000, sequences=8) as s:
        jobs = [("[[long]]", 3000)] * 7 + [("[[read]]" + "x" * 20000, 2)]
        threads = [threading.Thread(target=lambda job=job: Stream(s.port, job[0], max_tokens=job[1]).read())
                   for job in jobs]
        for t in threads:
            t.start()
        times = health(s.port, 5)
        for t in threads:
            t.join()
        line("/health, 99th percentile under load", times[len(times) * 99 // 100] * 1e3, "ms", 50)


def behind_a_long_prompt(Server, pieces):
    """Chunks of 128 rows at 0.3 ms a row, by the script; a short request after a second."""
    scripts = {"read": {"pieces": pieces("a"), "prefill_us": 300}, "short": {"pieces": pieces("a", "b")}}
    with Server(scripts, context=32000, sequences=4) as s:
        long = Stream(s.port, "[[read]]" + "x" * 30000, max_tokens=2)
        time.sleep(1)
        waits = []
        for _ in range(10):
            short = Stream(s.port, "[[short]]" + "y" * 19, max_tokens=1)
            waits.append(short.read()[0] - short.started)
        long.socket.close()
        line("20 tokens behind 30,000, first token", statistics.median(waits) / (128 * 0.3e-3), "chunk times", 3)


class Luce:
    def __init__(self, build, model, *options):
        self.process = subprocess.Popen([os.path.join(build, "luce"), "serve", model, "--port", "0", *options],
                                        stderr=subprocess.PIPE, text=True)
        self.port = int(re.search(r":(\d+)$", self.process.stderr.readline()).group(1))

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(20)
        self.process.stderr.close()


def throughput(build, model):
    def run(port, n, tokens=96):
        streams = [Stream(port, f"Number {i}: a story about", max_tokens=tokens, logit_bias={"0": -100, "2": -100})
                   for i in range(n)]
        results = [None] * n

        def read(i):
            results[i] = streams[i].read()
        threads = [threading.Thread(target=read, args=(i,)) for i in range(n)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        return n * tokens / (max(r[1] for r in results) - streams[0].started)
    with Luce(build, model, "-c", "1024", "--max-concurrency", "8") as s:
        run(s.port, 1)
        one, eight = max(run(s.port, 1) for _ in range(3)), max(run(s.port, 8) for _ in range(2))
    line("one client", one, "tokens/s")
    line("eight clients over one", eight / one, "times", 2.5, True)


def decode_beside_prefill(build, model):
    with Luce(build, model, "-c", "6144", "--max-concurrency", "4") as s:
        def speed(long):
            """Tokens a second of a text."""
            running = Stream(s.port, "Once upon a time", max_tokens=300, logit_bias={"2": -100})
            other = Stream(s.port, long, max_tokens=1) if long else None
            first, last, n = running.read()
            if other:
                other.socket.close()
            return n / (last - first)
        shares = []
        for i in range(5):
            alone = speed(None)
            shares.append(speed(f"{i} " + "word " * 5500) / alone)
        line("decode while a prompt is read, of its speed alone", statistics.median(shares), "", 0.5, True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build")
    parser.add_argument("-m", "--model")
    parser.add_argument("--only", default="", help="run those whose name holds this word")
    args = parser.parse_args()
    os.environ["LUCE_BUILD"] = args.build
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "server"))
    from harness import Server, pieces
    for run in (overhead, behind_a_long_prompt, health_under_load, short_requests, idle_streams):
        if args.only in run.__name__:
            run(Server, pieces)
    for run in (throughput, decode_beside_prefill):
        if args.model and args.only in run.__name__:
            run(args.build, args.model)
    return bool(FAILED)


if __name__ == "__main__":
    sys.exit(main())
