/* ops/draw_row.h - a draw from a row of logits on a CPU; see ops/sample.c for what is drawn. Each cut is one pass that
 * sums by bucket, and a look at the bucket in which the sum is reached. */
#ifndef LUCE_OPS_DRAW_ROW_H
#define LUCE_OPS_DRAW_ROW_H

#include "ops/draw.h"

enum { DRAW_LIST = 1024, DRAW_BLOCK = 64, DRAW_PARTS = 256 };

/* Columns of a row, in loops that compilers turn into vectors: all lengths are known, and behind the row nothing is
 * kept. */
struct draw_block {
    int32_t  order[DRAW_BLOCK], steps[DRAW_BLOCK];
    uint64_t weight[DRAW_BLOCK];        /* 0: not kept */
};

static inline void draw_read(struct draw_block *b, const struct draw_row *r, const struct draw_cut *c, int at)
{
    float x[DRAW_BLOCK], add[DRAW_BLOCK] = { 0 };
    int n = r->n - at < DRAW_BLOCK ? r->n - at : DRAW_BLOCK;
    for (int i = n; i < DRAW_BLOCK; i++) x[i] = -INFINITY;
    memcpy(x, r->x + at, (size_t)n * sizeof *x);
    if (r->allowed) memcpy(add, r->allowed + at, (size_t)n * sizeof *add);
    for (int i = 0; i < DRAW_BLOCK; i++) x[i] += add[i];
    memcpy(b->order, x, sizeof x);
    for (int i = 0; i < DRAW_BLOCK; i++) b->order[i] ^= b->order[i] >> 31 & INT32_MAX;
    for (int i = 0; i < DRAW_BLOCK; i++) b->steps[i] = draw_steps(x[i], r->max, r->scale);
    for (int i = 0; i < DRAW_BLOCK; i++) {
        bool kept = (b->order[i] > c->order) | ((b->order[i] == c->order) & (at + i <= c->last));
        b->steps[i] = kept ? b->steps[i] : DRAW_END;
    }
    for (int i = 0; i < DRAW_BLOCK; i++) b->weight[i] = draw_weight_of(b->steps[i]);
    for (int i = 0; i < DRAW_BLOCK; i++) b->weight[i] = b->weight[i] >= c->least ? b->weight[i] : 0;
}

static inline uint64_t draw_each(const struct draw_block *b, const struct draw_cut *c, enum draw_measure m, int i)
{
    bool counts = b->weight[i] && (m != DRAW_TIED || b->order[i] == c->order);
    return !counts ? 0 : m == DRAW_MASS ? b->weight[i] : 1;
}

static inline uint64_t draw_block_sum(const struct draw_block *b, const struct draw_cut *c, enum draw_measure m)
{
    uint64_t sum = 0;
    if (m == DRAW_MASS)
        for (int i = 0; i < DRAW_BLOCK; i++) sum += b->weight[i];
    else
        for (int i = 0; i < DRAW_BLOCK; i++) sum += draw_each(b, c, m, i);
    return sum;
}

/* The first of the largest columns. */
static inline int32_t draw_largest(const struct draw_row *r)
{
    int32_t most = INT32_MIN, at = 0;
    for (int i = 0; i < r->n; i++) {
        int32_t order = draw_order(draw_value(r, i));
        most = order > most ? order : most;
    }
    while (draw_order(draw_value(r, at)) != most) at++;
    return at;
}

/* The sum over the row; part [DRAW_PARTS] (or NULL): over each part of it, of *blocks blocks. */
static inline uint64_t draw_sum(const struct draw_row *r, const struct draw_cut *c, enum draw_measure m, uint64_t *part,
                                int *blocks)
{
    struct draw_block b;
    uint64_t sum = 0;
    int n = (r->n + DRAW_BLOCK - 1) / DRAW_BLOCK, each = (n + DRAW_PARTS - 1) / DRAW_PARTS;
    if (part) memset(part, 0, DRAW_PARTS * sizeof *part);
    for (int i = 0; i < n; i++) {
        draw_read(&b, r, c, i * DRAW_BLOCK);
        uint64_t more = draw_block_sum(&b, c, m);
        if (part) part[i / each] += more;
        sum += more;
    }
    if (blocks) *blocks = each;
    return sum;
}

/* The first column up to which the sum reaches the target: at least 1, at most the sum over the row, whose parts are
 * given. */
static inline int draw_locate(const struct draw_row *r, const struct draw_cut *c, enum draw_measure m, uint64_t target,
                              const uint64_t *part, int blocks)
{
    struct draw_block b;
    int at = 0;
    for (; *part < target; at += blocks * DRAW_BLOCK) target -= *part++;
    for (;; at += DRAW_BLOCK) {
        draw_read(&b, r, c, at);
        uint64_t sum = draw_block_sum(&b, c, m);
        if (sum >= target) break;
        target -= sum;
    }
    for (int i = 0;; i++) {
        uint64_t each = draw_each(&b, c, m, i);
        if (each >= target) return at + i;
        target -= each;
    }
}

