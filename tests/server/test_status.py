"""/status: what is under way, what ended, its events, and who may read the texts of others."""
import http.client
import json
import socket
import threading
import time
import unittest

from harness import Server, pieces

SCRIPTS = {
    "slow": {"pieces": pieces("tok"), "endless": True, "pace_ms": 5},
    "short": {"pieces": pieces("Hello", " you", ".")},
}
PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses", "completions": "/v1/completions"}
KEYS = {"id", "prompt_excerpt", "prompt_tokens", "completion_tokens", "stream", "elapsed_s", "model", "format", "max_output",
        "temperature", "top_p", "top_k", "thinking_enabled", "session_id", "cache_hit", "pflash", "spec_decode", "messages"}
ENDED = {"prefill_tok_s", "decode_tok_s", "accept_rate", "prompt_tokens", "completion_tokens", "cache_hit", "pflash", "spec_decode"}


def body(api, text, **fields):
    place = {"responses": {"input": text}, "completions": {"prompt": text}}.get(api, {"messages": [{"role": "user", "content": text}]})
    return dict(place, stream=True, **fields)


def other_address():
    """An address of this machine that is not loopback, or None."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.connect(("192.0.2.1", 9))         # sends nothing
            return s.getsockname()[0]
    except OSError:
        return None


class Events(threading.Thread):
    """Reads /status/events until it is left."""

    def __init__(self, server, headers=None):
        super().__init__(daemon=True)
        self.connection = server.connect()
        self.connection.request("GET", "/status/events", headers=headers or {})
        self.reply = self.connection.getresponse()
        self.got = []
        self.start()

    def run(self):
        event = None
        try:
            for line in self.reply:
                line = line.decode().rstrip("\n")
                if line.startswith("event: "):
                    event = line[7:]
                elif line.startswith("data: "):
                    self.got.append((event, json.loads(line[6:])))
        except (OSError, ValueError, http.client.HTTPException):
            pass

    def of(self, kind):
        return [data for event, data in list(self.got) if event == kind]

    def leave(self):
        self.connection.sock and self.connection.sock.shutdown(socket.SHUT_RDWR)
        self.join(20)
        self.reply.close()
        self.connection.close()


class Status(unittest.TestCase):
    settings = {"context": 8000, "sequences": 3, "queue": 16, "keep_alive_ms": 200, "host": "0.0.0.0"}

    def setUp(self):
        self.server = Server(SCRIPTS, **self.settings)

    def tearDown(self):
        self.assertEqual(self.server.stop()[1], 0)

    def status(self, headers=None):
        code, _, text = self.server.call("GET", "/status/json", headers=headers)
        self.assertEqual(code, 200)
        return json.loads(text)

    def wait_for(self, condition):
        end = time.monotonic() + 60
        while not condition():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)

    def begin(self, api, text, headers=None, **fields):
        c = self.server.connect()
        c.request("POST", PATHS[api], json.dumps(body(api, text, **fields)), headers or {})
        reply = c.getresponse()
        self.assertEqual(reply.status, 200)
        reply.read(1)
        return c, reply

    def end(self, pair):
        pair[0].sock and pair[0].sock.shutdown(socket.SHUT_RDWR)
        pair[1].close()
        pair[0].close()

    def nothing(self):
        s = self.status()
        return s["current"] is None and s["requests"] == [] and s["phase"] == "idle"

    def test_what_is_under_way(self):
        self.assertTrue(self.nothing())
        for api in PATHS:
            with self.subTest(api=api):
                fields = {"max_output_tokens" if api == "responses" else "max_tokens": 7000, "temperature": 0.7, "top_p": 0.9,
                          "top_k": 5, "session_id": "mine"}
                pair = self.begin(api, "[[slow]] a secret " + "ä€" * 90, **fields)
                self.wait_for(lambda: self.status()["current"]["completion_tokens"] > 0)
                s = self.status()
                now = s["current"]
                self.assertEqual(set(now), KEYS)
                self.assertEqual(s["phase"], "decode")
                self.assertEqual([now["id"]], [r["id"] for r in s["requests"]])
                self.assertEqual(set(s["requests"][0]), KEYS - {"messages"})
                if api == "completions":
                    self.assertIsNone(now["messages"])
                else:
                    self.assertEqual(json.loads(now["messages"])[-1], {"role": "user", "content": "[[slow]] a secret " + "ä€" * 90})
                self.assertIn("[[slow]]", now["prompt_excerpt"])
                self.assertLessEqual(len(now["prompt_excerpt"].encode()), 200 + 3)
                self.assertGreater(now["prompt_tokens"], 90)
                self.assertGreaterEqual(now["elapsed_s"], 0)
                self.assertEqual({k: now[k] for k in ("stream", "model", "format", "max_output", "temperature", "top_p", "top_k",
                                                      "session_id", "spec_decode", "thinking_enabled")},
                                 {"stream": True, "model": "script", "format": api, "max_output": 7000, "temperature": 0.7, "top_p": 0.9,
                                  "top_k": 5, "session_id": "mine", "spec_decode": False, "thinking_enabled": False})
                self.end(pair)
                self.wait_for(self.nothing)             # a cancelled one is cleared, too

    def test_the_oldest_is_the_current_one_and_all_are_listed(self):
        pairs = [self.begin("chat", f"[[slow]] number {i}") for i in range(3)]
        s = self.status()
        self.assertEqual([f"number {i}" in r["prompt_excerpt"] for i, r in enumerate(s["requests"])], [True] * 3)
        self.assertEqual(s["current"]["id"], s["requests"][0]["id"])
        self.end(pairs[0])
        self.wait_for(lambda: len(self.status()["requests"]) == 2)
        self.assertIn("number 1", self.status()["current"]["prompt_excerpt"])
        for pair in pairs[1:]:
            self.end(pair)
        self.wait_for(self.nothing)

    def test_ended_requests_are_gone_and_their_speed_is_kept(self):
        for i in range(55):
            self.server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "[[short]]" + "x" * i}]})
            if i == 2:
                self.assertEqual(len(self.status()["perf_history"]), 3)
            self.assertIsNone(self.status()["current"])
        history = self.status()["perf_history"]
        self.assertEqual(len(history), 50)
        for earlier, e in zip(history, history[1:]):
            self.assertEqual(e["prompt_tokens"], earlier["prompt_tokens"] + 1)
        for e in history:
            self.assertEqual(set(e), ENDED)
            self.assertGreater(e["completion_tokens"], 3)
        self.server.post("/v1/chat/completions", {"messages": [], "n": 1}, 400)
        self.assertEqual(self.status()["perf_history"], history)

    def test_a_refused_request_leaves_nothing(self):
        full = self.settings["sequences"] + self.settings["queue"]
        pairs = [self.begin("chat", "[[slow]]") for _ in range(full)]
        self.assertEqual(self.server.call("POST", PATHS["chat"], body("chat", "[[short]]"))[0], 429)
        self.assertEqual(len(self.status()["requests"]), full)
        for pair in pairs:
            self.end(pair)
        self.wait_for(self.nothing)

    def test_events(self):
        events = Events(self.server)
        self.wait_for(lambda: events.of("status"))
        pair = self.begin("chat", "[[slow]] a secret")
        self.wait_for(lambda: len(events.of("token")) > 20)
        now = self.status()["current"]
        for t in events.of("token"):
            self.assertEqual((t["id"], set(t["text"])), (now["id"], set("tok")))
        self.wait_for(lambda: any(s["current"] and s["current"]["completion_tokens"] >= 10 for s in events.of("status")))
        self.end(pair)
        self.wait_for(lambda: events.of("status")[-1]["current"] is None)
        events.leave()
        pair = self.begin("chat", "[[slow]]")           # nobody watches any more
        self.end(pair)
        self.wait_for(self.nothing)

    def test_what_the_current_one_found_in_the_cache_and_how_it_begins(self):
        text = "[[slow]] " + "é" * 2200
        for hit in (False, True):
            pair = self.begin("chat", text, max_tokens=500)
            self.wait_for(lambda: self.status()["current"]["completion_tokens"] > 0)
            now = self.status()["current"]
            self.assertEqual(now["cache_hit"], hit)
            self.assertLessEqual(len(now["messages"].encode()), 4096)
            self.assertGreater(len(now["messages"].encode()), 4090)
            self.assertTrue(('[{"role":"user","content":"' + text).startswith(now["messages"]))
            self.end(pair)
            self.wait_for(self.nothing)

    def test_texts_are_hidden_from_others(self):
        secret = "hidden thing"
        pair = self.begin("chat", "[[slow]] " + secret, session_id="hidden session")
        self.wait_for(lambda: self.status()["current"]["completion_tokens"] > 0)
        self.assertIn(secret, self.status()["current"]["prompt_excerpt"])
        others = [{"Origin": "http://elsewhere.example"}, {"Host": "elsewhere.example"}, {"X-Forwarded-For": "192.0.2.7"},
                  {"Forwarded": "for=192.0.2.7"}, {"Via": "1.1 somewhere"}, {"Host": "127.0.0.1.elsewhere.example"},
                  {"Host": "localhost:elsewhere"}, {"Sec-Fetch-Site": "cross-site"}, {"X-Forwarded-Host": "elsewhere.example"}]
        for headers in others:
            with self.subTest(headers=headers):
                self.assert_hidden(self.status(headers))
                events = Events(self.server, headers)
                self.wait_for(lambda: len(events.of("status")) > 3)
                self.assertEqual(events.of("token"), [])
                self.assert_hidden(events.of("status")[-1])
                events.leave()
        text = self.server.call("GET", "http://elsewhere.example/status/json", headers={"Host": "localhost"})[2]
        self.assert_hidden(json.loads(text))
        self.assertIn(secret, self.status({"Sec-Fetch-Site": "same-origin"})["current"]["prompt_excerpt"])
        self.end(pair)

    def assert_hidden(self, s):
        self.assertNotIn("hidden", json.dumps(s))
        self.assertEqual(set(s["current"]), KEYS)
        self.assertEqual([s["current"][k] for k in ("prompt_excerpt", "session_id", "messages")], [None] * 3)
        self.assertGreater(s["current"]["prompt_tokens"], 0)

    @unittest.skipUnless(other_address(), "this machine has no other address")
    def test_texts_are_hidden_from_another_address(self):
        pair = self.begin("chat", "[[slow]] hidden thing")
        c = http.client.HTTPConnection(other_address(), self.server.port, timeout=60)
        for headers in ({}, {"Host": "127.0.0.1"}):
            c.request("GET", "/status/json", headers=headers)
            self.assert_hidden(json.loads(c.getresponse().read()))
        c.close()
        self.end(pair)


class WithKey(Status):
    """The key opens everything, from wherever; nothing is open without it."""
    settings = dict(Status.settings, keys=["key"])

    def setUp(self):
        super().setUp()
        plain = self.server.call
        self.server.call = lambda method, path, body=None, headers=None: plain(method, path, body, dict(headers or {}, **{"x-api-key": "key"}))
        self.plain = plain

    def begin(self, api, text, headers=None, **fields):
        return super().begin(api, text, {"x-api-key": "key"}, **fields)

    def test_events(self):
        events = Events(self.server, {"x-api-key": "key", "Origin": "http://elsewhere.example"})
        pair = self.begin("chat", "[[slow]]")
        self.wait_for(lambda: len(events.of("token")) > 3)
        self.end(pair)
        events.leave()

    def test_texts_are_hidden_from_others(self):
        pair = self.begin("chat", "[[slow]] a secret")
        for path in ("/status/json", "/status/events"):
            self.assertEqual(self.plain("GET", path)[0], 401)
        self.assertIn("a secret", self.status({"Origin": "http://elsewhere.example"})["current"]["prompt_excerpt"])
        self.end(pair)

    def test_texts_are_hidden_from_another_address(self):
        self.assertEqual(self.plain("GET", "/status/json", headers={"Host": "elsewhere.example"})[0], 401)


if __name__ == "__main__":
    unittest.main()
