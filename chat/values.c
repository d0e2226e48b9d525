/* chat/values.c - see values.h. */
#include "chat/values.h"

#include "base/json_read.h"
#include "base/mem.h"
#include "chat/tree.h"

static void *counted_alloc(size_t bytes)
{
    return mem_alloc(bytes ? bytes : 1);
}

void values_use_counted_memory(void)
{
    json_set_alloc_funcs(counted_alloc, mem_free);
}

static luce_status convert(struct jheap *h, const json_t *json, bool plain, int depth, struct jval *out,
                           luce_error *err)
{
    luce_status st = LUCE_OK;
    if (depth > VALUE_DEPTH_MAX)
        return fail(err, LUCE_E_ARG, "objects and arrays are nested more than %d deep", VALUE_DEPTH_MAX);
    switch (json ? json_typeof(json) : JSON_NULL) {
    case JSON_STRING:
        if (tree_digits(json)) *out = jinja_big(h, str_of(tree_digits(json)));
        else *out = jinja_text(h, (struct str){ json_string_value(json), json_string_length(json) }, plain);
        break;
    case JSON_INTEGER: *out = jinja_int(json_integer_value(json)); break;
    case JSON_REAL: *out = jinja_float(json_real_value(json)); break;
    case JSON_TRUE: *out = jinja_bool(true); break;
    case JSON_FALSE: *out = jinja_bool(false); break;
    case JSON_NULL: *out = json ? jinja_none() : (struct jval){ 0 }; break;
    case JSON_ARRAY:
        *out = jinja_list(h);
        for (size_t i = 0; i < json_array_size(json) && !st; i++) {
            struct jval item = { 0 };
            st = convert(h, json_array_get(json, i), plain, depth + 1, &item, err);
            if (!st) jinja_push(h, *out, item);
        }
        break;
    case JSON_OBJECT: {
        *out = jinja_dict(h);
        json_t *object = (json_t *)(uintptr_t)json;     /* jansson's iterators take no const */
        for (void *i = json_object_iter(object); i && !st; i = json_object_iter_next(object, i)) {
            struct jval value = { 0 };
            st = convert(h, json_object_iter_value(i), plain, depth + 1, &value, err);
            if (!st) jinja_put(h, *out, str_of(json_object_iter_key(i)), plain, value);
        }
        break;
    }
    }
    return st;
}

luce_status value_of_json(struct jheap *h, const json_t *json, bool plain, struct jval *out, luce_error *err)
{
    luce_status st = convert(h, json, plain, 0, out, err);
    if (!st && h->failed)
        st = h->over ? fail(err, LUCE_E_ARG, "the conversation needs too much memory")
                     : fail(err, LUCE_E_NOMEM, "out of memory for the conversation");
    return st;
}

luce_status value_from_text(struct jheap *h, struct str text, struct jval *out, luce_error *err)
{
    struct tree_error why;
    *out = (struct jval){ 0 };
    json_t *json = tree_read(text, JSON_IN_DEPTH, &why);
    if (!json && why.no_memory) return fail(err, LUCE_E_NOMEM, "out of memory for the conversation");
    if (!json) return fail(err, LUCE_E_ARG, "not JSON at byte %zu: %s", why.at, why.text);
    luce_status st = value_of_json(h, json, true, out, err);
    json_decref(json);
    return st;
}
