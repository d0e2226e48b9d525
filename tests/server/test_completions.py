"""/v1/completions: prompts that come back, their logprobs, and the fields of the old API."""
import unittest

from harness import APIS, Server, pieces

SCRIPTS = {"story": {"pieces": pieces("Once", " upon", " a", " time")}, "emoji": {"pieces": pieces(b"\xf0\x9f", b"\x98\x8a")}}


class Completions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(SCRIPTS, context=256)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def test_echo_puts_the_prompt_first(self):
        for prompt in ("hé [[story]]", "[[story]]", "x " * 100 + "[[story]]"):
            a, b = (APIS["completions"](self.server, prompt, stream, echo=True) for stream in (False, True))
            self.assertEqual(a.key(), b.key())
            self.assertEqual((a.text, a.finish, a.usage), (prompt + "Once upon a time", "stop", 5))
            ids = self.server.post("/tokenize", {"content": prompt, "parse_special": True})["tokens"]
            self.assertEqual(APIS["completions"](self.server, ids, False, echo=True).text, prompt + "Once upon a time")
        r = self.server.post("/v1/completions", {"prompt": ["[[story]]", "a[[emoji]]"], "n": 2, "echo": True})
        self.assertEqual([c["text"] for c in r["choices"]], ["[[story]]Once upon a time"] * 2 + ["a[[emoji]]😊"] * 2)

    def test_the_prompt_alone(self):
        for stream in (False, True):
            a = APIS["completions"](self.server, "abc", stream, echo=True, max_tokens=0)
            self.assertEqual((a.text, a.finish, a.usage), ("abc", "length", 0))
        self.server.post("/v1/completions", {"prompt": "abc", "max_tokens": 0}, 400)
        full = self.server.post("/v1/completions", {"prompt": [65] * 256, "echo": True, "max_tokens": 0})
        self.assertEqual(full["usage"]["prompt_tokens"], 256)
        self.server.post("/v1/completions", {"prompt": [65] * 257, "echo": True, "max_tokens": 0}, 400)

    def test_logprobs_of_prompt_and_text(self):
        """A11"""
        for prompt in ("hé [[story]]", "y" * 150 + "[[story]]"):
            for most in (0, 2, 9):
                body = {"prompt": prompt, "echo": True, "logprobs": 2, "max_tokens": most}
                c = self.server.post("/v1/completions", body)["choices"][0]
                l = c["logprobs"]
                n = len(self.server.post("/tokenize", {"content": prompt, "parse_special": True})["tokens"])
                self.assertEqual({len(l[k]) for k in l}, {n + min(most, 4)})
                self.assertEqual((l["token_logprobs"][0], l["top_logprobs"][0]), (None, None))
                self.assertTrue(all(x <= 0 for x in l["token_logprobs"][1:]))
                self.assertTrue(all(len(x) in (1, 2) for x in l["top_logprobs"][1:]))
                data = c["text"].encode()
                self.assertEqual(l["text_offset"], sorted(l["text_offset"]))
                self.assertEqual(data[l["text_offset"][n - 1]:][:9], b"[[story]]")
                joined = {k: [] for k in l}
                for _, e in self.server.events("/v1/completions", body)[:-1]:
                    for k in joined:
                        joined[k] += e["choices"][0]["logprobs"][k]
                self.assertEqual(joined, l)

    def test_fields_of_the_old_api(self):
        for fields, says in (({"suffix": "end"}, "suffix"), ({"best_of": 3}, "best_of"), ({"best_of": 2, "n": 3}, "best_of"),
                             ({"suffix": 1}, "suffix"), ({"best_of": 0}, "best_of"), ({"echo": "yes"}, "echo")):
            e = self.server.post("/v1/completions", dict({"prompt": "[[story]]"}, **fields), 400)["error"]
            self.assertEqual(e["param"], says)
        for fields in ({"suffix": ""}, {"suffix": None}, {"best_of": 1}, {"best_of": 2, "n": 2}, {"echo": False}):
            r = self.server.post("/v1/completions", dict({"prompt": "[[story]]"}, **fields))
            self.assertEqual(r["choices"][0]["text"], "Once upon a time")
        for prompt in ("", [], [[]], [1.5], [-1], 5, None, [""], ["a", 5]):
            self.assertIn("prompt", self.server.post("/v1/completions", {"prompt": prompt}, 400)["error"]["message"])


if __name__ == "__main__":
    unittest.main()
