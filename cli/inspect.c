/* cli/inspect.c - luce inspect: what a model file holds, without loading it. As text for people, or
 * as one JSON object. Names and strings come from an untrusted file, so in the text they are quoted
 * and escaped; long ones are cut there, while JSON has them whole. */
#include <inttypes.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "cli/inspect_model.h"
#include "cli/options.h"
#include "gguf/reader.h"
#include "gguf/types.h"

enum { TEXT_CUT = 100, FORMATS_MAX = 64 };

/* Tensors of one number format together. */
struct share {
    uint32_t type;
    uint64_t tensors, elements, bytes;
};
struct shares {
    struct share row[FORMATS_MAX];
    int n;
    struct share all;
};

static uint64_t elements(const struct gguf_tensor *t)
{
    return t->dim[0] * t->dim[1] * t->dim[2] * t->dim[3];       /* the reader has checked it */
}

static void add(struct share *s, const struct gguf_tensor *t)
{
    s->tensors++;
    s->elements += elements(t);
    s->bytes += t->bytes;
}

static void count_shares(const struct gguf *g, struct shares *out)
{
    *out = (struct shares){ 0 };
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        int k = 0;
        while (k < out->n && out->row[k].type != t->type) k++;
        if (k == FORMATS_MAX) continue;             /* there are fewer types than rows */
        out->row[k].type = t->type;
        if (k == out->n) out->n++;
        add(&out->row[k], t);
        add(&out->all, t);
    }
}

static const char *type_name(uint32_t type)
{
    const struct gguf_tensor_type *row = gguf_tensor_type_find(type);
    return row ? row->name : "unknown";
}

/* One value of a key as JSON: element i, or the next string of the cursor. */
static void add_value(struct json *j, const struct gguf_key *k, uint64_t i, struct gguf_cursor *strings)
{
    struct str text = { "", 0 };
    uint64_t whole;
    switch (k->type == GGUF_ARRAY ? k->element : k->type) {
    case GGUF_STRING:
        gguf_next(k, strings, &text);
        json_str(j, text);
        return;
    case GGUF_F32:
        json_float(j, (float)gguf_float_at(k, i));
        return;
    case GGUF_F64:
        json_number(j, gguf_float_at(k, i));
        return;
    case GGUF_BOOL:
        json_bool(j, gguf_int_at(k, i) != 0);
        return;
    case GGUF_U64:                                  /* may be beyond what gguf_int_at can give */
        memcpy(&whole, k->value + i * sizeof whole, sizeof whole);
        json_uint(j, whole);
        return;
    default:
        json_int(j, gguf_int_at(k, i));
        return;
    }
}

static void add_values(struct json *j, const struct gguf_key *k, uint64_t most)
{
    struct gguf_cursor strings = { 0 };
    if (k->type != GGUF_ARRAY) {
        add_value(j, k, 0, &strings);
        return;
    }
    json_open_array(j);
    for (uint64_t i = 0; i < k->count && i < most; i++) add_value(j, k, i, &strings);
    json_close(j);
}

static void add_key(struct json *j, const struct gguf_key *k, uint64_t most)
{
    json_open_object(j);
    json_key(j, "name");
    json_str(j, k->name);
    json_key(j, "type");
    json_text(j, gguf_type_name(k->type));
    if (k->type == GGUF_ARRAY) {
        json_key(j, "element");
        json_text(j, gguf_type_name(k->element));
        json_key(j, "count");
        json_uint(j, k->count);
    }
    json_key(j, k->type == GGUF_ARRAY ? "values" : "value");
    add_values(j, k, most);
    json_close(j);
}

static void add_share(struct json *j, const struct share *s)
{
    json_key(j, "tensors");
    json_uint(j, s->tensors);
    json_key(j, "elements");
    json_uint(j, s->elements);
    json_key(j, "bytes");
    json_uint(j, s->bytes);
}

static void add_tensor(struct json *j, const struct gguf_tensor *t)
{
    json_open_object(j);
    json_key(j, "name");
    json_text(j, t->name);
    json_key(j, "format");
    json_text(j, type_name(t->type));
    json_key(j, "dims");
    json_open_array(j);
    for (int d = 0; d < t->n_dims; d++) json_uint(j, t->dim[d]);
    json_close(j);
    json_key(j, "bytes");
    json_uint(j, t->bytes);
    json_close(j);
}

static void print_json(struct buf *out, const struct gguf *g, const struct shares *s, uint64_t most)
{
    struct json j;
    json_begin(&j, out);
    json_open_object(&j);
    json_key(&j, "path");
    json_text(&j, gguf_path(g));
    json_key(&j, "version");
    json_int(&j, gguf_version(g));
    json_key(&j, "parts");
    json_int(&j, gguf_n_parts(g));
    json_key(&j, "file_bytes");
    json_uint(&j, gguf_file_bytes(g));
    json_key(&j, "total");
    json_open_object(&j);
    add_share(&j, &s->all);
    json_close(&j);
    json_key(&j, "formats");
    json_open_array(&j);
    for (int i = 0; i < s->n; i++) {
        json_open_object(&j);
        json_key(&j, "name");
        json_text(&j, type_name(s->row[i].type));
        add_share(&j, &s->row[i]);
        json_close(&j);
    }
    json_close(&j);
    json_key(&j, "metadata");
    json_open_array(&j);
    for (size_t i = 0; i < gguf_n_keys(g); i++) add_key(&j, gguf_key_at(g, i), most);
    json_close(&j);
    json_key(&j, "tensors");
    json_open_array(&j);
    for (size_t i = 0; i < gguf_n_tensors(g); i++) add_tensor(&j, gguf_tensor_at(g, i));
    json_close(&j);
    json_close(&j);
    buf_add_char(out, '\n');
}

