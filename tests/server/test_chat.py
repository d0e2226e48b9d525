"""Reasoning and calls of tools: one raw output, five routes, the same result."""
import json
import random
import unittest

from harness import APIS, Server, pieces

CHATML = ("{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
HERMES = ("{% if tools %}{% for t in tools %}{{ t|tojson }}{% endfor %}"
          "<tool_call>\n{\"name\": <n>, \"arguments\": <a>}\n</tool_call>{% endif %}"
          "{% if false %}<think></think>{% endif %}" + CHATML)
XML = ("{% if tools %}<tool_call>\n<function=n>\n<parameter=p>\n</parameter>\n</function>\n</tool_call>{% endif %}"
       + CHATML[:-len("{% endif %}")] + "{{ '<think>\n' }}{% endif %}")

TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {
    "n": {"type": "integer"}, "b": {"type": "boolean"}, "o": {"type": "object"}, "s": {"type": "string"}}}}}
    for name in ("f", "g", "write_file")]


def tools_for(api):
    if api == "messages":
        return [{"name": t["function"]["name"], "input_schema": t["function"]["parameters"]} for t in TOOLS]
    if api == "responses":
        return [dict(t["function"], type="function") for t in TOOLS]
    return TOOLS


def cut(text, rng):
    data, out = text.encode(), []
    while data:
        n = rng.randrange(1, 9)
        out.append(data[:n])
        data = data[n:]
    return out


def hermes(name, arguments):
    return '<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>' % (name, arguments)


