"""The published client libraries against the scripted server: openai and anthropic for Python here, for
JavaScript in sdk.mjs; then against SmolLM2."""
import os
import re
import subprocess
import unittest

import anthropic
import openai

from harness import BUILD, Server, pieces
from test_chat import HERMES, TOOLS, hermes, tools_for

MODEL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models", "smollm2-135m-instruct-q4_1.gguf")
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


@unittest.skipUnless(os.path.exists(MODEL), "no models (make models)")
class SdkWithAModel(unittest.TestCase):
    """The same libraries with SmolLM2: what a stream says is what a whole reply says."""

    @classmethod
    def setUpClass(cls):
        cls.process = subprocess.Popen([os.path.join(BUILD, "luce"), "serve", MODEL, "--port", "0", "-c", "2048", "--api-key", "key"],
                                       stderr=subprocess.PIPE, text=True)
        cls.url = "http://127.0.0.1:" + re.search(r":(\d+)$", cls.process.stderr.readline()).group(1)
        cls.openai = openai.OpenAI(base_url=cls.url + "/v1", api_key="key", max_retries=0)
        cls.anthropic = anthropic.Anthropic(base_url=cls.url, api_key="key", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.process.terminate()
        assert cls.process.wait(20) == 0
        cls.process.stderr.close()

    def test_the_apis_agree(self):
        ask = dict(model="luce", messages=[{"role": "user", "content": "What is the capital of France?"}], max_tokens=24)
        whole = self.openai.chat.completions.create(**ask, logprobs=True, top_logprobs=2)
        said = whole.choices[0].message.content
        self.assertGreater(len(said), 5)
        self.assertEqual("".join(t.token for t in whole.choices[0].logprobs.content).strip(), said.strip())
        chunks = list(self.openai.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
        self.assertEqual("".join(c.choices[0].delta.content or "" for c in chunks if c.choices), said)
        self.assertEqual(chunks[-1].usage.completion_tokens, whole.usage.completion_tokens)
        message = self.anthropic.messages.create(**ask)
        self.assertEqual(message.content[0].text, said)
        with self.anthropic.messages.stream(**ask) as stream:
            self.assertEqual("".join(stream.text_stream), said)
        count = self.anthropic.messages.count_tokens(model="luce", messages=ask["messages"]).input_tokens
        self.assertEqual(count, message.usage.input_tokens + (message.usage.cache_read_input_tokens or 0))
        self.assertEqual(self.openai.responses.create(model="luce", input=ask["messages"][0]["content"], max_output_tokens=24).output_text, said)

    def test_a_response_goes_on(self):
        first = self.openai.responses.create(model="luce", input="My name is Anna. Say hello.", max_output_tokens=24)
        second = self.openai.responses.create(model="luce", input="What is my name?", previous_response_id=first.id, max_output_tokens=24)
        self.assertEqual(second.previous_response_id, first.id)
        self.assertGreater(second.usage.input_tokens, first.usage.total_tokens - 2)
        self.assertEqual(self.openai.responses.retrieve(second.id).output_text, second.output_text)
        with self.assertRaises(openai.BadRequestError) as e:
            self.openai.responses.create(model="luce", input="x", previous_response_id="resp_none")
        self.assertEqual(e.exception.code, "previous_response_not_found")

    def test_tools_in_the_prompt_and_embeddings(self):
        """The model need not call them; whatever it says is a reply of either kind."""
        ask = dict(model="luce", messages=[{"role": "user", "content": "Call f with n = 3."}], max_tokens=24)
        r = self.openai.chat.completions.create(tools=TOOLS, **ask)
        self.assertTrue(r.choices[0].message.content or r.choices[0].message.tool_calls)
        r = self.anthropic.messages.create(tools=tools_for("messages"), **ask)
        self.assertIn(r.stop_reason, ("end_turn", "max_tokens", "tool_use"))
        vectors = [d.embedding for d in self.openai.embeddings.create(model="luce", input=["a cat", "a kitten", "the tax law"]).data]
        near, far = (sum(a * b for a, b in zip(vectors[0], v)) for v in vectors[1:])
        self.assertGreater(near, far)

    def test_javascript(self):
        env = dict(os.environ, LUCE_URL=self.url, LUCE_REAL="1")
        subprocess.run(["node", os.path.join(BUILD, "sdk", "sdk.mjs")], env=env, check=True, timeout=60)


if __name__ == "__main__":
    unittest.main()
