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
    "done": {"pieces": pieces("All", " is", " done.")},
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
        events = [e for _, e in self.stream("/v1/chat/completions", body, headers)[:-1]]
        deltas = [c["delta"] for e in events for c in e["choices"]]
        self.assertEqual("".join(d.get("content") or "" for d in deltas), "I look.")
        calls = [c for d in deltas for c in d.get("tool_calls", [])]
        arguments = "".join(c["function"].get("arguments", "") for c in calls)
        self.assertEqual(json.loads(arguments), {"command": ARGUMENTS["cmd"], "is_background": False})
        self.assertEqual([c["finish_reason"] for e in events for c in e["choices"]][-1], "tool_calls")
        self.assertEqual((events[-1]["choices"], events[-1]["usage"]["completion_tokens"] > 0), ([], True))
        messages += [{"role": "assistant", "content": "I look.", "tool_calls": [
                        {"id": calls[0]["id"], "type": "function", "function": {"name": "run_shell_command", "arguments": arguments}}]},
                     {"role": "tool", "tool_call_id": calls[0]["id"], "content": [{"type": "text", "text": "Output: [[done]]\nExit Code: 0"}]}]
        deltas = [c["delta"] for _, e in self.stream("/v1/chat/completions", body, headers)[:-1] for c in e["choices"]]
        self.assertEqual("".join(d.get("content") or "" for d in deltas), "All is done.")


if __name__ == "__main__":
    unittest.main()
