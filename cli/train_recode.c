/* cli/train_recode.c - a GGUF file of floats with its matrices as Q8_0; see train.h. */
#include "base/mem.h"
#include "cli/train.h"
#include "gguf/writer.h"
#include "quant/quant.h"

struct matrix {
    const struct gguf_tensor *from;
    const struct format *decode, *encode;
};

static luce_status put(void *user, struct gguf_out *out, luce_error *err)
{
    const struct matrix *m = user;
    uint64_t cols = m->from->dim[0], rows = m->from->dim[1];
    uint64_t in = format_bytes(m->decode, cols), bytes = format_bytes(m->encode, cols);
    float *row = mem_array(cols, sizeof *row);
    uint8_t *code = mem_alloc(bytes);
    luce_status st = row && code ? LUCE_OK : fail(err, LUCE_E_NOMEM, "out of memory for a row of %s", m->from->name);
    for (uint64_t i = 0; i < rows && !st; i++) {
        m->decode->decode(m->from->data + i * in, row, (int64_t)cols);
        m->encode->encode(row, code, (int64_t)cols, NULL);
        st = gguf_put(out, code, bytes, err);
    }
    mem_free(code);
    mem_free(row);
    return st;
}

static void declare(struct gguf_writer *w, struct matrix *m, const struct gguf_tensor *t)
{
    struct gguf_source s = { .name = t->name, .dim = { t->dim[0], t->dim[1], t->dim[2], t->dim[3] },
                             .n_dims = t->n_dims, .type = t->type, .data = t->data };
    *m = (struct matrix){ .from = t, .decode = format_find(t->type), .encode = format_find(Q_Q8_0) };
    if (t->n_dims == 2 && m->decode && m->decode->decode && t->dim[0] % (uint64_t)m->encode->block == 0) {
        s.type = Q_Q8_0;
        s.data = NULL;
        s.write = put;
        s.user = m;
    }
    gguf_add_tensor(w, &s);
}

luce_status gguf_to_q8_0(const char *from, const char *to, luce_error *err)
{
    struct gguf *g;
    struct gguf_writer w = { 0 };
    luce_status st = gguf_open(&g, from, err);
    if (st) return st;
    struct matrix *matrices = mem_array(gguf_n_tensors(g) + 1, sizeof *matrices);
    if (!matrices) st = fail(err, LUCE_E_NOMEM, "%s: out of memory for its list of tensors", from);
    for (size_t i = 0; i < gguf_n_keys(g) && !st; i++) gguf_add_key(&w, gguf_key_at(g, i));
    for (size_t i = 0; i < gguf_n_tensors(g) && !st; i++) declare(&w, &matrices[i], gguf_tensor_at(g, i));
    if (!st) st = gguf_write(&w, to, err);
    gguf_writer_drop(&w);
    mem_free(matrices);
    gguf_close(g);
    return st;
}