/* Appends text that may come from the file, without what could drive a terminal (json_str has escaped
 * the C0 controls already). Changes it in place. */
static void add_tame(struct buf *out, char *text, size_t len)
{
    buf_add(out, text, utf8_tame(text, len));
}

/* Appends a name from the file, escaped, without quotes. */
static void add_name(struct buf *out, struct str name)
{
    struct buf quoted = { 0 };
    struct json j;
    json_begin(&j, &quoted);
    json_str(&j, name);
    if (quoted.len > 2) add_tame(out, quoted.data + 1, quoted.len - 2);
    out->failed |= quoted.failed;
    buf_drop(&quoted);
}

static void print_key(struct buf *out, const struct gguf_key *k, uint64_t most)
{
    bool array = k->type == GGUF_ARRAY;
    buf_add_text(out, "  ");
    add_name(out, k->name);
    if (array) buf_printf(out, "  %s[%" PRIu64 "]  ", gguf_type_name(k->element), k->count);
    else buf_printf(out, "  %s  ", gguf_type_name(k->type));
    struct buf value = { 0 };
    struct json j;
    json_begin(&j, &value);
    add_values(&j, k, most);
    size_t show = value.len;
    if (show > TEXT_CUT)                            /* not within a character */
        for (show = TEXT_CUT; show > TEXT_CUT - 4 && (value.data[show] & 0xc0) == 0x80;) show--;
    if (value.len) add_tame(out, value.data, show);
    buf_add_text(out, show < value.len || (array && k->count > most) ? " ...\n" : "\n");
    out->failed |= value.failed;
    buf_drop(&value);
}

/* Spaces up to a column of the line that began at `from`; at least one. */
static void pad(struct buf *out, size_t from, size_t column)
{
    do buf_add_char(out, ' ');
    while (!out->failed && out->len - from < column);
}

static void print_tensor(struct buf *out, const struct gguf_tensor *t)
{
    size_t from = out->len;
    buf_add_text(out, "  ");
    add_name(out, str_of(t->name));
    pad(out, from, 42);
    buf_add_text(out, type_name(t->type));
    pad(out, from, 51);
    for (int d = 0; d < t->n_dims; d++) buf_printf(out, "%s%" PRIu64, d ? " x " : "", t->dim[d]);
    pad(out, from, 72);
    buf_printf(out, "%12" PRIu64 " bytes\n", t->bytes);
}

static void add_size(struct buf *out, uint64_t bytes)
{
    if (bytes < 1000000) buf_printf(out, "%.1f kB", (double)bytes / 1e3);
    else buf_printf(out, "%.1f MB", (double)bytes / 1e6);
}

static void print_text(struct buf *out, const struct gguf *g, const struct shares *s, uint64_t most)
{
    int parts = gguf_n_parts(g);
    buf_printf(out, "GGUF version %d, %d part%s, ", gguf_version(g), parts, parts == 1 ? "" : "s");
    add_size(out, gguf_file_bytes(g));
    buf_printf(out, ": %zu keys, %" PRIu64 " tensors, %" PRIu64 " elements\n\nformats\n",
               gguf_n_keys(g), s->all.tensors, s->all.elements);
    for (int i = 0; i < s->n; i++) {
        const struct share *r = &s->row[i];
        size_t from = out->len;
        buf_printf(out, "  %s", type_name(r->type));
        pad(out, from, 12);
        buf_printf(out, "%5" PRIu64 " tensors %12" PRIu64 " elements ", r->tensors, r->elements);
        pad(out, from, 50);
        add_size(out, r->bytes);
        pad(out, from, 62);
        buf_printf(out, "%.2f bits an element\n",
                   r->elements ? 8.0 * (double)r->bytes / (double)r->elements : 0);
    }
    buf_add_text(out, "\nmetadata\n");
    for (size_t i = 0; i < gguf_n_keys(g); i++) print_key(out, gguf_key_at(g, i), most);
    buf_add_text(out, "\ntensors\n");
    for (size_t i = 0; i < gguf_n_tensors(g); i++) print_tensor(out, gguf_tensor_at(g, i));
}

luce_status inspect_run(const struct options *o, luce_error *err)
{
    int views = o->tape + o->trace_ops + o->check + o->check_against_reference;
    if (views > 1)
        return fail(err, LUCE_E_ARG, "inspect: --tape, --trace-ops, --check and --check-against-reference are "
                    "for one at a time");
    if (views) return inspect_model(o, err);
    struct gguf *g = NULL;
    luce_status st = gguf_open(&g, o->model, err);
    if (st) return st;
    struct shares s;
    count_shares(g, &s);
    struct buf out = { 0 };
    if (o->json) print_json(&out, g, &s, (uint64_t)o->values);
    else print_text(&out, g, &s, (uint64_t)o->values);
    st = output_write(&out, err);
    buf_drop(&out);
    gguf_close(g);
    return st;
}
