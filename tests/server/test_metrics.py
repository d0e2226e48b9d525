"""/metrics as Prometheus reads it, and prompts of choices that are read once."""
import re
import unittest

from harness import Server, in_parallel, pieces

LINE = re.compile(r'([a-z_]+)(\{le="([^"]+)"\})? ([0-9.e+-]+|\+Inf)$')


def read_metrics(server):
    """{name: value}, {histogram: [(bound, count)]}, {name: type}; fails on a line that is not Prometheus's."""
    values, buckets, types = {}, {}, {}
    status, headers, text = server.call("GET", "/metrics")
    assert status == 200 and headers["Content-Type"].startswith("text/plain; version=0.0.4")
    for line in text.decode().splitlines():
        if line.startswith("# TYPE "):
            name, kind = line[7:].split()
            assert name not in types and kind in ("counter", "gauge", "histogram"), line
            types[name] = kind
        elif not line.startswith("# HELP "):
            name, _, bound, value = LINE.match(line).groups()
            if bound:
                buckets.setdefault(name.removesuffix("_bucket"), []).append((float(bound), int(value)))
            else:
                assert name not in values, line
                values[name] = float(value)
    for name in values:
        base = re.sub("_(sum|count)$", "", name)
        assert name in types or types.get(base) == "histogram", name
    return values, buckets, types


class Metrics(unittest.TestCase):
    def setUp(self):
        scripts = {"short": {"pieces": pieces("Hello", " you", ".")}, "slow": {"pieces": pieces("a"), "endless": True, "pace_ms": 20}}
        self.server = Server(scripts, context=4096, sequences=2, queue=8)

    def tearDown(self):
        self.assertEqual(self.server.stop()[1], 0)

    def ask(self, script, **fields):
        return self.server.post("/v1/completions", dict({"prompt": f"[[{script}]]"}, **fields))

    def test_counters_and_histograms_agree_with_what_was_asked(self):
        for n in (1, 2, 3):
            self.ask("short", max_tokens=n)
        values, buckets, types = read_metrics(self.server)
        self.assertEqual(values["luce_requests_finished_total"], 3)
        self.assertEqual(values["luce_generated_tokens_total"], 6)
        counts = {"time_to_first_token_seconds": 3, "time_per_output_token_seconds": 3, "queue_seconds": 3, "request_seconds": 3,
                  "request_prompt_tokens": 3, "request_generated_tokens": 3}
        for name, count in counts.items():
            with self.subTest(name=name):
                row = buckets["luce_" + name]
                self.assertEqual(values[f"luce_{name}_count"], count)
                self.assertEqual(row[-1], (float("inf"), count))
                self.assertEqual(row, sorted(row))
                self.assertEqual([n for _, n in row], sorted(n for _, n in row))
        self.assertEqual(values["luce_request_generated_tokens_sum"], 6)
        self.assertEqual(set(buckets), {name for name, kind in types.items() if kind == "histogram"})

    def test_gauges_say_what_runs_waits_and_is_full(self):
        held = [self.server.connect() for _ in range(3)]
        for c in held:
            c.request("POST", "/v1/completions", b'{"prompt": "[[slow]]", "stream": true, "max_tokens": 500}')
            c.getresponse().read(10)
        for _ in range(1000):
            values, _, _ = read_metrics(self.server)
            if values["luce_running"] == 2 and values["luce_waiting"] == 1 and values["luce_cache_usage_ratio"] > 0:
                break
        else:
            self.fail(values)
        self.assertLessEqual(values["luce_cache_usage_ratio"], 1)
        for c in held:
            c.close()

    def test_the_prompt_of_choices_and_of_alike_requests_is_read_once(self):
        before = read_metrics(self.server)[0]["luce_prompt_tokens_computed_total"]
        prompt = "x" * 1000
        self.server.post("/v1/completions", {"prompt": prompt + "[[short]]", "n": 2})
        in_parallel([lambda: self.server.post("/v1/completions", {"prompt": prompt + "[[slow]]", "max_tokens": 60})] * 2)
        values = read_metrics(self.server)[0]
        self.assertEqual(values["luce_prompt_tokens_cached_total"], 3 * 960)
        self.assertEqual(values["luce_prompt_tokens_computed_total"] - before, 4 * 1001 - 3 * 960)


if __name__ == "__main__":
    unittest.main()
