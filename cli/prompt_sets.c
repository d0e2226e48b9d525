/* cli/prompt_sets.c - see prompt_sets.h. */
#include "cli/prompt_sets.h"

#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/file.h"

static const uint64_t file_bytes_most = 256 << 20;
const struct prompt_set prompt_sets[PROMPT_SETS] = {
    { .name = "code" }, { .name = "chat", .chat = true }, { .name = "math", .chat = true }, { .name = "prose" },
    { .name = "repeat" },
};

struct each {
    const struct prompt_set *set;
    const luce_model_info *info;
    prompt_fn fn;
    void *user;
};

static luce_status one(const struct each *e, struct str text, luce_error *err)
{
    struct chat_text chat = { 0 };
    luce_text plain = { .at = text.at, .bytes = text.len, .flags = LUCE_BOS };
    const struct chat_form *form = e->set->chat ? chat_form_find(e->info) : NULL;
    if (form) {
        chat_turn(&chat, form, CHAT_FIRST, NULL, text);
        plain = chat_prompt(&chat, CHAT_FIRST, false);
    }
    luce_status st = chat.text.failed ? fail(err, LUCE_E_NOMEM, "out of memory for a prompt")
                                      : e->fn(e->user, &plain, form, err);
    chat_text_drop(&chat);
    return st;
}

static luce_status all(const struct each *e, struct str rest, luce_error *err)
{
    static const char mark[] = "\n%%\n";
    luce_status st = LUCE_OK;
    while (rest.len && !st) {
        const char *end = strstr(rest.at, mark);
        struct str text = { rest.at, end ? (size_t)(end - rest.at) : rest.len };
        size_t used = end ? text.len + strlen(mark) : rest.len;
        while (text.len && text.at[text.len - 1] == '\n') text.len--;
        if (text.len) st = one(e, text, err);
        rest = (struct str){ rest.at + used, rest.len - used };
    }
    return st;
}

luce_status prompt_set_each(const char *folder, const struct prompt_set *set, const luce_model_info *info,
                            prompt_fn fn, void *user, bool *found, luce_error *err)
{
    struct buf path = { 0 }, text = { 0 };
    luce_error absent = { 0 };
    struct each e = { .set = set, .info = info, .fn = fn, .user = user };
    luce_status st = LUCE_OK;
    buf_printf(&path, "%s/%s.txt", folder, set->name);
    if (path.failed) st = fail(err, LUCE_E_NOMEM, "out of memory for a path");
    *found = !st && !file_read(&text, path.data, file_bytes_most, &absent);
    if (*found) st = all(&e, (struct str){ buf_text(&text), text.len }, err);
    buf_drop(&text);
    buf_drop(&path);
    return st;
}
