"""What coding agents send, replayed: their headers and the shapes of their bodies, with words of our own."""
import json
import unittest

from harness import Server, parse_events, pieces
from test_chat import HERMES


def call(name, **arguments):
    return "<tool_call>\n" + json.dumps({"name": name, "arguments": arguments}) + "\n</tool_call>"


ARGUMENTS = {"cmd": "echo made > made.txt; echo '[[done]]'"}
SCRIPTS = {
    "codex": {"pieces": pieces("I", " look.", *call("exec_command", **ARGUMENTS))},
    "qwen": {"pieces": pieces("I", " look.", *call("run_shell_command", command=ARGUMENTS["cmd"], is_background=False))},
    "claude": {"pieces": pieces("I", " look.", *call("Bash", command=ARGUMENTS["cmd"], description="make it"))},
    "opencode": {"pieces": pieces("I", " look.", *call("bash", command=ARGUMENTS["cmd"], description="make it"))},
    "pi": {"pieces": pieces("I", " look.", *call("bash", command=ARGUMENTS["cmd"]))},
    "done": {"pieces": pieces("All", " is", " done.")},
    "webui": {"pieces": pieces("I", " look.", *call("get_tide", port="Brest"))},
}


def schema(required, **properties):
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


class Agents(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(SCRIPTS, context=8000, template=HERMES)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def stream(self, path, body, headers):
        status, got, text = self.server.call("POST", path, body, headers)
        self.assertEqual((status, got["Content-Type"]), (200, "text/event-stream"), text[:300])
        return parse_events(text)

    def test_codex(self):
        """codex exec 0.171.0: Responses, nothing stored, ids of its own, tools of several kinds."""
        session = "01a22a12-0000-7000-8000-000000000000"
        headers = {"originator": "codex_exec", "accept": "text/event-stream", "accept-encoding": "zstd,gzip", "session-id": session,
                   "x-codex-turn-metadata": json.dumps({"session_id": session, "request_kind": "turn"}), "x-client-request-id": session}
        text = {"type": "string", "description": "a text"}
        tools = [
            {"type": "function", "name": "exec_command", "description": "runs", "strict": False,
             "parameters": schema(["cmd"], cmd=text, tty={"type": "boolean"}, prefix_rule={"type": "array", "items": text})},
            {"type": "function", "name": "get_goal", "description": "tells", "strict": False, "parameters": schema([])},
            {"type": "namespace", "name": "many", "description": "more", "tools": [
                {"type": "function", "name": "close", "description": "closes", "strict": False, "parameters": schema(["id"], id=text)}]},
            {"type": "web_search", "external_web_access": True}]
        items = [{"type": "message", "id": f"msg_{i}", "role": role, "content": [{"type": "input_text", "text": words}]}
                 for i, (role, words) in enumerate((("developer", "Be brief."), ("developer", "<skills/>"),
                                                    ("user", "<environment_context/>"), ("user", "Do it: [[codex]]")))]
        body = {"model": "script", "input": items, "tools": tools, "stream": True, "tool_choice": "auto", "parallel_tool_calls": True,
                "reasoning": {"summary": "auto"}, "store": False, "include": ["reasoning.encrypted_content"],
                "prompt_cache_key": session, "client_metadata": {"x-codex-window-id": session + ":0"}}
        events = self.stream("/v1/responses", body, headers)
        message, made = events[-1][1]["response"]["output"]
        self.assertEqual(events[-1][0], "response.completed")
        self.assertEqual((message["content"][0]["text"], made["name"]), ("I look.", "exec_command"))
        self.assertEqual(json.loads(made["arguments"]), ARGUMENTS)
        done = [e["item"] for kind, e in events if kind == "response.output_item.done"]
        self.assertEqual([d["type"] for d in done], ["message", "function_call"])
        output = {"type": "function_call_output", "id": "fco_1", "call_id": made["call_id"],
                  "output": "Chunk ID: 87c704\nWall time: 0.0 seconds\nProcess exited with code 0\nOutput:\n[[done]]\n"}
        events = self.stream("/v1/responses", dict(body, input=items + done + [output]), headers)
        last = events[-1][1]["response"]
        self.assertEqual((last["output_text"], last["status"]), ("All is done.", "completed"))
        self.assertGreater(last["usage"]["total_tokens"], 0)

    def test_qwen_code(self):
        """qwen -p 0.15.10: chat completions through the SDK of OpenAI, texts as lists of parts."""
        headers = {"X-Stainless-Retry-Count": "0", "X-Stainless-Lang": "js", "User-Agent": "QwenCode/0.15.10 (linux; x64)",
                   "authorization": "Bearer none", "accept-encoding": "gzip, deflate"}
        text = {"type": "string"}
        tools = [{"type": "function", "function": {"name": name, "description": "does it", "parameters": parameters}} for name, parameters in (
            ("run_shell_command", schema(["command"], command=text, is_background={"type": "boolean"})),
            ("todo_write", schema(["todos"], todos={"type": "array", "items": schema(["id"], id=text)})))]
        messages = [{"role": "system", "content": "Be brief."},
                    {"role": "user", "content": [{"type": "text", "text": "We set up."}, {"type": "text", "text": "It is Monday."}]},
                    {"role": "assistant", "content": "Got it."},
                    {"role": "user", "content": [{"type": "text", "text": "Do it: [[qwen]]"}]}]
        body = {"model": "script", "messages": messages, "stream": True, "stream_options": {"include_usage": True}, "tools": tools,
                "max_tokens": 3000}
        self.chat_round(body, headers, "run_shell_command", {"command": ARGUMENTS["cmd"], "is_background": False},
                        [{"type": "text", "text": "Output: [[done]]\nExit Code: 0"}])

    def chat_round(self, body, headers, name, arguments, result):
        """A call by chat completions, its result in the history, the last text."""
        events = [e for _, e in self.stream("/v1/chat/completions", body, headers)[:-1]]
        deltas = [c["delta"] for e in events for c in e["choices"]]
        self.assertEqual("".join(d.get("content") or "" for d in deltas), "I look.")
        calls = [c for d in deltas for c in d.get("tool_calls", [])]
        made = "".join(c["function"].get("arguments", "") for c in calls)
        self.assertEqual((calls[0]["function"]["name"], json.loads(made)), (name, arguments))
        self.assertEqual([c["finish_reason"] for e in events for c in e["choices"]][-1], "tool_calls")
        self.assertEqual((events[-1]["choices"], events[-1]["usage"]["completion_tokens"] > 0), ([], True))
        history = body["messages"] + [
            {"role": "assistant", "content": "I look.", "tool_calls": [
                {"id": calls[0]["id"], "type": "function", "function": {"name": name, "arguments": made}}]},
            {"role": "tool", "tool_call_id": calls[0]["id"], "content": result}]
        events = [e for _, e in self.stream("/v1/chat/completions", dict(body, messages=history), headers)[:-1]]
        self.assertEqual("".join(c["delta"].get("content") or "" for e in events for c in e["choices"]), "All is done.")
        self.assertEqual([c["finish_reason"] for e in events for c in e["choices"]][-1], "stop")

    def test_opencode(self):
        """opencode run 1.18.33: a title is asked for beside the round; schemas of a newer draft with wide bounds."""
        headers = {"Authorization": "Bearer any", "User-Agent": "opencode/1.18.33 ai-sdk/provider-utils/4.0.23 runtime/bun/1.3",
                   "x-session-id": "ses_0", "x-session-affinity": "ses_0", "Accept": "*/*", "Accept-Encoding": "gzip, deflate, br, zstd"}
        usage = {"stream": True, "stream_options": {"include_usage": True}}
        title = [{"role": "system", "content": "Find a title."}, {"role": "user", "content": "A title for this:\n"},
                 {"role": "user", "content": '"Say it: [[done]]"'}]
        events = self.stream("/v1/chat/completions", dict(usage, model="script", max_tokens=4096, messages=title), headers)
        self.assertEqual("".join(c["delta"].get("content") or "" for _, e in events[:-1] for c in e["choices"]), "All is done.")
        most = 2 ** 53 - 1
        parameters = dict(schema(["command"], command={"type": "string"}, workdir={"type": "string"},
                                 timeout={"type": "integer", "minimum": -most, "exclusiveMinimum": 0, "maximum": most}),
                          **{"$schema": "https://json-schema.org/draft/2020-12/schema"})
        body = dict(usage, model="script", max_tokens=4096, tool_choice="auto",
                    messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": '"Do it: [[opencode]]"'}],
                    tools=[{"type": "function", "function": {"name": "bash", "description": "runs", "parameters": parameters}}])
        self.chat_round(body, headers, "bash", {"command": ARGUMENTS["cmd"], "description": "make it"}, "[[done]]\n")

    def test_pi(self):
        """pi -p 0.73.1: through the SDK of OpenAI, with the settings of docs/agents.md."""
        headers = {"User-Agent": "OpenAI/JS 6.26.0", "X-Stainless-Retry-Count": "0", "X-Stainless-Lang": "js", "authorization": "Bearer any",
                   "accept-language": "*", "sec-fetch-mode": "cors", "accept-encoding": "gzip, deflate"}
        parameters = {"type": "object", "required": ["command"], "properties": {
            "command": {"type": "string"}, "timeout": {"type": "number", "description": "seconds"}}}
        body = {"model": "script", "stream": True, "stream_options": {"include_usage": True}, "store": False, "max_tokens": 4096,
                "messages": [{"role": "system", "content": "Be brief."},
                             {"role": "user", "content": [{"type": "text", "text": "Do it: [[pi]]"}]}],
                "tools": [{"type": "function", "function": {"name": "bash", "description": "runs", "parameters": parameters, "strict": False}}]}
        self.chat_round(body, headers, "bash", {"command": ARGUMENTS["cmd"]}, "[[done]]\n")

    def test_claude_code(self):
        """claude -p 2.1.197: Messages with a system text in the middle, a line of its own that changes, adaptive thinking."""
        headers = {"User-Agent": "claude-cli/2.1.197 (external, sdk-cli)", "X-Claude-Code-Session-Id": "c5105101", "X-Stainless-Timeout": "600",
                   "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14", "anthropic-version": "2023-06-01",
                   "anthropic-dangerous-direct-browser-access": "true", "x-api-key": "any", "x-app": "cli",
                   "Accept-Encoding": "gzip, deflate, br, zstd"}
        self.assertEqual(self.server.call("HEAD", "/", None, {"User-Agent": "axios", "Accept": "*/*"})[0], 200)
        mark = {"cache_control": {"type": "ephemeral"}}
        tools = [{"name": name, "description": "does it", "input_schema": dict(
            schema(["command"], command={"type": "string"}, description={"type": "string"}),
            **{"$schema": "https://json-schema.org/draft/2020-12/schema"})} for name in ("Agent", "Bash")]
        messages = [{"role": "user", "content": [{"type": "text", "text": "<system-reminder>It is Monday.</system-reminder>"},
                                                 dict({"type": "text", "text": "Do it: [[claude]]"}, **mark)]},
                    {"role": "system", "content": "Kinds of agents: none."}]
        body = {"model": "script", "max_tokens": 32000, "messages": messages, "tools": tools, "stream": True,
                "system": [{"type": "text", "text": "x-anthropic-billing-header: cc_version=2; cch=1;"},
                           dict({"type": "text", "text": "Be brief."}, **mark)],
                "metadata": {"user_id": '{"device_id":"0"}'}, "thinking": {"type": "adaptive"}, "output_config": {"effort": "high"},
                "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}}
        events = [e for _, e in self.stream("/v1/messages?beta=true", body, headers)]
        blocks = [e["content_block"] for e in events if e["type"] == "content_block_start"]
        self.assertEqual([b["type"] for b in blocks], ["text", "tool_use"])
        made = "".join(e["delta"].get("partial_json", "") for e in events if e["type"] == "content_block_delta")
        arguments = {"command": ARGUMENTS["cmd"], "description": "make it"}
        self.assertEqual((blocks[1]["name"], json.loads(made)), ("Bash", arguments))
        self.assertEqual([e["delta"]["stop_reason"] for e in events if e["type"] == "message_delta"], ["tool_use"])
        messages += [{"role": "assistant", "content": [{"type": "text", "text": "I look."}, {
                         "type": "tool_use", "id": blocks[1]["id"], "name": "Bash", "input": arguments}]},
                     {"role": "user", "content": [dict({"type": "tool_result", "tool_use_id": blocks[1]["id"], "content": "[[done]]",
                                                        "is_error": False}, **mark)]}]
        body["system"][0]["text"] = "x-anthropic-billing-header: cc_version=2; cch=2;"
        events = [e for _, e in self.stream("/v1/messages?beta=true", body, headers)]
        text = "".join(e["delta"].get("text", "") for e in events if e["type"] == "content_block_delta")
        usage = [e["usage"] for e in events if e["type"] == "message_delta"][0]
        self.assertEqual(text, "All is done.")
        self.assertGreater(usage["cache_read_input_tokens"], 0)     # in spite of the line that changes
        self.assertEqual(events[-1]["type"], "message_stop")

    def test_open_webui(self):
        """A connection of Open WebUI to an OpenAI API, from its documentation and published sources: its own server asks."""
        key = {"Authorization": "Bearer any"}
        headers = dict(key, **{"Content-Type": "application/json", "Accept": "*/*", "Accept-Encoding": "gzip, deflate", "User-Agent": "Python/3.11 aiohttp/3.12",
                               "X-OpenWebUI-User-Name": "A%20B", "X-OpenWebUI-User-Id": "1", "X-OpenWebUI-User-Email": "a@b.c",
                               "X-OpenWebUI-User-Role": "admin", "X-OpenWebUI-Chat-Id": "2"})
        for path in ("/v1/models", "/v1/models?x=1"):
            status, got, text = self.server.call("GET", path, None, headers)
            model = json.loads(text)["data"][0]
            self.assertEqual((status, got["Content-Type"], model["id"], model["context_length"]), (200, "application/json", "script", 8000))
        for method, path in (("GET", "/api/tags"), ("GET", "/api/version"), ("GET", "/api/ps"), ("POST", "/api/show")):    # those of Ollama
            status, _, text = self.server.call(method, path, {"name": "x"} if method == "POST" else None, headers)
            self.assertEqual((status, json.loads(text)["error"]["message"]), (404, "unknown endpoint; GET /props lists them"))
        tools = [{"type": "function", "function": {"name": "get_tide", "description": "tells", "parameters": schema(["port"], port={"type": "string"})}}]
        body = {"stream": True, "model": "script", "stream_options": {"include_usage": True}, "temperature": 0.0, "top_p": 0.9, "seed": 7,
                "max_tokens": 4000, "frequency_penalty": 0.0, "presence_penalty": 0.0, "stop": ["###"], "logit_bias": {}, "reasoning_effort": "medium",
                "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Tide? [[webui]]"}], "tools": tools}
        self.chat_round(body, headers, "get_tide", {"port": "Brest"}, "[[done]]\n")
        for task in ({"max_tokens": 1000}, {"max_completion_tokens": 1000}):                                              # a title, tags
            reply = self.server.post("/v1/chat/completions", dict(task, model="script", stream=False, messages=[
                {"role": "user", "content": "### Task:\nFind a title: [[done]]"}]), headers=headers)
            self.assertEqual(reply["choices"][0]["message"]["content"], "All is done.")
        history = [{"role": "user", "content": [{"type": "text", "text": "Tide?"}]},
                   {"role": "assistant", "content": "", "tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": {
                       "name": "get_tide", "arguments": '{"port": "Brest"}'}}]},
                   {"role": "tool", "tool_call_id": "call_1", "content": "[[done]]"}]
        reply = self.server.post("/v1/chat/completions", {"model": "script", "messages": history, "tools": tools, "stream": False}, headers=headers)
        self.assertEqual((reply["choices"][0]["message"]["content"], reply["choices"][0]["finish_reason"]), ("All is done.", "stop"))
        vectors = self.server.post("/v1/embeddings", {"model": "script", "input": ["a text", "another"]}, headers=headers)["data"]
        self.assertEqual([v["index"] for v in vectors], [0, 1])

    def test_open_webui_from_its_page(self):
        """Its direct connections: the browser asks, from the origin of the page; a question first, which has no key."""
        page = {"Origin": "https://chat.example", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Site": "cross-site", "Referer": "https://chat.example/"}
        chat = {"model": "script", "stream": True, "messages": [{"role": "user", "content": "[[done]]"}]}
        with Server(SCRIPTS, context=8000, keys=["secret"]) as server:
            def ask(method, path, body, **headers):
                status, got, text = server.call(method, path, body, dict(page, **headers))
                self.assertEqual(got["Access-Control-Allow-Origin"], "*", text)         # or the page sees nothing of the reply
                return status, got, text
            for path, method in (("/v1/models", "GET"), ("/v1/chat/completions", "POST")):
                status, got, text = ask("OPTIONS", path, None, **{"Access-Control-Request-Method": method,
                                                                  "Access-Control-Request-Headers": "authorization,content-type"})
                self.assertEqual((status, text), (204, b""))
                self.assertIn(method, got["Access-Control-Allow-Methods"].split(", "))
                allowed = [h.lower() for h in got["Access-Control-Allow-Headers"].split(", ")]
                self.assertIn("authorization", allowed)                                 # '*' is all others
                self.assertIn("*", allowed)
                self.assertNotIn("Access-Control-Allow-Credentials", got)               # which '*' would not go with
            for wrong in ({}, {"Authorization": "Bearer "}, {"Authorization": "Bearer wrong"}):
                status, _, text = ask("GET", "/v1/models", None, **{"Content-Type": "application/json"}, **wrong)
                self.assertEqual((status, json.loads(text)["error"]["code"]), (401, "invalid_api_key"))
            key = {"Authorization": "Bearer secret", "Content-Type": "application/json"}
            self.assertEqual(json.loads(ask("GET", "/v1/models", None, **key)[2])["data"][0]["id"], "script")
            status, got, text = ask("POST", "/v1/chat/completions", chat, **key)
            self.assertEqual((status, got["Content-Type"]), (200, "text/event-stream"))
            events = parse_events(text)
            self.assertEqual("".join(c["delta"].get("content") or "" for _, e in events[:-1] for c in e["choices"]), "All is done.")
            self.assertEqual(ask("GET", "/api/tags", None, **key)[0], 404)
            self.assertEqual(ask("POST", "/v1/chat/completions", {"messages": []}, **key)[0], 400)


if __name__ == "__main__":
    unittest.main()
