"""Keys, limits, clients that leave, queues, long silences and the end of the process."""
import json
import random
import signal
import socket
import struct
import threading
import time
import unittest

from harness import APIS, Server, in_parallel, pieces

SCRIPTS = {
    "short": {"pieces": pieces("Hello", " you", ".")},
    "slow": {"pieces": pieces("a"), "endless": True, "pace_ms": 20},
    "endless": {"pieces": pieces("a"), "endless": True},
    "fast": {"pieces": pieces("abcdefghijklmnop" * 64), "endless": True},
    "read": {"pieces": pieces("read"), "prefill_us": 5000},
}
for word in range(8):
    SCRIPTS[f"word{word}"] = {"pieces": pieces(*[f"code{word} "] * 20), "pace_ms": 1}


def raw_request(body, path="/v1/chat/completions"):
    data = json.dumps(body).encode()
    return (f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n").encode() + data


def say(script, stream=True, **fields):
    return dict({"messages": [{"role": "user", "content": f"[[{script}]]"}], "stream": stream}, **fields)


class Base(unittest.TestCase):
    settings = {}

    @classmethod
    def setUpClass(cls):
        cls.server = Server(SCRIPTS, **cls.settings)

    @classmethod
    def tearDownClass(cls):
        seconds, status = cls.server.stop()
        assert status == 0 and seconds < 5.5, (status, seconds)

    def status(self):
        return json.loads(self.server.call("GET", "/status/json")[2])

    def send(self, body, path="/v1/chat/completions"):
        s = socket.create_connection(("127.0.0.1", self.server.port), timeout=30)
        s.sendall(raw_request(body, path))
        return s

    def wait_for(self, condition, seconds=5):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if condition():
                return True
            time.sleep(0.01)
        return False

    def leave(self, s, hard=False):
        """Closes the socket, hard with a reset."""
        if hard:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        s.close()


class Keys(Base):
    settings = {"keys": ["first", "second"], "context": 256}

    def test_every_route_but_health_wants_the_key(self):
        """O06"""
        routes = [("GET", "/"), ("GET", "/v1/models"), ("POST", "/v1/chat/completions"), ("POST", "/v1/completions"),
                  ("POST", "/v1/responses"), ("POST", "/v1/messages"), ("POST", "/v1/messages/count_tokens"), ("POST", "/tokenize"),
                  ("POST", "/detokenize"), ("POST", "/apply-template"), ("GET", "/props"), ("GET", "/metrics"), ("GET", "/status/json"),
                  ("GET", "/status/events"), ("GET", "/nothing")]
        for method, path in routes:
            for headers in ({}, {"Authorization": "Bearer nope"}, {"x-api-key": "firs"}, {"Authorization": "first"}):
                with self.subTest(path=path, headers=headers):
                    status, _, text = self.server.call(method, path, {} if method == "POST" else None, headers)
                    self.assertEqual(status, 401)
                    self.assertIn("message", json.loads(text)["error"])
        self.assertEqual(self.server.call("GET", "/health")[0], 200)
        for headers in ({"Authorization": "Bearer first"}, {"x-api-key": "second"}):
            self.assertEqual(self.server.call("GET", "/v1/models", None, headers)[0], 200)


class Transport(Base):
    settings = {"context": 8000, "sequences": 2, "queue": 64, "keep_alive_ms": 300}

    def test_chunked_bodies_and_kept_connections(self):
        c = self.server.connect()
        for _ in range(3):
            c.request("POST", "/tokenize", iter([b'{"con', b'tent": "a', b'b"}']), encode_chunked=True,
                      headers={"Transfer-Encoding": "chunked"})
            self.assertEqual(json.loads(c.getresponse().read())["count"], 2)
        c.close()

    def test_a_body_over_the_limit_is_413(self):
        status, _, text = self.server.call("POST", "/v1/messages", b" " * (9 << 20))
        self.assertEqual((status, json.loads(text)["error"]["type"]), (413, "request_too_large"))

    def test_a_head_over_the_limit_is_refused(self):
        s = socket.create_connection(("127.0.0.1", self.server.port), timeout=10)
        s.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 100000 + b"\r\n\r\n")
        self.assertIn(s.recv(100)[9:12], (b"431", b"413", b"414", b"400"))
        s.close()
        self.assertEqual(self.server.call("GET", "/health")[0], 200)

    def talk(self, data):
        """The status of a reply to raw bytes, and all that came until its end (it asks to close)."""
        s = socket.create_connection(("127.0.0.1", self.server.port), timeout=30)
        s.sendall(data)
        text = b""
        while got := s.recv(1 << 16):
            text += got
        s.close()
        return int(text[9:12]), text

    def test_targets_of_all_forms(self):
        head = " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        for target, status in (("http://luce/health", 200), ("HTTP://luce:80/health?x=1", 200), ("https://luce/v1/models/script", 200),
                               ("http://luce", 200), ("http://luce/", 200), ("http://luce/nothing", 404), ("/v1/models/%73cript", 200),
                               ("/v1/models/script%00x", 404), ("/v1/models/script%00", 404), ("/health%00", 404), ("/v1/models/%zz%", 404),
                               ("/health%3fx", 404)):
            self.assertEqual(self.talk(f"GET {target}{head}".encode())[0], status, target)

    def test_a_host_is_named_once(self):
        for version, hosts, status in (("1.1", ("x",), 200), ("1.1", (), 400), ("1.1", ("x", "x"), 400), ("1.0", (), 200), ("1.0", ("x", "y"), 400)):
            lines = "".join(f"Host: {h}\r\n" for h in hosts)
            got, text = self.talk(f"GET /health HTTP/{version}\r\n{lines}Connection: close\r\n\r\n".encode())
            self.assertEqual(got, status, (version, hosts))
            self.assertEqual(b"one Host" in text, status == 400)

    def test_who_asks_before_sending_is_told_of_the_limit_at_once(self):
        for length, first in (((8 << 20) + 1, b"HTTP/1.1 413"), (2, b"HTTP/1.1 100")):
            s = socket.create_connection(("127.0.0.1", self.server.port), timeout=30)
            s.sendall(b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % length)
            self.assertEqual(s.recv(12), first)
            s.close()

    def test_a_client_that_leaves_ends_its_request(self):
        """O01"""
        for stream in (True, False):
            for hard in (True, False):
                for script in ("endless", "slow", "read"):
                    with self.subTest(stream=stream, hard=hard, script=script):
                        s = self.send(say(script, stream) if script != "read" else
                                      {"messages": [{"role": "user", "content": "[[read]]" + "x" * 3000}], "stream": stream})
                        self.assertTrue(self.wait_for(lambda: self.status()["running"] == 1))
                        self.leave(s, hard)
                        self.assertTrue(self.wait_for(lambda: self.status()["running"] == 0, 4))

    def test_a_half_closed_stream_goes_on(self):
        """O01"""
        s = self.send(say("slow", max_tokens=30))
        s.shutdown(socket.SHUT_WR)
        text = b""
        while True:
            got = s.recv(65536)
            text += got
            if not got or b"[DONE]" in text:
                break
        self.assertIn(b"[DONE]", text)
        s.close()

    def test_one_that_waits_and_leaves_does_not_touch_those_that_run(self):
        """O02"""
        results = []
        running = [threading.Thread(target=lambda: results.append(APIS["chat"](self.server, "[[slow]]", True, max_tokens=60)))
                   for _ in range(2)]
        for t in running:
            t.start()
        self.assertTrue(self.wait_for(lambda: self.status()["running"] == 2))
        s = self.send(say("endless"))
        self.assertTrue(self.wait_for(lambda: self.status()["waiting"] == 1))
        self.leave(s)
        self.assertTrue(self.wait_for(lambda: self.status()["waiting"] == 0))
        for t in running:
            t.join()
        self.assertEqual([r.text for r in results], ["a" * 60] * 2)

    def test_streams_begin_at_once_and_are_never_silent_long(self):
        """S12"""
        for path, body in (("/v1/chat/completions", {}), ("/v1/messages", {}), ("/v1/responses", {}), ("/v1/completions", {})):
            text = path + "[[read]]" + "x" * 200
            body = {"messages": [{"role": "user", "content": text}], "input": text, "prompt": text, "stream": True, "max_tokens": 5}
            with self.subTest(path=path):
                start = last = time.monotonic()
                s, longest, first, all_text = self.send(body, path), 0, None, b""
                while True:
                    got = s.recv(65536)
                    now = time.monotonic()
                    longest, last = max(longest, now - last), now
                    first = first or now - start
                    all_text += got
                    if not got or all_text.endswith(b"0\r\n\r\n"):
                        break
                s.close()
                self.assertLess(first, 0.5)
                self.assertLess(longest, 1.5)           # keep-alive of 0.3 s, a prefill of 1 s
                self.assertIn(b"event: ping" if path == "/v1/messages" else b": keep-alive", all_text)

    def test_a_slow_reader_is_dropped_and_delays_nobody(self):
        s = self.send(say("fast"))
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        start = time.monotonic()
        self.assertEqual(APIS["chat"](self.server, "[[short]]", True).text, "Hello you.")
        self.assertLess(time.monotonic() - start, 3)
        self.assertTrue(self.wait_for(lambda: self.status()["running"] == 0, 20))
        s.close()

    def test_a_short_prompt_is_not_held_up_by_a_long_one(self):
        """F02: chunks of 128 rows at 5 ms a row: the short one's first token comes within three of them."""
        long = self.send({"messages": [{"role": "user", "content": "[[read]]" + "x" * 6000}], "stream": True})
        self.assertTrue(self.wait_for(lambda: self.status()["running"] == 1))
        time.sleep(0.2)
        start = time.monotonic()
        self.assertEqual(APIS["chat"](self.server, "[[short]]", True, max_tokens=1).text, "Hello")
        self.assertLess(time.monotonic() - start, 3 * 128 * 0.005 + 1)
        self.leave(long)

    def test_health_answers_while_a_prompt_is_read(self):
        """F01"""
        long = self.send({"messages": [{"role": "user", "content": "[[read]]" + "x" * 6000}], "stream": True})
        slowest = 0
        for _ in range(50):
            start = time.monotonic()
            self.assertEqual(self.server.call("GET", "/health")[0], 200)
            slowest = max(slowest, time.monotonic() - start)
            time.sleep(0.01)
        self.assertLess(slowest, 1)
        self.leave(long)

    def test_texts_of_requests_at_once_do_not_mix(self):
        """K11"""
        def one(i):
            def run():
                rng = random.Random(i)
                for _ in range(6):
                    if rng.random() < 0.2:
                        s = self.send(say(f"word{i}"))
                        s.recv(100)
                        self.leave(s, rng.random() < 0.5)
                    a = APIS[rng.choice(("chat", "messages", "responses"))](self.server, f"[[word{i}]]", rng.random() < 0.5)
                    self.assertEqual(a.text, f"code{i} " * 20)
            return run
        in_parallel([one(i) for i in range(8)])


