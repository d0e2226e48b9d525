"""Text, limits and errors of all APIs, with a scripted model."""
import json
import re
import random
import unittest

from harness import APIS, Server, in_parallel, pieces

STORY = ["Once", " upon", " a", " time", " there", " was", " a", " fox", "."]
SCRIPTS = {
    "story": {"pieces": pieces(*STORY)},
    "emoji": {"pieces": pieces(b"\xf0\x9f", b"\x98\x8a", b"\xd1", b"\x89", " ok", b"\xe2\x82", b"\xac")},
    "half": {"pieces": pieces("ab", b"\xf0\x9f")},
    "broken": {"pieces": pieces("Belgium.", b"\x80", " rest")},
    "span": {"pieces": pieces("ABC", "DEF", "G", "HI", "J", "after")},
    "hash": {"pieces": pieces("a###b", "more")},
    "angle": {"pieces": pieces("<unk>", "<unk>", "x")},
    "endless": {"pieces": pieces("a"), "endless": True},
    "flat": {"flat": True},
    "nan": {"pieces": pieces(*STORY), "nan_at": 5},
    "nothing": {"pieces": []},
}
ROUNDS = []


def add_random_rounds():
    rng = random.Random(7)
    for i in range(40):
        text = "".join(rng.choice("ab€😊<") for _ in range(rng.randrange(1, 30)))
        data, cut = text.encode(), []
        while data:
            n = rng.randrange(1, 6)
            cut.append(data[:n])
            data = data[n:]
        stops = ["".join(rng.choice("ab€<") for _ in range(rng.randrange(1, 4))) for _ in range(rng.randrange(0, 3))]
        SCRIPTS[f"random{i}"] = {"pieces": pieces(*cut)}
        ends = [(text.find(s) + len(s), -len(s)) for s in stops if s in text]
        want = text[:min(ends)[0] + min(ends)[1]] if ends else text
        ROUNDS.append((f"random{i}", stops, want))


add_random_rounds()


