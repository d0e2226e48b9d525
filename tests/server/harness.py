"""Starts the scripted server and talks to it: the standard library alone."""
import http.client
import json
import os
import signal
import ssl
import subprocess
import tempfile
import threading
import time

BUILD = os.environ.get("LUCE_BUILD", os.path.join(os.path.dirname(__file__), "..", "..", "build"))

with open(os.path.join(BUILD, "CMakeCache.txt")) as cache:
    SANITIZED = any(line.startswith("LUCE_SANITIZE:") and line.split("=", 1)[1].strip() for line in cache)


def pieces(*texts):
    """Pieces of a script: strings, or bytes for what is not UTF-8."""
    return [(t if isinstance(t, bytes) else t.encode()).hex() for t in texts]


class Server:
    def __init__(self, scripts, **settings):
        self.tls = ssl._create_unverified_context() if "cert" in settings else None
        self.folder = tempfile.TemporaryDirectory()
        path = os.path.join(self.folder.name, "scripts.json")
        with open(path, "w") as file:
            json.dump(dict(settings, scripts=scripts), file)
        self.process = subprocess.Popen(
            [os.path.join(BUILD, "luce_script_server"), path, os.path.join(self.folder.name, "model.gguf")],
            stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the server did not start")
        self.port = int(line)

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self.stop()

    def stop(self):
        """Ends it; how long that took and its exit status."""
        start = time.monotonic()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(20)
        self.process.stdout.close()
        self.folder.cleanup()
        return time.monotonic() - start, status

    def memory_kib(self):
        """Memory that is the process's own, in RAM or swapped out."""
        with open(f"/proc/{self.process.pid}/status") as file:
            fields = dict(line.split(":", 1) for line in file)
        return sum(int(fields[name].split()[0]) for name in ("RssAnon", "VmSwap"))

    def connect(self):
        if self.tls:
            return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=60, context=self.tls)
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def call(self, method, path, body=None, headers=None):
        """(status, headers, bytes)"""
        connection = self.connect()
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, data, headers or {})
        reply = connection.getresponse()
        text = reply.read()
        connection.close()
        return reply.status, reply.headers, text

    def post(self, path, body, status=200, headers=None):
        got, _, text = self.call("POST", path, body, headers)
        assert got == status, f"{path}: status {got}, not {status}: {text[:500]}"
        return json.loads(text)

    def events(self, path, body):
        """All (event, data) of a stream; data is JSON, or '[DONE]'."""
        status, headers, text = self.call("POST", path, dict(body, stream=True))
        assert status == 200, text
        assert headers["Content-Type"] == "text/event-stream"
        return parse_events(text)


def parse_events(text):
    out = []
    for block in text.decode().split("\n\n"):
        event, data = None, None
        for line in block.split("\n"):
            if line.startswith("event: "):
                event = line[7:]
            elif line.startswith("data: "):
                data = line[6:]
        if data is not None:
            out.append((event, data if data == "[DONE]" else json.loads(data)))
    return out


class Answer:
    """What a reply says, whichever API and mode it came by."""

    def __init__(self):
        self.text, self.reasoning, self.calls = "", "", []
        self.finish, self.stop, self.usage, self.deltas, self.error = None, None, None, [], None

    def key(self):
        return self.text, self.reasoning, [(c["name"], c["arguments"]) for c in self.calls], self.finish, self.usage


def ask_chat(server, prompt, stream, **fields):
    a = Answer()
    body = dict({"messages": [{"role": "user", "content": prompt}]}, **fields)
    if not stream:
        r = server.post("/v1/chat/completions", body)
        m = r["choices"][0]["message"]
        a.text, a.reasoning = m["content"] or "", m.get("reasoning_content", "")
        a.calls = [c["function"] for c in m.get("tool_calls", [])]
        assert m.get("tool_calls") != []
        a.finish, a.usage = r["choices"][0]["finish_reason"], r["usage"]["completion_tokens"]
        return a
    events = server.events("/v1/chat/completions", dict(body, stream_options={"include_usage": True}))
    assert events[-1][1] == "[DONE]"
    for _, e in events[:-1]:
        if "error" in e:
            a.error = e["error"]
            continue
        for choice in e["choices"]:
            d = choice["delta"]
            a.text += d.get("content") or ""
            a.reasoning += d.get("reasoning_content", "")
            if d.get("content"):
                a.deltas.append(d["content"])
            for c in d.get("tool_calls", []):
                if "id" in c:
                    assert c["index"] == len(a.calls)
                    a.calls.append({"name": c["function"]["name"], "arguments": ""})
                a.calls[c["index"]]["arguments"] += c["function"]["arguments"]
            assert d.get("tool_calls") != []
            a.finish = choice["finish_reason"] or a.finish
        if e.get("usage"):
            a.usage = e["usage"]["completion_tokens"]
    return a


