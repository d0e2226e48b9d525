"""Speculation: with any number of guesses, right or wrong, every route says what it says without."""
import json
import random
import time
import unittest

from harness import APIS, Server, in_parallel, pieces

WORDS = ["a", " b", " c", " d", " e", " f", " g", " h", " i", " j", " k", " l"]
CALL = '<tool_call>\n{"name": "%s", "arguments": {"path": "%s"}}\n</tool_call>'
HERMES = ("{% if tools %}{% for t in tools %}{{ t|tojson }}{% endfor %}<tool_call>\n{\"name\": <n>, \"arguments\": <a>}\n"
          "</tool_call>{% endif %}{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
          "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
SCRIPTS = {f"end{n}": {"pieces": pieces(*WORDS[:n]), "right": 15} for n in range(9)}
SCRIPTS.update({f"right{n}": {"pieces": pieces(*WORDS), "right": n} for n in range(8)})
SCRIPTS.update({
    "flat": {"flat": True},
    "again": {"pieces": pieces(*WORDS, *WORDS, *WORDS), "right": 7},
    "tools": {"pieces": pieces(*CALL % ("grep", "a"), "\n", *CALL % ("read", "a")), "right": 5},
    "slow": {"pieces": pieces(*WORDS), "right": 3, "endless": True, "pace_ms": 5},
})
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {
    "path": {"type": "string"}}}}} for name in ("grep", "read")]
PENALTIES = [{"presence_penalty": 0.5}, {"frequency_penalty": 0.5}, {"repetition_penalty": 1.3, "rep_window": 8},
             {"top_k": 3}, {"top_p": 0.5}, {"min_p": 0.1}, {"logit_bias": {"65": 0.25}}]


class Speculation:
    @classmethod
    def setUpClass(cls):
        cls.server = Server(SCRIPTS, context=8192, sequences=4, drafter=cls.drafter, template=HERMES)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def same(self, script, widths=(True, 1, 3, 7, 15), apis=APIS, **fields):
        """The answer of every route with guesses is the one without."""
        for name in apis:
            for stream in (False, True):
                plain = APIS[name](self.server, script, stream, speculative=False, **fields)
                for width in widths:
                    with self.subTest(api=name, stream=stream, width=width, script=script):
                        self.assertEqual(APIS[name](self.server, script, stream, speculative=width, **fields).key(), plain.key())
        return plain

    def test_an_end_anywhere_in_a_block(self):                      # P16
        for n in range(9):
            a = self.same(f"[[end{n}]]", widths=(8,), apis=("chat", "messages"))
            self.assertEqual((a.text, a.finish, a.usage), ("".join(WORDS[:n]), "stop", n + 1))
        for n in range(1, 8):
            self.same("[[end8]]", widths=(8,), apis=("completions", "responses"), max_tokens=n)
            if n > 1:
                self.same("[[end8]]", widths=(8,), apis=("chat", "completions"), stop=[WORDS[n - 1]])

    def test_guesses_right_and_wrong(self):
        for n in range(0, 8, 3):
            self.assertEqual(self.same(f"[[right{n}]]", apis=("chat", "completions")).text, "".join(WORDS))
        self.same("[[again]]")

    def test_calls_of_two_tools_after_a_long_system_text(self):     # P08
        body = {"messages": [{"role": "system", "content": "word " * 1300}, {"role": "user", "content": "[[tools]]"}],
                "tools": TOOLS}
        answers = []
        for width in (False, True, 7, 15):
            message = self.server.post("/v1/chat/completions", dict(body, speculative=width))["choices"][0]["message"]
            answers.append(([c["function"] for c in message["tool_calls"]], message["content"]))
        self.assertEqual([c["name"] for c in answers[0][0]], ["grep", "read"])
        for other in answers[1:]:
            self.assertEqual(other, answers[0])

    def test_calls_of_two_tools(self):
        a = self.same("word " * 300 + "[[tools]]", widths=(True, 7), apis=("chat",), tools=TOOLS)
        self.assertEqual([c["name"] for c in a.calls], ["grep", "read"])
        self.assertEqual(a.finish, "tool_calls")

    def test_sampling_is_the_same(self):                            # P02, P10, P15
        for fields in PENALTIES:
            texts = [APIS["completions"](self.server, "[[flat]] a b a b", False, speculative=w, max_tokens=12, **fields).text
                     for w in (False, 3)]
            self.assertEqual(texts[0], texts[1])
            texts = [APIS["completions"](self.server, "[[flat]] a b a b", False, speculative=w, max_tokens=12, temperature=1.5,
                                         seed=1, **fields).text for w in (False, True, 3)]
            self.assertEqual(len(set(texts)), 1)
        greedy = APIS["completions"](self.server, "[[flat]]", False, max_tokens=12).text
        self.assertNotEqual(greedy, APIS["completions"](self.server, "[[flat]]", False, max_tokens=12, temperature=1.5, seed=1).text)

    def test_logprobs_are_the_same(self):
        body = {"prompt": "[[again]]", "logprobs": 2, "max_tokens": 20}
        got = [self.server.post("/v1/completions", dict(body, speculative=w))["choices"][0]["logprobs"] for w in (False, 5)]
        self.assertEqual(got[0], got[1])

    def test_what_the_cache_had_is_the_same(self):
        cached = []                                     # P12: a chat each, with turns of some pages
        for chat, width in ("one", False), ("two", 3):
            messages = [{"role": "system", "content": chat + "word " * 30}]
            for turn in range(1, 5):
                messages += [{"role": "user", "content": "[[again]]" + "more " * 20}]
                usage = self.server.post("/v1/chat/completions", {"messages": messages, "max_tokens": 4,
                                                                  "speculative": width})["usage"]
                cached.append(usage["prompt_tokens_details"]["cached_tokens"])
                messages += [{"role": "assistant", "content": "a" * turn}]
        self.assertEqual(cached[:4], cached[4:])
        self.assertEqual(cached[0], 0)
        self.assertEqual(sorted(set(cached[:4])), cached[:4])

    def test_clients_that_leave_while_guesses_run(self):            # P06
        def leave(i):
            def run():
                rng = random.Random(i)
                for _ in range(50):
                    c = self.server.connect()
                    c.request("POST", "/v1/chat/completions", json.dumps({"messages": [{"role": "user", "content": "[[slow]]"}],
                                                                          "stream": rng.random() < 0.7, "speculative": 3}))
                    time.sleep(rng.random() * 0.02)
                    c.close()
            return run
        in_parallel([leave(i) for i in range(4)])
        for _ in range(400):
            s = json.loads(self.server.call("GET", "/status/json")[2])
            if s["running"] + s["waiting"] == 0:
                break
            time.sleep(0.02)
        self.assertEqual((s["running"] + s["waiting"], s["free_pages"]), (0, s["pages"]))
        self.same("[[again]]", widths=(7,), apis=("chat",))


