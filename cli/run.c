/* cli/run.c - luce run: a prompt in, text out as it comes, or one JSON object at the end. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "cli/chat_form.h"
#include "cli/generate.h"
#include "cli/terminal.h"

static bool print_piece(void *user, const char *bytes, size_t n)
{
    bool *broken = user;
    if (show_text(bytes, n)) return true;
    *broken = !interrupted(NULL);       /* a signal ends a write that waits */
    return false;
}

static void number(struct json *j, const char *key, double value)
{
    json_key(j, key);
    json_number(j, value);
}

static void speculation(struct json *j, const luce_speculation *s)
{
    number(j, "steps", (double)s->n_steps);
    number(j, "drafted_tokens", (double)s->n_drafted);
    number(j, "accepted_tokens", (double)s->n_accepted);
    number(j, "declined_steps", (double)s->n_declined);
    number(j, "draft_seconds", s->draft_seconds);
    number(j, "verify_seconds", s->verify_seconds);
    number(j, "accept_seconds", s->accept_seconds);
}

static void print_json(struct buf *out, const luce_model *m, const luce_result *r)
{
    struct json j;
    luce_model_info info = luce_model_describe(m);
    json_begin(&j, out);
    json_open_object(&j);
    json_key(&j, "text");
    json_str(&j, (struct str){ r->text ? r->text : "", r->text_bytes });
    json_key(&j, "finish");
    json_text(&j, luce_finish_name(r->finish));
    json_key(&j, "seed");
    json_uint(&j, r->seed);
    json_key(&j, "prompt_tokens");
    json_uint(&j, r->n_prompt);
    json_key(&j, "generated_tokens");
    json_uint(&j, r->n_tokens);
    json_key(&j, "tokens");
    json_open_array(&j);
    for (size_t i = 0; i < r->n_tokens; i++) json_int(&j, r->tokens[i]);
    json_close(&j);
    json_key(&j, "timings");
    json_open_object(&j);
    number(&j, "load_seconds", info.load_seconds);
    number(&j, "prompt_seconds", r->prompt_seconds);
    number(&j, "decode_seconds", r->decode_seconds);
    number(&j, "prompt_tokens_per_s", r->n_tokens ? (double)r->n_prompt / r->prompt_seconds : 0);
    speculation(&j, &r->speculation);
    number(&j, "decode_tokens_per_s", r->n_tokens > 1 ? (double)(r->n_tokens - 1) / r->decode_seconds : 0);
    json_close(&j);
    json_key(&j, "model");
    json_open_object(&j);
    json_key(&j, "architecture");
    json_text(&j, info.architecture);
    json_key(&j, "drafter");
    json_text(&j, info.drafter);
    json_key(&j, "device");
    json_text(&j, info.device);
    json_key(&j, "context");
    json_int(&j, info.context);
    json_close(&j);
    json_close(&j);
    buf_add_char(out, '\n');
}

/* The prompt as it is, or in the model's chat form. */
static luce_text make_prompt(const struct options *o, const struct chat_form *form, const struct buf *prompt,
                             struct chat_text *chat)
{
    struct str text = { buf_text(prompt), prompt->len };
    if (!form)
        return (luce_text){ .at = text.at, .bytes = text.len, .flags = LUCE_BOS | (o->special ? LUCE_SPECIAL : 0u) };
    while (text.len && text.at[text.len - 1] == '\n') text.len--;   /* of a file or a pipe */
    chat_turn(chat, form, CHAT_FIRST, o->system, text);
    return chat_prompt(chat, CHAT_FIRST, o->special);
}

static luce_status finish_output(const struct options *o, const luce_model *m, const luce_result *r, bool broken,
                                 luce_error *err)
{
    if (o->json) {
        struct buf out = { 0 };
        print_json(&out, m, r);
        luce_status st = output_write(&out, err);
        buf_drop(&out);
        return st;
    }
    if (broken) return output_failed(err);
    bool open_line = r->text_bytes && r->text[r->text_bytes - 1] != '\n';
    if (open_line) putchar('\n');
    fflush(stdout);
    show_speed(o, r);
    return LUCE_OK;
}

luce_status run_run(const struct options *o, luce_error *err)
{
    luce_model *m = NULL;
    luce_result result = { 0 };
    struct buf prompt = { 0 };
    struct chat_text chat = { 0 };
    const char *stops[OPTION_TEXTS_MAX + 1];
    bool broken = false;
    luce_status st = input_prompt(o, &prompt, err);
    interrupt_catch();
    luce_model_params p = model_params(o);
    p.text = true;
    if (!st) st = model_load(&m, p, err);
    if (st) goto end;
    luce_model_info info = luce_model_describe(m);
    const struct chat_form *form = o->chat ? chat_form_find(&info) : NULL;
    luce_request q = request_from_options(o, stops, form ? form->stop : NULL);
    q.text = make_prompt(o, form, &prompt, &chat);
    if (!o->json) q.on_text = print_piece;
    q.user = &broken;
    if (prompt.failed || chat.text.failed) {
        st = fail(err, LUCE_E_NOMEM, "out of memory for the prompt");
        goto end;
    }
    st = luce_generate(m, &q, &result, err);
    if (!st) st = finish_output(o, m, &result, broken, err);
    if (!st && interrupted(NULL) && result.finish == LUCE_FINISH_CANCELLED)
        st = fail(err, LUCE_E_CANCELLED, "interrupted after %zu tokens", result.n_tokens);
end:
    luce_result_drop(&result);
    luce_model_close(m);
    chat_text_drop(&chat);
    buf_drop(&prompt);
    return st;
}
