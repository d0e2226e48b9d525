"""What JSON may hold and other readers refuse: numbers beyond 64 bits, halves of characters."""
import json
import unittest

from harness import APIS, Server, pieces
from test_chat import HERMES, hermes, tools_for

BIG, HUGE = 12345678901234567890, 10 ** 40 + 7
ARGUMENTS = '{"id": %d, "list": [%d, -1], "n": {"x": %d}, "t": 1.5}' % (BIG, HUGE, -BIG)
SHOWN = HERMES.replace("{{ '<|im_start|>' + m.role", "{% for c in m.tool_calls or [] %}{{ c.function.arguments|tojson }}{% endfor %}"
                       "{{ '<|im_start|>' + m.role")
SCRIPTS = {"say": {"pieces": pieces("Hello", " you")}, "call": {"pieces": pieces(hermes("f", ARGUMENTS))}}
FORM = {"chat": "messages", "messages": "messages", "responses": "input"}
PATH = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses", "completions": "/v1/completions"}


class Json(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(SCRIPTS, template=SHOWN)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def raw(self, path, text, status=200):
        return self.server.post(path, text.encode(), status)

    def test_big_numbers_in_fields_that_nobody_knows(self):
        for api, path in PATH.items():
            prompt = '"prompt":"[[say]]"' if api == "completions" else '"input":"[[say]]"' if api == "responses" \
                else '"messages":[{"role":"user","content":"[[say]]","x":%d}]' % HUGE
            for number in (2 ** 63, -2 ** 63 - 1, HUGE, "1e400", "-1e-400", "1" * 4000, "0." + "1" * 4000):
                self.raw(path, '{%s,"max_tokens":50,"x":[%s],"metadata":{"y":%s}}' % (prompt, number, number))
        self.raw("/v1/embeddings", '{"input":"a","x":%d}' % HUGE)
        self.assertEqual(self.raw("/tokenize", '{"content":"a","x":%d}' % HUGE)["count"], 1)

    def test_big_numbers_in_fields_that_count(self):
        says = {"temperature": "temperature is 1e400; expected 0 to 100", "seed": f"seed is {HUGE}; expected a whole number of 64 bits",
                "top_k": f"top_k is {HUGE}; expected -1 to 2147483647", "max_tokens": "max_tokens is %d; expected 1 to 9007199254740992",
                "messages": "messages: expected a list", "stop": "stop: expected a string or strings, found a number",
                "stream": "stream: expected a boolean, found a number"}
        for field, text in says.items():
            number = "1e400" if field == "temperature" else str(2 ** 70 if field == "max_tokens" else HUGE)
            body = '{"messages":[{"role":"user","content":"[[say]]"}],"%s":%s}' % (field, number)
            self.assertIn(text.replace("%d", number), self.raw(PATH["chat"], body, 400)["error"]["message"])
        self.assertIn("must be a string", self.raw(PATH["responses"], '{"input":"x","previous_response_id":%d}' % HUGE, 400)["error"]["message"])
        for seed in (2 ** 63, 2 ** 64 - 1, -2 ** 63):
            self.raw(PATH["chat"], '{"messages":[{"role":"user","content":"[[say]]"}],"seed":%d}' % seed)
        self.raw(PATH["chat"], '{"messages":[{"role":"user","content":"[[say]]"}],"seed":9223372036854775807.0}')
        for content in (str(HUGE), '[%d,{"type":"text","text":%d},"[[say]]"]' % (HUGE, HUGE)):
            prompt = self.raw("/apply-template", '{"messages":[{"role":"user","content":%s}]}' % content)["prompt"]
            self.assertNotIn("\ufffd", prompt)

    def test_calls_keep_their_numbers(self):
        for api in FORM:
            for stream in (False, True):
                a = APIS[api](self.server, "[[call]]", stream, tools=tools_for(api))
                got = a.calls[0]["arguments"]
                self.assertEqual(got if isinstance(got, dict) else json.loads(got), json.loads(ARGUMENTS), (api, stream))

    def test_arguments_and_definitions_reach_the_template_as_they_are(self):
        tool = {"type": "object", "properties": {"n": {"type": "integer", "maximum": HUGE, "x": [BIG, 1.5]}}}
        asked = {"role": "user", "content": "[[say]]"}
        bodies = {
            "chat": {"messages": [asked, {"role": "assistant", "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": ARGUMENTS}}]}, asked],
                "tools": [{"type": "function", "function": {"name": "f", "parameters": tool}}]},
            "object": {"messages": [asked, {"role": "assistant", "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": json.loads(ARGUMENTS)}}]}, asked],
                "functions": [], "tools": [{"name": "f", "input_schema": tool}]}}
        for body in bodies.values():
            prompt = self.server.post("/apply-template", body)["prompt"]
            self.assertIn(ARGUMENTS, prompt)
            self.assertIn(json.dumps(tool), prompt)
        use = {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": json.loads(ARGUMENTS)}]}
        plain = self.server.post("/v1/messages/count_tokens", {"messages": [asked, use, asked], "tools": [{"name": "f", "input_schema": tool}]})
        chat = self.server.post("/apply-template", dict(bodies["chat"], chat_template_kwargs={"enable_thinking": False}))
        self.assertEqual(plain["input_tokens"], len(chat["tokens"]))

    def test_responses_keep_and_echo_them(self):
        r = self.raw(PATH["responses"], '{"input":"[[call]]","metadata":{"n":%d},"tools":%s}' % (
            HUGE, json.dumps(tools_for("responses"))))
        self.assertEqual(r["metadata"]["n"], HUGE)
        again = self.server.post(PATH["responses"], {"previous_response_id": r["id"], "input": [
            {"type": "function_call_output", "call_id": r["output"][0]["call_id"], "output": {"n": HUGE}},
            {"role": "user", "content": "[[say]]"}]})
        self.assertEqual(again["output_text"], "Hello you")
        self.assertEqual(json.loads(self.server.call("GET", f"/v1/responses/{r['id']}")[2]), r)

    def test_half_a_character_is_replaced(self):
        for half in ("\\ud800", "\\udfff", "\\ud800\\ud800", "\\ud83d x \\ude00"):
            body = '{"messages":[{"role":"user","content":"a%s€ [[say]]"}],"input":"a%s€ [[say]]","prompt":"a%s€ [[say]]","%s":1,' \
                   '"max_tokens":9}' % (half, half, half, half)
            for path in PATH.values():
                self.raw(path, body)
            prompt = self.raw("/apply-template", body)["prompt"]
            self.assertIn("a" + half.replace("\\ud83d", "\ufffd").replace("\\ude00", "\ufffd").replace("\\ud800", "\ufffd")
                          .replace("\\udfff", "\ufffd") + "€", prompt)
        self.assertIn("a😀b", self.raw("/apply-template", '{"messages":[{"role":"user","content":"a\\ud83d\\ude00b"}]}')["prompt"])
        self.assertIn("UTF-8", self.server.post(PATH["chat"], b'{"x":"\xff"}', 400)["error"]["message"])

    def test_errors_say_where(self):
        for body, says in (('{"a": 1,\n "b": }', "(line 2, column 7)"), ('{"a": 1', "(line 1, column 8)"), ("", "(line 1, column 1)"),
                           ('{"a": 01}', "number"), ('{} x', "something follows")):
            self.assertIn(says, self.raw(PATH["chat"], body, 400)["error"]["message"])


if __name__ == "__main__":
    unittest.main()