class Scripted(Speculation, unittest.TestCase):
    drafter = "scripted"

    def test_timings_say_what_was_guessed(self):
        def ask(**fields):
            return self.server.post("/v1/chat/completions", dict({"messages": [{"role": "user", "content": "[[end8]]"}]}, **fields))["usage"]
        u = ask(speculative=7)
        self.assertEqual((u["spec_decode_ran"], u["timings"]["decode_steps"]), (True, 1))
        self.assertEqual((u["timings"]["draft_tokens"], u["timings"]["accepted_draft_tokens"], u["accept_rate"]), (7, 7, 1))
        u = ask(speculative="off")
        self.assertEqual((u["spec_decode_ran"], u["timings"]["decode_steps"], u["accept_rate"]), (False, 8, 0))
        props = json.loads(self.server.call("GET", "/props")[2])
        self.assertEqual((props["speculative_mode"], props["capabilities"]["speculative_supported"]), ("scripted", True))
        self.assertIn(b"luce_accepted_tokens_total", self.server.call("GET", "/metrics")[2])

    def test_the_header_counts_where_the_field_is_absent(self):
        body = {"messages": [{"role": "user", "content": "[[end8]]"}]}
        for header, field, drafted in (("off", None, 0), ("7", None, 7), ("0", 7, 7), ("7", False, 0), ("3", None, 6)):
            fields = dict(body) if field is None else dict(body, speculative=field)
            u = self.server.post("/v1/chat/completions", fields, headers={"Luce-Speculative": header})["usage"]
            self.assertEqual(u["timings"]["draft_tokens"], drafted, (header, field))

    def test_what_is_no_width_is_refused(self):
        body = {"messages": [{"role": "user", "content": "x"}]}
        for bad in ("fast", 64, -1, 1.5, {}, []):
            self.assertIn("on, off", self.server.post("/v1/chat/completions", dict(body, speculative=bad), 400)["error"]["message"])
        self.server.post("/v1/chat/completions", body, 400, headers={"Luce-Speculative": "x"})


class Ngram(Speculation, unittest.TestCase):
    drafter = "ngram"


class Without(unittest.TestCase):
    def test_a_width_needs_a_drafter(self):
        with Server({"a": {"pieces": pieces("a")}}) as server:
            body = {"messages": [{"role": "user", "content": "[[a]]"}]}
            self.assertIn("drafter", server.post("/v1/chat/completions", dict(body, speculative=3), 400)["error"]["message"])
            for fine in (True, False, 0, "on", None):
                self.assertFalse(server.post("/v1/chat/completions", dict(body, speculative=fine))["usage"]["spec_decode_ran"])
            self.assertFalse(json.loads(server.call("GET", "/props")[2])["speculative"]["enabled"])


if __name__ == "__main__":
    unittest.main()