CHAT_FINISH = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_calls"}


def arguments_of(text):
    """An object; of a call that a limit cut, what the plain reply has."""
    try:
        return json.loads(text or "{}")
    except ValueError:
        return {"_raw": text}


def ask_messages(server, prompt, stream, **fields):
    a = Answer()
    if "stop" in fields:
        fields["stop_sequences"] = fields.pop("stop")
    body = dict({"max_tokens": 1000, "messages": [{"role": "user", "content": prompt}]}, **fields)
    if not stream:
        r = server.post("/v1/messages", body)
        for b in r["content"]:
            a.text += b.get("text", "")
            a.reasoning += b.get("thinking", "")
            if b["type"] == "tool_use":
                a.calls.append({"name": b["name"], "arguments": b["input"]})
        a.finish, a.stop = CHAT_FINISH[r["stop_reason"]], r["stop_sequence"]
        a.usage = r["usage"]["output_tokens"]
        return a
    open_block, blocks = None, 0
    for event, e in server.events("/v1/messages", body):
        assert event == e["type"]
        if event == "content_block_start":
            assert open_block is None and e["index"] == blocks
            open_block = e["content_block"]
            if open_block["type"] == "tool_use":
                a.calls.append({"name": open_block["name"], "arguments": ""})
        elif event == "content_block_delta":
            d = e["delta"]
            a.text += d.get("text", "")
            a.reasoning += d.get("thinking", "")
            if "text" in d:
                a.deltas.append(d["text"])
            if "partial_json" in d:
                a.calls[-1]["arguments"] += d["partial_json"]
        elif event == "content_block_stop":
            if open_block["type"] == "tool_use":
                a.calls[-1]["arguments"] = arguments_of(a.calls[-1]["arguments"])
            open_block, blocks = None, blocks + 1
        elif event == "message_delta":
            a.finish, a.stop = CHAT_FINISH[e["delta"]["stop_reason"]], e["delta"]["stop_sequence"]
            a.usage = e["usage"]["output_tokens"]
        elif event == "error":
            a.error = e["error"]
    return a


def ask_responses(server, prompt, stream, **fields):
    a = Answer()
    if "max_tokens" in fields:
        fields["max_output_tokens"] = fields.pop("max_tokens")
    body = dict({"input": prompt}, **fields)
    if stream:
        events = server.events("/v1/responses", body)
        assert [e["sequence_number"] for _, e in events] == list(range(len(events)))
        joined = "".join(e["delta"] for _, e in events if e["type"] == "response.output_text.delta")
        a.deltas = [e["delta"] for _, e in events if e["type"] == "response.output_text.delta"]
        r = events[-1][1]["response"]
        if events[-1][1]["type"] == "response.failed":
            a.error = r["error"]
            return a
        assert joined == r["output_text"]
    else:
        r = server.post("/v1/responses", body)
    for item in r["output"]:
        if item["type"] == "message":
            a.text += item["content"][0]["text"]
        elif item["type"] == "reasoning":
            a.reasoning += item["content"][0]["text"]
        else:
            a.calls.append({"name": item["name"], "arguments": item["arguments"]})
    a.finish = "length" if r["status"] == "incomplete" else "tool_calls" if a.calls else "stop"
    a.usage = r["usage"]["output_tokens"]
    return a


def ask_completions(server, prompt, stream, **fields):
    a = Answer()
    body = dict({"prompt": prompt}, **fields)
    if not stream:
        r = server.post("/v1/completions", body)
        a.text, a.finish = r["choices"][0]["text"], r["choices"][0]["finish_reason"]
        a.usage = r["usage"]["completion_tokens"]
        return a
    for _, e in server.events("/v1/completions", dict(body, stream_options={"include_usage": True}))[:-1]:
        for choice in e["choices"]:
            a.text += choice["text"]
            if choice["text"]:
                a.deltas.append(choice["text"])
            a.finish = choice["finish_reason"] or a.finish
        if e.get("usage"):
            a.usage = e["usage"]["completion_tokens"]
    return a


APIS = {"chat": ask_chat, "messages": ask_messages, "responses": ask_responses, "completions": ask_completions}


def in_parallel(jobs):
    """Runs functions at once; their results, in order. The first failure is raised."""
    results, failures = [None] * len(jobs), []

    def run(i):
        try:
            results[i] = jobs[i]()
        except BaseException as e:  # handed to the caller
            failures.append(e)
    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(jobs))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failures:
        raise failures[0]
    return results
