/* chat/history.c - see history.h. */
#include "chat/history.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/hash.h"
#include "chat/tree.h"

static const char *text_of(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);
    return tree_is_text(v) ? json_string_value(v) : "";
}

static bool has_role(const json_t *message, const char *role)
{
    return strcmp(text_of(message, "role"), role) == 0;
}

static json_t *string_of(const struct buf *b)
{
    return b->failed ? NULL : json_stringn(buf_text(b), b->len);
}

/* ---- cleaning ------------------------------------------------------------------------------------ */

static bool is_text_part(const json_t *part)
{
    const char *type = text_of(part, "type");
    return tree_is_text(part) || !strcmp(type, "text") || !strcmp(type, "input_text") || !strcmp(type, "output_text");
}

/* The text parts joined; parts of other kinds only if they may stay: then a list of clean parts. */
static luce_status clean_content(json_t **out, const json_t *content, const struct history_form *form, size_t at,
                                 luce_error *err)
{
    struct buf text = { 0 };
    bool other = false;
    for (size_t i = 0; i < json_array_size(content); i++) other |= !is_text_part(json_array_get(content, i));
    if (other && !form->keep_parts)
        return fail(err, LUCE_E_UNSUPPORTED, "messages[%zu].content has parts that are not text; this model's chat "
                    "template takes text only", at);
    json_t *parts = other ? json_array() : NULL;
    for (size_t i = 0; i < json_array_size(content); i++) {
        json_t *part = json_array_get(content, i);
        json_t *words = tree_is_text(part) ? part : json_object_get(part, "text");
        if (!other && tree_is_text(words)) buf_add(&text, json_string_value(words), json_string_length(words));
        if (other && is_text_part(part)) json_array_append_new(parts, json_pack("{s:s,s:O?}", "type", "text", "text",
                words));
        else if (other) json_array_append(parts, part);
    }
    *out = other ? parts : tree_is_text(content) ? json_incref((json_t *)(uintptr_t)content) : string_of(&text);
    buf_drop(&text);
    return *out ? LUCE_OK : fail(err, LUCE_E_NOMEM, "out of memory for a conversation");
}

