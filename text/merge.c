/* text/merge.c - see merge.h. */
#include "text/merge.h"

#include "base/hash.h"
#include "base/mem.h"
#include "text/unicode.h"

enum {
    SHORT = 24,                 /* symbols up to which scanning beats the heap */
    JOINT_BITS = 21
};

static struct pair find_pair(const struct vocab *v, const char *piece, const struct symbol *left,
                             const struct symbol *right)
{
    if (v->model == MODEL_SPM) {
        size_t len = (size_t)left->len + right->len;
        int32_t id = len <= v->max_piece ? piece_find(v, piece + left->from, len) : -1;
        return id < 0 ? (struct pair){ NO_RANK, -1 } : (struct pair){ v->score_rank[id], id };
    }
    if (left->id >= 0 && right->id >= 0) {
        uint64_t key = (uint64_t)(uint32_t)left->id << 32 | (uint32_t)right->id;
        for (uint32_t i = (uint32_t)hash_u64(key) & v->pair_mask;; i = (i + 1) & v->pair_mask) {
            const struct pair_slot *s = &v->pairs[i];
            if (s->left == left->id && s->right == right->id) return s->pair;
            if (s->left < 0) break;
        }
    }
    return (struct pair){ NO_RANK, -1 };
}

static bool reserve(void **at, size_t *cap, size_t need, size_t size)
{
    if (need <= *cap) return true;
    size_t grown = need + need / 2 + 64;
    void *p = mem_resize(*at, grown * size);
    if (!p) return false;
    *at = p;
    *cap = grown;
    return true;
}

/* One symbol a byte (byte-level) or a character. */
static bool split_symbols(struct merger *m, const struct vocab *v, struct str piece)
{
    if (!reserve((void **)&m->symbols, &m->cap, piece.len, sizeof *m->symbols)) return false;
    size_t n = 0;
    for (size_t i = 0; i < piece.len;) {
        unsigned char byte = (unsigned char)piece.at[i];
        int len = 1;
        int32_t id;
        if (v->model == MODEL_GPT2) id = v->byte_id[byte];
        else if (byte < 128) id = v->first_id[byte];
        else {
            utf8_at(piece.at + i, &len);
            id = piece_find(v, piece.at + i, (size_t)len);
        }
        m->symbols[n++] = (struct symbol){ .from = (uint32_t)i, .len = (uint32_t)len, .id = id };
        i += (size_t)len;
    }
    m->n_symbols = n;
    return true;
}

static void find_pairs(struct merger *m, const struct vocab *v, const char *piece)
{
    struct symbol *s = m->symbols;
    for (size_t i = 0; i + 1 < m->n_symbols; i++) s[i].pair = find_pair(v, piece, &s[i], &s[i + 1]);
    if (m->n_symbols) s[m->n_symbols - 1].pair = (struct pair){ NO_RANK, -1 };
}

/* Merges symbol i with the next one, by moving the rest down. */
static void join(struct merger *m, const struct vocab *v, const char *piece, size_t i)
{
    struct symbol *s = m->symbols;
    s[i].id = s[i].pair.id;
    s[i].len += s[i + 1].len;
    memmove(s + i + 1, s + i + 2, (m->n_symbols - i - 2) * sizeof *s);
    m->n_symbols--;
    s[i].pair = i + 1 < m->n_symbols ? find_pair(v, piece, &s[i], &s[i + 1])
                                     : (struct pair){ NO_RANK, -1 };
    if (i > 0) s[i - 1].pair = find_pair(v, piece, &s[i - 1], &s[i]);
}

static void merge_short(struct merger *m, const struct vocab *v, const char *piece)
{
    for (;;) {
        size_t best = 0;
        uint32_t rank = NO_RANK;
        for (size_t i = 0; i < m->n_symbols; i++)
            if (m->symbols[i].pair.rank < rank) rank = m->symbols[best = i].pair.rank;
        if (rank == NO_RANK) return;
        join(m, v, piece, best);
    }
}

/* The heap holds rank << 32 | index of the left symbol, smallest first: equal ranks come out
 * leftmost first. An entry whose symbol has got another pair since is skipped. */
static void sift_down(uint64_t *heap, size_t n, size_t i)
{
    uint64_t key = heap[i];
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= n) break;
        if (child + 1 < n && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= key) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = key;
}

static bool heap_push(struct merger *m, uint64_t key)
{
    if (!reserve((void **)&m->heap, &m->heap_cap, m->n_heap + 1, sizeof *m->heap)) return false;
    size_t i = m->n_heap++;
    for (; i > 0 && m->heap[(i - 1) / 2] > key; i = (i - 1) / 2) m->heap[i] = m->heap[(i - 1) / 2];
    m->heap[i] = key;
    return true;
}

static uint64_t heap_pop(struct merger *m)
{
    uint64_t key = m->heap[0];
    m->heap[0] = m->heap[--m->n_heap];
    if (m->n_heap) sift_down(m->heap, m->n_heap, 0);
    return key;
}