def xml(name, **values):
    return "<tool_call>\n<function=%s>\n%s</function>\n</tool_call>" % (
        name, "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in values.items()))


NESTED = json.dumps({"s": 'q"uo\\te é\n', "o": {"a": [1, {"b": None}]}}, ensure_ascii=False)
# raw output: text, reasoning, calls, finish
OF_HERMES = {
    "plain": ("No call needed.", ("No call needed.", "", [], "stop")),
    "one": (hermes("f", '{"n": 3}'), ("", "", [("f", {"n": 3})], "tool_calls")),
    "nested": ("I look.\n" + hermes("f", NESTED), ("I look.", "", [("f", json.loads(NESTED))], "tool_calls")),
    "two": ("So: " + hermes("f", "{}") + "\n" + hermes("g", '{"s": "x"}'), ("So:", "", [("f", {}), ("g", {"s": "x"})], "tool_calls")),
    "thought": ("<think>\nI could write <tool_call> here\n</think>\n\nNo call.", ("No call.", "I could write <tool_call> here", [], "stop")),
    "inner": (hermes("write_file", '{"s": "ends with </tool_call> here"}'),
              ("", "", [("write_file", {"s": "ends with </tool_call> here"})], "tool_calls")),
}
OF_XML = {
    "plan": ("plan</think>\n\nhi", ("hi", "plan", [], "stop")),
    "types": ("x</think>\n\n" + xml("f", n=3, b="true", o='{"a":1}', s="3"),
              ("", "x", [("f", {"n": 3, "b": True, "o": {"a": 1}, "s": "3"})], "tool_calls")),
    "lines": ("</think>\n\n" + xml("write_file", s="  a\n"), ("", "", [("write_file", {"s": "  a\n"})], "tool_calls")),
    "closer": ("</think>\n\n" + xml("write_file", s="ends with </parameter> here."),
               ("", "", [("write_file", {"s": "ends with </parameter> here."})], "tool_calls")),
}


class Chat(unittest.TestCase):
    def run_all(self, template, outputs):
        rng = random.Random(3)
        scripts = {f"{name}{i}": {"pieces": pieces(*cut(raw, rng))} for name, (raw, _) in outputs.items() for i in range(4)}
        with Server(scripts, context=2048, template=template) as server:
            for script in scripts:
                text, reasoning, calls, finish = outputs[script[:-1]][1]
                for api in ("chat", "messages", "responses"):
                    fields = {"tools": tools_for(api), "chat_template_kwargs": {"enable_thinking": True}}
                    answers = [APIS[api](server, f"[[{script}]]", stream, **fields) for stream in (False, True)]
                    with self.subTest(api=api, script=script):
                        self.assertEqual(answers[0].key(), answers[1].key())
                        a = answers[1]
                        found = [(c["name"], json.loads(c["arguments"]) if isinstance(c["arguments"], str) else c["arguments"])
                                 for c in a.calls]
                        self.assertEqual((a.text.strip(), a.reasoning.strip(), found, a.finish), (text, reasoning, calls, finish))

    def test_json_in_tags(self):
        """S11, L01, L12"""
        self.run_all(HERMES, OF_HERMES)

    def test_tags_for_each_parameter_after_prefilled_reasoning(self):
        """S08, L01, L02, L07, L12"""
        self.run_all(XML, OF_XML)

    def test_a_cap_inside_reasoning_or_a_call(self):
        """S09, L05"""
        raw = "plan</think>\n\n" + xml("f", n=3)
        scripts = {"all": {"pieces": pieces(*[c for c in raw])}}
        with Server(scripts, context=2048, template=XML) as server:
            whole = APIS["chat"](server, "[[all]]", False, tools=TOOLS)
            self.assertEqual(whole.finish, "tool_calls")
            for cap in range(1, len(raw), 7):
                a, b = (APIS["chat"](server, "[[all]]", stream, tools=TOOLS, max_tokens=cap) for stream in (False, True))
                self.assertEqual(a.key(), b.key())
                self.assertEqual(a.finish, "length")
                if cap <= 4:
                    self.assertEqual((a.text, a.reasoning), ("", raw[:cap]))

    def test_one_call_at_most_and_no_calls(self):
        scripts = {"two": {"pieces": pieces(hermes("f", "{}"), "\n", hermes("g", "{}"))}}
        with Server(scripts, context=2048, template=HERMES) as server:
            for stream in (False, True):
                self.assertEqual(len(APIS["chat"](server, "[[two]]", stream, tools=TOOLS, parallel_tool_calls=False).calls), 1)
                self.assertEqual(APIS["chat"](server, "[[two]]", stream, tools=TOOLS, tool_choice="none").calls, [])
            custom = [{"type": "custom", "name": "f"}]
            item = server.post("/v1/responses", {"input": "[[two]]", "tools": custom, "parallel_tool_calls": False})["output"][0]
            self.assertEqual((item["type"], item["name"]), ("custom_tool_call", "f"))

    def test_stop_strings_are_looked_for_in_what_the_client_sees(self):
        path = hermes("write_file", '{"s": "a STOP b\\n\\nc"}')
        cases = [   # raw output, stops: text, reasoning, calls, finish
            (path, ["STOP"], "", "", [{"s": "a STOP b\n\nc"}], "tool_calls"),
            (path, ["write_file", "arguments", "<tool_call>", "\n"], "", "", [{"s": "a STOP b\n\nc"}], "tool_calls"),
            ("I look.\n" + path, ["look"], "I", "", [], "stop"),
            ("I look.\n" + path + "\nThen STOP. " + path, ["STOP"], "I look.Then", "", [{"s": "a STOP b\n\nc"}], "tool_calls"),
            ("Then STOP. " + path, ["STOP"], "Then", "", [], "stop"),
            ("<think>\nFirst STOP\n</think>\n\nhi", ["STOP"], "", "First", [], "stop"),
            ("<think>\nFirst\n</think>\n\nhi STOP", ["STOP"], "hi", "First", [], "stop"),
            ("<think>\nFirst\n</think>\n\nhi", ["First\n</think>", "</think>", "think", "\n\nhi"], "hi", "First", [], "stop"),
            ("<think>\nFir\n</think>\n\nst", ["First", "Fir\nst"], "st", "Fir", [], "stop"),
            ("one\n\ntwo", ["\n\n"], "one", "", [], "stop"),
            ("one < two", ["<"], "one", "", [], "stop"),
            ("<tool_call>\nno STOP call\n</tool_call>x", ["STOP"], "<tool_call>\nno", "", [], "stop"),
            ("abcd", ["bc", "abcd"], "a", "", [], "stop"),
        ]
        rng = random.Random(5)
        scripts = {f"c{i}x{k}": {"pieces": pieces(*cut(raw, rng))} for i, (raw, *_) in enumerate(cases) for k in range(3)}
        with Server(scripts, context=2048, template=HERMES) as server:
            for i, (_, stops, text, reasoning, calls, finish) in enumerate(cases):
                for k in range(3):
                    for api in ("chat", "messages", "responses"):
                        answers = [APIS[api](server, f"[[c{i}x{k}]]", stream, tools=tools_for(api), stop=stops)
                                   for stream in (False, True)]
                        a = answers[1]
                        with self.subTest(api=api, case=i, cut=k):
                            self.assertEqual(answers[0].key(), a.key())
                            found = [json.loads(c["arguments"]) if isinstance(c["arguments"], str) else c["arguments"] for c in a.calls]
                            self.assertEqual((a.text.strip(), a.reasoning.strip(), found, a.finish), (text, reasoning, calls, finish))
                            if api == "messages" and finish == "stop" and (text, reasoning) != ("hi", "First"):
                                self.assertTrue(a.stop in stops or text == "st")

    def test_stop_strings_in_random_replies_are_those_of_the_reply_without_them(self):
        """Whatever the parser holds back, and also where a limit or the end lets it go."""
        def before(text, stops):
            for end in range(1, len(text) + 1):
                found = [s for s in stops if text[:end].endswith(s)]
                if found:
                    return text[:end - len(max(found, key=len))], max(found, key=len)
            return text, None

        def some(words, most):
            return "".join(rng.choice(words) for _ in range(rng.randrange(most)))
        rng = random.Random(17)
        words = ["a", "b", "ab", "\n", "\n\n", " ", "<", "<to", "{", '{"name": "f"', "€", "</think>", "<tool_call>", "."]
        scripts = {f"c{i}": {"pieces": pieces(*cut((f"<think>\n{some(words, 8)}\n</think>\n\n" if i % 2 else "") + some(words, 8) + "x", rng))} for i in range(80)}
        with Server(scripts, context=2048, template=HERMES) as server:
            for script, play in scripts.items():
                stops = [rng.choice("ab\n <€{.") + some("ab\n <", 3) for _ in range(3)]
                stops.append(stops[0] + rng.choice("ab\n<"))               # one is the beginning of another
                cap = rng.randrange(1, len(play["pieces"]) + 2)
                for api in ("chat", "messages"):
                    fields = dict(tools=tools_for(api), max_tokens=cap)
                    bare = APIS[api](server, f"[[{script}]]", False, **fields)
                    whole, stream = (APIS[api](server, f"[[{script}]]", s, stop=stops, **fields) for s in (False, True))
                    reasoning, found = before(bare.reasoning, stops)
                    text, found = ("", found) if found else before(bare.text, stops)
                    with self.subTest(script=script, api=api, stops=stops, cap=cap):
                        self.assertEqual((whole.key(), whole.stop), (stream.key(), stream.stop))
                        self.assertEqual((whole.reasoning, whole.text, whole.finish), (reasoning, text, "stop" if found else bare.finish))
                        self.assertEqual(whole.stop, found if api == "messages" else None)
                body = {"messages": [{"role": "user", "content": f"[[{script}]]"}], "stop": stops, "max_tokens": cap, "logprobs": True}
                whole = server.post("/v1/chat/completions", body)["choices"][0]["logprobs"]["content"]
                stream = [x for _, e in server.events("/v1/chat/completions", body)[:-1] for c in e["choices"]
                          for x in (c.get("logprobs") or {}).get("content", [])]
                self.assertEqual(whole, stream, (script, stops, cap))

    def test_a_stop_string_ends_usage_and_logprobs_with_it(self):
        scripts = {"long": {"pieces": pieces(*"one two three four five six seven".split(" ")), "pace_ms": 2},
                   "loop": {"pieces": pieces("ab"), "endless": True}}
        with Server(scripts, context=2048, template=HERMES) as server:
            for stream in (False, True):
                a = APIS["chat"](server, "[[long]]", stream, stop=["fourfi"])
                self.assertEqual((a.text, a.finish, a.usage), ("onetwothree", "stop", 5))
                self.assertEqual(APIS["chat"](server, "[[loop]]", stream, stop=["baba"]).text, "a")
            body = {"messages": [{"role": "user", "content": "[[long]]"}], "stop": ["efour"], "logprobs": True}
            whole = server.post("/v1/chat/completions", body)["choices"][0]
            stream = [x for _, e in server.events("/v1/chat/completions", body)[:-1] for c in e["choices"]
                      for x in (c.get("logprobs") or {}).get("content", [])]
            self.assertEqual(whole["message"]["content"], "onetwothre")
            self.assertEqual([x["token"] for x in whole["logprobs"]["content"]], ["one", "two"])
            self.assertEqual(whole["logprobs"]["content"], stream)
            self.assertEqual(json.loads(server.call("GET", "/status/json")[2])["waiting"], 0)


if __name__ == "__main__":
    unittest.main()
