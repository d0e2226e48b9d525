/* cli/chat_form.c - see chat_form.h. Sources: the families' published chat templates. */
#include "cli/chat_form.h"

#include "base/mem.h"

static const struct chat_form forms[] = {
    { .name = "chatml", .mark = "<|im_start|>",
      .system = { "<|im_start|>system\n", "<|im_end|>\n" }, .user = { "<|im_start|>user\n", "<|im_end|>\n" },
      .assistant = "<|im_start|>assistant\n", .end = { "<|im_end|>", "\n" } },
    { .name = "llama3", .mark = "<|start_header_id|>",
      .system = { "<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>" },
      .user = { "<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>" },
      .assistant = "<|start_header_id|>assistant<|end_header_id|>\n\n", .end = { "<|eot_id|>", "" } },
    { .name = "gemma", .mark = "<start_of_turn>", .arch = "gemma3",
      .user = { "<start_of_turn>user\n", "<end_of_turn>\n" }, .assistant = "<start_of_turn>model\n",
      .end = { "<end_of_turn>", "\n" } },
    { .name = "phi3", .mark = "<|assistant|>", .system = { "<|system|>\n", "<|end|>\n" },
      .user = { "<|user|>\n", "<|end|>\n" }, .assistant = "<|assistant|>\n", .end = { "<|end|>", "\n" } },
    { .name = "mistral", .mark = "[INST]", .user = { "[INST] ", " [/INST]" }, .assistant = "",
      .end = { "</s>", "" } },
    { .name = "plain", .mark = "", .system = { "", "\n\n" }, .user = { "User: ", "\n" },
      .assistant = "Assistant:", .end = { "", "\n" }, .stop = "\nUser:" },
};

static bool contains(const char *at, size_t n, const char *what)
{
    size_t len = strlen(what);
    for (size_t i = 0; i + len <= n; i++)
        if (!memcmp(at + i, what, len)) return true;
    return false;
}

const struct chat_form *chat_form_find(const luce_model_info *model)
{
    size_t last = COUNT(forms) - 1;
    for (size_t i = 0; i < last; i++)
        if (model->chat_template ? contains(model->chat_template, model->chat_template_bytes, forms[i].mark)
                                 : forms[i].arch && !strcmp(forms[i].arch, model->architecture))
            return &forms[i];
    return &forms[last];
}

/* The form's words: a span of their own, or more of the one before. */
static void add_own(struct chat_text *out, const char *text)
{
    size_t from = out->text.len;
    buf_add_text(&out->text, text);
    if (!*text) return;
    luce_span *last = out->n_spans ? &out->span[out->n_spans - 1] : NULL;
    if (last && last->to == from) last->to = out->text.len;
    else out->span[out->n_spans++] = (luce_span){ from, out->text.len };
}

void chat_turn(struct chat_text *out, const struct chat_form *f, enum chat_before before,
               const char *system, struct str user)
{
    buf_clear(&out->text);
    out->n_spans = 0;
    if (before == CHAT_CUT) add_own(out, f->end[0]);
    if (before != CHAT_FIRST) add_own(out, f->end[1]);
    bool with_system = system && *system && before == CHAT_FIRST;
    if (with_system && f->system[0]) {
        add_own(out, f->system[0]);
        buf_add_text(&out->text, system);
        add_own(out, f->system[1]);
    }
    add_own(out, f->user[0]);
    if (with_system && !f->system[0]) {
        buf_add_text(&out->text, system);
        buf_add_text(&out->text, "\n\n");
    }
    buf_add(&out->text, user.at, user.len);
    add_own(out, f->user[1]);
    add_own(out, f->assistant);
}

luce_text chat_prompt(const struct chat_text *t, enum chat_before before, bool all_special)
{
    return (luce_text){ .at = buf_text(&t->text), .bytes = t->text.len, .special = t->span,
                        .n_special = all_special ? 0 : t->n_spans,
                        .flags = (before == CHAT_FIRST ? LUCE_CHAT : 0u) | (all_special ? LUCE_SPECIAL : 0u) };
}

void chat_text_drop(struct chat_text *t)
{
    buf_drop(&t->text);
}
