"""Clients that are slow, broken, greedy or hostile, while others are served as ever."""
import contextlib
import json
import os
import random
import re
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import unittest
import warnings

from harness import APIS, Server, in_parallel, pieces
from test_transport import Base, raw_request, say

SCRIPTS = {
    "short": {"pieces": pieces("Hello", " you", ".")},
    "paced": {"pieces": pieces("Hello", " you", "."), "pace_ms": 5},
    "fast": {"pieces": pieces("abcdefghijklmnop" * 64), "endless": True},
    "slow": {"pieces": pieces("a"), "endless": True, "pace_ms": 20},
}
PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/embeddings", "/tokenize")
POST = b"POST /v1/messages HTTP/1.1\r\nHost: x\r\n"
GROWTH_KIB = 96 << 10


class Hostile(Base):
    settings = {"context": 8000, "sequences": 4, "queue": 64, "keep_alive_ms": 300, "connections": 200,
                "head_seconds": 3, "body_seconds": 6, "stall_seconds": 3, "held_bytes": 16 << 20}

    @classmethod
    def setUpClass(cls):
        cls.server = Server(SCRIPTS, **cls.settings)

    def tearDown(self):
        self.assertIsNone(self.server.process.poll(), "the server has died")
        self.served()
        self.assertTrue(self.wait_for(lambda: self.status()["running"] + self.status()["waiting"] == 0, 20))

    def served(self):
        for api, ask in APIS.items():
            for stream in (True, False):
                self.assertEqual(ask(self.server, "[[paced]]", stream).text, "Hello you.", api)

    @contextlib.contextmanager
    def crowd(self):
        """Normal clients go on all the while, and get what they should."""
        over, done, failed = threading.Event(), [0], []

        def run():
            try:
                while not over.is_set():
                    self.served()
                    done[0] += 1
            except BaseException as e:  # handed to the test
                failed.append(e)
        threads = [threading.Thread(target=run) for _ in range(2)]
        for t in threads:
            t.start()
        try:
            yield
            self.assertTrue(self.wait_for(lambda: done[0] > 1 or failed, 60))
        finally:
            over.set()
            for t in threads:
                t.join()
        if failed:
            raise failed[0]

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.server.port), timeout=30)

    def rest(self, s):
        """All that comes until the server closes."""
        text = b""
        with contextlib.suppress(ConnectionError):
            while got := s.recv(1 << 16):
                text += got
        s.close()
        return text

    def send_raw(self, data):
        """What the server says to it, once the client sends no more."""
        s = self.connect()
        with contextlib.suppress(ConnectionError):
            s.sendall(data)
        return self.rest(s)

    def is_refused(self, reply):
        self.assertTrue(reply == b"" or int(reply[9:12]) >= 400, reply[:300])

    def dribble(self, sockets, data, seconds=30):
        """A byte to each of them now and then, until the server has closed all."""
        end = time.monotonic() + seconds
        for i in range(len(data)):
            for s in list(sockets):
                try:
                    s.send(data[i:i + 1])
                    s.setblocking(False)
                    if s.recv(1 << 16) == b"":
                        raise ConnectionError
                except BlockingIOError:
                    pass
                except ConnectionError:
                    sockets.remove(s)
                    s.close()
            if not sockets:
                return
            self.assertLess(time.monotonic(), end, "slow clients are never let go")
            time.sleep(0.1)
        self.fail("slow clients were waited for")

    def test_slow_heads_slow_bodies_and_silence(self):
        head = b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 1000
        body = b" " * 1000
        with self.crowd():
            slow, bodies, silent = ([self.connect() for _ in range(20)] for _ in range(3))
            for s in bodies:
                s.sendall(POST + b"Content-Length: 1000\r\n\r\n")
            both = [threading.Thread(target=self.dribble, args=a) for a in ((slow, head), (bodies, body))]
            for t in both:
                t.start()
            for s in silent:
                self.assertEqual(self.rest(s), b"")
            for t in both:
                t.join()
            self.assertFalse(slow + bodies)

    def test_a_kept_connection_that_falls_silent_is_closed(self):
        s = self.connect()
        s.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        self.assertIn(b"200", s.recv(1000)[:20])
        self.assertEqual(self.rest(s)[:9], b"")

    def test_bodies_without_end(self):
        before = self.server.memory_kib()
        chunk = b"100000\r\n" + b"[" * 0x100000 + b"\r\n"

        def endless():
            s, sent = self.connect(), 0
            s.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n")
            try:
                while sent < 1 << 31:
                    s.sendall(chunk)
                    sent += len(chunk)
            except OSError:
                return s.close()
            self.fail("two gigabytes were taken")
        with self.crowd():
            in_parallel([endless] * 3)
        self.assertLess(self.server.memory_kib() - before, GROWTH_KIB)

    def test_many_large_bodies_at_once(self):
        """Each is within the limit, all together are not: small requests go on."""
        before = self.server.memory_kib()
        body = json.dumps({"content": 1, "else": "x" * (7 << 20)}).encode()
        sockets = []
        for _ in range(12):
            sockets.append(s := self.connect())
            s.sendall(f"POST /tokenize HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode())
            s.sendall(body[:6 << 20])
        self.assertIn("tokens", self.server.post("/tokenize", {"content": "x" * 10000}))
        self.assertLess(self.server.memory_kib() - before, GROWTH_KIB)
        for s in sockets:
            s.sendall(body[6 << 20:])
        statuses = {int(self.rest(s)[9:12]) for s in sockets}
        self.assertEqual(statuses, {400, 503})          # the fields are wrong, which was read; too many
        self.server.post("/tokenize", json.loads(body), 400)

    def test_floods_of_connections(self):
        with self.crowd():
            sockets = []
            for _ in range(600):
                s = self.connect()
                s.send(b"GET /hea" if len(sockets) % 2 else b"")
                sockets.append(s)
            self.served()
            for s in sockets:
                self.leave(s, True)

    def test_requests_in_one_piece(self):
        get = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
        last = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        for stream in (True, False):
            all_text = self.send_raw((get + raw_request(say("paced", stream)) + raw_request({}, "/nothing")) * 5 + last)
            status = re.findall(rb"HTTP/1\.1 (\d+) ", all_text)
            self.assertEqual(status, [b"200", b"200", b"404"] * 5 + [b"200"])
            self.assertEqual(all_text.count(b'"Hello"' if stream else b'"Hello you."'), 5)

    def test_lengths_that_are_wrong(self):
        body = json.dumps(say("short", False)).encode()
        for length in (b"-1", b"x", b"12x", b"", b"0x10", b"99999999999999999999999", b"1 1", b"+1", b"1, 2"):
            with self.subTest(length=length):
                self.is_refused(self.send_raw(POST + b"Content-Length: " + length + b"\r\n\r\n" + body))
        for fields in (b"Content-Length: 1\r\nContent-Length: 2\r\n", b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
                       b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", b"Transfer-Encoding: gzip, chunked\r\n",
                       b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n"):
            with self.subTest(fields=fields):
                reply = self.send_raw(POST + fields + b"\r\n3\r\n{} \r\n0\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n")
                self.is_refused(reply)
                self.assertNotIn(b"200 OK", reply)
        short = self.send_raw(POST + f"Content-Length: {len(body) - 5}\r\n\r\n".encode() + body)
        self.assertIn(b"400", short[:15])
        self.assertNotIn(b"200 OK", short)
        self.assertEqual(self.send_raw(POST + f"Content-Length: {len(body) + 5}\r\n\r\n".encode() + body), b"")

    def test_bodies_that_are_encoded(self):
        status, _, text = self.server.call("POST", "/v1/messages", b"\x1f\x8b", {"Content-Encoding": "gzip"})
        self.assertEqual(status, 415)
        self.assertIn("Content-Encoding", json.loads(text)["error"]["message"])

    def test_chunks_that_are_broken(self):
        head = POST + b"Transfer-Encoding: chunked\r\n\r\n"
        for tail in (b"zz\r\n{}\r\n", b"-1\r\n{}\r\n", b"FFFFFFFFFFFFFFFFF\r\n{}", b"2\r\n{}}}\r\n0\r\n\r\n", b"\r\n\r\n",
                     b"2;" + b"x" * 70000 + b"\r\n{}\r\n", b"5" * 100000):
            with self.subTest(tail=tail[:20]):
                self.is_refused(self.send_raw(head + tail))
        for cut in (b"", b"5", b"5\r", b"5\r\n{", b"2\r\n{}", b"2\r\n{}\r\n", b"2\r\n{}\r\n0\r\n", b"2\r\n{}\r\n0\r\nX: y"):
            for hard in (True, False):
                s = self.connect()
                s.sendall(head + cut)
                self.leave(s, hard)
        ok = self.send_raw(head.replace(b"Host", b"Connection: close\r\nHost") + b"2;a=b\r\n{}\r\n0\r\nX: trailer\r\n\r\n")
        self.assertIn(b'"type":"error"', ok)        # a whole body: the API answers

    def test_heads_that_are_too_large_or_no_heads(self):
        start = b"GET /health HTTP/1.1\r\nHost: x\r\n"
        for head in (start + b"X: " + b"a" * 100000, start + b"".join(b"X%d: y\r\n" % i for i in range(20000)),
                     b"GET /" + b"a" * 100000, b"G" * 100000, start + b"a\0: \0\r\n" * 20000, b"\0" * 100000):
            with self.subTest(head=head[:30]):
                self.is_refused(self.send_raw(head + b"\r\n\r\n"))
        for head in (b"\r\n\r\n\r\n", b"GET\r\n\r\n", b"GET /health\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET /health HTTP/9.9\r\n\r\n",
                     b"GET  /health  HTTP/1.1\r\nHost: x\r\n\r\n", b"CONNECT a:1 HTTP/1.1\r\nHost: x\r\n\r\n", b"TRACE / HTTP/1.1\r\nHost: x\r\n\r\n",
                     start + b"no colon\r\n\r\n", start + b": empty\r\n\r\n", b"GET /health HTTP/1.1\r\n\r\n", start + b" folded: y\r\n\r\n",
                     b"GET /%00%ff%zz%0d%0a?%00=%00&&==& HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"a" * 100):
            s = self.connect()
            s.sendall(head)
            s.shutdown(socket.SHUT_WR)
            self.rest(s)

    def test_heads_that_can_be_read_in_two_ways(self):
        """NULs end words of the library, and a head where they begin a line: what follows would be another request."""
        line, host, end = b"GET /health HTTP/1.1\r\n", b"Host: x\r\nConnection: close\r\n", b"X: y\r\n\r\n"
        hidden = b"GET /props HTTP/1.1\r\n" + host + b"\r\n"
        for head in (b"GET /health\0 HTTP/1.1\r\n" + host + end, b"GET /health\0x HTTP/1.1\r\n" + host + end,
                     b"GET /health?a=b\0 HTTP/1.1\r\n" + host + end, b"GE\0T /health HTTP/1.1\r\n" + host + end,
                     b"GET\0 /health HTTP/1.1\r\n" + host + end, line + host + b"\0\r\n" + hidden, line + host + b"\0a: b\r\n" + hidden,
                     line + b"\0\r\n" + host + hidden, line + host + b"A: \0b\r\n" + end, line + host + b"A: b\0\r\n" + end,
                     line + host + b"A: b\0c\r\n" + end, line + host + b"A\0: b\r\n" + end, line + host + b"A: b\0: c\r\n" + end,
                     line + host + b"A: b\r\n c\r\n" + end, line + host + b"A: b\r\n\tc: d\r\n" + end,
                     line + b" A: b\r\n" + host + end, line + host + b"A : b\r\n" + end,
                     line + host + b"Content-Length : 5\r\n" + end, line.replace(b"\r", b"") + host.replace(b"\r", b"") + b"\0\n" + hidden):
            with self.subTest(head=head[:60]):
                for cut in (len(head), 30):
                    s = self.connect()
                    s.sendall(head[:cut])
                    s.sendall(head[cut:])
                    reply = self.rest(s)
                    self.assertEqual(re.findall(rb"HTTP/1\.1 (\d+) ", reply), [b"400"])
        for head in (line + host + b"\r\n", line + host + b"A:b\r\nB:\r\nC:  \t d e \t \r\n\r\n", b"GET /%68ealth?a=%00&b HTTP/1.1\r\n" + host + end,
                     (line + host + end).replace(b"\r", b""), b"GET /health HTTP/1.0\r\n\r\n", b"GET /health HTTP/1.0\n\n",
                     line + host + b"".join(b"X%d: %d\r\n" % (i, i) for i in range(500)) + end):
            with self.subTest(head=head[:60]):
                self.assertIn(b" 200 OK", self.send_raw(head)[:20])

    def test_methods_that_a_path_does_not_have(self):
        for method, path, allow in (("GET", "/v1/chat/completions", "POST"), ("PUT", "/v1/messages", "POST"), ("DELETE", "/v1/responses/x", "GET, HEAD"),
                                    ("POST", "/health", "GET, HEAD"), ("POST", "/", "GET, HEAD"), ("PATCH", "/v1/models/x?y", "GET, HEAD")):
            status, headers, text = self.server.call(method, path, {} if method != "GET" else None)
            self.assertEqual((status, headers["Allow"]), (405, allow))
            self.assertIn(allow, json.loads(text)["error"]["message"])
        status, headers, _ = self.server.call("PUT", "/nothing")
        self.assertEqual((status, headers["Allow"]), (404, None))

    def test_errors_have_the_shape_of_their_api(self):
        bodies = (b"", b"{", b"\0", b"[1]", b'{"a":\0}', b'{"messages": "\0"}', b"\xff\xfe{}", b"null", b'{"a":1e999}', b"[" * 100000,
                  b'{"a":' * 99999 + b"1" + b"}" * 99999, b'{"\\ud800": 1}', b'"' * 99999, b" " * (9 << 20), b"{}")
        for path in PATHS:
            for body in bodies:
                with self.subTest(path=path, body=body[:20]):
                    status, headers, text = self.server.call("POST", path, body)
                    self.assertEqual(status, 413 if len(body) > 8 << 20 else 400)
                    self.assertEqual(headers["Content-Type"], "application/json")
                    error = json.loads(text)
                    if path == "/v1/messages":
                        self.assertEqual((error["type"], set(error["error"]) >= {"type", "message"}), ("error", True))
                    else:
                        self.assertEqual(set(error["error"]), {"message", "type", "param", "code"})
                        self.assertTrue(error["error"]["message"])

    def test_nul_in_texts(self):
        for path in ("/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/completions"):
            text = "[[short]]\0\x01\u0085"
            body = {"messages": [{"role": "user", "content": text}], "input": text, "prompt": text, "max_tokens": 3, "stop": ["\0"]}
            self.assertIn("Hello you.", json.dumps(self.server.post(path, body)))
        for key in ("mess\0ages", "messages\0"):
            self.server.post("/v1/chat/completions", {key: [{"role": "user", "content": "x"}]}, 400)
        name = "a\0b"
        tools = [{"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {name: {}}}}}]
        status, _, _ = self.server.call("POST", "/v1/chat/completions", say("short", False, tools=tools, model=name))
        self.assertIn(status, (200, 400))

    def test_sockets_that_close_their_own_side(self):
        for path, field in (("/v1/chat/completions", "messages"), ("/v1/messages", "messages"), ("/v1/responses", "input")):
            s = self.send({field: [{"role": "user", "content": "[[paced]]"}], "stream": True, "max_tokens": 3}, path)
            s.shutdown(socket.SHUT_WR)
            self.assertIn(b"you", self.rest(s))
        for script, path in (("paced", "/v1/chat/completions"), ("short", "/v1/messages"), ("slow", "/v1/responses")):
            s = self.send({"messages": [{"role": "user", "content": f"[[{script}]]"}], "input": f"[[{script}]]", "max_tokens": 9}, path)
            if script == "slow":
                self.assertTrue(self.wait_for(lambda: self.status()["running"] == 1))
            s.shutdown(socket.SHUT_WR)
            replies = self.rest(s).split(b"HTTP/1.1 ")[1:]      # one that says to go on comes before it
            self.assertEqual([r[:3] for r in replies[:-1]], [b"100"] * (len(replies) - 1))
            self.assertIn(b"aaaaaaaaa" if script == "slow" else b"Hello you.", replies[-1])
        for part in (b"G", b"GET /health HTTP/1.1\r\n", POST + b"Content-Length: 10\r\n\r\n{"):
            s = self.connect()
            s.sendall(part)
            s.shutdown(socket.SHUT_WR)
            self.is_refused(self.rest(s))

    def test_clients_that_never_read(self):
        def held(body, path="/v1/chat/completions"):
            s = socket.socket()
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.connect(("127.0.0.1", self.server.port))
            s.sendall(raw_request(body, path))
            return s
        before = self.server.memory_kib()
        with self.crowd():
            sockets = [held(say("fast")) for _ in range(8)]
            sockets += [held(say("fast", False, max_tokens=500)) for _ in range(4)]
            for _ in range(20):
                sockets.append(self.connect())
                sockets[-1].sendall(b"GET /status/events HTTP/1.1\r\nHost: x\r\n\r\n")
            for _ in range(20):
                sockets.append(self.connect())
                with contextlib.suppress(OSError):      # answers pile up until nothing more is taken
                    sockets[-1].settimeout(0.05)
                    sockets[-1].sendall(b"GET /props HTTP/1.1\r\nHost: x\r\n\r\n" * 20000)
            self.assertTrue(self.wait_for(lambda: self.server.call("GET", "/metrics")[0] == 200, 10))
            self.assertLess(self.server.memory_kib() - before, GROWTH_KIB)
        for s in sockets:
            s.close()

    def test_whatever_bytes_come(self):
        rng = random.Random(7)
        good = raw_request(say("short")) + b"GET /status/json HTTP/1.1\r\nHost: x\r\n\r\n"
        for _ in range(150):
            data = bytearray(good)
            for _ in range(rng.randrange(1, 8)):
                at = rng.randrange(len(data))
                data[at:at + rng.randrange(4)] = bytes(rng.randrange(256) for _ in range(rng.randrange(4)))
            s = self.connect()
            with contextlib.suppress(ConnectionError):
                for at in range(0, len(data), 64):
                    s.sendall(data[at:at + rng.randrange(1, 65)])
                if rng.random() < 0.3:
                    s.settimeout(0.2)
                    with contextlib.suppress(TimeoutError):
                        s.recv(1 << 16)
            with contextlib.suppress(OSError):
                self.leave(s, rng.random() < 0.5)


class Tls(Base):
    """Handshakes that fail, and clients that speak something else."""
    settings = dict(Hostile.settings)
    tearDown, served, rest, connect = Hostile.tearDown, Hostile.served, Hostile.rest, Hostile.connect
    crowd, send_raw = Hostile.crowd, Hostile.send_raw

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cert, key = (os.path.join(cls.folder.name, name) for name in ("cert.pem", "key.pem"))
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                        "-subj", "/CN=localhost", "-keyout", key, "-out", cert], check=True, capture_output=True)
        cls.server = Server(SCRIPTS, cert=cert, key=key, **cls.settings)

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.folder.cleanup()

    def wrapped(self):
        return self.server.tls.wrap_socket(self.connect())

    def hello(self):
        """The first bytes that a client sends."""
        sent, got = ssl.MemoryBIO(), ssl.MemoryBIO()
        with contextlib.suppress(ssl.SSLWantReadError):
            self.server.tls.wrap_bio(got, sent).do_handshake()
        return sent.read()

    def test_old_versions_are_refused(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            for version in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_2):
                context = ssl.create_default_context()
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                context.set_ciphers("ALL:@SECLEVEL=0")
                context.minimum_version = context.maximum_version = version
                old = version != ssl.TLSVersion.TLSv1_2
                with self.assertRaises(OSError) if old else contextlib.nullcontext():
                    context.wrap_socket(self.connect()).close()

    def test_plain_http_and_garbage(self):
        rng = random.Random(3)
        hello = self.hello()
        with self.crowd():
            for data in (b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n", b"\0" * 5000, b"\x16\x03\x01\xff\xff" + b"a" * 70000, b"SSH-2.0-x\r\n",
                         hello * 2, hello[:-1] + b"\xff" + b"x" * 100, hello[:5] + bytes(len(hello) - 5)):
                self.assertNotIn(b"HTTP/1.1 200", self.send_raw(data))
            for _ in range(50):
                data = bytearray(hello)
                data[rng.randrange(len(data))] = rng.randrange(256)
                s = self.connect()
                s.sendall(data[:rng.randrange(1, len(data))])
                self.leave(s, rng.random() < 0.5)

    def test_slow_handshakes(self):
        hello = self.hello()
        with self.crowd():
            sockets = [self.connect() for _ in range(30)]
            for i, s in enumerate(sockets):
                s.sendall(hello[:i * len(hello) // 40])
            for s in sockets:
                self.assertNotIn(b"HTTP", self.rest(s))
            slow = [self.connect() for _ in range(5)]
            Hostile.dribble(self, slow, hello * 10)
            self.assertFalse(slow)

    def test_those_that_shake_hands_and_leave(self):
        for hard in (True, False):
            for data in (b"", b"GET", raw_request(say("slow")), raw_request(say("slow", False))):
                s = self.wrapped()
                s.sendall(data)
                if data.startswith(b"POST"):
                    self.assertTrue(self.wait_for(lambda: self.status()["running"] == 1))
                self.leave(s, hard)
                self.assertTrue(self.wait_for(lambda: self.status()["running"] == 0))

    def test_broken_records_after_the_handshake(self):
        s = self.wrapped()
        s.sendall(raw_request(say("slow")))
        self.assertIn(b"200", s.recv(1000)[:20])
        raw = socket.socket(fileno=os.dup(s.fileno()))
        raw.sendall(b"not a record at all" * 10)
        raw.close()
        s.close()
        self.assertTrue(self.wait_for(lambda: self.status()["running"] == 0))

    def test_large_bodies_and_long_streams(self):
        self.assertEqual(self.server.post("/tokenize", {"content": "word " * 50000})["count"], 250000)
        text = APIS["chat"](self.server, "[[fast]]", True, max_tokens=300).text
        self.assertEqual(text, "abcdefghijklmnop" * 64 * 300)


if __name__ == "__main__":
    unittest.main()
