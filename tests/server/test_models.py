"""luce serve with SmolLM2: many at once say what each says alone, and the command line."""
import base64
import http.client
import json
import os
import re
import signal
import struct
import subprocess
import tempfile
import unittest

from harness import BUILD, in_parallel

ROOT = os.path.join(os.path.dirname(__file__), "..", "..")
MODEL = os.path.join(ROOT, "models", "smollm2-135m-instruct-q4_1.gguf")
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

    def start(self, *options, usual=(MODEL, "--port", "0", "-c", "1024"), **variables):
        p = subprocess.Popen([os.path.join(BUILD, "luce"), "serve"] + list(usual) + list(options), stderr=subprocess.PIPE, text=True,
                             env=dict(os.environ, **variables))
        self.addCleanup(p.kill)
        return p, int(re.search(r":(\d+)$", p.stderr.readline()).group(1))

    def stop(self, p):
        p.send_signal(signal.SIGTERM)
        self.assertEqual(p.wait(10), 0)
        p.stderr.close()

    def test_a_port_belongs_to_one_server(self):
        p, port = self.start()
        second = subprocess.run([os.path.join(BUILD, "luce"), "serve", MODEL, "--port", str(port), "-c", "1024"],
                                stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(second.returncode, 1)
        self.assertIn(f"cannot listen on 127.0.0.1 port {port}", second.stderr)
        self.assertIn("; give another --port (0: a free one)", second.stderr)
        self.stop(p)

    def test_many_at_once_equal_each_alone(self):
        """K11"""
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
            r = self.post(port, "/v1/completions", {"prompt": "1 2 3 1 2 3 1 2 3", "max_tokens": 20, "speculative": 0})
            self.assertFalse(r["usage"]["spec_decode_ran"])
            r = self.post(port, "/v1/completions", {"prompt": "1 2 3 1 2 3 1 2 3", "max_tokens": 20, "speculative": 3})
            self.assertTrue(r["usage"]["spec_decode_ran"])
            self.assertGreater(r["usage"]["accept_rate"], 0)
            self.stop(p)

    def test_embeddings(self):
        texts = ["A cat sat on the mat.", "A kitten lay on the rug.", "Interest rates rose by a quarter point."]
        for options in ([], ["--pooling", "last"]):
            p, port = self.start(*options)
            r = self.post(port, "/v1/embeddings", {"input": texts})
            vectors = [d["embedding"] for d in r["data"]]
            self.assertEqual([(d["index"], d["object"], len(d["embedding"])) for d in r["data"]], [(i, "embedding", 576) for i in range(3)])
            self.assertEqual((r["object"], r["model"], r["usage"]["total_tokens"]), ("list", "luce", r["usage"]["prompt_tokens"]))
            for v in vectors:
                self.assertAlmostEqual(sum(x * x for x in v), 1, places=5)
            near, far = (sum(a * b for a, b in zip(vectors[0], v)) for v in vectors[1:])
            self.assertGreater(near, far)
            one = self.post(port, "/v1/embeddings", {"input": texts[0], "encoding_format": "base64", "dimensions": 576, "user": "x"})
            self.assertEqual(list(struct.unpack("<576f", base64.b64decode(one["data"][0]["embedding"]))),
                             [struct.unpack("<f", struct.pack("<f", x))[0] for x in vectors[0]])
            ids = [self.post(port, "/tokenize", {"content": t})["tokens"] for t in texts]
            for given in (ids, ids[0]):
                got = self.post(port, "/v1/embeddings", {"input": given})
                self.assertEqual(got["data"][0]["embedding"], vectors[0])
            self.assertEqual(got["usage"]["prompt_tokens"], len(ids[0]))
            many = in_parallel([lambda: self.post(port, "/v1/embeddings", {"input": texts * 20})["data"][40]["embedding"],
                                lambda: self.ask(port, PROMPTS[0], 30)])
            self.assertEqual(many[0], vectors[1])
            for bad, says in (({}, "input"), ({"input": ""}, "input"), ({"input": []}, "input"), ({"input": 5}, "input"),
                              ({"input": "x", "dimensions": 100}, "dimensions"), ({"input": "x", "dimensions": 0}, "dimensions"),
                              ({"input": "x", "encoding_format": "hex"}, "encoding_format"), ({"input": [99999999]}, "token 0"),
                              ({"input": "word " * 2000}, "maximum context length"), ({"input": ["x"] * 2049}, "2048")):
                self.assertIn(says, self.post(port, "/v1/embeddings", bad)["error"]["message"])
            self.stop(p)

    def get(self, port, path):
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        c.request("GET", path)
        r = c.getresponse()
        text = r.read()
        c.close()
        return r.headers, json.loads(text)

    def test_options_come_from_a_file_variables_and_flags(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "luce.yml")
            with open(path, "w") as file:
                file.write("# the server\n\nmax-ctx: 700\nqueue = 7\n  model_name: \"of the file\"\r\nstream-usage: always\n"
                           "think-max-tokens: 5\nno-cors\n--max-concurrency: 2\nreasoning-effort-low: 33\n"
                           "hard-limit-reply-budget: 100\ndefault-max-tokens: 20\nthinking: on\n")
            p, port = self.start("--max-ctx", "600", "--draft", folder + "/..", "--draft", "none", usual=("--config", path),
                                 LUCE_TARGET=MODEL, LUCE_ROUTING_QUEUE_LIMIT="8", LUCE_MAX_CONCURRENCY="3", LUCE_THINK_MAX="6",
                                 LUCE_ARGS=" --port 0\t--kv-pool-tokens  640 --spec ngram --ddtree-budget 2 --verify-width 3")
            headers, props = self.get(port, "/props")
            self.assertNotIn("Access-Control-Allow-Origin", headers)
            self.assertEqual((props["default_generation_settings"]["n_ctx"], props["queue_limit"], props["sequences"]), (600, 8, 3))
            self.assertEqual((props["model_alias"], props["model_path"], props["speculative_mode"]), ("of the file", MODEL, "ngram"))
            b = props["budget_envelope"]
            self.assertEqual((b["think_max_tokens"], b["hard_limit_reply_budget"], b["default_max_tokens"], b["effort_tiers"]["low"]),
                             (6, 100, 20, 33))
            self.assertEqual(self.get(port, "/status/json")[1]["pages"], 10)
            u = self.post(port, "/v1/completions", {"prompt": "1 2 3 1 2 3 1 2 3", "speculative": 63})["usage"]
            self.assertEqual(u["completion_tokens"], 20)
            self.assertLessEqual(u["timings"]["draft_tokens"], 2 * u["timings"]["decode_steps"])
            self.assertGreater(u["timings"]["draft_tokens"], 0)
            self.stop(p)
            for text, says in (("nothing: 5", "line 1: no option 'nothing'"), ("queue: many", "line 1: 'many' is not a whole number"),
                               ("\nthinking: maybe", "line 2: 'maybe' is not one of template|on|off"), ("config: x", "no option 'config'; 'luce serve --help' lists them"),
                               ("thinking off", "no option 'thinking off'; write thinking: off")):
                with open(path, "w") as file:
                    file.write(text)
                r = subprocess.run([os.path.join(BUILD, "luce"), "serve", MODEL, "--config", path], stderr=subprocess.PIPE, text=True)
                self.assertEqual(r.returncode, 2)
                self.assertIn(says, r.stderr)

    def test_what_the_server_does_not_do_is_refused_with_what_to_do(self):
        luce = os.path.join(BUILD, "luce")
        for args, variables, says in (
                (["--profile", "any"], {}, "--profile: there are no launch profiles; --config"), (["--draft-swa=2048"], {}, "--draft-swa: a drafter"),
                (["--draft-device", "cuda:7"], {}, "--draft-device cuda:7: a drafter runs on the model's device"),
                (["--draft-residency", "request-scoped"], {}, "stays loaded"), (["--draft-residency", "never"], {}, "auto|persistent"),
                (["--model", "other.gguf", "--model", MODEL], {}, "one server serves one model"),
                (["--kvflash", "auto"], {}, "--kvflash: the whole context"), (["--swap-residency"], {}, "start a server for each"),
                ([], {"LUCE_MMPROJ": "x.gguf"}, "LUCE_MMPROJ: there is no image input"), ([], {"LUCE_FA_WINDOW": "512"}, "LUCE_FA_WINDOW: "),
                ([], {"LUCE_PREFILL_MODE": "always"}, "LUCE_PREFILL_MODE: prompts are never shortened"),
                ([], {"LUCE_ARGS": "--queue many"}, "luce: LUCE_ARGS: --queue: 'many' is not a whole number"),
                (["--queue", "many"], {"LUCE_ARGS": "--port 0"}, "luce: --queue: 'many' is not a whole number")):
            model = [] if "--model" in args else [MODEL]
            r = subprocess.run([luce, "serve"] + model + args, stderr=subprocess.PIPE, text=True, env=dict(os.environ, **variables), timeout=60)
            self.assertEqual(r.returncode, 2, r.stderr)
            self.assertIn(says, r.stderr)
        p, _ = self.start("--draft-device", "auto:0", "--draft-residency", "persistent", "--prefill-cache-slots", "4", LUCE_LAZY="0",
                          LUCE_PREFILL_MODE="off", LUCE_MMPROJ="", LUCE_TARGET_DEVICE="auto:0")
        self.stop(p)

    def test_names_of_the_other_server_mean_the_same(self):
        link = os.path.join(tempfile.mkdtemp(), "luce_server")
        os.symlink(os.path.join(BUILD, "luce"), link)
        p = subprocess.Popen([link, MODEL, "--max-ctx", "auto", "--max-tokens", "9", "--default-max-tokens", "7", "--max-tokens", "8",
                              "--target-device", "cpu", "--paged-attention", "--port", "0", "--stream-usage", "always",
                              "--cache-type-k", "q8_0", "--draft", "none", "--specla", "--ddtree", "--ddtree-budget", "22",
                              "--agent-turn-cache", "yes", "--prefix-cache-slots", "0"], stderr=subprocess.PIPE, text=True)
        self.addCleanup(p.kill)
        port = int(re.search(r":(\d+)$", p.stderr.readline()).group(1))
        props = self.get(port, "/props")[1]
        self.assertGreater(props["default_generation_settings"]["n_ctx"], 1024)
        r = self.post(port, "/v1/completions", {"prompt": "Once upon"})
        self.assertEqual(r["usage"]["completion_tokens"], 7)
        for _ in range(2):
            r = self.post(port, "/v1/completions", {"prompt": "word " * 100, "max_tokens": 1})
        self.assertEqual(r["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        c.request("POST", "/v1/completions", json.dumps({"prompt": "Once", "max_tokens": 1, "stream": True}))
        self.assertIn(b'"usage"', c.getresponse().read())
        c.close()
        self.stop(p)
        r = subprocess.run([link, "--list-devices"], stdout=subprocess.PIPE, text=True)
        self.assertEqual((r.returncode, "cpu" in r.stdout), (0, True))

    def test_the_command_line(self):
        """M10"""
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
                (["serve", MODEL, "-c", "512", "--host", "256.1.1.1"], 2, "give an address of this machine"),
                (["serve", MODEL, "-c", "512", "--host", "192.0.2.1"], 1, "; --host is an address of this machine"),
                (["serve", MODEL, "-c", "512", "--port", "0", "--tls-cert", __file__, "--tls-key", __file__], 1, "; --tls-cert is to be"),
                (["serve", "/nothing.gguf"], 1, "nothing.gguf"),
                (["serve", MODEL, "--unknown"], 2, "--help"), (["serve", MODEL, "--paged-attention=no"], 2, "in pages"),
                (["serve", MODEL, "--paged-attention", "no"], 2, "in pages"), (["serve", MODEL, "--agent-turn-cache", "off"], 2, "--prefix-reuse off"),
                (["serve", MODEL, "-c", "512", "--spec", "ngram", "--ddtree-tau", "6"], 2, "ngram guesses chains"),
                (["serve", MODEL, "-c", "512", "--draft", MODEL, "--ddtree", "no", "--ddtree-tau", "6"], 2, "--ddtree=no guesses chains"),
                (["serve", MODEL, "--ddtree-tau", "6"], 2, "no effect without --spec or --draft"),
                (["serve", MODEL, "--thinking", "maybe"], 2, "template|on|off"), (["serve", MODEL, "--config", "/no.yml"], 1, "/no.yml"),
                (["serve", MODEL, "-c", "512", "--draft", BUILD], 2, "0 GGUF files"),
                (["serve", MODEL, "-c", "512", "--draft", os.path.join(ROOT, "tests/fixtures/dflash/v1")], 2, "for another model"), (["serve", MODEL, "--spec", "magic"], 2, "magic"),
                (["serve", MODEL, "-c", "512", "--spec", "draft-model"], 2, "needs a file"),
                (["serve", MODEL, "--max-ctx", "most"], 2, "--max-ctx: 'most'"), (["serve", MODEL, "--admission-coalesce-ms", "1001"], 2, "1000")):
            with self.subTest(args=args):
                r = subprocess.run([luce] + args, stderr=subprocess.PIPE, text=True, timeout=60)
                self.assertEqual(r.returncode, status)
                self.assertIn(says, r.stderr)


if __name__ == "__main__":
    unittest.main()
