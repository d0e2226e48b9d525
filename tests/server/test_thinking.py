"""Bounds on reasoning: what ends it, and what is said of that, in every route."""
import json
import unittest

from harness import APIS, Server, pieces

TURNS = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
# Reasoning is opened by the prompt unless it is turned off.
PREFILLED = (TURNS + "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% if enable_thinking is defined and not "
             "enable_thinking %}{{ '<think>\n\n</think>\n\n' }}{% else %}{{ '<think>\n' }}{% endif %}{% endif %}")
# The model opens it itself.
OWN = (TURNS + "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
       "{% if false %}<think></think>{% endif %}")
CLOSE = len("\n</think>\n\n")           # tokens: the scripted vocabulary has a token for each byte
SCRIPTS = {
    "endless": {"pieces": pieces("z"), "endless": True},
    "counts": {"pieces": pieces(*[f"{i} " for i in range(200)])},
    "short": {"pieces": pieces("a", "b", "</think>", "\n\n", "h", "i")},
    "own": {"pieces": pieces("<think>", *[f"{i} " for i in range(100)])},
    "none": {"pieces": pieces("<thin", "g> ", *[f"{i} " for i in range(30)])},
    "call": {"pieces": pieces(*[f"{i} " for i in range(5 + CLOSE)], '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>')},
}


def words(first, last):
    return "".join(f"{i} " for i in range(first, last))


def budget_fields(api, budget):
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


