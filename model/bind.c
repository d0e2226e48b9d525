/* model/bind.c - the tables of tensors, looked up in a file and checked.
 *
 * Two passes: `want` finds each tensor and checks its dims; `fill` makes the weights in the order of
 * the file's data, so that an upload reads the file once, front to back. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "model/bind.h"
#include "model/presets.h"
#include "quant/quant.h"

static const struct bind model_binds[] = {
    { "token_embd.weight",  offsetof(struct model, token_embd),  DIM_EMBD, DIM_VOCAB, WHOLE,  0 },
    { "output_norm.weight", offsetof(struct model, output_norm), DIM_EMBD, DIM_NONE,  WHOLE,  0 },
    { "output.weight",      offsetof(struct model, output),      DIM_EMBD, DIM_VOCAB, BY_ROW, OPTIONAL },
};
/* Read by rope.c into the tables. */
static const char *const other_tensors[] = {
    "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight",
};

struct wanted {                 /* a tensor found, or to be made */
    const struct bind *bind;
    const struct weight **field;
    const struct gguf_tensor *tensor;   /* NULL: synthetic */
    const char *name;
    uint64_t dim[3];
    int layer, order;
};
struct binder {
    struct model *m;
    const struct gguf *g;
    struct wanted *wanted;
    int n, first;               /* first: number of layer 0 in names */
};

static uint64_t dim_of(const struct decoder *c, enum dim dim, int layer)
{
    const struct layer_shape *s = &c->layer[layer < 0 ? 0 : layer];
    uint64_t hd = (uint64_t)c->head_dim;
    switch (dim) {
    case DIM_NONE:  return 1;
    case DIM_EMBD:  return (uint64_t)c->embd;
    case DIM_EMBD2: return 2 * (uint64_t)c->embd;
    case DIM_Q:     return (uint64_t)s->heads * hd;
    case DIM_KV:    return (uint64_t)s->kv_heads * hd;
    case DIM_QKV:   return (uint64_t)(s->heads + 2 * s->kv_heads) * hd;
    case DIM_HEAD:  return hd;
    case DIM_FF:    return (uint64_t)s->ff;
    case DIM_FF2:   return 2 * (uint64_t)s->ff;
    case DIM_VOCAB: return (uint64_t)c->vocab;
    case DIM_EXPERTS: return (uint64_t)c->route.experts;
    case DIM_EXPERT_FF: return (uint64_t)c->expert_ff;
    case DIM_SHARED_FF: return (uint64_t)c->shared_ff;
    case DIM_GATED_Q: return 2 * (uint64_t)s->heads * hd;
    case DIM_GATED_QKV: return 2 * (uint64_t)(s->heads + s->kv_heads) * hd;
    case DIM_CHANNELS: return (uint64_t)c->state.channels;
    case DIM_TAPS:  return (uint64_t)c->state.taps;
    case DIM_VALUES: return (uint64_t)c->state.v_heads * (uint64_t)c->state.v_dim;
    case DIM_V_HEADS: return (uint64_t)c->state.v_heads;
    case DIM_V_DIM: return (uint64_t)c->state.v_dim;
    case DIM_GATES: return 2 * (uint64_t)c->state.v_heads;
    case DIM_COUNT: break;
    }
    return 0;
}

static const char *shape_text(const uint64_t *dim, int n, char *text, size_t size)
{
    int at = snprintf(text, size, "[%" PRIu64, dim[0]);
    for (int i = 1; i < n; i++) at += snprintf(text + at, size - (size_t)at, ", %" PRIu64, dim[i]);
    snprintf(text + at, size - (size_t)at, "]");
    return text;
}

static int n_dims_of(const struct bind *d)
{
    return d->out == DIM_NONE ? 1 : d->flags & EACH ? 3 : 2;
}

/* Dims must be the wanted ones, further ones 1, and the format one that decodes. */
static luce_status check_tensor(const struct binder *b, const struct wanted *w, luce_error *err)
{
    const struct gguf_tensor *t = w->tensor;
    char found[96], expected[96];
    int n = n_dims_of(w->bind);
    bool same = true;
    for (int i = 0; i < 4; i++) same = same && t->dim[i] == (i < n ? w->dim[i] : 1);
    if (!same)
        return fail(err, LUCE_E_FORMAT, "%s: tensor '%s' is %s, expected %s by the keys of arch %s",
                    gguf_path(b->g), w->name, shape_text(t->dim, t->n_dims > n ? t->n_dims : n, found, 96),
                    shape_text(w->dim, n, expected, 96), b->m->family->arch);
    const struct format *f = format_find(t->type);
    if (f && f->levels)
        return fail(err, LUCE_E_UNSUPPORTED, "%s: tensor '%s' is in format %s, whose codebooks (side data) "
                    "luce does not read; use a file in a fixed ROCmFP format", gguf_path(b->g), w->name, f->name);
    if (f && f->decode) return LUCE_OK;
    return fail(err, LUCE_E_UNSUPPORTED, "%s: tensor '%s' has type %u (%s), which is no format of weights here",
                gguf_path(b->g), w->name, t->type, f ? f->name : "unknown");
}

