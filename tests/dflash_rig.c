/* tests/dflash_rig.c - see dflash_rig.h. */
#include "dflash_rig.h"

#include "quant/quant.h"
#include "tiny_model.h"

const char target_file[] = "dflash/target.gguf";

bool dflash_rig_open(struct drafter_rig *g, struct device *device, const char *path, bool second, int n_slots)
{
    luce_error err = { 0 };
    struct drafter_rig_params p = { .drafter = second ? "dflash2" : "dflash", .target = target_file, .path = path,
                                    .device = device, .n_slots = n_slots, .context = 256 };
    if (!drafter_rig_open(g, &p)) return false;
    CHECK_OK(gguf_open(&g->answers, fixture("dflash/answers.gguf"), &err), err);
    return g->answers != NULL;
}

const struct gguf_tensor *dflash_answer(const struct drafter_rig *g, const char *kind, int text, const char *what)
{
    char name[40];
    snprintf(name, sizeof name, "%s%s%d.%s", kind, *kind ? "." : "", text, what);
    const struct gguf_tensor *t = gguf_find(g->answers, name);
    CHECK(t, "%s is not there", name);
    return t;
}

/* The guess at a text of n tokens. */
struct tree dflash_guess(struct drafter_rig *g, int slot, const int32_t *ids, int n, int most)
{
    luce_error err = { 0 };
    struct draft d = { .slot = slot, .ids = ids, .n_ids = n, .most = most, .depth = BLOCK - 1, .block = BLOCK };
    struct draft *drafts[] = { &d };
    tree_init(&d.tree, ids[n - 1]);
    CHECK_OK(g->drafter->propose(g->state, drafts, 1, &err), err);
    return d.tree;
}

bool dflash_same_tree(const struct tree *a, const struct tree *b)
{
    return a->n == b->n && !memcmp(a->token, b->token, (size_t)a->n * sizeof *a->token) &&
           !memcmp(a->parent, b->parent, (size_t)a->n * sizeof *a->parent) &&
           !memcmp(a->likely, b->likely, (size_t)a->n * sizeof *a->likely);
}

/* ---- files with something changed ---------------------------------------------------------------- */
static void copy_tokenizer(struct gguf_writer *w, struct gguf **from, const char *path)
{
    luce_error err = { 0 };
    CHECK_OK(gguf_open(from, path, &err), err);
    for (size_t i = 0; *from && i < gguf_n_keys(*from); i++) {
        const struct gguf_key *k = gguf_key_at(*from, i);
        if (k->name.len > 10 && !memcmp(k->name.at, "tokenizer.", 10)) gguf_add_key(w, k);
    }
}

static int64_t said_at(const struct dflash_change *c, int i)
{
    return c->narrow ? ((const int32_t *)c->said)[i] : ((const int64_t *)c->said)[i];
}

/* Those rows of a tensor with one for each token that `said` names; others are any row. */
static void take_said(const struct dflash_change *c, const struct gguf_tensor *t, struct buf *out)
{
    for (int i = 0; i < c->n_said; i++) {
        int64_t id = said_at(c, i);
        if (id < 0 || id >= VOCAB) id = 0;
        buf_add(out, t->data + t->bytes / VOCAB * (uint64_t)id, t->bytes / VOCAB);
    }
}

/* The tensor d2t, and those rows of the target's embedding (its head, too) that it names. */
static void add_ids(struct gguf_writer *w, const struct dflash_change *c, struct gguf **target, struct buf *head)
{
    luce_error err = { 0 };
    CHECK_OK(gguf_open(target, fixture(target_file), &err), err);
    const struct gguf_tensor *t = *target ? gguf_find(*target, "token_embd.weight") : NULL;
    uint64_t n = (uint64_t)c->n_said;
    if (t) take_said(c, t, head);
    gguf_add_tensor(w, &(struct gguf_source){ .name = "d2t", .dim = { n }, .n_dims = 1, .type = c->narrow ? 26 : 27,
                                              .data = c->said });
    if (!t || c->no_head) return;
    gguf_add_tensor(w, &(struct gguf_source){ .name = "output.weight", .dim = { t->dim[0], n }, .n_dims = 2,
                                              .type = t->type, .data = head->data });
}

const char *dflash_changed(const char *file, const struct dflash_change *c)
{
    static const float zeros[64];
    luce_error err = { 0 };
    struct gguf *g = NULL, *words = NULL, *target = NULL;
    struct gguf_writer w = { 0 };
    struct buf head = { 0 }, codes[2] = { { 0 } };
    const char *path = scratch("changed.gguf");
    CHECK_OK(gguf_open(&g, fixture(file), &err), err);
    if (c->key && c->array) gguf_add_array(&w, c->key, GGUF_U32, &c->value, 1);
    else if (c->key) gguf_add_u32(&w, c->key, c->value);
    if (c->vocabulary) copy_tokenizer(&w, &words, c->vocabulary);
    for (size_t i = 0; g && i < gguf_n_keys(g); i++) {
        const struct gguf_key *k = gguf_key_at(g, i);
        if ((c->drop && str_is(k->name, c->drop)) || (c->key && str_is(k->name, c->key))) continue;
        if (c->vocabulary && k->name.len > 10 && !memcmp(k->name.at, "tokenizer.", 10)) continue;
        gguf_add_key(&w, k);
    }
    for (size_t i = 0; g && i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (c->drop && !strcmp(t->name, c->drop)) continue;
        struct gguf_source s = { .name = t->name, .n_dims = t->n_dims, .type = t->type, .data = t->data };
        memcpy(s.dim, t->dim, sizeof s.dim);
        struct buf *rows = strstr(t->name, "cessor.weight") ? &codes[strstr(t->name, "succ") != NULL] : NULL;
        if (rows && c->own_codes) {
            take_said(c, t, rows);
            s.dim[1] = (uint64_t)c->n_said;
            s.data = rows->data;
        }
        gguf_add_tensor(&w, &s);
    }
    if (c->extra)
        gguf_add_tensor(&w, &(struct gguf_source){ .name = c->extra, .dim = { 64 }, .n_dims = 1, .type = Q_F32, .data = zeros });
    if (c->said) add_ids(&w, c, &target, &head);
    CHECK_OK(gguf_write(&w, path, &err), err);
    gguf_writer_drop(&w);
    buf_drop(&head);
    buf_drop(&codes[0]);
    buf_drop(&codes[1]);
    gguf_close(words);
    gguf_close(target);
    gguf_close(g);
    return path;
}