/* ---- cuts ------------------------------------------------------------------------------------------------------ */
/* Cuts to the first columns, as few as sum to the target, by halving the orders that are left: for rows with very many
 * columns that are almost equal. */
static inline void draw_bisect(const struct draw_row *r, struct draw_cut *c, enum draw_measure m, uint64_t target)
{
    uint64_t part[DRAW_PARTS], each = 1;
    int64_t low = c->order, high = draw_order(r->max);
    int blocks;
    while (low < high) {
        int64_t middle = low + (high - low + 1) / 2;
        struct draw_cut at = { c->least, (int32_t)middle, INT32_MAX };
        if (draw_sum(r, &at, m, NULL, NULL) >= target) low = middle;
        else high = middle - 1;
    }
    struct draw_cut at = { c->least, (int32_t)low, -1 };
    uint64_t above = draw_sum(r, &at, m, NULL, NULL);
    if (m == DRAW_MASS) each = draw_weight(draw_value_of(at.order), r->max, r->scale);
    at.last = at.order == c->order ? c->last : INT32_MAX;
    draw_sum(r, &at, DRAW_TIED, part, &blocks);
    at.last = draw_locate(r, &at, DRAW_TIED, (target - above + each - 1) / each, part, blocks);
    *c = at;
}

static inline void draw_sink(uint64_t *heap, int n, int i)
{
    uint64_t x = heap[i];
    for (int child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap[child + 1] > heap[child]) child++;
        if (heap[child] < x) break;
        heap[i] = heap[child];
    }
    heap[i] = x;
}

/* Cuts to the first of the listed columns, as few as sum to the target. */
static inline void draw_cut_list(const struct draw_row *r, struct draw_cut *c, enum draw_measure m, uint64_t target,
                                 uint64_t *list, int n)
{
    uint64_t sum = 0;
    for (int i = n / 2 - 1; i >= 0; i--) draw_sink(list, n, i);
    while (n > 0 && sum < target) {
        float x = draw_value_of(draw_key_order(list[0]));
        sum += m == DRAW_MASS ? draw_weight(x, r->max, r->scale) : 1;
        c->order = draw_key_order(list[0]);
        c->last = draw_key_column(list[0]);
        list[0] = list[--n];
        draw_sink(list, n, 0);
    }
}

/* Lists the keys of a bucket; returns how many, DRAW_LIST + 1: too many. */
static inline int draw_list(const struct draw_row *r, const struct draw_cut *c, int bucket, uint64_t *list)
{
    struct draw_block b;
    int n = 0;
    for (int at = 0; at < r->n; at += DRAW_BLOCK) {
        int any = 0;
        draw_read(&b, r, c, at);
        for (int i = 0; i < DRAW_BLOCK; i++) any += draw_bucket(b.steps[i]) == bucket;
        for (int i = 0; any && i < DRAW_BLOCK; i++) {
            if (draw_bucket(b.steps[i]) != bucket || !b.weight[i]) continue;
            if (n == DRAW_LIST) return DRAW_LIST + 1;
            list[n++] = draw_key(b.order[i], at + i);
        }
    }
    return n;
}

/* Cuts to the first columns, as few as sum to `most`, or to this share of all. */
static inline void draw_cut_to(const struct draw_row *r, struct draw_cut *c, enum draw_measure m, uint64_t most,
                               float share)
{
    uint64_t bucket[DRAW_BUCKETS] = { 0 }, list[DRAW_LIST], all = 0;
    struct draw_block b;
    for (int at = 0; at < r->n; at += DRAW_BLOCK) {
        draw_read(&b, r, c, at);
        if (draw_block_sum(&b, c, DRAW_MASS) == 0) continue;
        for (int i = 0; i < DRAW_BLOCK; i++) bucket[draw_bucket(b.steps[i])] += draw_each(&b, c, m, i);
    }
    for (int i = 0; i < DRAW_BUCKETS; i++) all += bucket[i];
    uint64_t target = m == DRAW_MASS ? draw_wanted(share, all) : most, before = 0;
    if (target >= all) return;
    int at = 0;
    for (; before + bucket[at] < target; at++) before += bucket[at];
    int n = draw_list(r, c, at, list);
    if (n <= DRAW_LIST) draw_cut_list(r, c, m, target - before, list, n);
    else draw_bisect(r, c, m, target);
}

/* The column that is drawn; best: the largest column that may be. */
static inline int32_t draw_column(const struct draw_row *r, const struct step_draw *d, int32_t best)
{
    if (!(d->scale > 0) || d->top_k == 1) return best;
    struct draw_cut c = { draw_least(d->min_p), INT32_MIN, 0 };
    uint64_t part[DRAW_PARTS];
    int blocks;
    if (d->top_k > 0 && d->top_k < r->n) draw_cut_to(r, &c, DRAW_COUNT, (uint64_t)d->top_k, 0);
    if (draw_is_top_p(d)) draw_cut_to(r, &c, DRAW_MASS, 0, d->top_p);
    uint64_t all = draw_sum(r, &c, DRAW_MASS, part, &blocks);
    return draw_locate(r, &c, DRAW_MASS, draw_target(d->u, all) + 1, part, blocks);
}

#endif
