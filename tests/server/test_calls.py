"""Calls of tools of every dialect through the three APIs, plain and streamed: the same text, calls, finish and usage."""
import json
import random
import unittest

from harness import APIS, Server, pieces
from test_chat import CHATML, cut, tools_for

# What a template must hold to be of the dialect; f(s="Brest", n=2) and g() in it; the first one, broken.
BAR = "\uff5c"
PAIR = "<arg_key>%s</arg_key>\n<arg_value>%s</arg_value>\n"
DSML = "<|DSML|tool_calls>\n%s</|DSML|tool_calls>"
PARAMETERS = ('<|DSML|parameter name="s" string="true">Brest</|DSML|parameter>\n'
              '<|DSML|parameter name="n" string="false">2</|DSML|parameter>\n')
JSON = '{"name": "f", "%s": {"s": "Brest", "n": 2}}'
DIALECTS = {
    "hermes": ('<tool_call> "arguments"', f"<tool_call>\n{JSON % 'arguments'}\n</tool_call>",
               '\n<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call>', '<tool_call>\n{"name": "f", "arguments": {"s": Brest}}\n</tool_call>'),
    "xml": ("<function=", "<tool_call>\n<function=f>\n<parameter=s>\nBrest\n</parameter>\n<parameter=n>\n2\n</parameter>\n</function>\n</tool_call>",
            "\n<tool_call>\n<function=g>\n</function>\n</tool_call>", "<tool_call>\n<function=f>\n<parameter=s>\nBrest"),
    "laguna": ("<arg_key>", f"<tool_call>f\n{PAIR % ('s', 'Brest')}{PAIR % ('n', '2')}</tool_call>", "\n<tool_call>g\n</tool_call>",
               "<tool_call>f\n<arg_key>s</arg_key>\n<arg_val>Brest</arg_val></tool_call>"),
    "deepseek": (f"{BAR}DSML", (DSML % f'<|DSML|invoke name="f">\n{PARAMETERS}</|DSML|invoke>\n').replace("|", BAR),
                 (DSML % '<|DSML|invoke name="g">\n</|DSML|invoke>\n').replace("|", BAR),
                 (DSML % '<|DSML|invoke name="f">\nprose\n</|DSML|invoke>\n').replace("|", BAR)),
    "gemma": ("<|tool_call>call:", '<|tool_call>call:f{s:<|"|>Brest<|"|>,n:2}<tool_call|>', "<|tool_call>call:g{}<tool_call|>",
              '<|tool_call>call:f{s:<|"|>Brest<|"|>,n:2]<tool_call|>'),
    "mistral": ("[TOOL_CALLS]", f"[TOOL_CALLS][{JSON % 'arguments'}", ', {"name": "g", "arguments": {}}]', '[TOOL_CALLS][{"name": "f", "arguments": 3}]'),
    "mistral-args": ("[TOOL_CALLS][ARGS]", '[TOOL_CALLS]f[ARGS]{"s": "Brest", "n": 2}', "[TOOL_CALLS]g[ARGS]{}", '[TOOL_CALLS]f[ARGS]{"s": Brest}'),
    "llama": ('<|start_header_id|> "parameters"', JSON % "parameters", '; {"name": "g", "parameters": {}}', '{"name": "f", "parameters": {"s": Brest}}'),
}
DIALECTS["ling"] = ("<role> <arg_key>",) + DIALECTS["laguna"][1:]         # the same marks within turns of another form
# Turns, reasoning and results as Ling has them.
LING = ("{% for m in messages %}{% if m.role == 'tool' %}{{ '<role>OBSERVATION</role>\n<tool_response>\n' + m.content + '\n</tool_response><|role_end|>' }}"
        "{% else %}{{ '<role>' + {'user': 'HUMAN', 'assistant': 'ASSISTANT', 'system': 'SYSTEM'}[m.role] + '</role>' + m.content }}"
        "{% for c in m.tool_calls or [] %}{{ '\n<tool_call>' + c.function.name + '\n' }}{% for k, v in c.function.arguments.items() %}"
        "{{ '<arg_key>' + k + '</arg_key>\n<arg_value>' + v|string + '</arg_value>\n' }}{% endfor %}</tool_call>{% endfor %}<|role_end|>{% endif %}"
        "{% endfor %}{% if tools %}{{ tools|tojson }}{% endif %}"
        "{% if add_generation_prompt %}{{ '<role>ASSISTANT</role>\n<think>' }}{% endif %}")
LONG = "a line of text, " * 60


def served(dialect):
    return "{% if tools %}{{ '' if true else '" + DIALECTS[dialect][0] + "' }}{% endif %}" + CHATML


def calls_of(answer):
    return [(c["name"], json.loads(c["arguments"]) if isinstance(c["arguments"], str) else c["arguments"]) for c in answer.calls]