/* A synthetic model has every tensor that is needed and, untied, the head. */
static bool makes(const struct model *m, const struct bind *d)
{
    bool head = !strcmp(d->tensor, "output.weight");
    return head ? m->synthetic->untied : !(d->flags & OPTIONAL);
}

static luce_status want(struct binder *b, const struct bind *d, void *fields, int layer, bool *found,
                        luce_error *err)
{
    char name[96], text[96];
    if (layer < 0) snprintf(name, sizeof name, "%s", d->tensor);
    else snprintf(name, sizeof name, "blk.%d.%s", b->first + layer, d->tensor);
    struct wanted w = {
        .bind = d, .field = (const struct weight **)(void *)((char *)fields + d->field), .layer = layer,
        .dim = { dim_of(&b->m->c, d->in, layer), dim_of(&b->m->c, d->out, layer),
                 d->flags & EACH ? dim_of(&b->m->c, DIM_EXPERTS, layer) : 1 }, .order = b->n,
        .tensor = b->m->synthetic ? NULL : gguf_find(b->g, name),
    };
    if (d->flags & (FIRST_HALF | SECOND_HALF)) w.dim[1] *= 2;
    *found = b->m->synthetic ? makes(b->m, d) : w.tensor != NULL;
    if (!*found) {
        if (d->flags & OPTIONAL) return LUCE_OK;
        return fail(err, LUCE_E_FORMAT, "%s: tensor '%s' %s is missing: the file is no complete %s model",
                    gguf_path(b->g), name, shape_text(w.dim, n_dims_of(d), text, 96),
                    b->m->family->arch);
    }
    w.name = arena_text(&b->m->arena, name, strlen(name));
    if (!w.name) return fail(err, LUCE_E_NOMEM, "%s: out of memory for the tensor list", gguf_path(b->g));
    luce_status st = w.tensor ? check_tensor(b, &w, err) : LUCE_OK;
    if (!st) b->wanted[b->n++] = w;
    return st;
}

static luce_status want_all(struct binder *b, const struct bind *binds, int n, void *fields, int layer,
                            luce_error *err)
{
    bool above = false, found;
    luce_status st;
    for (int i = 0; i < n; i++) {
        unsigned where = binds[i].flags & (RECURRENT | ATTENDS);
        if (where && layer >= 0 && where != (b->m->c.layer[layer].recurrent ? RECURRENT : ATTENDS)) continue;
        if (binds[i].flags & INSTEAD && above) continue;
        if (binds[i].flags & WITH && !above) continue;
        if ((st = want(b, &binds[i], fields, layer, &found, err))) return st;
        if ((binds[i].flags & (OPTIONAL | INSTEAD)) == OPTIONAL) above = found;
    }
    return LUCE_OK;
}

static int by_data(const void *a, const void *b)
{
    const struct wanted *x = a, *y = b;
    if (x->tensor && y->tensor && x->tensor->data != y->tensor->data)
        return (uintptr_t)x->tensor->data < (uintptr_t)y->tensor->data ? -1 : 1;
    return x->order - y->order;
}

/* Vectors are f32 in memory: norms and biases that the file holds otherwise are decoded (rows one by one, for
 * matrices); those of synthetic models are ones, or minus ones. */
static luce_status fill_f32(struct model *m, struct weight *w, unsigned flags, luce_error *err)
{
    if (w->type == Q_F32 && w->host) return LUCE_OK;
    uint64_t n = w->dim[0] * w->dim[1];
    float *values = arena_array(&m->arena, n, sizeof(float));
    if (!values) return fail(err, LUCE_E_NOMEM, "out of memory for %s", w->name);
    const struct format *f = format_find(w->type);
    for (uint64_t i = 0; w->host && i < w->dim[1]; i++)
        f->decode(w->host + i * format_bytes(f, w->dim[0]), values + i * w->dim[0], (int64_t)w->dim[0]);
    for (uint64_t i = 0; !w->host && i < n; i++) values[i] = flags & NEGATIVE ? -1 : 1;
    w->type = Q_F32;
    w->host = (const uint8_t *)values;
    w->host_bytes = n * sizeof(float);
    return LUCE_OK;
}

