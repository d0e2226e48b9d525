"""luce serve with SmolLM2: many at once say what each says alone, and the command line."""
import http.client
import json
import os
import re
import signal
import subprocess
import unittest

from harness import BUILD, in_parallel

MODEL = os.path.join(os.path.dirname(__file__), "..", "..", "models", "smollm2-135m-instruct-q4_1.gguf")
PROMPTS = ["Why is the sky blue?", "Write a story about a fox.", "List ten colours.", "Explain gravity.",
           "What is a tree?", "Tell me about Rome.", "How do boats float?", "Write about the sea."]


@unittest.skipUnless(os.path.exists(MODEL), "no models (make models)")
class RealModel(unittest.TestCase):
    def post(self, port, path, body, headers=None):
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        c.request("POST", path, json.dumps(body), headers or {})
        r = json.loads(c.getresponse().read())
        c.close()
        return r

    def ask(self, port, prompt, n=16, **fields):
        return self.post(port, "/v1/chat/completions", dict(
            {"messages": [{"role": "user", "content": prompt}], "max_tokens": n}, **fields))["choices"][0]["message"]["content"]

    def start(self, *options):
        p = subprocess.Popen([os.path.join(BUILD, "luce"), "serve", MODEL, "--port", "0", "-c", "1024"] + list(options),
                             stderr=subprocess.PIPE, text=True)
        return p, int(re.search(r":(\d+)$", p.stderr.readline()).group(1))

    def stop(self, p):
        p.send_signal(signal.SIGTERM)
        self.assertEqual(p.wait(10), 0)
        p.stderr.close()

    def test_many_at_once_equal_each_alone(self):
        p, port = self.start("--max-concurrency", "6")
        alone = [self.ask(port, q) for q in PROMPTS]
        for k in (2, 5, 16):
            got = in_parallel([lambda i=i: self.ask(port, PROMPTS[i % 8]) for i in range(k)])
            self.assertEqual(got, [alone[i % 8] for i in range(k)])
        self.stop(p)

    def test_guesses_of_any_number_leave_the_text_as_it_is(self):
        prompt = "Repeat this list three times: red, green, blue, red, green, blue, red, green, blue."
        for options in (["--spec", "ngram", "--draft-max", "15"], ["--draft", MODEL, "--draft-max", "7"]):
            p, port = self.start(*options)
            plain = self.ask(port, prompt, 40, speculative=False)
            for width in (1, 2, 3, 7, 15):
                self.assertEqual(self.ask(port, prompt, 40, speculative=width), plain)
            self.assertEqual(self.ask(port, prompt, 40), plain)
            sampled = [self.ask(port, prompt, 24, temperature=1.5, seed=1, repetition_penalty=1.3, speculative=w) for w in ("off", 5)]
            self.assertEqual(sampled[0], sampled[1])
            r = self.post(port, "/v1/completions", {"prompt": "1 2 3 1 2 3 1 2 3", "max_tokens": 20, "speculative": 3})
            self.assertTrue(r["usage"]["spec_decode_ran"])
            self.assertGreater(r["usage"]["accept_rate"], 0)
            self.stop(p)

    def test_the_command_line(self):
        luce = os.path.join(BUILD, "luce")
        empty = os.path.join(BUILD, "empty.jinja")
        open(empty, "w").close()
        broken = os.path.join(BUILD, "broken.jinja")
        with open(broken, "w") as file:
            file.write("{{ bos_token }}\n  {% if x %}\n{{ 'a' + }}{% endif %}")
        for args, status, says in (
                (["serve"], 2, "no model"), (["serve", MODEL, "--chat-template-file", empty, "-c", "512"], 1, "line 1, column 1"),
                (["serve", MODEL, "--chat-template-file", broken, "-c", "512"], 1, broken + ": line 3, column 10"),
                (["serve", MODEL, "--chat-template-file", "/nothing.jinja", "-c", "512"], 1, "/nothing.jinja"),
                (["serve", MODEL, "--tls-cert", "x"], 2, "belong together"), (["serve", MODEL, "--api-key", ""], 2, "empty"),
                (["serve", MODEL, "-c", "512", "--host", "256.1.1.1"], 2, "--host"), (["serve", "/nothing.gguf"], 1, "nothing.gguf"),
                (["serve", MODEL, "--unknown"], 2, "--help")):
            with self.subTest(args=args):
                r = subprocess.run([luce] + args, stderr=subprocess.PIPE, text=True, timeout=60)
                self.assertEqual(r.returncode, status)
                self.assertIn(says, r.stderr)


if __name__ == "__main__":
    unittest.main()
