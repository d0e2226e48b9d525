"""Fields of the published APIs that are used less: what they do, or which words refuse them."""
import base64
import json
import unittest
import urllib.parse

from harness import APIS, Server, pieces
from test_chat import HERMES, hermes

SCRIPTS = {"say": {"pieces": pieces("Hello", " you", ".")}, "call": {"pieces": pieces(hermes("f", '{"n": 3}'))},
           "talks": {"pieces": pieces(hermes("f", "{}"), "\n", "blah "), "endless": True},
           "slow": {"pieces": pieces(hermes("f", "{}"), "\n", "blah "), "endless": True, "pace_ms": 3},
           "closer": {"pieces": pieces("Use `</thi", "nk>` to close.")}, "stray": {"pieces": pieces("</think>\n\n", "so")},
           "calls": {"pieces": pieces(hermes("f", "{}"), "\n" + hermes("g", "{}"))}}
CHAT, RESP, MSG = "/v1/chat/completions", "/v1/responses", "/v1/messages"
SAY = {"messages": [{"role": "user", "content": "[[say]]"}]}


def function(name):
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}


def flat(name):
    return dict(function(name)["function"], type="function")


def data_url(text, kind="text/plain"):
    return f"data:{kind};base64," + base64.b64encode(text if isinstance(text, bytes) else text.encode()).decode()


