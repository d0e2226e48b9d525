// The published JavaScript libraries against a scripted server at $LUCE_URL; see test_sdk.py.
import assert from "node:assert";
import OpenAI from "openai";
import Anthropic from "@anthropic-ai/sdk";

const url = process.env.LUCE_URL;
const openai = new OpenAI({ baseURL: url + "/v1", apiKey: "key", maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: url, apiKey: "key", maxRetries: 0 });
const schema = { type: "object", properties: { n: { type: "integer" } } };
const user = (content) => [{ role: "user", content }];

let text = "";
for await (const chunk of await openai.chat.completions.create({ model: "script", messages: user("[[hi]]"), stream: true }))
    text += chunk.choices[0]?.delta?.content ?? "";
assert.equal(text, "Hello world");

const called = await openai.chat.completions.create({
    model: "script", messages: user("[[call]]"), tools: [{ type: "function", function: { name: "f", parameters: schema } }] });
assert.equal(called.choices[0].message.tool_calls[0].function.arguments, '{"n": 3}');

const kinds = [];
for await (const event of await openai.responses.create({ model: "script", input: "[[hi]]", stream: true })) kinds.push(event.type);
assert.equal(kinds.at(-1), "response.completed");

const message = await anthropic.messages.stream({
    model: "script", max_tokens: 300, messages: user("[[call]]"), tools: [{ name: "f", input_schema: schema }] }).finalMessage();
assert.equal(message.stop_reason, "tool_use");
assert.deepEqual(message.content.at(-1).input, { n: 3 });
await assert.rejects(openai.chat.completions.create({ model: "script", messages: user("x".repeat(3000)) }),
                     (e) => e.status === 400 && e.code === "context_length_exceeded");
