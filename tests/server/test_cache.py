"""What the prefix cache had of a prompt, as every API tells it; what turns it off; chats that grow."""
import json
import unittest

from harness import Server, pieces
from test_metrics import read_metrics

PAGE = 64


def tokens_of(path, usage):
    """(prompt tokens, those that the cache had)"""
    if path == "/v1/messages":
        return usage["input_tokens"] + usage["cache_read_input_tokens"], usage["cache_read_input_tokens"]
    if path == "/v1/responses":
        return usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]
    return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


class Cache(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server({"short": {"pieces": pieces("Hello", " you", ".")}}, context=4096, sequences=2)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop()[1] == 0

    def body(self, path, text, **fields):
        body = dict(fields, max_tokens=3)
        if path == "/v1/completions":
            return dict(body, prompt=text)
        if path == "/v1/responses":
            return dict(body, input=text)
        return dict(body, messages=[{"role": "user", "content": text}])

    def usage(self, path, text, **fields):
        return self.server.post(path, self.body(path, text, **fields))["usage"]

    def test_every_api_tells_what_was_cached(self):
        for path in "/v1/completions", "/v1/chat/completions", "/v1/messages", "/v1/responses":
            with self.subTest(path=path):
                text = path + "word " * 60 + "[[short]]"
                for again in False, True:
                    usage = self.usage(path, text)
                    n, cached = tokens_of(path, usage)
                    self.assertEqual(cached, (n - 1) // PAGE * PAGE if again else 0)
                    self.assertGreater(n, 3 * PAGE)
                    timings = usage["timings"]
                    self.assertEqual((timings["cache_hit"], timings["cached_prefix_tokens"], timings["prefilled_tokens"]),
                                     (again, cached, n - cached))

    def test_a_stream_tells_it_too(self):
        text = "stream " * 40 + "[[short]]"
        self.usage("/v1/chat/completions", text)
        events = self.server.events("/v1/chat/completions",
                                    self.body("/v1/chat/completions", text, stream_options={"include_usage": True}))
        usage = [data["usage"] for _, data in events if isinstance(data, dict) and data.get("usage")][-1]
        n, cached = tokens_of("/v1/chat/completions", usage)
        self.assertEqual(cached, (n - 1) // PAGE * PAGE)

    def test_a_request_can_do_without(self):
        text = "alone " * 40 + "[[short]]"
        for cache_prompt, cached in (False, 0), (True, 0), (False, 0), (True, 192):
            n, got = tokens_of("/v1/completions", self.usage("/v1/completions", text, cache_prompt=cache_prompt))
            self.assertEqual(got, cached, cache_prompt)
        refusal = self.server.post("/v1/completions", dict(self.body("/v1/completions", text), cache_prompt=1), 400)
        self.assertIn("cache_prompt", refusal["error"]["message"])

    def test_status_and_metrics_count_it(self):
        before = json.loads(self.server.call("GET", "/status/json")[2])
        text = "counted " * 40 + "[[short]]"
        cached = sum(tokens_of("/v1/completions", self.usage("/v1/completions", text))[1] for _ in range(3))
        after = json.loads(self.server.call("GET", "/status/json")[2])
        values = read_metrics(self.server)[0]
        self.assertEqual(after["cached_tokens"] - before["cached_tokens"], cached)
        self.assertEqual(after["prefix_hits"] - before["prefix_hits"], 2)
        self.assertGreater(after["kept_pages"], before["kept_pages"])
        for name in "prefix_hits", "evicted":
            self.assertEqual(values[f"luce_{name}_total"], after[name])
        self.assertEqual(values["luce_prompt_tokens_cached_total"], after["cached_tokens"])
        self.assertEqual((values["luce_kept_pages"], values["luce_kept_states"]), (after["kept_pages"], 0))

    def test_K05_sixteen_turns_find_more_each_time(self):
        messages, last = [], -1
        for turn in range(16):
            messages.append({"role": "user", "content": f"turn {turn} <|im_end|> " + "word " * 15 + "[[short]]"})
            reply = self.server.post("/v1/chat/completions", {"messages": messages, "max_tokens": 3})
            n, cached = tokens_of("/v1/chat/completions", reply["usage"])
            self.assertGreater(cached, last)
            self.assertGreater(cached, n - 200 if turn else -1)
            last = cached
            messages.append({"role": "assistant", "content": reply["choices"][0]["message"]["content"]})

    def test_K04_other_and_shorter_prompts_in_between(self):
        texts = ["long " * 100, "other " * 60, "long " * 35]
        cold = [self.server.post("/v1/completions", self.body("/v1/completions", t + "[[short]]", cache_prompt=False,
                                                              logprobs=3))["choices"] for t in texts]
        for at in 0, 1, 2, 0, 2, 1, 0:
            got = self.server.post("/v1/completions", self.body("/v1/completions", texts[at] + "[[short]]", logprobs=3))
            self.assertEqual(got["choices"], cold[at])


if __name__ == "__main__":
    unittest.main()
