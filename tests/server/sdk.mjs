// The published JavaScript libraries against a scripted server at $LUCE_URL; see test_sdk.py.
import assert from "node:assert";
import OpenAI from "openai";
import Anthropic from "@anthropic-ai/sdk";

const url = process.env.LUCE_URL;
const openai = new OpenAI({ baseURL: url + "/v1", apiKey: "key", maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: url, apiKey: "key", maxRetries: 0 });
const schema = { type: "object", properties: { n: { type: "integer" } } };
const user = (content) => [{ role: "user", content }];

// With a model instead of scripts: all ways to ask give the same text.
async function agree() {
    const ask = { model: "luce", messages: user("What is the capital of France?"), max_tokens: 24 };
    const whole = await openai.chat.completions.create(ask);
    const said = whole.choices[0].message.content;
    assert.ok(said.length > 5);
    let streamed = "";
    for await (const chunk of await openai.chat.completions.create({ ...ask, stream: true }))
        streamed += chunk.choices[0]?.delta?.content ?? "";
    assert.equal(streamed, said);
    assert.equal((await anthropic.messages.stream(ask).finalMessage()).content[0].text, said);
    const first = await openai.responses.create({ model: "luce", input: ask.messages[0].content, max_output_tokens: 24 });
    assert.equal(first.output_text, said);
    const second = await openai.responses.create({ model: "luce", input: "And of Spain?", previous_response_id: first.id, max_output_tokens: 24 });
    assert.equal(second.previous_response_id, first.id);
    assert.equal((await openai.embeddings.create({ model: "luce", input: "a" })).data[0].embedding.length, 576);
}
if (process.env.LUCE_REAL) {
    await agree();
    process.exit(0);
}

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