/* Values whose products keep the size of a normalised input. */
static void fill_synthetic(const struct model *m, const struct wanted *s, struct weight *w)
{
    w->type = synthetic_format(m, s->bind->tensor, s->layer, w->dim[0]);
    w->seed = m->synthetic->seed + (uint64_t)s->order;
    w->synthetic_std = 1 / sqrtf((float)w->dim[0]);
    w->host_bytes = format_bytes(format_find(w->type), w->dim[0]) * w->dim[1] * w->dim[2];
}

/* Of each matrix, as rows with the other half's between them. */
static void take_half(struct weight *w, bool second)
{
    uint64_t row_bytes = format_bytes(format_find(w->type), w->dim[0]);
    w->dim[1] /= 2;
    w->host_bytes /= 2;
    w->group = w->dim[1];
    w->group_bytes = 2 * w->group * row_bytes;
    if (second) w->host += w->group * row_bytes;
}

/* Makes the weights, with room for a few more and model_allow's. */
static luce_status fill(struct binder *b, int more, luce_error *err)
{
    struct model *m = b->m;
    luce_status st;
    qsort(b->wanted, (size_t)b->n, sizeof *b->wanted, by_data);
    m->weights = arena_array(&m->arena, (size_t)b->n + (size_t)more + 1, sizeof *m->weights);
    if (!m->weights) return fail(err, LUCE_E_NOMEM, "%s: out of memory for the weights", gguf_path(b->g));
    for (int i = 0; i < b->n; i++) {
        const struct wanted *s = &b->wanted[i];
        struct weight *w = &m->weights[m->n_weights++];
        *w = (struct weight){ .name = s->name, .dim = { s->dim[0], s->dim[1], s->dim[2] } };
        if (s->tensor) {
            w->type = s->tensor->type;
            w->host = s->tensor->data;
            w->host_bytes = s->tensor->bytes;
            if (s->bind->flags & (FIRST_HALF | SECOND_HALF)) take_half(w, s->bind->flags & SECOND_HALF);
        } else if (s->bind->out != DIM_NONE) {
            fill_synthetic(m, s, w);
        }
        bool f32 = s->bind->out == DIM_NONE || (s->bind->flags & AS_F32 && s->tensor);
        if (f32 && (st = fill_f32(m, w, s->bind->flags, err))) return st;
        m->bytes += w->host_bytes;
        *s->field = w;
    }
    return LUCE_OK;
}

static void finish(struct model *m)
{
    for (int i = 0; i < m->c.n_ropes; i++) {
        struct weight *w = &m->weights[m->n_weights++];
        *w = *m->c.rope[i].freq;
        m->c.rope[i].freq = w;
    }
    if (!m->output) m->output = m->token_embd;
}

/* blk.0.ffn_up.scale or blk.0.ffn_up.weight.scale: a factor of a whole tensor, as NVFP4 files have them. */
static bool is_scale(const char *name)
{
    size_t n = strlen(name);
    return n > 6 && strcmp(name + n - 6, ".scale") == 0;
}

/* Counts the file's tensors that no tape uses and says so in one line; refuses those that change the meaning of
 * others. */
static luce_status note_unused(struct binder *b, luce_error *err)
{
    struct map used = { 0 };
    char first[256] = "", block[32];        /* of a block behind the layers, which is a drafter's */
    bool has_block = decoder_has_block(&b->m->c);
    size_t prefix = (size_t)snprintf(block, sizeof block, "blk.%d.", b->m->c.n_layers);
    size_t at = 0;
    const char *scale = NULL;
    bool ok = map_reserve(&used, (size_t)b->n + COUNT(other_tensors));
    for (int i = 0; ok && i < b->n; i++) ok = map_add(&used, str_of(b->wanted[i].name), 0, NULL) >= 0;
    for (size_t i = 0; ok && i < COUNT(other_tensors); i++)
        ok = map_add(&used, str_of(other_tensors[i]), 0, NULL) >= 0;
    for (size_t i = 0; ok && i < gguf_n_tensors(b->g); i++) {
        const char *name = gguf_tensor_at(b->g, i)->name;
        uint64_t unused;
        if (map_find(&used, str_of(name), &unused) || (has_block && !strncmp(name, block, prefix))) continue;
        if (is_scale(name)) scale = name;
        if (b->m->n_unused++ < 4 && at < sizeof first)
            at += (size_t)snprintf(first + at, sizeof first - at, "%s%s", at ? ", " : "", name);
    }
    map_drop(&used);
    if (!ok) return fail(err, LUCE_E_NOMEM, "%s: out of memory for the tensor list", gguf_path(b->g));
    if (scale)
        return fail(err, LUCE_E_UNSUPPORTED, "%s: '%s' multiplies a whole tensor, as in NVFP4 files, which this engine "
                    "does not do; use a file of the model in another format", gguf_path(b->g), scale);
    if (b->m->n_unused)
        log_warn("%s: %d of %zu tensors are not used by arch %s (%s%s)", gguf_path(b->g), b->m->n_unused,
                 gguf_n_tensors(b->g), b->m->family->arch, first, b->m->n_unused > 4 ? ", ..." : "");
    return LUCE_OK;
}

