/* cli/tokenize.c - luce tokenize: text to token ids, or back with --decode. The text is the operand,
 * a file, or standard input. */
#include <inttypes.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "model/vocab_gguf.h"

enum { TEXT_MAX = 1 << 28 };

static luce_status read_text(const struct options *o, struct buf *out, luce_error *err)
{
    if (o->file && o->n_operands)
        return fail(err, LUCE_E_ARG, "tokenize: a text and --file together; give one of them");
    if (o->file) return file_read(out, o->file, TEXT_MAX, err);
    if (!o->n_operands && isatty(STDIN_FILENO))
        return fail(err, LUCE_E_ARG, "no text: give it as TEXT, in --file FILE, or on standard input");
    if (!o->n_operands) return input_read(out, err);
    buf_add_text(out, o->operands[0]);
    return out->failed ? fail(err, LUCE_E_NOMEM, "out of memory for the text") : LUCE_OK;
}

/* The bytes of one token as a JSON string. */
static void add_piece(struct json *j, const struct vocab *v, int32_t id)
{
    struct buf piece = { 0 };
    token_bytes(v, id, DETOK_SPECIAL, &piece);
    json_str(j, (struct str){ buf_text(&piece), piece.len });
    j->out->failed |= piece.failed;
    buf_drop(&piece);
}

static void print_ids(const struct options *o, const struct vocab *v, const struct ids *ids, struct buf *out)
{
    struct json j;
    json_begin(&j, out);
    if (!o->json) {
        for (size_t i = 0; i < ids->len; i++) {
            buf_printf(out, "%" PRId32 "%s", ids->at[i], o->pieces ? "\t" : i + 1 < ids->len ? " " : "");
            if (!o->pieces) continue;
            add_piece(&j, v, ids->at[i]);
            if (i + 1 < ids->len) buf_add_char(out, '\n');
        }
        buf_add_char(out, '\n');
        return;
    }
    json_open_object(&j);
    json_key(&j, "count");
    json_uint(&j, ids->len);
    json_key(&j, "ids");
    json_open_array(&j);
    for (size_t i = 0; i < ids->len; i++) json_int(&j, ids->at[i]);
    json_close(&j);
    if (o->pieces) {
        json_key(&j, "pieces");
        json_open_array(&j);
        for (size_t i = 0; i < ids->len; i++) add_piece(&j, v, ids->at[i]);
        json_close(&j);
    }
    json_close(&j);
    buf_add_char(out, '\n');
}

/* Numbers between spaces, commas and brackets, so that JSON's ids can be given back. */
static luce_status parse_ids(const struct vocab *v, struct str text, struct ids *out, luce_error *err)
{
    static const char between[] = " \t\r\n,[]";
    for (size_t at = 0; at < text.len;) {
        if (is_one_of(text.at[at], between)) {
            at++;
            continue;
        }
        size_t from = at;
        int64_t id = 0;
        for (; at < text.len && text.at[at] >= '0' && text.at[at] <= '9'; at++)
            if (id <= INT32_MAX) id = id * 10 + (text.at[at] - '0');
        bool ends = at == text.len || (is_one_of(text.at[at], between));
        if (at == from || !ends || id >= vocab_size(v))
            return fail(err, LUCE_E_ARG, "tokenize: byte %zu of the ids: expected a number from 0 to %d; between "
                        "numbers stand commas or spaces", from, vocab_size(v) - 1);
        ids_add(out, (int32_t)id);
    }
    return out->failed ? fail(err, LUCE_E_NOMEM, "out of memory for the ids") : LUCE_OK;
}

static void print_decoded(const struct options *o, const struct vocab *v, const struct ids *ids,
                          struct buf *out)
{
    struct buf text = { 0 };
    struct detok d = { 0 };
    for (size_t i = 0; i < ids->len; i++)
        detok_add(&d, v, ids->at[i], o->special ? DETOK_SPECIAL : 0, &text);
    detok_end(&d, &text);
    if (o->json) {
        struct json j;
        json_begin(&j, out);
        json_open_object(&j);
        json_key(&j, "text");
        json_str(&j, (struct str){ buf_text(&text), text.len });
        json_close(&j);
        buf_add_char(out, '\n');
    } else {
        buf_add(out, buf_text(&text), text.len);
    }
    out->failed |= text.failed;
    buf_drop(&text);
}

luce_status tokenize_run(const struct options *o, luce_error *err)
{
    if (!o->model)
        return fail(err, LUCE_E_ARG, "tokenize: --model is missing: which model's tokens?");
    struct gguf *g = NULL;
    struct vocab *v = NULL;
    struct buf text = { 0 }, out = { 0 };
    struct ids ids = { 0 };
    luce_status st;
    if ((st = gguf_open(&g, o->model, err))) goto end;
    if ((st = vocab_from_gguf(&v, g, err))) goto end;
    if ((st = read_text(o, &text, err))) goto end;
    struct str input = { buf_text(&text), text.len };
    if (o->decode) {
        if ((st = parse_ids(v, input, &ids, err))) goto end;
        print_decoded(o, v, &ids, &out);
    } else {
        unsigned flags = (o->special ? TOKENIZE_SPECIAL : 0) | (o->bos ? TOKENIZE_BOS_EOS : 0);
        if ((st = vocab_tokenize(v, input, flags, &ids, err))) goto end;
        print_ids(o, v, &ids, &out);
    }
    st = output_write(&out, err);
end:
    ids_drop(&ids);
    buf_drop(&out);
    buf_drop(&text);
    vocab_close(v);
    gguf_close(g);
    return st;
}
