"""The published client libraries against the scripted server: openai and anthropic for Python here, for
JavaScript in sdk.mjs."""
import os
import subprocess
import unittest

import anthropic
import openai

from harness import BUILD, Server, pieces
from test_chat import HERMES, TOOLS, hermes, tools_for

SCRIPTS = {"hi": {"pieces": pieces("Hello", " wor", "ld")},
           "call": {"pieces": pieces("See. ", *[c for c in hermes("f", '{"n": 3}')])}}


class Sdk(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(SCRIPTS, context=2048, template=HERMES, keys=["key"])
        url = f"http://127.0.0.1:{cls.server.port}"
        cls.openai = openai.OpenAI(base_url=url + "/v1", api_key="key", max_retries=0)
        cls.anthropic = anthropic.Anthropic(base_url=url, api_key="key", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def test_openai_chat(self):
        ask = dict(model="script", messages=[{"role": "user", "content": "[[hi]]"}])
        whole = self.openai.chat.completions.create(**ask)
        self.assertEqual((whole.choices[0].message.content, whole.choices[0].finish_reason), ("Hello world", "stop"))
        stream = self.openai.chat.completions.create(stream=True, stream_options={"include_usage": True}, **ask)
        chunks = list(stream)
        self.assertEqual("".join(c.choices[0].delta.content or "" for c in chunks if c.choices), "Hello world")
        self.assertEqual(chunks[-1].usage.completion_tokens, whole.usage.completion_tokens)

    def test_openai_tools(self):
        r = self.openai.chat.completions.create(model="script", messages=[{"role": "user", "content": "[[call]]"}], tools=TOOLS)
        call = r.choices[0].message.tool_calls[0]
        self.assertEqual((call.function.name, call.function.arguments), ("f", '{"n": 3}'))
        messages = [{"role": "user", "content": "[[call]]"}, r.choices[0].message,
                    {"role": "tool", "tool_call_id": call.id, "content": "done"}, {"role": "user", "content": "[[hi]]"}]
        r = self.openai.chat.completions.create(model="script", messages=messages, tools=TOOLS)
        self.assertEqual(r.choices[0].message.content, "Hello world")

    def test_openai_responses(self):
        r = self.openai.responses.create(model="script", input="[[hi]]")
        self.assertEqual((r.output_text, r.status), ("Hello world", "completed"))
        with self.openai.responses.stream(model="script", input="[[call]]", tools=tools_for("responses")) as stream:
            kinds = [e.type for e in stream]
            final = stream.get_final_response()
        self.assertEqual((kinds[0], kinds[-1]), ("response.created", "response.completed"))
        self.assertEqual([(o.name, o.arguments) for o in final.output if o.type == "function_call"], [("f", '{"n": 3}')])

    def test_openai_rest(self):
        self.assertEqual(self.openai.completions.create(model="script", prompt="[[hi]]").choices[0].text, "Hello world")
        self.assertEqual([m.id for m in self.openai.models.list()], ["script"])
        with self.assertRaises(openai.BadRequestError) as e:
            self.openai.chat.completions.create(model="script", messages=[{"role": "user", "content": "x" * 3000}])
        self.assertEqual(e.exception.code, "context_length_exceeded")
        with self.assertRaises(openai.AuthenticationError):
            self.openai.with_options(api_key="other").models.list()

    def test_anthropic(self):
        ask = dict(model="script", max_tokens=100, messages=[{"role": "user", "content": "[[hi]]"}])
        whole = self.anthropic.messages.create(**ask)
        self.assertEqual((whole.content[0].text, whole.stop_reason), ("Hello world", "end_turn"))
        with self.anthropic.messages.stream(**ask) as stream:
            self.assertEqual("".join(stream.text_stream), "Hello world")
        n = self.anthropic.messages.count_tokens(model="script", messages=ask["messages"]).input_tokens
        self.assertEqual(n, whole.usage.input_tokens)
        tools = tools_for("messages")
        ask["messages"] = [{"role": "user", "content": "[[call]]"}]
        with self.anthropic.messages.stream(tools=tools, **ask) as stream:
            final = stream.get_final_message()
        self.assertEqual((final.stop_reason, final.content[-1].name, final.content[-1].input), ("tool_use", "f", {"n": 3}))
        ask["messages"] += [{"role": "assistant", "content": final.content}, {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": final.content[-1].id, "content": "done"}, {"type": "text", "text": "[[hi]]"}]}]
        self.assertEqual(self.anthropic.messages.create(tools=tools, **ask).content[0].text, "Hello world")
        with self.assertRaises(anthropic.BadRequestError):
            self.anthropic.messages.create(**dict(ask, messages=[{"role": "user", "content": "x" * 3000}]))

    def test_javascript(self):
        env = dict(os.environ, LUCE_URL=f"http://127.0.0.1:{self.server.port}")
        subprocess.run(["node", os.path.join(BUILD, "sdk", "sdk.mjs")], env=env, check=True, timeout=60)


if __name__ == "__main__":
    unittest.main()
