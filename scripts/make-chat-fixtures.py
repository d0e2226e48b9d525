#!/usr/bin/env python3
"""Makes tests/fixtures/chat/: conversations, and what chat templates make of them by Hugging Face's
apply_chat_template (its compiled environment: sandbox, trim_blocks, lstrip_blocks, tojson).

  scripts/make-chat-fixtures.py [--models models] [--only FILE ... --driver PROGRAM]

Needs the Python packages transformers (with jinja2) and gguf.
  cases.json      the histories, the tools, and the variables of each rendering
  NAME.jinja      templates written for these tests; they use what published ones use
  NAME.json       {"sha256": of the template, "texts": [[bytes that the text shares with the last text
                  that is not null, the rest], or null where the template refuses]}
Templates of others are not copied: for those in models/ (a GGUF, or template-NAME.jinja that
scripts/get-vocabs.py left there) only their hash and texts are. --only renders templates given as
files instead, compares with PROGRAM TEMPLATE CASES.json, and writes nothing.
"""
import argparse
import datetime
import glob
import hashlib
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NOW = datetime.datetime(2023, 11, 14, 22, 13, 20)           # 1700000000 seconds

TIDE = {"type": "function", "function": {
    "name": "get_tide", "description": "Heights of the tide.\nIn metres \"above\" zero.",
    "parameters": {"type": "object", "properties": {
        "port": {"type": "string", "description": "Name of the harbour, e.g. Brest"},
        "days": {"type": "integer", "description": "How many days", "default": 2},
        "unit": {"type": "string", "enum": ["m", "ft"]},
        "options": {"type": "object", "properties": {
            "items": {"type": "array", "items": {"type": "string"}},
            "deep": {"type": ["object", "null"], "properties": {"x": {"type": "number"}}}},
            "required": ["items"]}},
        "required": ["port"]}}}
PING = {"type": "function", "function": {
    "name": "ping", "description": "Naïve test — nothing else <&>",
    "parameters": {"type": "object", "properties": {}}}}
ARGS = [
    {"port": "Brest", "days": 2},
    {"port": "Saint-Malo \"la cité\"\nline two \\ back", "days": -1, "ratio": 1.0, "tiny": 1e-05, "large": 1e16,
     "yes": True, "no": False, "nothing": None, "list": [1, "two", [3.5, {}], []],
     "options": {"items": ["é", "日本", "<|im_end|>"], "deep": {"x": 0.1}}},
    {},
]


def user(text):
    return {"role": "user", "content": text}