luce_status bind_model(struct model *m, const struct gguf *g, luce_error *err)
{
    const struct family *f = m->family;
    int n = m->c.n_layers;
    struct binder b = { .m = m, .g = g };
    luce_status st = LUCE_OK;
    m->layers = arena_array(&m->arena, (size_t)n, f->layer_size);
    b.wanted = mem_array(COUNT(model_binds) + (size_t)n * (size_t)f->n_binds, sizeof *b.wanted);
    if (!m->layers || !b.wanted)
        st = fail(err, LUCE_E_NOMEM, "%s: out of memory for the tensor list", gguf_path(g));
    if (!st) st = want_all(&b, model_binds, COUNT(model_binds), m, -1, err);
    for (int l = 0; !st && l < n; l++)
        st = want_all(&b, f->binds, f->n_binds, (char *)m->layers + (size_t)l * f->layer_size, l, err);
    if (!st) st = fill(&b, m->c.n_ropes, err);
    if (!st) finish(m);
    if (!st && !m->synthetic) st = note_unused(&b, err);
    mem_free(b.wanted);
    return st;
}

luce_status bind_block(struct model *m, const struct gguf *g, int block, const struct bind *own, int n_own,
                       void *fields, int more, luce_error *err)
{
    const struct family *f = m->family;
    struct binder b = { .m = m, .g = g, .first = block };
    m->layers = arena_alloc(&m->arena, f->layer_size);
    b.wanted = mem_array((size_t)n_own + (size_t)f->n_binds, sizeof *b.wanted);
    luce_status st = LUCE_OK;
    if (!m->layers || !b.wanted)
        st = fail(err, LUCE_E_NOMEM, "%s: out of memory for the tensor list", gguf_path(g));
    if (!st) st = want_all(&b, own, n_own, fields, 0, err);
    if (!st) st = want_all(&b, f->binds, f->n_binds, m->layers, 0, err);
    if (!st) st = fill(&b, more, err);
    mem_free(b.wanted);
    return st;
}

luce_status bind_floats(const struct gguf *g, const char *name, int n, const float **out, luce_error *err)
{
    const struct gguf_tensor *t = gguf_find(g, name);
    char found[96];
    *out = NULL;
    if (!t) return LUCE_OK;
    if (t->type != Q_F32 || t->dim[0] != (uint64_t)n || t->dim[1] * t->dim[2] * t->dim[3] != 1)
        return fail(err, LUCE_E_FORMAT, "%s: tensor '%s' is %s of type %u, expected [%d] of type 0 (F32)",
                    gguf_path(g), name, shape_text(t->dim, t->n_dims > 1 ? t->n_dims : 1, found, 96), t->type,
                    n);
    *out = (const float *)(const void *)t->data;
    return LUCE_OK;
}

luce_status model_allow(struct model *m, const uint32_t *bits, luce_error *err)
{
    size_t n = (size_t)m->c.vocab;
    float *add = arena_array(&m->arena, n, sizeof *add);
    if (!add) return fail(err, LUCE_E_NOMEM, "out of memory for the tokens that may be generated");
    for (size_t i = 0; i < n; i++) add[i] = bits[i / 32] >> i % 32 & 1 ? 0 : -INFINITY;
    struct weight *w = &m->weights[m->n_weights++];
    *w = (struct weight){ .name = "allowed tokens", .dim = { n, 1, 1 }, .type = Q_F32, .host = (const uint8_t *)add,
                          .host_bytes = n * sizeof *add };
    m->allowed = w;
    return LUCE_OK;
}