class Fields(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(SCRIPTS, template=HERMES)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def prompt(self, body):
        return self.server.post("/apply-template", body)["prompt"]

    def noted(self, path, body):
        status, headers, text = self.server.call("POST", path, body)
        self.assertEqual(status, 200, text)
        return headers["Luce-Note"]

    def refused(self, path, body, *says):
        message = self.server.post(path, body, 400)["error"]["message"]
        for words in says:
            self.assertIn(words, message)

    # ---- Responses
    def test_instructions_are_for_one_response(self):
        def tokens(**body):
            return self.server.post(RESP, body)["usage"]["input_tokens"]
        first = self.server.post(RESP, {"input": "[[say]]", "instructions": "be brief " * 20})
        again = dict(previous_response_id=first["id"], input="more [[say]]")
        history = [{"role": "user", "content": "[[say]]"}, {"role": "assistant", "content": "Hello you."}, {"role": "user", "content": "more [[say]]"}]
        self.assertEqual(tokens(**again), tokens(input=history))
        self.assertEqual(tokens(**again, instructions="now long"), tokens(input=history, instructions="now long"))
        second = self.server.post(RESP, dict(again, instructions="x" * 99))
        self.assertEqual(tokens(previous_response_id=second["id"], input="[[say]]"),
                         tokens(input=history + [{"role": "assistant", "content": "Hello you."}, {"role": "user", "content": "[[say]]"}]))
        kept = self.server.post(RESP, {"input": [{"role": "system", "content": "stay"}, {"role": "user", "content": "[[say]]"}], "instructions": "go"})
        self.assertEqual(tokens(previous_response_id=kept["id"], input="[[say]]"), tokens(input=[
            {"role": "system", "content": "stay"}, {"role": "user", "content": "[[say]]"}, {"role": "assistant", "content": "Hello you."},
            {"role": "user", "content": "[[say]]"}]))

    def test_what_would_lose_words_is_refused(self):
        self.refused(RESP, {"input": "x", "conversation": "conv_1"}, "conversation", "previous_response_id")
        self.refused(RESP, {"input": "x", "conversation": {"id": "conv_1"}}, "conversation")
        self.refused(RESP, {"prompt": {"id": "pmpt_1"}}, "prompt", "input")
        self.refused(RESP, {"input": "x", "instructions": ["a"]}, "instructions: expected a string")
        self.refused(RESP, {"input": "x", "include": ["message.output_text.logprobs"]}, "logprobs")
        self.refused(RESP, {"input": "x", "top_logprobs": 3}, "logprobs")
        self.server.post(RESP, {"input": "[[say]]", "conversation": None, "prompt": None, "include": ["reasoning.encrypted_content"],
                                "top_logprobs": 0, "instructions": None})

    def test_null_is_echoed_as_what_it_means(self):
        fields = dict.fromkeys(("tool_choice", "text", "truncation", "reasoning", "tools", "metadata", "instructions"))
        for body in (fields, {}):
            for r in (self.server.post(RESP, dict(body, input="[[say]]")),
                      self.server.events(RESP, dict(body, input="[[say]]"))[0][1]["response"]):
                self.assertEqual((r["tool_choice"], r["text"], r["truncation"]), ("auto", {"format": {"type": "text"}}, "disabled"))
                self.assertEqual((r["reasoning"], r["tools"], r["metadata"], r["instructions"]), ({"effort": None, "summary": None}, [], {}, None))
        r = self.server.post(RESP, {"input": "[[say]]", "text": {"verbosity": "low"}, "tool_choice": "none", "user": "u", "reasoning": {"effort": "low"}})
        self.assertEqual((r["text"], r["tool_choice"]), ({"format": {"type": "text"}, "verbosity": "low"}, "none"))
        self.assertEqual((r["user"], r["reasoning"]), ("u", {"effort": "low", "summary": None}))

    def test_items_by_reference(self):
        first = self.server.post(RESP, {"input": "[[call]]", "tools": [flat("f")]})
        item = first["output"][0]
        given = [{"role": "user", "content": "[[call]]"}, {"type": "item_reference", "id": item["id"]},
                 {"type": "function_call_output", "call_id": item["call_id"], "output": "4"}, {"role": "user", "content": "[[say]]"}]
        whole = [item if i.get("type") == "item_reference" else i for i in given]
        body = {"tools": [flat("f")]}
        counts = [self.server.post(RESP, dict(body, input=i))["usage"]["input_tokens"] for i in (given, whole)]
        self.assertEqual(counts[0], counts[1])
        for unknown in ("fc_0", "", " ", first["id"], "x" * 200):
            self.assertIn("items", self.noted(RESP, {"input": [{"type": "item_reference", "id": unknown}, {"role": "user", "content": "[[say]]"}]}))

    # ---- content
    def test_documents_that_are_text_are_read(self):
        def said(part):
            return self.prompt({"messages": [{"role": "user", "content": ["before", part, {"type": "text", "text": "after [[say]]"}]}]})
        text = "Grüße\n100 € 😊"
        parts = [
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": text}},
            {"type": "document", "source": {"type": "content", "content": text}},
            {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": text}]}},
            {"type": "document", "source": {"type": "base64", "media_type": "text/plain", "data": data_url(text).split(",")[1]}},
            {"type": "search_result", "source": "", "title": "", "content": [{"type": "text", "text": text}]},
            {"type": "file", "file": {"file_data": data_url(text)}}, {"type": "input_file", "file_data": data_url(text, "text/markdown")},
            {"type": "file", "file": {"file_data": data_url(text).split(",")[1]}},
            {"type": "file", "file": {"file_data": "data:text/plain;charset=utf-8," + urllib.parse.quote(text)}},
            {"type": "input_file", "file_data": "data:," + urllib.parse.quote(text)}, {"type": "input_file", "file_data": "data:text/html," + text},
            {"type": "file", "file": {"file_data": "DATA:text/plain;BASE64," + data_url(text).split(",")[1]}},
            {"type": "document", "source": {"type": "base64", "data": "data:," + urllib.parse.quote(text)}}]
        for part in parts:
            self.assertIn(f"before\n\n{text}\n\nafter", said(part), part)
        self.assertIn(f"T\nC\n{text}", said(dict(parts[0], title="T", context="C")))
        self.assertIn(f"T\nhttp://x\n{text}", said(dict(parts[4], title="T", source="http://x")))
        self.assertIn(f"a.md\n{text}", said({"type": "input_file", "filename": "a.md", "file_data": data_url(text)}))
        for api, key in ((MSG, "messages"), (CHAT, "messages"), (RESP, "input")):
            for part in parts:
                self.assertIsNone(self.noted(api, {key: [{"role": "user", "content": [part, {"type": "text", "text": "[[say]]"}]}]}))
        self.assertIsNone(self.noted(MSG, {"messages": [{"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t", "content": parts[:1]}, {"type": "text", "text": "[[say]]"}]}], "system": parts[:1]}))
        for raw, read in (("100%, 1%0z, %4", "100%, 1%0z, %4"), ("a+b%2Bc%2cd,e", "a+b+c,d,e"), ("%E2%82%AC%", "€%"), ("aGVsbG8=", "aGVsbG8=")):
            self.assertIn(f"before\n\n{read}\n\nafter", said({"type": "input_file", "file_data": "data:text/plain," + raw}))
        long = bytes(range(32, 127)) * 50
        for n in range(40):
            self.assertIn("before\n\n" + "q" * n + "Z\n\nafter", said({"type": "file", "file": {"file_data": data_url("q" * n + "Z")}}))
        folded = "\r\n".join(base64.b64encode(long).decode()[i:i + 76] for i in range(0, 7000, 76))
        self.assertIn(long.decode(), said({"type": "input_file", "file_data": folded}))

    def test_what_cannot_be_read_is_told(self):
        unknown = [{"type": "document", "source": {"type": "url", "url": "http://169.254.169.254/"}},
                   {"type": "document", "source": {"type": "file", "file_id": "f"}}, {"type": "document"}, {"type": "document", "source": 1},
                   {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": data_url(b"%PDF-1.7 x").split(",")[1]}},
                   {"type": "file", "file": {"file_id": "f"}}, {"type": "file"}, {"type": "input_file", "file_url": "http://x"},
                   {"type": "input_file", "file_data": data_url(b"\xff\xfe\x00x")}, {"type": "input_file", "file_data": "data:text/plain;base64,!!"},
                   {"type": "input_file", "file_data": data_url(b"a\0b")}, {"type": "input_file", "file_data": "data:,"},
                   {"type": "input_file", "file_data": "data:,%FF%FE"}, {"type": "input_file", "file_data": "data:,a%00b"},
                   {"type": "input_file", "file_data": "data:application/pdf,%25PDF-1.7"},
                   {"type": "container_upload", "file_id": "f"}, {"type": "web_search_tool_result", "content": []}]
        for part in unknown:
            for api, key in ((MSG, "messages"), (CHAT, "messages"), (RESP, "input")):
                note = self.noted(api, {key: [{"role": "user", "content": [part, {"type": "text", "text": "[[say]]"}]}]})
                self.assertIn("not text", note or "", part)
        both = self.noted(CHAT, {"messages": [{"role": "user", "content": [unknown[0], {"type": "text", "text": "[[say]]"}]}],
                                 "tools": [{"type": "web_search"}], "web_search_options": {}})
        self.assertRegex(both, "tools.*; parts.*; .*search")
        self.assertIsNone(self.noted(CHAT, SAY))
        self.refused(CHAT, {"messages": [{"role": "user", "content": [{"type": "document", "source": {"type": "content", "content": [
            {"type": "image", "source": {}}]}}]}]}, "no image input")
        self.assertIn("Not that", self.prompt({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": [
            {"type": "refusal", "refusal": "Not that"}]}, {"role": "user", "content": "b"}]}))

    # ---- tools
    def test_allowed_tools(self):
        tools = [function("f"), function("g"), {"type": "web_search"}]
        chosen = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [function("g"), {"type": "web_search"}]}}
        prompt = self.prompt(dict(SAY, tools=tools, tool_choice=chosen))
        self.assertEqual(prompt, self.prompt(dict(SAY, tools=[function("g")])))
        none = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}
        self.assertEqual(self.prompt(dict(SAY, tools=tools, tool_choice=none)), self.prompt(SAY))
        r = self.server.post(RESP, {"input": "[[call]]", "tools": [flat("f"), flat("g")], "tool_choice": {
            "type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]}})
        self.assertEqual((r["output"][0]["name"], len(r["tools"]), r["tool_choice"]["type"]), ("f", 2, "allowed_tools"))
        for bad, says in (({"mode": "required", "tools": [function("f")]}, "cannot force"), ({"mode": "auto"}, "list 'tools'"),
                          ({"mode": "auto", "tools": [function("nope")]}, "'nope' is allowed but not in tools"),
                          ({"mode": "auto", "tools": ["f"]}, "has no name"), ({"mode": "auto", "tools": [{"type": "function"}]}, "has no name")):
            self.refused(CHAT, dict(SAY, tools=tools, tool_choice={"type": "allowed_tools", "allowed_tools": bad}), says)

    def test_choices_that_nobody_knows_are_refused(self):
        for choice in ("sometimes", {"type": "web_search_preview"}, {"type": "mcp", "server_label": "x"}, {}, 3, [], True):
            for path, body in ((CHAT, SAY), (RESP, {"input": "x"}), (MSG, SAY)):
                self.refused(path, dict(body, tools=[function("f")], tool_choice=choice), "tool_choice", "'auto', 'none'", "allowed_tools")
        for choice in ("required", "any", function("f"), {"type": "any"}, {"type": "tool", "name": "f"}, {"type": "custom", "name": "f"}):
            self.refused(CHAT, dict(SAY, tools=[function("f")], tool_choice=choice), "cannot force")
        for choice in ("auto", "none", {"type": "auto"}, {"type": "none"}, None):
            self.server.post(CHAT, dict(SAY, tools=[function("f")], tool_choice=choice))

    def test_parallel_use_can_be_disabled_in_the_choice(self):
        tools = [{"name": n, "input_schema": {"type": "object"}} for n in "fg"]
        for more, n in (({}, 2), ({"tool_choice": {"type": "auto"}}, 2), ({"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}, 1)):
            for stream in (False, True):
                self.assertEqual(len(APIS["messages"](self.server, "[[calls]]", stream, tools=tools, **more).calls), n)

    def test_functions_are_tools_and_are_called_the_old_way(self):
        functions = [function("f")["function"], function("g")["function"]]
        self.assertEqual(self.prompt(dict(SAY, functions=functions)), self.prompt(dict(SAY, tools=[function("f"), function("g")])))
        self.assertEqual(self.prompt(dict(SAY, functions=functions, function_call="none")), self.prompt(SAY))
        self.assertEqual(self.prompt(dict(SAY, functions=[])), self.prompt(SAY))
        for script in ("call", "calls"):
            body = {"messages": [{"role": "user", "content": f"[[{script}]]"}], "functions": functions, "function_call": "auto"}
            choice = self.server.post(CHAT, body)["choices"][0]
            self.assertEqual(choice["finish_reason"], "function_call")
            call = choice["message"]["function_call"]
            self.assertEqual((call["name"], json.loads(call["arguments"])), ("f", {"n": 3} if script == "call" else {}))
            self.assertNotIn("tool_calls", choice["message"])
            deltas = [e["choices"][0] for _, e in self.server.events(CHAT, body)[:-1]]
            got = [d["delta"]["function_call"] for d in deltas if "function_call" in d["delta"]]
            self.assertEqual((got[0]["name"], "".join(g["arguments"] for g in got)), (call["name"], call["arguments"]))
            self.assertEqual([g for g in got if "name" in g], got[:1])
            self.assertEqual(deltas[-1]["finish_reason"], "function_call")
        asked = {"role": "user", "content": "a"}
        history = [asked, dict(choice["message"]), {"role": "function", "name": "f", "content": "4"}, asked]
        tools = [asked, {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": call}]},
                 {"role": "tool", "name": "f", "content": "4"}, asked]
        self.assertEqual(self.prompt({"messages": history, "functions": functions}), self.prompt({"messages": tools, "functions": functions}))
        for choice in ({"name": "f"}, "required"):
            self.refused(CHAT, dict(SAY, functions=functions, function_call=choice), "function_call", "cannot force")

    def test_only_text_is_made(self):
        for fine in (["text"], [], None):
            self.server.post(CHAT, dict(SAY, modalities=fine))
        for bad in (["text", "audio"], ["audio"], ["image"], [3]):
            self.refused(CHAT, dict(SAY, modalities=bad, audio={"voice": "alloy", "format": "wav"}), "modalities", '["text"]')

    def test_formats_that_are_no_objects_are_refused(self):
        for field, path, body in (("response_format", CHAT, SAY), ("output_format", MSG, SAY)):
            for bad in ("json_object", {}, {"type": "json_schema"}, 3, [], {"type": 3}):
                self.refused(path, dict(body, **{field: bad}), field)
            self.server.post(path, dict(body, **{field: {"type": "text"}}))
        self.refused(RESP, {"input": "x", "text": {"format": "json"}}, "text.format")
        self.refused(MSG, dict(SAY, output_config={"format": {"type": "json_schema"}}), "output_config.format")

    # ---- sampling
    def test_logit_bias_is_checked(self):
        vocabulary = json.loads(self.server.call("GET", "/props")[2])["model"]["vocabulary"]
        for bad, says in (({"5": 101}, "-100 to 100"), ({"5": -100.5}, "-100 to 100"), ({"5": "1"}, "-100 to 100"), ({"5": None}, "-100 to 100"),
                          ({str(vocabulary): 1}, f"no token {vocabulary}; its vocabulary has {vocabulary}"), ({"99999999999999999999": 1}, "not the id"),
                          ({"-1": 1}, "not the id"), ({"+1": 1}, "not the id"), ({" 1": 1}, "not the id"), ({"1.0": 1}, "not the id"), ({"": 1}, "not the id"),
                          ({"hello": 1}, "not the id"), ({"1\0": 1}, "not the id"), ([1], "an object"), ("x", "an object")):
            self.refused(CHAT, dict(SAY, logit_bias=bad), "logit_bias", says)
            self.refused("/v1/completions", {"prompt": "x", "logit_bias": bad}, "logit_bias", says)
        for fine in ({"0": 100, str(vocabulary - 1): -100, "7": 0.5}, {}, None):
            self.server.post(CHAT, dict(SAY, logit_bias=fine))

    def test_choices_are_for_apis_that_have_them(self):
        for path, body in ((MSG, SAY), (RESP, {"input": "[[say]]"})):
            r = self.server.post(path, dict(body, n=3))
            self.assertEqual(r["usage"]["output_tokens"], 4)
            self.server.post(path, dict(body, n="three"))
        self.assertEqual(len(self.server.post(CHAT, dict(SAY, n=3))["choices"]), 3)

    def test_the_last_message_is_written_on(self):
        """A prefill: always on Messages, on request in chats; the prompt ends with its words."""
        begun = [{"role": "user", "content": "[[say]]"}, {"role": "assistant", "content": "It is \n"}]
        start, new = "<|im_start|>user\n[[say]]<|im_end|>\n<|im_start|>assistant\nIt is", "<|im_end|>\n<|im_start|>assistant\n"
        flags = ({"continue_final_message": True}, {"continue_final_message": True, "add_generation_prompt": False})
        prompts = [self.prompt(dict(f, messages=begun)) for f in flags] + [self.prompt({"messages": [begun[0], dict(begun[1], prefix=True)]})]
        self.assertEqual(prompts, [start] * 3)
        for other in ({}, {"continue_final_message": False}, {"continue_final_message": None}):
            self.assertEqual(self.prompt(dict(other, messages=begun)), start + " \n" + new)
        tokens = len(self.server.post("/apply-template", dict(flags[0], messages=begun))["tokens"])
        self.assertEqual(self.server.post(MSG + "/count_tokens", {"messages": begun})["input_tokens"], tokens)
        for stream in (False, True):
            for api, path, fields in (("messages", MSG, {}), ("chat", CHAT, flags[0])):
                a = APIS[api](self.server, "", stream, messages=begun, **fields)
                self.assertEqual((a.text, a.finish, a.usage), ("Hello you.", "stop", 4))
                self.assertIsNone(self.noted(path, dict(fields, messages=begun, stream=stream)))
        usage = self.server.post(MSG, {"messages": begun})["usage"]
        self.assertEqual(usage["input_tokens"] + usage["cache_read_input_tokens"], tokens)
        call = {"role": "assistant", "content": [{"type": "text", "text": "I look."}, {"type": "tool_use", "id": "1", "name": "f", "input": {}}]}
        for last in (call, {"role": "assistant", "content": " \n"}, {"role": "assistant", "content": []}, begun[0]):      # nothing to write on
            self.assertIsNone(self.noted(MSG, {"messages": [begun[0], last]}))
        for last in (begun[0], {"role": "assistant", "content": ""}, {"role": "tool", "content": "x"}):
            self.refused(CHAT, dict(flags[0], messages=[begun[0], last]), "continued")
        for wrong in (1, "yes", []):
            self.refused(CHAT, {"messages": begun, "continue_final_message": wrong}, "continue_final_message: expected a boolean")

    def test_a_last_message_that_the_template_changes_is_not_written_on(self):
        loud = HERMES.replace("m.content", "m.content|upper")
        loud = loud.replace("m.content|upper", "(m.content|upper if m.role == 'assistant' else m.content)")
        begun = [{"role": "user", "content": "[[SAY]] it is so"}, {"role": "assistant", "content": "it is"}]
        with Server({"SAY": SCRIPTS["say"]}, template=loud) as server:
            for path in (MSG, MSG + "/count_tokens"):
                status, headers, text = server.call("POST", path, {"messages": begun})
                self.assertEqual((status, "a new one" in headers["Luce-Note"]), (200, True), text)
            self.assertIn("changes the last message", server.post(CHAT, {"messages": begun, "continue_final_message": True}, 400)["error"]["message"])

    # ---- what a breaker of servers tries
    def test_one_call_ends_the_reply(self):
        body = {"messages": [{"role": "user", "content": "[[talks]]"}], "parallel_tool_calls": False, "max_tokens": 300}
        a = self.server.post(CHAT, dict(body, tools=[function("f")]))
        self.assertEqual((a["choices"][0]["finish_reason"], a["choices"][0]["message"]["content"] or ""), ("tool_calls", ""))
        self.assertLess(a["usage"]["completion_tokens"], 60)
        a = self.server.post(MSG, {"messages": body["messages"], "max_tokens": 300, "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
                                   "tools": [{"name": "f", "input_schema": {"type": "object"}}]})
        self.assertEqual((a["stop_reason"], [b["type"] for b in a["content"]]), ("tool_use", ["tool_use"]))
        def generated():
            return json.loads(self.server.call("GET", "/status/json")[2])["generated_tokens"]
        before = generated()
        self.server.post(CHAT, {"messages": [{"role": "user", "content": "[[slow]]"}], "parallel_tool_calls": False, "tools": [function("f")]})
        self.assertLess(generated() - before, 3000)             # of the model, too, which would go on to 4096
        old = dict(body, functions=[function("f")["function"]])
        self.assertEqual(self.server.post(CHAT, old)["choices"][0]["finish_reason"], "function_call")
        self.server.post(CHAT, dict(old, function_call=5), 400)
        self.assertEqual(self.server.post(CHAT, dict(old, tool_choice="none", max_tokens=30))["choices"][0]["finish_reason"], "length")

    def test_a_closer_in_the_text_is_text(self):
        for api in ("chat", "messages", "responses"):
            for stream in (False, True):
                self.assertEqual(APIS[api](self.server, "[[closer]]", stream).text, "Use `</think>` to close.")
                self.assertEqual(APIS[api](self.server, "[[stray]]", stream).text, "so")

    def test_contents_of_other_shapes(self):
        def content(c, role="user"):
            return self.prompt({"messages": [{"role": "user", "content": "q"}, {"role": role, "content": c}]})
        self.assertIn("AA", content({"type": "text", "text": "AA"}))
        self.assertIn("5", content(5))
        self.assertIn('{"k":"RES"}', content({"k": "RES"}, "tool"))
        self.assertIn('{"k":"RES"}', content([{"k": "RES"}], "tool"))

    def test_limits_that_are_none(self):
        for body in (dict(SAY, max_tokens=-1), dict(SAY, max_completion_tokens=-1), dict(SAY, grammar="")):
            self.assertEqual(self.server.post(CHAT, body)["choices"][0]["message"]["content"], "Hello you.")
        self.server.post(CHAT, dict(SAY, max_tokens=-2), 400)
        status, _, _ = self.server.call("POST", CHAT, b"\xef\xbb\xbf" + json.dumps(SAY).encode())
        self.assertEqual(status, 200)


if __name__ == "__main__":
    unittest.main()