static bool heap_fill(struct merger *m)
{
    m->n_heap = 0;
    if (!reserve((void **)&m->heap, &m->heap_cap, m->n_symbols, sizeof *m->heap)) return false;
    for (size_t i = 0; i < m->n_symbols; i++)
        if (m->symbols[i].pair.rank != NO_RANK)
            m->heap[m->n_heap++] = (uint64_t)m->symbols[i].pair.rank << 32 | i;
    for (size_t i = m->n_heap / 2; i-- > 0;) sift_down(m->heap, m->n_heap, i);
    return true;
}

static bool renew_pair(struct merger *m, const struct vocab *v, const char *piece, uint32_t i)
{
    struct symbol *s = m->symbols;
    s[i].pair = s[i].next < m->n_symbols ? find_pair(v, piece, &s[i], &s[s[i].next])
                                         : (struct pair){ NO_RANK, -1 };
    return s[i].pair.rank == NO_RANK || heap_push(m, (uint64_t)s[i].pair.rank << 32 | i);
}

static bool merge_heap(struct merger *m, const struct vocab *v, const char *piece)
{
    struct symbol *s = m->symbols;
    size_t n = m->n_symbols;
    for (size_t i = 0; i < n; i++) {
        s[i].prev = (uint32_t)i - 1;        /* of the first: UINT32_MAX */
        s[i].next = (uint32_t)i + 1;
    }
    if (!heap_fill(m)) return false;
    while (m->n_heap) {
        uint64_t key = heap_pop(m);
        uint32_t i = (uint32_t)key;
        if (s[i].pair.rank != key >> 32) continue;
        uint32_t gone = s[i].next;
        s[i].id = s[i].pair.id;
        s[i].len += s[gone].len;
        s[i].next = s[gone].next;
        if (s[gone].next < n) s[s[gone].next].prev = i;
        s[gone].pair.rank = NO_RANK;
        s[gone].len = 0;
        if (!renew_pair(m, v, piece, i)) return false;
        if (i > 0 && !renew_pair(m, v, piece, s[i].prev)) return false;
    }
    /* The kept symbols move down; the list is read ahead of what is written. */
    size_t kept = 0;
    for (size_t i = 0; i < n;) {
        size_t next = s[i].next;
        s[kept++] = s[i];
        i = next;
    }
    m->n_symbols = kept;
    return true;
}

bool merge_piece(struct merger *m, const struct vocab *v, struct str piece)
{
    if (!split_symbols(m, v, piece)) return false;
    find_pairs(m, v, piece.at);
    if (m->n_symbols > SHORT) return merge_heap(m, v, piece.at);
    merge_short(m, v, piece.at);
    return true;
}

bool merge_naive(struct merger *m, const struct vocab *v, struct str piece)
{
    if (!split_symbols(m, v, piece)) return false;
    find_pairs(m, v, piece.at);
    merge_short(m, v, piece.at);
    return true;
}

void merger_drop(struct merger *m)
{
    mem_free(m->symbols);
    mem_free(m->heap);
    *m = (struct merger){ 0 };
}

/* The joints are a Bloom filter with one hash: a false hit only means that a place is not cut. */
static uint32_t joint(uint32_t left, uint32_t right)
{
    return (uint32_t)(hash_u64((uint64_t)left << 32 | right) >> (64 - JOINT_BITS));
}

luce_status build_joints(struct vocab *v, luce_error *err)
{
    v->joints = mem_array((size_t)1 << (JOINT_BITS - 5), sizeof *v->joints);
    if (!v->joints) return fail(err, LUCE_E_NOMEM, "out of memory for the tokenizer's joints");
    for (uint32_t i = 0; i <= v->pieces.mask; i++) {
        if (v->pieces.slots[i].id < 0) continue;
        const struct token *t = &v->tokens[v->pieces.slots[i].id];
        struct str rest = { t->bytes, t->bytes_len };
        uint32_t left = 0;
        for (bool first = true; rest.len; first = false) {
            int len = utf8_valid(rest.at, rest.len);
            if (len <= 0) break;            /* text is valid, so that it never spells this token */
            uint32_t right = utf8_at(rest.at, &len), j = joint(left, right);
            if (!first) v->joints[j >> 5] |= 1u << (j & 31);
            left = right;
            rest.at += len, rest.len -= (size_t)len;
        }
    }
    return LUCE_OK;
}

size_t joint_end(const struct vocab *v, struct str text)
{
    int len;
    uint32_t left = utf8_at(text.at, &len);
    size_t i = (size_t)len;
    for (; i < text.len; i += (size_t)len) {
        uint32_t right = utf8_at(text.at + i, &len), j = joint(left, right);
        if (!(v->joints[j >> 5] >> (j & 31) & 1)) break;
        left = right;
    }
    return i;
}
