/* gguf/split.c - models cut into several files, PREFIX-00001-of-00003.gguf and so on.
 * Each part is a complete GGUF. Its keys split.no (from 0), split.count and split.tensors.count say
 * what it belongs to; names of the other parts are derived from the name of the one given, never
 * read from a file. Nothing that a part says is believed before another part agrees. */
#include <inttypes.h>
#include <stdio.h>

#include "base/mem.h"
#include "gguf/inside.h"

enum { SUFFIX_BYTES = 32 };

struct split {
    uint32_t no, count;             /* count is 1 for a model in one file */
    bool has_tensors;
    uint32_t tensors;               /* of all parts together, if has_tensors */
};

static luce_status read_split(const struct part *p, struct split *s, luce_error *err)
{
    *s = (struct split){ .count = 1, .has_tensors = part_key(p, "split.tensors.count") };
    luce_status st = part_u32(p, "split.count", 1, &s->count, err);
    if (!st) st = part_u32(p, "split.no", 0, &s->no, err);
    if (!st) st = part_u32(p, "split.tensors.count", 0, &s->tensors, err);
    if (st) return st;
    if (s->count == 0) s->count = 1;
    if (s->count > GGUF_MAX_PARTS)
        return fail(err, LUCE_E_FORMAT,
                    "%s: key 'split.count' is %" PRIu32 ", at most %d parts are allowed", p->path,
                    s->count, GGUF_MAX_PARTS);
    if (s->no >= s->count)
        return fail(err, LUCE_E_FORMAT,
                    "%s: key 'split.no' is %" PRIu32 ", it must be below split.count, "
                    "which is %" PRIu32,
                    p->path, s->no, s->count);
    return LUCE_OK;
}

static void part_suffix(char out[SUFFIX_BYTES], uint32_t no, uint32_t count)
{
    snprintf(out, SUFFIX_BYTES, "-%05" PRIu32 "-of-%05" PRIu32 ".gguf", no + 1, count);
}

static luce_status check_total(const struct gguf *g, const struct split *s, luce_error *err)
{
    if (!s->has_tensors || g->n_tensors == s->tensors) return LUCE_OK;
    return fail(err, LUCE_E_FORMAT,
                "%s: key 'split.tensors.count' is %" PRIu32 ", but %d part%s hold%s %zu "
                "tensors. Fetch all parts again, from one place.",
                g->parts[0].path, s->tensors, g->n_parts, g->n_parts == 1 ? "" : "s",
                g->n_parts == 1 ? "s" : "", g->n_tensors);
}

/* Opens part `no` by its derived name and checks that it is what its name says. */
static luce_status add_part(struct gguf *g, const char *prefix, uint32_t no,
                            const struct split *wanted, luce_error *err)
{
    luce_error inner = { 0 };
    char suffix[SUFFIX_BYTES];
    part_suffix(suffix, no, wanted->count);
    struct buf path = { 0 };
    buf_add_text(&path, prefix);
    buf_add_text(&path, suffix);
    luce_status st = path.failed ? fail(&inner, LUCE_E_NOMEM, "%s: out of memory", g->path)
                                 : reader_add_file(g, path.data, &inner);
    buf_drop(&path);
    if (st == LUCE_E_IO)
        return fail(err, st,
                    "%s. It is part %" PRIu32 " of %" PRIu32 " of this model: all parts must "
                    "lie in one folder under their own names.",
                    inner.text, no + 1, wanted->count);
    if (st) return fail(err, st, "%s", inner.text);
    const struct part *p = &g->parts[g->n_parts - 1];
    struct split s;
    if ((st = read_split(p, &s, err))) return st;
    if (s.no != no || s.count != wanted->count)
        return fail(err, LUCE_E_FORMAT,
                    "%s: it says that it is part %" PRIu32 " of %" PRIu32 ", its name says "
                    "part %" PRIu32 " of %" PRIu32 ". Was it renamed?",
                    p->path, s.no + 1, s.count, no + 1, wanted->count);
    return LUCE_OK;
}

/* The given file is part s->no of several: finds the first one and opens all the rest. */
static luce_status open_parts(struct gguf *g, struct split *s, luce_error *err)
{
    char suffix[SUFFIX_BYTES];
    part_suffix(suffix, s->no, s->count);
    size_t len = strlen(g->path), tail = strlen(suffix);
    if (len < tail || strcmp(g->path + len - tail, suffix))
        return fail(err, LUCE_E_FORMAT,
                    "%s: it says that it is part %" PRIu32 " of %" PRIu32 " of a split model, "
                    "so its name must end in '%s': give all parts their own names back.",
                    g->path, s->no + 1, s->count, suffix);
    char *prefix = mem_text(g->path, len - tail);
    if (!prefix) return fail(err, LUCE_E_NOMEM, "%s: out of memory", g->path);
    luce_status st = LUCE_OK;
    uint32_t no = 1;
    if (s->no != 0) {
        reader_clear(g);
        no = 0;
    }
    for (; no < s->count && !st; no++) {
        st = add_part(g, prefix, no, s, err);
        if (!st && no == 0) st = read_split(&g->parts[0], s, err);
    }
    mem_free(prefix);
    return st ? st : check_total(g, s, err);
}

luce_status split_open(struct gguf *g, luce_error *err)
{
    struct split s;
    luce_status st = split_refuse_joined(&g->parts[0], err);
    if (!st) st = read_split(&g->parts[0], &s, err);
    if (st) return st;
    return s.count > 1 ? open_parts(g, &s, err) : check_total(g, &s, err);
}

/* Offset of a GGUF header right behind the part's data, padded or not; 0 if there is none. */
static uint64_t next_header(const struct part *p)
{
    uint64_t padded = (p->end + p->alignment - 1) / p->alignment * p->alignment;
    for (int i = 0; i < 2; i++) {
        uint64_t at = i ? padded : p->end;
        if (at < p->size && p->size - at >= GGUF_HEADER_BYTES && !memcmp(p->data + at, "GGUF", 4))
            return at;
    }
    return 0;
}

luce_status split_refuse_joined(const struct part *p, luce_error *err)
{
    uint64_t at = next_header(p);
    if (!at) return LUCE_OK;
    /* Count them: each is parsed as a file of its own, in what is left of this one. */
    struct gguf *rest = mem_zero(sizeof *rest);
    if (!rest) return fail(err, LUCE_E_NOMEM, "%s: out of memory", p->path);
    int n = 1;
    for (uint64_t from = at; at && n < GGUF_MAX_PARTS; from += at) {
        struct part next = {
            .path = p->path, .map.fd = -1, .data = p->data + from, .size = p->size - from
        };
        luce_status st = part_parse(rest, &next, NULL);
        at = st ? 0 : next_header(&next);
        n++;
        part_close(&next);
        reader_clear(rest);
        if (st == LUCE_E_NOMEM) {
            gguf_close(rest);
            return fail(err, st, "%s: out of memory", p->path);
        }
    }
    gguf_close(rest);
    return fail(
        err, LUCE_E_FORMAT,
        "%s: a second GGUF header follows the tensor data at byte %" PRIu64
        ": this looks like %d shards joined end to end; pass the first shard of the separate "
        "files (PREFIX-00001-of-%05d.gguf)",
        p->path, next_header(p), n, n);
}