class Queue(Base):
    settings = {"context": 8000, "sequences": 1, "queue": 2}

    def test_a_full_queue_is_429_at_once(self):
        """O04"""
        held = [self.send(say("slow", max_tokens=300)) for _ in range(3)]
        self.assertTrue(self.wait_for(lambda: self.status()["running"] + self.status()["waiting"] == 3))
        for path in ("/v1/chat/completions", "/v1/messages"):
            start = time.monotonic()
            status, headers, text = self.server.call("POST", path, say("short"))
            self.assertEqual(status, 429)
            self.assertLess(time.monotonic() - start, 1)
            self.assertTrue(headers["Retry-After"])
            self.assertEqual(json.loads(text)["error"]["type"], "rate_limit_error")
        for s in held:
            self.leave(s)
        self.assertTrue(self.wait_for(lambda: self.status()["running"] + self.status()["waiting"] == 0))
        self.assertEqual(APIS["chat"](self.server, "[[short]]", False, n=3).text, "Hello you.")


class Gather(Base):
    settings = {"context": 1000, "sequences": 3, "gather_ms": 1000}

    def test_first_arrivals_begin_together(self):
        steps = self.status()["steps"]
        in_parallel([lambda: APIS["completions"](self.server, "[[short]]", False, max_tokens=1)] * 3)
        self.wait_for(lambda: self.status()["steps"] > steps)
        self.assertEqual(self.status()["steps"], steps + 1)
        self.assertEqual(APIS["chat"](self.server, "[[short]]", False).text, "Hello you.")


class End(unittest.TestCase):
    def test_running_streams_get_an_error_event_and_the_process_ends(self):
        """D06"""
        for script in ("slow", "read", None):
            with self.subTest(script=script):
                server = Server(SCRIPTS, context=8000, sequences=1)
                s = socket.create_connection(("127.0.0.1", server.port), timeout=20)
                if script:
                    s.sendall(raw_request({"messages": [{"role": "user", "content": f"[[{script}]]" + "x" * 2000}], "stream": True}))
                    s.recv(100)
                seconds, status = server.stop()
                self.assertEqual(status, 0)
                self.assertLess(seconds, 5.5 + 128 * 0.005)
                text = b""
                while script:
                    got = s.recv(65536)
                    text += got
                    if not got:
                        self.assertIn(b'"error"', text)
                        break
                s.close()

    def test_a_second_signal_ends_it_at_once(self):
        server = Server(SCRIPTS, context=8000)
        s = socket.create_connection(("127.0.0.1", server.port), timeout=20)
        s.sendall(raw_request(say("slow")))
        s.recv(100)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        start = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(5)
        self.assertLess(time.monotonic() - start, 1)
        server.stop()
        s.close()


if __name__ == "__main__":
    unittest.main()
