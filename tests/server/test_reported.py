"""Trouble with other servers that nobody should have here, a row of the list of cases each."""
import json
import random
import socket
import unittest

from harness import APIS, Server, in_parallel, pieces
from test_chat import HERMES, TOOLS, XML, hermes, tools_for, xml
from test_metrics import read_metrics
from test_transport import raw_request, say

CHARACTERS = "é€😊"


class Reported(unittest.TestCase):
    def test_S01_characters_cut_anywhere_in_text_reasoning_and_arguments(self):
        """Every place where a character of 2, 3 or 4 bytes can be cut, by all APIs, streamed and whole."""
        raws = {"h": (HERMES, "<think>\n" + CHARACTERS + "\n</think>\n\n" + CHARACTERS + "\n" + hermes("f", json.dumps({"s": CHARACTERS},
                                                                                                             ensure_ascii=False))),
                "x": (XML, CHARACTERS + "</think>\n\n" + CHARACTERS + "\n" + xml("f", s=CHARACTERS))}
        for name, (template, raw) in raws.items():
            data = raw.encode()
            marks = [i for i in range(1, len(data)) if data[i] & 0xc0 == 0x80]
            scripts = {f"{name}{i}": {"pieces": pieces(data[:i], data[i:])} for i in marks}
            scripts[name + "all"] = {"pieces": pieces(*[bytes([b]) for b in data])}
            with Server(scripts, context=2048, template=template) as server:
                for script in scripts:
                    for api in ("chat", "messages", "responses"):
                        fields = {"tools": tools_for(api), "chat_template_kwargs": {"enable_thinking": True}}
                        whole, stream = (APIS[api](server, f"[[{script}]]", s, **fields) for s in (False, True))
                        self.assertEqual(whole.key(), stream.key())
                        self.assertNotIn("\ufffd", "".join(stream.deltas))
                        arguments = stream.calls[0]["arguments"]
                        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
                        self.assertEqual((stream.text.strip(), stream.reasoning.strip(), arguments), (CHARACTERS, CHARACTERS, {"s": CHARACTERS}))
                    whole, stream = (APIS["completions"](server, f"[[{script}]]", s) for s in (False, True))
                    self.assertEqual((whole.text, stream.text), (raw, raw))

    def test_props_say_what_the_template_can(self):
        plain = "{% for m in messages %}{{ m.content }}{% endfor %}"
        for template, tools, reasoning in ((plain, False, False), (plain + "{{ tools }}", True, False), (HERMES, True, True), (XML, True, True),
                                           (plain + "{% if enable_thinking %}{% endif %}", False, True)):
            with Server({"s": {"pieces": pieces("a")}}, context=2048, template=template) as server:
                c = json.loads(server.call("GET", "/props")[2])["capabilities"]
                self.assertEqual((c["tools_supported"], c["reasoning_supported"]), (tools, reasoning))
                body = {"messages": [{"role": "user", "content": "[[s]]"}], "max_tokens": 1, "tools": tools_for("messages")}
                status, headers, text = server.call("POST", "/v1/messages", body)
                self.assertEqual((status, "no tools" in headers.get("Luce-Note", "")), (200, not tools), text)
                for path in ("/apply-template", "/v1/messages/count_tokens"):           # they tell what a reply would
                    self.assertEqual(server.call("POST", path, body)[1]["Luce-Note"], headers["Luce-Note"])
                for path, shape in (("/v1/messages/batches", "type"), ("/v1/responses/a/b", "error"), ("/v1/messages/a/b", "type"), ("/v1/nothing", "error")):
                    status, _, text = server.call("POST", path, body)
                    self.assertIn(status, (404, 405))
                    self.assertIn(shape, json.loads(text))

    def test_A03_the_cap_is_told_in_the_words_of_each_api(self):
        with Server({"s": {"pieces": pieces("a"), "endless": True}}, context=512) as server:
            chat = [{"role": "user", "content": "[[s]]"}]
            for field in ("max_tokens", "max_output_tokens", "max_completion_tokens"):
                for path, body in (("/v1/chat/completions", {"messages": chat}), ("/v1/messages", {"messages": chat}),
                                   ("/v1/responses", {"input": "[[s]]"}), ("/v1/completions", {"prompt": "[[s]]"})):
                    r = server.post(path, dict(body, **{field: 5}))
                    self.assertEqual(r["usage"].get("completion_tokens", r["usage"].get("output_tokens")), 5)
                    if path == "/v1/responses":
                        self.assertEqual((r["status"], r["incomplete_details"]), ("incomplete", {"reason": "max_output_tokens"}))
                        events = server.events(path, dict(body, **{field: 5}))
                        self.assertEqual((events[-1][0], events[-1][1]["response"]["incomplete_details"]),
                                         ("response.incomplete", {"reason": "max_output_tokens"}))
                    elif path == "/v1/messages":
                        self.assertEqual(r["stop_reason"], "max_tokens")
                    else:
                        self.assertEqual(r["choices"][0]["finish_reason"], "length")
            r = server.post("/v1/chat/completions", {"messages": chat, "max_tokens": 1 << 40})     # cut to what is left
            self.assertEqual(r["usage"]["total_tokens"], 512)

    def test_A13_choices_of_requests_that_come_together(self):
        for sequences in (1, 2):
            with Server({"s": {"pieces": pieces(*"abcdefgh")}}, context=512, sequences=sequences) as server:
                body = {"messages": [{"role": "user", "content": "[[s]]"}], "max_tokens": 4}
                one = server.post("/v1/chat/completions", body)["usage"]
                for r in in_parallel([lambda: server.post("/v1/chat/completions", dict(body, n=3))] * 4):
                    self.assertEqual([(c["index"], c["message"]["content"]) for c in r["choices"]], [(i, "abcd") for i in range(3)])
                    self.assertEqual((r["usage"]["prompt_tokens"], r["usage"]["completion_tokens"]), (one["prompt_tokens"], 12))

    def test_D01_a_lost_device_is_told_everywhere(self):
        scripts = {"lose": {"pieces": pieces("a", "b"), "lose": True}, "slow": {"pieces": pieces("a"), "endless": True, "pace_ms": 5}}
        with Server(scripts, context=512, sequences=2) as server:
            s = socket.create_connection(("127.0.0.1", server.port), timeout=30)
            s.sendall(raw_request(say("slow")))
            self.assertIn(b"200", s.recv(100)[:20])
            self.assertEqual(server.call("GET", "/health")[0], 200)
            server.post("/v1/chat/completions", say("lose", False), 500)
            text = b""
            while b"[DONE]" not in text and (got := s.recv(1 << 16)):
                text += got
            s.close()
            self.assertIn(b"the device fell off", text)
            status, _, body = server.call("GET", "/health")
            self.assertEqual((status, json.loads(body)), (503, {"status": "device lost"}))
            for path in ("/v1/chat/completions", "/v1/messages"):
                self.assertIn("the device fell off", server.post(path, say("slow"), 500)["error"]["message"])
            self.assertEqual(read_metrics(server)[0]["luce_device_lost"], 1)

    def test_K16_a_model_that_breaks_is_counted(self):
        with Server({"nan": {"pieces": pieces(*"abcdef"), "nan_at": 3}, "ok": {"pieces": pieces("ok")}}, context=512) as server:
            for stream in (False, True):
                self.assertRegex(json.dumps(
                    server.events("/v1/chat/completions", say("nan")) if stream else server.post("/v1/chat/completions", say("nan", False), 500)),
                    r"position \d+: the logits are not finite")
            self.assertEqual(read_metrics(server)[0]["luce_requests_failed_total"], 2)
            self.assertEqual(APIS["chat"](server, "[[ok]]", False).text, "ok")

    def test_O06_no_route_of_the_table_works_without_the_key(self):
        with Server({}, context=512, keys=["key"]) as server:
            good = {"Authorization": "Bearer key"}
            routes = json.loads(server.call("GET", "/props", None, good)[2])["api"]["endpoints"]
            self.assertGreater(len(routes), 15)
            for route in routes:
                path = route["path"] + ("x" if len(route["path"]) > 1 and route["path"].endswith("/") else "")
                for headers in ({}, {"x-api-key": "kez"}, {"Authorization": "Bearer "}, {"Authorization": "Bearer key2"}, {"x-api-key": ""}):
                    status, _, text = server.call(route["method"], path, {} if route["method"] == "POST" else None, headers)
                    self.assertEqual(status, 200 if path == "/health" else 401, path)
                    self.assertNotIn(b"kez", text)

    def test_S15_arguments_of_any_shape_join_to_what_a_whole_reply_says(self):
        """Values of the tag dialect, cut at random, against the schema's types."""
        rng = random.Random(15)
        texts = ["".join(rng.choice('ab"\\\n{}[]:,<>/é😊 =') for _ in range(rng.randrange(1, 25))).strip("\n") or "x" for _ in range(60)]
        scripts = {f"t{i}": {"pieces": pieces(*[xml_piece for xml_piece in cut_bytes("</think>\n\n" + xml("f", s=t, n=i), rng)])}
                   for i, t in enumerate(texts)}
        with Server(scripts, context=2048, template=XML) as server:
            for i, t in enumerate(texts):
                whole, stream = (APIS["chat"](server, f"[[t{i}]]", s, tools=TOOLS) for s in (False, True))
                self.assertEqual(whole.key(), stream.key())
                self.assertEqual(json.loads(stream.calls[0]["arguments"]), {"s": t, "n": i})


def cut_bytes(text, rng):
    data = text.encode()
    while data:
        n = rng.randrange(1, 7)
        yield data[:n]
        data = data[n:]


if __name__ == "__main__":
    unittest.main()
