/* chat/chat.h - a conversation (messages, tools, options) becomes the bytes of a prompt, by the model's
 * chat template. Histories come from agents of all kinds: what a template refuses is put into a shape
 * that it takes, without changing the prompt's earlier part, and only then refused.
 * Threads: a template is constant after chat_template_open; any thread may render with it. */
#ifndef LUCE_CHAT_CHAT_H
#define LUCE_CHAT_CHAT_H

#include "chat/reply.h"
#include "gguf/reader.h"
#include "text/jinja.h"
#include "text/vocab.h"

struct chat_template;
struct chat_source {
    const struct gguf *gguf;        /* its tokenizer.chat_template (and .tool_use); may be NULL */
    const char *file;               /* a template that the operator named instead; NULL: none */
    const struct vocab *vocab;      /* texts of BOS and EOS, choice of the fallback; may be NULL */
};
/* The named file, else the model's own template, else a fallback of the family that the vocabulary
 * shows (ChatML when it shows none). LUCE_E_FORMAT for a template that is empty or does not
 * parse, with its path (or key), line and column; LUCE_E_IO; LUCE_E_NOMEM. */
luce_status chat_template_open(struct chat_template **out, const struct chat_source *source, luce_error *err);
void chat_template_close(struct chat_template *t);      /* NULL is fine */
/* How replies to its prompts are written. */
const struct dialect *chat_dialect(const struct chat_template *t);
/* The template's text, for vocab_guard_new; borrowed. */
struct str chat_template_text(const struct chat_template *t);
bool chat_is_fallback(const struct chat_template *t);
/* Whether the template shows tools to the model, and whether it knows of reasoning. */
bool chat_shows_tools(const struct chat_template *t);
bool chat_knows_reasoning(const struct chat_template *t);

struct chat_request {
    const json_t *messages;         /* array in OpenAI's chat form; reasoning as reasoning_content */
    const json_t *tools;            /* array in OpenAI's form; NULL or empty: none */
    const json_t *kwargs;           /* object: further variables, the last word; or NULL */
    enum chat_thinking { THINKING_DEFAULT, THINKING_ON, THINKING_OFF } thinking;
    const char *reasoning_effort;   /* none minimal low medium high xhigh max, or NULL */
    bool no_generation_prompt;
    bool continue_last;             /* the last message, an assistant's, is to be written on */
    int64_t now;                    /* as jinja_render.now */
};
struct chat_prompt {
    struct str text;                /* borrowed from `heap` */
    const struct text_span *spans;  /* the template's own words, for vocab_tokenize_spans */
    size_t n_spans;
    bool in_reasoning;              /* the reply begins inside reasoning */
    struct jheap heap;              /* chat_prompt_drop */
};
/* Renders. On LUCE_OK *out is to be dropped. LUCE_E_ARG: the request cannot be rendered, in the template's
 * words where it refuses; LUCE_E_UNSUPPORTED: images for a template without them; LUCE_E_FORMAT: the
 * template is broken or too costly; LUCE_E_NOMEM. */
luce_status chat_render(const struct chat_template *t, const struct chat_request *request, struct chat_prompt *out,
                        luce_error *err);
void chat_prompt_drop(struct chat_prompt *p);           /* fine on a zeroed one */

#endif