def assistant(text, calls=None, reasoning=None):
    message = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {"id": f"abcdefg{n:02d}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for n, (name, arguments) in enumerate(calls)]
    if reasoning is not None:
        message["reasoning_content"] = message["reasoning"] = reasoning
    return message


def tool(text, n=0, name="get_tide"):
    return {"role": "tool", "tool_call_id": f"abcdefg{n:02d}", "name": name, "content": text}


def system(text):
    return {"role": "system", "content": text}


def histories():
    one = assistant("", [("get_tide", ARGS[0])])
    prose = assistant("I look it up.", [("get_tide", ARGS[1])], "The user wants tides.\nLook.")
    two = assistant("", [("get_tide", ARGS[0]), ("ping", ARGS[2])], "Two calls.")
    hard = "  äöü \"quotes\" 'single' \\ <|im_end|>\n\n{{ not }} {% a %} \t</think> 日本語 🙂 "
    return {
        "user": [user("hi")],
        "system": [system("Be brief."), user("hi")],
        "turns": [user("hi"), assistant("Hello!"), user("1+1?"), assistant("2"), user("thanks")],
        "system_turns": [system("A\n\nB"), user("hi"), assistant("Hello!"), user("1+1?")],
        "hard": [system(hard), user(hard), assistant(hard), user(hard)],
        "empty": [user(""), assistant(""), user("")],
        "empty_system": [system(""), user("x")],
        "think": [user("q"), assistant("a", None, "because\nof it"), user("q2"), assistant("b", None, ""), user("q3")],
        "think_inline": [user("q"), assistant("<think>\nwhy\n</think>\n\nanswer"), user("q2")],
        "think_last": [user("q"), assistant("a", None, "because")],
        "call": [user("tides?"), one, tool("high water 04:12")],
        "call_prose": [system("S"), user("tides?"), prose, tool("{\"high\": [\"04:12\"]}"), assistant("At 04:12."),
                       user("and then?")],
        "calls": [user("tides?"), two, tool("high water 04:12"), tool("pong", 1, "ping"), assistant("Done."),
                  user("again"), one, tool(hard)],
        "call_pending": [user("tides?"), one],
        "system_middle": [user("hi"), assistant("yo"), system("be brief"), user("1+1?")],
        "two_systems": [system("A"), system("B"), user("hi")],
        "two_users": [user("a"), user("b")],
        "parts": [user([{"type": "text", "text": "what is "}, {"type": "image"}, {"type": "text", "text": "this?"}]),
                  assistant([{"type": "text", "text": "a boat"}]), user("sure?")],
        "assistant_last": [user("hi"), assistant("Hel")],
        "none_content": [user("tides?"), {**one, "content": None}, tool("x")],
        "developer": [{"role": "developer", "content": "Be kind."}, user("hi")],
    }


def make_cases():
    cases = []
    for name, messages in histories().items():
        calls = "call" in name
        for tools in ([TIDE, PING], None) if calls or name in ("user", "system") else (None,):
            options = [{}] if tools and not calls else [{}, {"enable_thinking": True}, {"enable_thinking": False}]
            for option in options:
                case = {"name": name, "messages": messages, "add_generation_prompt": True,
                        "bos_token": "<s>", "eos_token": "</s>", **option}
                if tools:
                    case["tools"] = tools
                cases.append(case)
        cases.append({"name": name, "messages": messages, "add_generation_prompt": False, "bos_token": "<s>",
                      "eos_token": "</s>", **({"tools": [TIDE]} if calls else {})})
    base = {"messages": histories()["think"], "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>"}
    for option in ({"reasoning_effort": "low"}, {"reasoning_effort": "medium"}, {"preserve_thinking": True},
                   {"thinking": True}, {"enable_thinking": True, "preserve_thinking": True}, {"drop_thinking": False},
                   {"date_string": "1 Jan 2025"}, {"tools_in_user_message": False}, {"add_vision_id": True}):
        cases.append({"name": "think", **base, **option})
        cases.append({"name": "calls", **base, "messages": histories()["calls"], "tools": [TIDE], **option})
    return cases


def render(source, case):
    """The reference's text, or None where the template refuses or fails."""
    from transformers.utils.chat_template_utils import _compile_jinja_template
    template = _compile_jinja_template(source)
    template.environment.filters.setdefault("from_json", json.loads)
    variables = {key: value for key, value in case.items() if key != "name"}
    try:
        return template.render(**variables, strftime_now=NOW.strftime)
    except Exception as error:                              # whatever a template raises
        render.error = str(error)
        return None


def compare(files, driver, cases):
    """Renders each template here and with the driver; says where they differ."""
    bad = 0
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump([{k: v for k, v in case.items() if k != "name"} for case in cases], file)
        file.flush()
        for name in files:
            bad += compare_one(name, driver, file.name, cases)
    return 1 if bad else 0


def compare_one(name, driver, path, cases):
    with open(name, encoding="utf-8", newline="") as file:
        source = file.read()
    done = subprocess.run([driver, name, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        ours = json.loads(done.stdout)
    except ValueError:
        print(f"{name}: {done.stdout[-300:]!r} {done.stderr[-300:].decode()}")
        return 1
    agree = refused = 0
    said = []
    for case, our in zip(cases, ours):
        want = render(source, case)
        if our.get("text") == want:
            agree += 1
            refused += want is None
        else:
            said.append((case["name"], want if want is not None else "REFUSED: " + render.error,
                         our.get("text", our.get("error"))))
    print(f"{os.path.basename(name)}: {agree} of {len(cases)} agree, {refused} refused")
    for where, want, got in said[:2]:
        print("   ", where)
        at = next((i for i, (a, b) in enumerate(zip(want, got)) if a != b), min(len(want), len(got)))
        print("      reference:", repr(want[max(0, at - 60):at + 100]))
        print("      here:     ", repr(got[max(0, at - 60):at + 100]))
    return bool(said)


def templates(models):
    """{name: source} of our own templates and of those in models/ that are there."""
    from gguf import GGUFReader
    found = {}
    for path in sorted(glob.glob(os.path.join(HERE, "tests/fixtures/chat/*.jinja"))
                       + glob.glob(os.path.join(models, "template-*.jinja"))):
        with open(path, encoding="utf-8", newline="") as file:
            found[os.path.basename(path).removesuffix(".jinja")] = file.read()
    path = os.path.join(models, "smollm2-135m-instruct-q4_1.gguf")
    if os.path.isfile(path):
        field = GGUFReader(path).fields["tokenizer.chat_template"]
        found["smollm2"] = bytes(field.parts[-1]).decode()
    return found


def write_cases(cases):
    packed = []
    for case in cases:
        packed.append({key: len(value) if key == "tools" else value
                       for key, value in case.items() if key != "messages"})
    write("cases.json", {"messages": histories(), "tools": [TIDE, PING], "cases": packed})


def write(name, value):
    with open(os.path.join(HERE, "tests/fixtures/chat", name), "w", encoding="utf-8") as file:
        json.dump(value, file, ensure_ascii=False, separators=(",", ":"))
        file.write("\n")


def write_texts(name, source, cases):
    texts, last = [], ""
    for case in cases:
        text = render(source, case)
        if text is None:
            texts.append(None)
            continue
        shared = os.path.commonprefix([last, text])
        texts.append([len(shared.encode()), text[len(shared):]])
        last = text
    write(f"{name}.json", {"sha256": hashlib.sha256(source.encode()).hexdigest(), "texts": texts})
    print(f"{name}.json: {len(texts)} renderings, {texts.count(None)} refused")


def main():
    parser = argparse.ArgumentParser(description="Make the fixtures of chat templates.")
    parser.add_argument("--models", default=os.path.join(HERE, "models"))
    parser.add_argument("--only", nargs="*", help="compare these templates with --driver")
    parser.add_argument("--driver", help="program TEMPLATE CASES.json that prints a list of {text} or {error}")
    args = parser.parse_args()
    os.environ["TZ"] = "UTC"
    cases = make_cases()
    if args.only:
        return compare(args.only, args.driver, cases)
    write_cases(cases)
    for name, source in templates(args.models).items():
        write_texts(name, source, cases)
    return 0


if __name__ == "__main__":
    sys.exit(main())