class Calls(unittest.TestCase):
    def ask(self, server, api, script, **fields):
        """The streamed answer, which is the plain one, too."""
        plain, stream = (APIS[api](server, f"[[{script}]]", s, tools=tools_for(api), **fields) for s in (False, True))
        with self.subTest(api=api, script=script, **fields):
            self.assertEqual(plain.key(), stream.key())
        return stream

    def test_every_dialect(self):
        rng = random.Random(11)
        for dialect, (_, one, other, broken) in DIALECTS.items():
            before = "" if dialect == "llama" else "I look.\n\n"
            lone = one + ("]" if dialect == "mistral" else "")
            raw = {
                "one": (lone, "", [("f", {"s": "Brest", "n": 2})]),
                "two": (before + one + other, before.strip(), [("f", {"s": "Brest", "n": 2}), ("g", {})]),
                "long": (lone.replace("Brest", LONG), "", [("f", {"s": LONG, "n": 2})]),
                "big": (lone.replace("2", "12345678901234567890123", 1) if lone.count("2") == 1 else lone, "", None),
                "broken": (before + broken, before + broken, []),
            }
            scripts = {f"{name}{i}": {"pieces": pieces(*cut(text, rng))} for name, (text, *_) in raw.items() for i in range(2)}
            with Server(scripts, context=8192, template=served(dialect)) as server:
                for script in scripts:
                    name = script[:-1]
                    for api in ("chat", "messages", "responses"):
                        a = self.ask(server, api, script)
                        with self.subTest(dialect=dialect, api=api, script=script):
                            if raw[name][2] is None:
                                self.assertEqual(calls_of(a)[0][1]["n"], 12345678901234567890123)
                                continue
                            self.assertEqual((a.text, calls_of(a), a.finish), (raw[name][1], raw[name][2], "tool_calls" if raw[name][2] else "stop"))

    def test_marks_inside_values_and_thoughts(self):
        """L01, S11, in every dialect: a value may hold the marks of calls, a mention of one in a closed thought is none."""
        rng = random.Random(12)
        for dialect, (_, one, _, broken) in DIALECTS.items():
            think = {"gemma": ("<|channel>thought", "<channel|>"), "mistral": ("[THINK]", "[/THINK]"),
                     "mistral-args": ("[THINK]", "[/THINK]")}.get(dialect, ("<think>", "</think>"))
            lone = one + ("]" if dialect == "mistral" else "")
            values = [v for v in ("ends with </tool_call> here", "a </parameter> b", "x </function>\ny", "[TOOL_CALLS] z", "<tool_call> q </arg_value> r",
                                  "<think> t </think>", "</tool_call>", "{[(<", "b <|tool_call> c") if dialect != "llama" or "|" not in v]
            opener = one[:one.index("f")].strip() or "{"
            raw = {f"value{i}": (lone.replace("Brest", v), "", "", [("f", {"s": v, "n": 2})]) for i, v in enumerate(values)}
            raw["mention"] = (f"{think[0]}\nI could write {opener} here\n{think[1]}\n\nNo call.", "I could write " + opener + " here", "No call.", [])
            raw["whole"] = (f"{think[0]}\nSo: {lone}\n{think[1]}\n\nNo call.", f"So: {lone}", "No call.", [])
            raw["broken"] = (f"{think[0]}\nSo: {broken}\n{think[1]}\n\nNo call.", f"So: {broken}", "No call.", [])
            marked = "<|python_tag|>" + lone if dialect == "llama" else lone        # a bare object in a thought is none
            raw["unclosed"] = (f"{think[0]}\nSo.\n{marked}", "So.", "", [("f", {"s": "Brest", "n": 2})])
            scripts = {name: {"pieces": pieces(*cut(text, rng))} for name, (text, *_) in raw.items()}
            with Server(scripts, context=8192, template=served(dialect)) as server:
                for name, (text, reasoning, said, calls) in raw.items():
                    for api in ("chat", "messages", "responses"):
                        a = self.ask(server, api, name)
                        with self.subTest(dialect=dialect, api=api, script=name, raw=text):
                            self.assertEqual((a.reasoning.strip(), a.text, calls_of(a), a.finish), (reasoning, said, calls, "tool_calls" if calls else "stop"))

    def test_ling_in_turns_of_its_own(self):
        call = DIALECTS["ling"][1]
        scripts = {"call": {"pieces": pieces(*cut(f"Where?\n</think>\n\nI look.\n{call}", random.Random(5)))},
                   "done": {"pieces": pieces(*"So be it.</think>High water at 4.")}}
        with Server(scripts, context=8192, template=LING) as server:
            for api in ("chat", "messages", "responses"):
                a = self.ask(server, api, "call")
                self.assertEqual((a.reasoning.strip(), a.text, calls_of(a), a.finish), ("Where?", "I look.", [("f", {"s": "Brest", "n": 2})], "tool_calls"))
                a = self.ask(server, api, "done")
                self.assertEqual((a.reasoning, a.text, a.finish), ("So be it.", "High water at 4.", "stop"))
            made = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "[[call]]"}], "tools": tools_for("chat")})
            turn = made["choices"][0]["message"]
            history = [{"role": "user", "content": "tide?"}, turn, {"role": "tool", "tool_call_id": turn["tool_calls"][0]["id"], "content": "[[done]]"}]
            prompt = server.post("/apply-template", {"messages": history})["prompt"]
            self.assertIn(f"<role>ASSISTANT</role>I look.\n{call}<|role_end|><role>OBSERVATION</role>\n<tool_response>\n[[done]]\n</tool_response>", prompt)
            reply = server.post("/v1/chat/completions", {"messages": history, "tools": tools_for("chat")})["choices"][0]
            self.assertEqual((reply["message"]["content"], reply["finish_reason"]), ("High water at 4.", "stop"))

    def test_a_cap_inside_a_call(self):
        """L05: the reason is the length, and what there is of the call is the start of it."""
        for dialect in DIALECTS:
            one = DIALECTS[dialect][1]
            with Server({"all": {"pieces": pieces(*one)}}, context=2048, template=served(dialect)) as server:
                whole = '{"s": "Brest", "n": 2}'
                for cap in range(1, len(one), 5):
                    for api in ("chat", "messages", "responses"):
                        a = self.ask(server, api, "all", max_tokens=cap)
                        with self.subTest(dialect=dialect, api=api, cap=cap):
                            self.assertEqual((a.finish, a.usage), ("length", cap))
                            if not a.calls:
                                self.assertEqual(a.text.strip(), one[:cap].strip())
                                continue
                            got = a.calls[0]["arguments"]
                            if isinstance(got, dict):
                                got = got.get("_raw", whole if got else "")
                            self.assertTrue(whole.startswith(got), got)

    def test_a_cut_item_is_incomplete(self):
        scripts = {"call": {"pieces": pieces("Now ", *'<tool_call>{"name": "f", "arguments": {"s": "abcdefgh')},
                   "text": {"pieces": pieces(*"a long story about nothing")},
                   "custom": {"pieces": pieces(*'<tool_call>{"name": "c", "arguments": {"input": "abcdefgh')}}
        tools = tools_for("responses") + [{"type": "custom", "name": "c"}]
        with Server(scripts, context=2048, template=served("hermes")) as server:
            for script, cap, statuses in (("call", 50, ["completed", "incomplete"]), ("text", 5, ["incomplete"]), ("custom", 54, ["incomplete"])):
                body = {"input": f"[[{script}]]", "max_output_tokens": cap, "tools": tools}
                plain = server.post("/v1/responses", body)
                events = [e for _, e in server.events("/v1/responses", body)]
                last = events[-1]["response"]
                self.assertEqual((plain["status"], plain["incomplete_details"]), ("incomplete", {"reason": "max_output_tokens"}))
                self.assertEqual([i["status"] for i in plain["output"]], statuses)
                self.assertEqual(events[-1]["type"], "response.incomplete")
                done = [e["item"] for e in events if e["type"] == "response.output_item.done"]
                self.assertEqual(done, last["output"])
                drop = [{k: v for k, v in i.items() if k not in ("id", "call_id")} for i in plain["output"]]
                self.assertEqual([{k: v for k, v in i.items() if k not in ("id", "call_id")} for i in done], drop)
                if script == "custom":
                    self.assertTrue(plain["output"][0]["input"] and "abcdefgh".startswith(plain["output"][0]["input"]), plain["output"])

    def test_a_long_call_that_goes_wrong_is_one_call_of_valid_json(self):
        raw = f'<tool_call>{{"name": "f", "arguments": {{"s": "{LONG}", "n": 2, x}}}}</tool_call>'
        with Server({"odd": {"pieces": pieces(*cut(raw, random.Random(2)))}}, context=4096, template=served("hermes")) as server:
            for api in ("chat", "messages", "responses"):
                a = self.ask(server, api, "odd")
                self.assertEqual(calls_of(a), [("f", {"s": LONG, "n": 2, "": None})])
                self.assertEqual(a.finish, "tool_calls")

    def test_arguments_come_while_they_are_written(self):
        raw = f'<tool_call>{{"name": "f", "arguments": {{"s": "{LONG * 3}"}}}}</tool_call>'
        with Server({"long": {"pieces": pieces(*cut(raw, random.Random(2)))}}, context=4096, template=served("hermes")) as server:
            body = {"messages": [{"role": "user", "content": "[[long]]"}], "tools": tools_for("chat")}
            deltas = [e["choices"][0]["delta"] for _, e in server.events("/v1/chat/completions", body)[:-1] if e["choices"]]
            told = [c["function"]["arguments"] for d in deltas for c in d.get("tool_calls", [])]
            self.assertGreater(len(told), 20)


if __name__ == "__main__":
    unittest.main()