class Thinking(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(SCRIPTS, context=2048, template=PREFILLED, drafter="scripted", effort=[40, 0, 0, 0, 0])

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def everywhere(self, prompt, server=None, **fields):
        answers = [APIS[api](server or self.server, prompt, stream, **fields)
                   for api in ("chat", "messages", "responses") for stream in (False, True)]
        for a in answers:
            self.assertEqual((a.text, a.reasoning, a.finish, a.usage),
                             (answers[0].text, answers[0].reasoning, answers[0].finish, answers[0].usage))
        return answers[0]

    def test_a_budget_ends_reasoning_and_the_answer_follows(self):
        for budget in (0, 1, 5, 40):
            a = self.everywhere("[[counts]]", thinking={"type": "enabled", "budget_tokens": budget}, max_tokens=80)
            self.assertEqual(a.reasoning, words(0, budget).rstrip())
            self.assertEqual(a.text, words(budget + CLOSE, 80))
            self.assertEqual((a.finish, a.usage), ("length", 80))

    def test_guesses_change_nothing(self):
        for width in (False, True, 1, 7, 15):
            a = self.everywhere("[[counts]]", thinking={"type": "enabled", "budget_tokens": 9}, max_tokens=40, speculative=width)
            self.assertEqual((a.reasoning, a.text), (words(0, 9).rstrip(), words(9 + CLOSE, 40)))

    def test_reasoning_that_ends_in_time_is_left_alone(self):
        a = self.everywhere("[[short]]", thinking={"type": "enabled", "budget_tokens": 50}, max_tokens=100)
        self.assertEqual((a.reasoning, a.text, a.finish), ("ab", "hi", "stop"))

    def details(self, prompt, **fields):
        """finish_details of chat and messages, whole and streamed: the same."""
        chat = dict({"messages": [{"role": "user", "content": prompt}], "max_tokens": 200}, **fields)
        got = [self.server.post("/v1/chat/completions", chat)["choices"][0].get("finish_details"),
               [c for _, e in self.server.events("/v1/chat/completions", chat)[:-1] for c in e["choices"]][-1].get("finish_details"),
               self.server.post("/v1/messages", chat).get("finish_details"),
               [e for t, e in self.server.events("/v1/messages", chat) if t == "message_delta"][-1]["delta"].get("finish_details")]
        for d in got:
            self.assertEqual(d, got[0])
        return got[0]

    def test_the_end_says_how_reasoning_ended(self):
        self.assertEqual(self.details("[[counts]]", thinking={"type": "enabled", "budget_tokens": 5}, max_tokens=40),
                         {"close_kind": "hard", "thinking_tokens": 14, "content_tokens": 26, "total_tokens": 40})
        d = self.details("[[short]]", thinking={"type": "enabled", "budget_tokens": 50})
        self.assertEqual((d["close_kind"], d["total_tokens"]), ("natural", 7))
        self.assertIsNone(self.details("[[short]]", thinking={"type": "adaptive"}))

    def test_a_text_that_goes_round_after_a_cut_is_ended(self):
        a = self.everywhere("[[endless]]", thinking={"type": "enabled", "budget_tokens": 5}, max_tokens=1000)
        self.assertEqual((a.reasoning, a.finish, a.usage), ("zzzzz", "length", 5 + CLOSE + 24))
        self.assertTrue(self.details("[[endless]]", thinking={"type": "enabled", "budget_tokens": 5})["degenerate_decode"])
        a = self.everywhere("[[endless]]", thinking={"type": "disabled"}, max_tokens=300)
        self.assertEqual((a.text, a.usage), ("z" * 300, 300))

    def test_efforts_are_shares_and_leave_room_for_the_answer(self):
        tiers = json.loads(self.server.call("GET", "/props")[2])["budget_envelope"]["effort_tiers"]
        self.assertEqual(tiers, {"low": 40, "medium": 1024, "high": 1024, "x-high": 1024, "max": 1024})
        for field in ({"reasoning_effort": "low"}, {"reasoning": {"effort": "minimal"}}):
            a = self.everywhere("[[counts]]", max_tokens=200, **field)
            self.assertEqual(a.reasoning, words(0, 40).rstrip())
        a = self.everywhere("[[counts]]", reasoning_effort="high", max_tokens=100)       # half is for the answer
        self.assertEqual(a.reasoning, words(0, 50).rstrip())
        a = self.everywhere("[[counts]]", reasoning_effort="high", thinking={"type": "enabled", "budget_tokens": 7}, max_tokens=100)
        self.assertEqual(a.reasoning, words(0, 7).rstrip())
        a = self.everywhere("[[counts]]", thinking={"type": "enabled", "budget_tokens": 90, "reply_budget": 70}, max_tokens=100)
        self.assertEqual(a.reasoning, words(0, 30).rstrip())

    def test_efforts_of_messages(self):
        def reasoning(**fields):
            body = dict({"messages": [{"role": "user", "content": "[[counts]]"}], "max_tokens": 200}, **fields)
            whole = "".join(c.get("thinking", "") for c in self.server.post("/v1/messages", body)["content"])
            streamed = [e["delta"] for t, e in self.server.events("/v1/messages", body) if t == "content_block_delta"]
            self.assertEqual("".join(d.get("thinking", "") for d in streamed), whole)
            return whole.rstrip()
        for effort in ("minimal", "low", "medium", "high", "xhigh", "max", "none", "unheard-of", ""):
            with self.subTest(effort=effort):
                wanted = reasoning(reasoning_effort=effort)
                self.assertEqual(reasoning(output_config={"effort": effort}), wanted)
        self.assertEqual(reasoning(output_config={"effort": "low"}), words(0, 40).rstrip())
        self.assertEqual(reasoning(output_config={"effort": "low"}, thinking={"type": "adaptive"}), words(0, 40).rstrip())
        self.assertEqual(reasoning(output_config={"effort": "low"}, thinking={"type": "disabled"}), "")
        self.assertEqual(reasoning(output_config={"effort": "low"}, reasoning_effort="high"), reasoning(reasoning_effort="high"))
        self.assertNotEqual(reasoning(reasoning_effort="high"), words(0, 40).rstrip())
        for config in ({"effort": 7}, {"effort": None}, {"effort": ["low"]}, {}, None, "low", [], 3):
            with self.subTest(config=config):
                self.assertEqual(reasoning(output_config=config), reasoning())

    def test_a_switch_of_reasoning_is_a_boolean(self):
        for value in ("false", 0, [], {}):
            got = self.server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "[[counts]]"}], "reasoning": {"enabled": value}}, 400)
            self.assertIn("enabled: expected a boolean", got["error"]["message"])

    def test_what_turns_it_off(self):
        for fields in ({"reasoning_effort": "none"}, {"thinking": {"type": "disabled"}}, {"reasoning": {"effort": "none"}}, {"reasoning": {"enabled": False}},
                       {"reasoning_effort": "high", "thinking": {"type": "disabled"}},
                       {"reasoning_effort": "high", "chat_template_kwargs": {"enable_thinking": False}}):
            a = self.everywhere("[[counts]]", max_tokens=60, **fields)
            self.assertEqual((a.reasoning, a.text), ("", words(0, 60)), fields)

    def test_bad_budgets_are_refused(self):
        for thinking in ({"type": "enabled", "budget_tokens": -1}, {"type": "enabled", "budget_tokens": "many"},
                         {"type": "enabled", "reply_budget": 1.5}):
            for path in ("/v1/chat/completions", "/v1/messages"):
                body = {"messages": [{"role": "user", "content": "x"}], "thinking": thinking}
                self.assertIn("budget", self.server.post(path, body, 400)["error"]["message"])

    def test_calls_after_a_cut(self):
        tools = [{"type": "function", "name": "f", "function": {"name": "f"}, "input_schema": {"type": "object"}}]
        for api in ("chat", "messages"):
            a = APIS[api](self.server, "[[call]]", True, tools=tools, thinking={"type": "enabled", "budget_tokens": 5})
            self.assertEqual((a.reasoning, [c["name"] for c in a.calls]), (words(0, 5).rstrip(), []))     # XML is not its dialect
        with Server(SCRIPTS, context=2048, template=OWN.replace("<think></think>", '<think></think><tool_call>{"arguments"')) as server:
            self.assertEqual(APIS["chat"](server, "[[call]]", True, tools=tools).finish, "tool_calls")

    def test_logprobs_cover_the_tokens_that_were_given(self):
        body = {"messages": [{"role": "user", "content": "[[counts]]"}], "max_tokens": 30, "logprobs": True,
                "thinking": {"type": "enabled", "budget_tokens": 3}}
        entries = self.server.post("/v1/chat/completions", body)["choices"][0]["logprobs"]["content"]
        self.assertEqual(len(entries), 30)
        self.assertEqual("".join(e["token"] for e in entries[3:3 + CLOSE]), "\n</think>\n\n")

    def test_reasoning_that_the_model_opens(self):
        with Server(SCRIPTS, context=2048, template=OWN) as server:
            a = self.everywhere("[[own]]", server, thinking={"type": "enabled", "budget_tokens": 5}, max_tokens=40)
            self.assertEqual((a.reasoning, a.text), (words(0, 4).rstrip(), words(4 + CLOSE, 39)))
            a = self.everywhere("[[none]]", server, thinking={"type": "enabled", "budget_tokens": 5}, max_tokens=20)
            self.assertEqual((a.reasoning, a.text), ("", "<thing> " + words(0, 18)))

    def test_a_bound_of_the_operator_holds_for_all(self):
        with Server(SCRIPTS, context=2048, template=PREFILLED, think_max=6, effort=[3, 0, 0, 0, 0], thinking=2) as server:
            self.assertEqual(self.everywhere("[[counts]]", server, max_tokens=60).reasoning, "")            # off when nobody asks
            a = self.everywhere("[[counts]]", server, max_tokens=60, thinking={"type": "adaptive"})
            self.assertEqual(a.reasoning, words(0, 6).rstrip())
            a = self.everywhere("[[counts]]", server, max_tokens=60, thinking={"type": "enabled", "budget_tokens": 50})
            self.assertEqual(a.reasoning, words(0, 6).rstrip())
            a = self.everywhere("[[counts]]", server, max_tokens=60, reasoning_effort="low")
            self.assertEqual(a.reasoning, words(0, 3).rstrip())


if __name__ == "__main__":
    unittest.main()