class Api(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(SCRIPTS, context=512, sequences=4)

    @classmethod
    def tearDownClass(cls):
        seconds, status = cls.server.stop()
        assert status == 0 and seconds < 5, (status, seconds)

    def everywhere(self, script, check, **fields):
        """Asks by all APIs, streamed and whole; the two must agree."""
        for name, ask in APIS.items():
            with self.subTest(api=name, script=script):
                whole = ask(self.server, f"[[{script}]]", False, **fields)
                stream = ask(self.server, f"[[{script}]]", True, **fields)
                self.assertEqual(whole.key(), stream.key())
                self.assertEqual("".join(stream.deltas), stream.text)
                check(stream, whole)

    def test_whole_and_streamed_replies_are_equal(self):
        def check(a, _):
            self.assertEqual((a.text, a.finish, a.usage), ("".join(STORY), "stop", len(STORY) + 1))
        self.everywhere("story", check)

    def test_caps_end_with_length_and_exactly_so_many_tokens(self):
        """A03"""
        def check(a, _):
            self.assertEqual((a.text, a.finish, a.usage), ("".join(STORY[:5]), "length", 5))
        self.everywhere("story", check, max_tokens=5)
        for field in ("max_completion_tokens", "max_output_tokens", "max_tokens"):
            r = self.server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "[[story]]"}], field: 5})
            self.assertEqual((r["usage"]["completion_tokens"], r["choices"][0]["finish_reason"]), (5, "length"))

    def test_without_a_cap_the_context_is_the_cap(self):
        """A08"""
        def check(a, _):
            self.assertEqual((a.finish, set(a.text)), ("length", {"a"}))
        for name in ("chat", "responses", "completions"):
            check(APIS[name](self.server, "[[endless]]", False), None)

    def test_characters_are_never_sent_in_halves(self):
        """S01"""
        def check(a, _):
            self.assertEqual(a.text, "😊щ ok€")
            self.assertFalse(any("\ufffd" in d for d in a.deltas))
        self.everywhere("emoji", check)

    def test_what_is_not_utf8_is_replaced(self):
        """T07 (its bytes; tests/fuzz/fuzz_dialect.c has any)"""
        self.everywhere("half", lambda a, _: self.assertEqual(a.text, "ab\ufffd"))
        self.everywhere("broken", lambda a, _: self.assertEqual(a.text, "Belgium.\ufffd rest"))

    def test_stop_strings_that_span_tokens(self):
        """S03, S05"""
        def check(a, _):
            self.assertEqual((a.text, a.finish), ("ABC", "stop"))
        self.everywhere("span", check, stop=["DEFGHIJ"])
        self.everywhere("span", lambda a, _: self.assertEqual((a.text, a.finish), ("", "stop")), stop=["ABC"])
        self.everywhere("angle", lambda a, _: self.assertEqual(a.text, "<unk"), stop=["><"])

    def test_stop_strings_in_random_texts(self):
        """S05"""
        for script, stops, want in ROUNDS:
            for name in ("chat", "messages"):
                a = APIS[name](self.server, f"[[{script}]]", True, stop=stops)
                self.assertEqual(a.text, want, (script, stops))

    def test_messages_name_the_stop_string(self):
        """A27"""
        for stream in (False, True):
            a = APIS["messages"](self.server, "[[hash]]", stream, stop=["zzz", "###"])
            self.assertEqual((a.text, a.stop), ("a", "###"))

    def test_usage_comes_only_when_asked_for(self):
        """A05"""
        body = {"messages": [{"role": "user", "content": "[[story]]"}]}
        plain = self.server.events("/v1/chat/completions", body)
        self.assertFalse(any(e != "[DONE]" and e.get("usage") for _, e in plain))
        asked = self.server.events("/v1/chat/completions", dict(body, stream_options={"include_usage": True}))
        self.assertEqual((asked[-1][1], asked[-2][1]["choices"]), ("[DONE]", []))
        self.assertEqual(sum(1 for _, e in asked if e != "[DONE]" and e.get("usage")), 1)

    def test_a_prompt_that_is_too_long_is_400_before_any_event(self):
        """A06"""
        text = "x" * 600
        for stream in (False, True):
            e = self.server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": text}], "stream": stream}, 400)
            self.assertEqual((e["error"]["code"], e["error"]["type"]), ("context_length_exceeded", "invalid_request_error"))
            self.assertIn("maximum context length", e["error"]["message"])
            self.assertIn("512", e["error"]["message"])
            e = self.server.post("/v1/responses", {"input": text, "stream": stream}, 400)
            self.assertEqual(e["error"]["code"], "context_length_exceeded")
            e = self.server.post("/v1/messages", {"max_tokens": 9, "stream": stream, "messages": [{"role": "user", "content": text}]}, 400)
            self.assertEqual(e["error"]["type"], "invalid_request_error")
            self.assertRegex(e["error"]["message"], r"prompt is too long: \d+ tokens > \d+ maximum")

    def test_logprobs_are_the_same_in_both_modes_and_cover_the_text(self):
        """A11"""
        body = {"messages": [{"role": "user", "content": "[[story]]"}], "logprobs": True, "top_logprobs": 3, "max_tokens": 8}
        whole = self.server.post("/v1/chat/completions", body)["choices"][0]
        entries = whole["logprobs"]["content"]
        stream = [x for _, e in self.server.events("/v1/chat/completions", body)[:-1] for c in e["choices"]
                  for x in c.get("logprobs", {}).get("content", [])]
        self.assertEqual(entries, stream)
        self.assertEqual(len(entries), 8)
        self.assertTrue(all(len(x["top_logprobs"]) == 3 for x in entries))
        self.assertEqual(bytes(b for x in entries for b in x["bytes"]).decode(), whole["message"]["content"])
        old = self.server.post("/v1/completions", {"prompt": "[[story]]", "logprobs": 3, "max_tokens": 8})["choices"][0]["logprobs"]
        self.assertEqual("".join(old["tokens"]), whole["message"]["content"])

    def test_several_choices(self):
        """A13"""
        def one():
            r = self.server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "[[story]]"}], "n": 3, "max_tokens": 4})
            self.assertEqual([c["index"] for c in r["choices"]], [0, 1, 2])
            self.assertEqual({c["message"]["content"] for c in r["choices"]}, {"Once upon a time"})
            self.assertEqual(r["usage"]["completion_tokens"], 12)
            return r["usage"]["prompt_tokens"]
        self.assertEqual(len(set(in_parallel([one] * 4))), 1)
        self.server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "n": 129}, 400)

    def test_seeds(self):
        """A35"""
        def ask(**fields):
            return json.dumps(APIS["chat"](self.server, "[[flat]]", False, temperature=1, max_tokens=12, logprobs=True, **fields).text)
        self.assertGreater(len({ask() for _ in range(3)}), 1)
        self.assertEqual(len({ask(seed=1) for _ in range(3)}), 1)
        self.assertEqual(len({ask(seed=s) for s in range(3)}), 3)
        self.assertEqual(len({ask(seed=-1) for _ in range(3)}), 3)              # as if there were none
        self.assertEqual(ask(seed=-2), ask(seed=2 ** 64 - 2))

    def test_logit_bias(self):
        body = {"messages": [{"role": "user", "content": "[[flat]]"}], "max_tokens": 3, "logit_bias": {"65": 100}}
        self.assertEqual(self.server.post("/v1/chat/completions", body)["choices"][0]["message"]["content"], "AAA")

    def test_bad_logits_end_the_request_with_an_error(self):
        """K16"""
        e = self.server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "[[nan]]"}]}, 500)
        self.assertIn("not finite", e["error"]["message"])
        for name in ("chat", "messages", "responses"):
            a = APIS[name](self.server, "[[nan]]", True)
            self.assertIn("not finite", a.error["message"])
        self.assertEqual(APIS["chat"](self.server, "[[story]]", True).text, "".join(STORY))

    def test_an_empty_answer(self):
        self.everywhere("nothing", lambda a, _: self.assertEqual((a.text, a.finish), ("", "stop")))
        r = self.server.post("/v1/messages", {"max_tokens": 5, "messages": [{"role": "user", "content": "[[nothing]]"}]})
        self.assertEqual(r["content"], [{"type": "text", "text": ""}])

    def test_count_tokens_equals_usage(self):
        """A26"""
        body = {"max_tokens": 5, "system": "be brief", "messages": [{"role": "user", "content": "[[story]] héllo"}]}
        n = self.server.post("/v1/messages/count_tokens?beta=true", body)["input_tokens"]
        u = self.server.post("/v1/messages?beta=true", body)["usage"]
        self.assertEqual(n, u["input_tokens"] + u["cache_read_input_tokens"] + u["cache_creation_input_tokens"])

    def test_previous_responses_can_be_continued(self):
        first = self.server.post("/v1/responses", {"input": "[[story]]"})
        second = self.server.post("/v1/responses", {"input": "go on", "previous_response_id": first["id"]})
        self.assertGreater(second["usage"]["input_tokens"], first["usage"]["input_tokens"])
        e = self.server.post("/v1/responses", {"input": "x", "previous_response_id": "resp_0"}, 400)
        self.assertEqual(e["error"]["code"], "previous_response_not_found")
        e = self.server.post("/v1/responses", {"input": "x", "previous_response_id": 5}, 400)
        self.assertEqual(e["error"]["param"], "previous_response_id")
        kept = self.server.post("/v1/responses", {"input": "[[story]]", "store": False})
        self.server.post("/v1/responses", {"input": "x", "previous_response_id": kept["id"]}, 400)

    def test_odd_requests_work(self):
        """A01, M07"""
        tools = [{"type": "web_search"}, {"type": "function", "name": "f", "parameters": {"type": "object"}},
                 {"type": "namespace", "name": "n", "tools": []}, {"type": "custom", "name": "c"}]
        self.server.post("/v1/responses", {"input": "[[story]]", "tools": tools, "store": True, "include": [], "service_tier": "auto",
                                           "reasoning": {"effort": "low"}, "prompt_cache_key": "k", "parallel_tool_calls": True})
        items = [{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "x"}]},
                 {"role": "user", "content": "[[story]]"}, {"type": "reasoning", "summary": []}, {"type": "web_search_call"},
                 {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{\"cmd\":\"ls"},
                 {"type": "function_call_output", "call_id": "c1", "output": "out"}]
        self.server.post("/v1/responses", {"input": items})
        call = {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"cmd\":\"ls"}}]}
        self.server.post("/v1/chat/completions", {"messages": [
            {"role": "user", "content": "[[story]]"}, call, {"role": "tool", "tool_call_id": "c1", "content": "x"},
            {"role": "system", "content": "later"}, {"role": "user", "content": "go on"}]})
        self.server.post("/v1/messages", {"max_tokens": 9, "messages": [
            {"role": "user", "content": "[[story]]"},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": "s"}, {"type": "redacted_thinking", "data": "x"},
                                              {"type": "tool_use", "id": "t1", "name": "f", "input": "text"}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "r"}]},
                                         {"type": "text", "text": "go on", "cache_control": {"type": "ephemeral"}}]}]})

    def test_no_tools_and_an_empty_list_give_the_same_prompt(self):
        """M05, A30"""
        body = {"messages": [{"role": "user", "content": "[[story]]"}]}
        ids = [self.server.post("/apply-template", dict(body, **more))["tokens"] for more in ({}, {"tools": []})]
        self.assertEqual(ids[0], ids[1])
        events = self.server.call("POST", "/v1/chat/completions", dict(body, stream=True, tools=[
            {"type": "function", "function": {"name": "f"}}]))[2]
        self.assertNotIn(b'"tool_calls":[]', events)

    def test_billing_lines_do_not_reach_the_prompt(self):
        """K07"""
        counts = set()
        for mark in ("abc", "abcdefgh"):
            system = [{"type": "text", "text": f"x-anthropic-billing-header: cch={mark};"}, {"type": "text", "text": "real"}]
            counts.add(self.server.post("/v1/messages/count_tokens", {"system": system, "messages": [{"role": "user", "content": "x"}]})["input_tokens"])
        self.assertEqual(len(counts), 1)

    def test_refusals(self):
        chat = {"messages": [{"role": "user", "content": "x"}]}
        for path, body, status, says in (
                ("/v1/chat/completions", b"{", 400, "JSON parse error"), ("/v1/chat/completions", b"[]", 400, "must be an object"),
                ("/v1/chat/completions", {}, 400, "messages"), ("/v1/messages", {"messages": []}, 400, "messages"),
                ("/v1/chat/completions", dict(chat, temperature="hot"), 400, "temperature"),
                ("/v1/chat/completions", dict(chat, presence_penalty=3), 400, "presence_penalty"),
                ("/v1/chat/completions", dict(chat, max_tokens=0), 400, "max_tokens"),
                ("/v1/chat/completions", dict(chat, response_format={"type": "json_schema"}), 400, "response_format"),
                ("/v1/chat/completions", dict(chat, guided_regex="foo**"), 400, "guided_regex"),
                ("/v1/chat/completions", dict(chat, tool_choice="required"), 400, "tool_choice"),
                ("/v1/responses", {"input": "x", "text": {"format": {"type": "json_schema"}}}, 400, "text.format"),
                ("/v1/responses", {"input": "x", "background": True}, 400, "background"),
                ("/v1/messages", {"messages": [{"role": "user", "content": "x"}], "tool_choice": {"type": "any"}}, 400, "tool_choice"),
                ("/v1/chat/completions", {"messages": [{"role": "user", "content": [
                    {"type": "image_url", "image_url": {"url": "http://169.254.169.254/"}}]}]}, 400, "no image input"),
                ("/v1/nothing", {}, 404, "unknown endpoint; GET /props lists them"), ("/chat/completions", {}, 404, "did you mean /v1/chat/completions?"),
                ("/v1/v1/messages", {}, 404, "did you mean /v1/messages?"), ("/completions", {}, 404, "did you mean /v1/completions?"), ("/health", {}, 405, "GET")):
            with self.subTest(path=path, body=str(body)[:60]):
                got, headers, text = self.server.call("POST", path, body)
                self.assertEqual((got, headers["Content-Type"]), (status, "application/json"))
                self.assertIn(says, json.loads(text)["error"]["message"])

    def test_deep_json_is_refused_and_shallow_is_not(self):
        """A21"""
        for path in ("/v1/chat/completions", "/v1/responses", "/v1/messages"):
            for field in ("unknown", "tools", "response_format"):
                body = ('{"' + field + '":' + "[" * 10000 + "]" * 10000 + "}").encode()
                self.assertIn("nesting deeper than 100", self.server.post(path, body, 400)["error"]["message"])
        deep = '{"x":' + "[" * 50 + "]" * 50 + ',"messages":[{"role":"user","content":"[[story]]"}]}'
        self.server.post("/v1/chat/completions", deep.encode())
        self.assertEqual(self.server.call("GET", "/health")[0], 200)

    def test_introspection(self):
        for path in ("/", "/health", "/v1/models", "/v1/models/script", "/props", "/status/json"):
            status, _, text = self.server.call("GET", path)
            self.assertEqual(status, 200)
            json.loads(text)
        self.assertEqual(json.loads(self.server.call("GET", "/v1/models?client_version=1")[2])["models"][0]["slug"], "script")
        self.assertIn(b"<html", self.server.call("GET", "/", headers={"Accept": "text/html"})[2].replace(b"<!doctype ", b"<"))
        page = self.server.call("GET", "/status", headers={"Accept": "text/html"})[2].decode()
        for word in ("http:", "https:", "src=", "@import", "innerHTML"):        # nothing from outside, nothing as markup
            self.assertNotIn(word, page)
        shown = set(json.loads(self.server.call("GET", "/status/json")[2])) | {"in_s", "out_s", "used"}
        for rows in re.findall(r"'(?:Requests|Tokens|Cache)',{(.*?)}", page):
            self.assertLessEqual(set(re.findall(r"(\w+):'", rows)), shown)
        self.assertIn(b"luce_generated_tokens_total", self.server.call("GET", "/metrics")[2])
        self.assertEqual(self.server.call("GET", "/v1/models/other")[0], 404)
        with Server({}, name="org/model-8B v2") as server:
            for path, status in (("org/model-8B%20v2", 200), ("org%2Fmodel-8B%20v2", 200), ("model-8B%20v2", 404), ("org/", 404), ("", 404)):
                got, _, text = server.call("GET", "/v1/models/" + path)
                self.assertEqual((got, json.loads(text).get("id")), (status, "org/model-8B v2" if status == 200 else None))
        status, headers, _ = self.server.call("OPTIONS", "/v1/messages")
        self.assertEqual(status, 204)
        self.assertIn("Authorization", headers["Access-Control-Allow-Headers"])
        self.assertIn("Retry-After", headers["Access-Control-Expose-Headers"])
        self.assertEqual(self.server.call("HEAD", "/health")[0], 200)
        ids = self.server.post("/tokenize", {"content": "h€"})["tokens"]
        self.assertEqual(self.server.post("/detokenize", {"tokens": ids})["content"], "h€")


if __name__ == "__main__":
    unittest.main()