/* A stable id of nine letters and digits for a foreign one. */
static json_t *short_id(const json_t *id)
{
    const char *text = json_string_value(id);
    size_t n = json_string_length(id);
    bool fits = n == 9;
    for (size_t i = 0; i < n && fits; i++)
        fits = is_one_of(text[i], "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
    if (fits) return json_incref((json_t *)(uintptr_t)id);
    char out[10] = { 0 };
    uint64_t h = hash_bytes(text ? text : "", n, 9);
    for (int i = 0; i < 9; i++, h /= 36) out[i] = "0123456789abcdefghijklmnopqrstuvwxyz"[h % 36];
    return json_string(out);
}

/* Arguments: an object, parsed from its text if need be; text that is no object stays. */
static json_t *clean_arguments(const json_t *arguments)
{
    if (!arguments || json_is_null(arguments)) return json_object();
    json_t *parsed = json_is_string(arguments)
                         ? tree_read_object((struct str){ json_string_value(arguments), json_string_length(arguments) })
                         : NULL;
    if (parsed) return parsed;
    if (json_is_string(arguments) && json_string_length(arguments) == 0) return json_object();
    return json_incref((json_t *)(uintptr_t)arguments);
}

static json_t *clean_call(const json_t *call, const struct history_form *form)
{
    json_t *function = json_object_get(call, "function");
    if (!json_is_object(function)) function = json_is_object(call) ? (json_t *)(uintptr_t)call : NULL;
    json_t *id = json_object_get(call, "id");
    json_t *kept = id && form->short_ids ? short_id(id) : json_incref(id);
    json_t *name = json_object_get(function, "name");
    json_t *out = json_pack("{s:o*,s:s,s:{s:s,s:o}}", "id", kept, "type", "function", "function", "name",
                            tree_is_text(name) ? json_string_value(name) : "", "arguments",
                            clean_arguments(json_object_get(function, "arguments")));
    return out;
}

static json_t *clean_calls(const json_t *calls, const struct history_form *form)
{
    json_t *out = json_array();
    for (size_t i = 0; out && i < json_array_size(calls); i++)
        if (json_array_append_new(out, clean_call(json_array_get(calls, i), form))) {
            json_decref(out);
            return NULL;
        }
    return out;
}

/* The name of the function whose call has this id. */
static json_t *name_of_call(const json_t *messages, size_t before, const json_t *id)
{
    for (size_t i = before; id && i-- > 0;) {
        json_t *calls = json_object_get(json_array_get(messages, i), "tool_calls");
        for (size_t k = 0; k < json_array_size(calls); k++) {
            json_t *call = json_array_get(calls, k);
            if (json_equal(json_object_get(call, "id"), id)) return json_object_get(json_object_get(call, "function"),
                    "name");
        }
    }
    return NULL;
}

static bool set_reasoning(json_t *out, const json_t *message)
{
    json_t *reasoning = json_object_get(message, "reasoning_content");
    if (!tree_is_text(reasoning)) reasoning = json_object_get(message, "reasoning");
    if (!tree_is_text(reasoning)) {
        json_object_del(out, "reasoning_content");
        json_object_del(out, "reasoning");
        return true;
    }
    return !json_object_set(out, "reasoning_content", reasoning) && !json_object_set(out, "reasoning", reasoning);
}

static luce_status clean_message(json_t **out, const json_t *messages, size_t i, const struct history_form *form,
                                 luce_error *err)
{
    const json_t *message = json_array_get(messages, i);
    if (!json_is_object(message) || !*text_of(message, "role"))
        return fail(err, LUCE_E_ARG, "messages[%zu] is no object with a role", i);
    json_t *m = *out = json_copy((json_t *)(uintptr_t)message), *content = NULL;
    if (!m) return fail(err, LUCE_E_NOMEM, "out of memory for a conversation");
    luce_status st = clean_content(&content, json_object_get(message, "content"), form, i, err);
    if (st) return st;
    bool good = !json_object_set_new(m, "content", content) && set_reasoning(m, message);
    if (has_role(m, "developer") && !form->keep_developer) good &= !json_object_set_new(m, "role",
            json_string("system"));
    if (has_role(m, "function")) good &= !json_object_set_new(m, "role", json_string("tool"));
    json_t *calls = json_object_get(message, "tool_calls"), *id = json_object_get(message, "tool_call_id");
    if (json_array_size(calls)) good &= !json_object_set_new(m, "tool_calls", clean_calls(calls, form));
    else json_object_del(m, "tool_calls");
    if (has_role(m, "tool")) {
        json_t *name = name_of_call(messages, i, id);
        if (!json_object_get(m, "name") && tree_is_text(name)) good &= !json_object_set(m, "name", name);
        if (tree_is_text(id) && form->short_ids) good &= !json_object_set_new(m, "tool_call_id", short_id(id));
    }
    return good ? LUCE_OK : fail(err, LUCE_E_NOMEM, "out of memory for a conversation");
}

/* Appends b's text to a's content, after a blank line. */
static bool join_content(json_t *a, const json_t *b)
{
    json_t *first = json_object_get(a, "content"), *second = json_object_get(b, "content");
    if (json_is_array(first) || json_is_array(second)) {
        json_t *parts = json_array();
        json_t *const both[] = { first, second };
        for (int i = 0; parts && i < 2; i++) {
            if (json_is_array(both[i])) json_array_extend(parts, both[i]);
            else if (json_string_length(both[i]))
                json_array_append_new(parts, json_pack("{s:s,s:O}", "type", "text", "text", both[i]));
        }
        return !json_object_set_new(a, "content", parts);
    }
    struct buf text = { 0 };
    buf_add(&text, json_string_value(first), json_string_length(first));
    if (text.len && json_string_length(second)) buf_add_text(&text, "\n\n");
    buf_add(&text, json_string_value(second), json_string_length(second));
    bool good = !json_object_set_new(a, "content", string_of(&text));
    buf_drop(&text);
    return good;
}

luce_status history_clean(json_t **out, const json_t *messages, const struct history_form *form, luce_error *err)
{
    json_t *list = json_array();
    *out = NULL;
    luce_status st = list ? LUCE_OK : fail(err, LUCE_E_NOMEM, "out of memory for a conversation");
    for (size_t i = 0; i < json_array_size(messages) && !st; i++) {
        json_t *m = NULL, *last = json_array_get(list, json_array_size(list) - 1);
        st = clean_message(&m, messages, i, form, err);
        bool join = !st && has_role(m, "system") && last && has_role(last, "system") && json_array_size(list) == 1;
        if (join ? !join_content(last, m) : !st && json_array_append(list, m))
            st = fail(err, LUCE_E_NOMEM, "out of memory for a conversation");
        json_decref(m);
    }
    if (st) {
        json_decref(list);
        return st;
    }
    *out = list;
    return LUCE_OK;
}

/* ---- what strict templates want ------------------------------------------------------------------ */

json_t *history_fold_system(const json_t *messages)
{
    json_t *out = json_array(), *waiting = NULL;
    bool good = out != NULL;
    for (size_t i = 0; i < json_array_size(messages) && good; i++) {
        json_t *m = json_copy(json_array_get(messages, i));
        good = m != NULL;
        if (good && i > 0 && has_role(m, "system")) {
            if (waiting) good = join_content(waiting, m);
            else waiting = json_incref(m);
        } else if (good) {
            if (waiting && has_role(m, "user")) {
                good = join_content(waiting, m) && !json_object_set(m, "content", json_object_get(waiting, "content"));
                json_decref(waiting);
                waiting = NULL;
            }
            good = good && !json_array_append(out, m);
        }
        json_decref(m);
    }
    if (waiting && good)        /* no user's turn follows: it becomes one */
        good = !json_object_set_new(waiting, "role", json_string("user")) && !json_array_append(out, waiting);
    json_decref(waiting);
    if (good) return out;
    json_decref(out);
    return NULL;
}

json_t *history_wrap_arguments(const json_t *messages)
{
    json_t *out = json_deep_copy(messages);
    for (size_t i = 0; i < json_array_size(out); i++) {
        json_t *calls = json_object_get(json_array_get(out, i), "tool_calls");
        for (size_t k = 0; k < json_array_size(calls); k++) {
            json_t *function = json_object_get(json_array_get(calls, k), "function");
            json_t *arguments = json_object_get(function, "arguments");
            if (json_is_object(arguments)) continue;
            json_t *wrapped = json_pack("{s:O}", "_raw", arguments);
            if (!wrapped || json_object_set_new(function, "arguments", wrapped)) {
                json_decref(out);
                return NULL;
            }
        }
    }
    return out;
}

/* Turns of one call each, each with the result that has its id right behind it. */
static bool split_calls(json_t *out, const json_t *messages, size_t *i)
{
    json_t *m = json_array_get(messages, *i), *calls = json_object_get(m, "tool_calls");
    size_t first = *i + 1, after = first;
    while (has_role(json_array_get(messages, after), "tool")) after++;
    for (size_t k = 0; k < json_array_size(calls); k++) {
        json_t *one = json_copy(m), *call = json_array_get(calls, k);
        bool good = one && !json_object_set_new(one, "tool_calls", json_pack("[O]", call)) &&
                    (k == 0 || !json_object_set_new(one, "content", json_string(""))) && !json_array_append(out, one);
        json_decref(one);
        for (size_t r = first; r < after && good; r++) {
            json_t *result = json_array_get(messages, r);
            bool mine = json_equal(json_object_get(result, "tool_call_id"), json_object_get(call, "id"));
            if (mine || (k == r - first && !json_object_get(result, "tool_call_id"))) good = !json_array_append(out,
                    result);
        }
        if (!good) return false;
    }
    *i = after - 1;
    return true;
}

json_t *history_alternate(const json_t *messages)
{
    json_t *out = json_array();
    bool good = out != NULL;
    for (size_t i = 0; i < json_array_size(messages) && good; i++) {
        json_t *m = json_array_get(messages, i), *last = json_array_get(out, json_array_size(out) - 1);
        bool plain = !json_object_get(m, "tool_calls") && !has_role(m, "tool");
        if (json_array_size(json_object_get(m, "tool_calls")) > 1) {
            good = split_calls(out, messages, &i);
        } else if (plain && last && !json_object_get(last, "tool_calls") && has_role(last, text_of(m, "role"))) {
            good = join_content(last, m);
        } else {
            json_t *copy = json_copy(m);
            good = copy && !json_array_append(out, copy);
            json_decref(copy);
        }
    }
    if (good) return out;
    json_decref(out);
    return NULL;
}

/* The calls of m as lines of its text. */
static bool calls_to_text(json_t *m)
{
    json_t *calls = json_object_get(m, "tool_calls");
    struct buf text = { 0 };
    for (size_t i = 0; i < json_array_size(calls); i++) {
        json_t *function = json_object_get(json_array_get(calls, i), "function"), *args = json_object_get(function,
                "arguments");
        buf_printf(&text, "%s%s(", i ? "\n" : "", text_of(function, "name"));
        if (tree_is_text(args)) buf_add(&text, json_string_value(args), json_string_length(args));
        else tree_print(&text, args, TREE_SPACED);
        buf_add_char(&text, ')');
    }
    json_t *words = json_pack("{s:o}", "content", string_of(&text));
    bool good = words && join_content(m, words) && (json_object_del(m, "tool_calls"), true);
    json_decref(words);
    buf_drop(&text);
    return good;
}

/* Calls and results as text of assistant and user; `all`: no other roles stay. */
static json_t *as_text(const json_t *messages, bool all)
{
    json_t *out = json_array();
    bool good = out != NULL;
    for (size_t i = 0; i < json_array_size(messages) && good; i++) {
        json_t *m = json_copy(json_array_get(messages, i));
        good = m != NULL;
        if (good && json_object_get(m, "tool_calls")) good = calls_to_text(m);
        if (good && (all ? !has_role(m, "assistant") : has_role(m, "tool")))
            good = !json_object_set_new(m, "role", json_string("user"));
        good = good && !json_array_append(out, m);
        json_decref(m);
    }
    if (good) return out;
    json_decref(out);
    return NULL;
}

json_t *history_tell_calls(const json_t *messages)
{
    return as_text(messages, false);
}

json_t *history_plain(const json_t *messages)
{
    json_t *out = as_text(messages, true), *joined = out ? history_alternate(out) : NULL;
    bool begin = has_role(json_array_get(joined, 0), "assistant");
    json_decref(out);
    json_t *nobody = begin ? json_pack("{s:s,s:s}", "role", "user", "content", "") : NULL;
    if (!begin || !json_array_insert_new(joined, 0, nobody)) return joined;
    json_decref(joined);
    return NULL;
}
