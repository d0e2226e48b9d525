/* device/cpu/attn.h - ATTN over paged keys and values.
 * A unit of work is up to 64 columns (rows times the query heads of one kv head) of one sequence, over
 * all splits of 512 positions in turn or, in narrow programs, one split each, folded in order after a
 * barrier. Inside a split come tiles of 64 positions (a page); the softmax runs along with a maximum
 * that only rises. Few columns over f16 or bf16 take a tile as attn_few.h says, all others as attn_many.h does;
 * a column's bits are the same.
 * Order, whatever the width: a score sums head dims upwards; a tile's weights sum in 16 lanes; values
 * sum positions upwards; splits fold upwards. A bank row stands at the position that it would have:
 * for a chain all columns share such tiles, for a tree each row builds its own. */

/* Of the lanes: BLOCK, columns that share what is loaded in attn_few.h; TALL, sums that attn_many.h keeps in registers;
 * FULL_AS and HALF_AS, how many columns there take as long as a vector and a half here.
 * TILE_AS: as how many a tile counts for all its columns. */
enum { COLS = 64, SPLIT = 512, CACHE_LINE = 64, TILE_AS = 3 };

struct attn_work {                      /* in the thread's scratch; dims padded to whole lanes */
    float x[CPU_HEAD_MAX * 2 * LANES];  /* keys: turned as halves, or of 32 positions */
    float v[PAGE * 2 * LANES];          /* values: 32 dims of a tile */
    float p[PAGE * COLS];               /* scores, then weights: of a block, or [position][column] */
    float f[COLS];                      /* what sums so far are multiplied by */
    float *q, *acc, *all;               /* of the head at work; few: [column][dim], many: [dim][column]. acc, top, */
    float *top, *sum, *all_top, *all_sum;       /* sum: of the split; all: of the splits before */
    float q_at[COLS * CPU_HEAD_MAX], acc_at[COLS * CPU_HEAD_MAX], all_at[COLS * CPU_HEAD_MAX];  /* of all heads */
    float top_at[COLS], sum_at[COLS], all_top_at[COLS], all_sum_at[COLS];
};
_Static_assert(sizeof(struct attn_work) <= CPU_SCRATCH, "fits the thread's scratch");

struct attn_unit {
    const struct attn_attr *a;
    const struct device_cache *cache;
    const struct kv_layer *layer;
    const struct step *step;
    const struct step_seq *seq;
    int kv_head, first, n;              /* the head at work; columns of each: row first / group.. */
    int head_from, heads;               /* kv heads of the unit, in turn in each tile */
    bool few;                           /* taken as attn_few.h says */
    bool chain;                         /* bank row j stands at past + j for every row that sees it */
    int row[COLS];                      /* of the step */
    int lo[COLS], hi[COLS];             /* visible positions, but not those in [gap, past) */
    int gap[COLS];
    int past;                           /* where bank rows begin; INT32_MAX in a wide step */
    const uint8_t *then;                /* where this thread's next unit begins, or NULL */
};
static const float LOWEST = -1e30f;

/* Of all query heads the one of column c. */
INLINE int head_of(const struct attn_unit *u, int c)
{
    int group = u->a->heads / u->a->kv_heads;
    return u->kv_head * group + (u->first + c) % group;
}

INLINE bool is_chain(const struct step *s, const struct step_seq *q)
{
    for (int j = 0; j < q->n_rows; j++)
        if (s->row[q->first_row + j].path != (j == 63 ? ~0ull : (2ull << j) - 1)) return false;
    return true;
}

INLINE void unit_columns(struct attn_unit *u)
{
    int group = u->a->heads / u->a->kv_heads, window = u->a->window;
    bool wide = u->step->head.wide;
    u->past = wide ? INT32_MAX : u->seq->past;
    for (int c = 0; c < u->n; c++) {
        u->row[c] = u->seq->first_row + (u->first + c) / group;
        const struct step_row *r = &u->step->row[u->row[c]];
        u->lo[c] = window && r->index - window + 1 > 0 ? r->index - window + 1 : 0;
        u->gap[c] = r->see < u->past - 1 ? r->see + 1 : u->past;
        int bank = u->a->block ? u->seq->n_rows : __builtin_popcountll(r->path);
        u->hi[c] = wide ? r->see : u->past + bank - 1;
    }
}

/* Bits of positions from..to (inclusive) of the tile at t. */
INLINE uint64_t range_bits(int t, int from, int to)
{
    from = from > t ? from - t : 0;
    to = to - t;
    if (to < 0 || from > 63 || from > to) return 0;
    uint64_t high = to >= 63 ? ~0ull : (2ull << to) - 1;
    return high & (~0ull << from);
}

INLINE uint64_t visible_bits(const struct attn_unit *u, int c, int t)
{
    uint64_t see = range_bits(t, u->lo[c], u->hi[c]);
    if (u->gap[c] < u->past && u->past != INT32_MAX) see &= ~range_bits(t, u->gap[c], u->past - 1);
    return see;
}

/* Where 64 positions lie: their page, the bank; keys and values to ask for meanwhile, those of the next head, of the
 * next 64 or, after the last page, of the next unit. NULL: nowhere, or not needed. */
struct attn_place {
    const uint8_t *page, *bank, *next_k, *next_v;
};

/* A head's keys in a page, before its values; NULL: no page. */
INLINE const uint8_t *head_at(const struct kv_layer *y, const uint8_t *page, int head)
{
    return page ? page + kv_k_at(y, head) : NULL;
}

INLINE struct attn_place place_of(const struct attn_unit *u, int t)
{
    int kind = u->layer->kind, slot = u->seq->slot, head = u->kv_head + 1;
    const uint8_t *page = t < u->past ? page_of(u->cache, kind, slot, t) : NULL, *next = page;
    if (head == u->head_from + u->heads) {
        head = u->head_from;
        next = t + PAGE < u->past ? page_of(u->cache, kind, slot, t + PAGE) : NULL;
    }
    next = next ? head_at(u->layer, next, head) : page ? u->then : NULL;
    return (struct attn_place){ .page = page, .bank = u->past < t + PAGE ? bank_of(u->cache, kind, slot) : NULL,
                                .next_k = next, .next_v = next ? next + u->layer->k_head : NULL };
}

/* Where position p of row `row` lies: a page and a place in it, or NULL. */
INLINE const uint8_t *find_position(const struct attn_unit *u, const struct attn_place *at, int row, int p, int *place)
{
    if (p < u->past) {
        *place = p % PAGE;
        return at->page;
    }
    int nth = p - u->past;
    uint64_t path = u->step->row[row].path;
    if (!u->chain)
        for (int i = 0; i < nth; i++) path &= path - 1;
    *place = u->chain ? nth : path ? __builtin_ctzll(path) : 0;
    return at->bank;
}

INLINE int padded(int dim)
{
    return (dim + LANES - 1) / LANES * LANES;
}

/* Asks for bytes of a row. */
INLINE void ask_for(const uint8_t *at, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i += CACHE_LINE) __builtin_prefetch(at + i, 0, 2);
}

#include "device/cpu/attn_few.h"
#include "device/cpu/attn_many.h"
/* The tile at t as row `row` sees it, for the columns with bits in `see`; any: all those bits. */
INLINE void seen_tile(const struct attn_unit *u, struct attn_work *w, int row, int t, const uint64_t *see, uint64_t any)
{
    if (!any) return;
    if (u->few) K(few_tile)(u, w, row, t, see, any);
    else K(many_tile)(u, w, row, t, see, any);
}

/* One tile, for all columns; with rows of a tree's bank in it, for the columns of each row alone. */
static void K(attn_tile)(const struct attn_unit *u, struct attn_work *w, int t)
{
    uint64_t see[COLS], any = 0;
    for (int c = 0; c < u->n; c++) any |= see[c] = visible_bits(u, c, t);
    if (!any || u->chain || t + PAGE <= u->past) {
        seen_tile(u, w, u->row[0], t, see, any);
        return;
    }
    for (int c = 0, n; c < u->n; c += n) {
        uint64_t mine[COLS] = { 0 };
        any = 0;
        for (n = 0; c + n < u->n && u->row[c + n] == u->row[c]; n++) any |= mine[c + n] = see[c + n];
        seen_tile(u, w, u->row[c], t, mine, any);
    }
}

/* all = all and the split's result, in this order. */
INLINE void fold(float *all_top, float *all_sum, float *all, float top, float sum, const float *acc, int dim)
{
    float m = top > *all_top || top != top ? top : *all_top;
    float a = exp_f32(*all_top - m), b = exp_f32(top - m);
    *all_top = m;
    *all_sum = *all_sum * a + sum * b;
    for (int d = 0; d < dim; d++) all[d] = all[d] * a + acc[d] * b;
}

/* A row and head of the output, and its int8 form where the next product reads that. No zero keeps a sign: it would
 * tell which positions other columns saw. */
INLINE void write_out(const struct job *j, const struct run *r, int row, int head, float sum, const float *acc, int dim)
{
    float inverse = sum != 0.0f ? 1.0f / sum : 0.0f, *o = (float *)j->out[0] + (int64_t)row * j->out_cols + head * dim;
    for (int d = 0; d < dim; d++) o[d] = acc[d] * inverse + 0.0f;
    if (!j->x[X_Q8]) return;
    for (int d = 0; d < dim; d += GROUP) {
        int at = head * dim + d;
        struct xblock *b = (struct xblock *)j->x[X_Q8] + (int64_t)(at / SUPER) * r->rows[j->rows] + row;
        quantise_group(o + d, b, at % SUPER / GROUP);
    }
}

INLINE int held_columns(const struct attn_unit *u)
{
    return u->few ? u->n : padded(u->n);
}

/* The i-th head of the unit is at work from here on. */
INLINE void turn_to(struct attn_unit *u, struct attn_work *w, int i)
{
    int cols = i * held_columns(u), at = cols * padded(u->a->head_dim);
    u->kv_head = u->head_from + i;
    w->q = w->q_at + at, w->acc = w->acc_at + at, w->all = w->all_at + at;
    w->top = w->top_at + cols, w->sum = w->sum_at + cols;
    w->all_top = w->all_top_at + cols, w->all_sum = w->all_sum_at + cols;
}

/* Heads in turn within a tile: they are neighbours in memory, and a processor's own prefetching is slow to follow
 * pieces of one head. */
static void K(attn_split)(struct attn_unit *u, struct attn_work *w, int split)
{
    int cols = u->heads * held_columns(u);
    for (int c = 0; c < cols; c++) {
        w->top_at[c] = LOWEST;
        w->sum_at[c] = 0;
    }
    memset(w->acc_at, 0, (size_t)(cols * padded(u->a->head_dim)) * sizeof(float));
    for (int t = split * SPLIT; t < (split + 1) * SPLIT; t += PAGE)
        for (int i = 0; i < u->heads; i++) {
            turn_to(u, w, i);
            K(attn_tile)(u, w, t);
        }
}

/* Splits that some column of the unit sees: [*from, *to). */
INLINE void unit_splits(const struct attn_unit *u, int *from, int *to)
{
    int lo = INT32_MAX, hi = -1;
    for (int c = 0; c < u->n; c++) {
        lo = u->lo[c] < lo ? u->lo[c] : lo;
        hi = u->hi[c] > hi ? u->hi[c] : hi;
    }
    *from = hi < 0 ? 0 : lo / SPLIT;
    *to = hi < 0 ? 0 : hi / SPLIT + 1;
}

/* Where the partial result of a row, head and split lies: dim values, then top and sum. */
INLINE float *partial_at(const struct run *r, const struct attn_attr *a, int row, int head, int split)
{
    size_t at = ((size_t)row * (size_t)a->heads + (size_t)head) * (size_t)r->program->n_splits + (size_t)split;
    return r->program->partial + at * (size_t)(a->head_dim + 2);
}

static void K(load_queries)(const struct job *j, const struct attn_unit *u, struct attn_work *w)
{
    int dim = u->a->head_dim, wide = padded(dim), cols = padded(u->n);
    float *q = u->few ? w->q : w->all;
    for (int c = 0; c < u->n; c++) {
        memcpy(q + c * wide, (const float *)j->in[0] + (int64_t)u->row[c] * j->cols + head_of(u, c) * dim,
               (size_t)dim * sizeof *q);
        memset(q + c * wide + dim, 0, (size_t)(wide - dim) * sizeof *q);
    }
    if (u->few) return;
    memset(q + u->n * wide, 0, (size_t)((cols - u->n) * wide) * sizeof *q);
    K(many_turn)(q, cols, wide, wide, w->q, cols);
    if (many_half(u->n)) K(double_queries)(u, q, w->q);
}

/* Results by column: themselves, or turned in the place of q. */
static const float *K(by_column)(const struct attn_unit *u, struct attn_work *w, const float *from)
{
    int wide = padded(u->a->head_dim), cols = padded(u->n);
    if (u->few) return from;
    K(many_turn)(from, wide, cols, cols, w->q, wide);
    if (many_half(u->n)) K(half_columns)(u, from, w->q);
    return w->q;
}

/* Where column c has its sums. */
INLINE int sum_at(const struct attn_unit *u, int c)
{
    return u->few ? c : many_lane(u, c);
}

/* The split's results of the head at work, for attn_fold. */
static void K(attn_keep)(const struct run *r, const struct attn_unit *u, struct attn_work *w, int split)
{
    int dim = u->a->head_dim, wide = padded(dim);
    const float *acc = K(by_column)(u, w, w->acc);
    for (int c = 0; c < u->n; c++) {
        float *at = partial_at(r, u->a, u->row[c], head_of(u, c), split);
        memcpy(at, acc + c * wide, (size_t)dim * sizeof *at);
        at[dim] = w->top[sum_at(u, c)];
        at[dim + 1] = w->sum[sum_at(u, c)];
    }
}

/* The split's results of the head at work to those of the splits before. */
static void K(attn_add)(const struct attn_unit *u, struct attn_work *w)
{
    int dim = u->a->head_dim, wide = padded(dim);
    if (!u->few) K(many_fold)(u, w);
    for (int c = 0; u->few && c < u->n; c++)
        fold(&w->all_top[c], &w->all_sum[c], w->all + c * wide, w->top[c], w->sum[c], w->acc + c * wide, dim);
}

/* split < 0: all of them in turn. */
static void K(attn_unit)(const struct run *r, const struct job *j, struct attn_unit *u, int split, int thread)
{
    struct attn_work *w = (struct attn_work *)scratch_of(r, thread);
    int dim = u->a->head_dim, wide = padded(dim), from, to;
    unit_splits(u, &from, &to);
    if (split >= 0 && (split < from || split >= to)) return;
    u->few = u->n <= many_cost(u->n) && few_can(u->layer, dim);
    int cols = u->heads * held_columns(u);
    for (int i = 0; i < u->heads; i++) turn_to(u, w, i), K(load_queries)(j, u, w);
    if (split >= 0) {
        K(attn_split)(u, w, split);
        for (int i = 0; i < u->heads; i++) turn_to(u, w, i), K(attn_keep)(r, u, w, split);
        return;
    }
    for (int c = 0; c < cols; c++) {
        w->all_top_at[c] = LOWEST;
        w->all_sum_at[c] = 0;
    }
    memset(w->all_at, 0, (size_t)(cols * wide) * sizeof(float));
    for (int s = from; s < to; s++) {
        K(attn_split)(u, w, s);
        for (int i = 0; i < u->heads; i++) turn_to(u, w, i), K(attn_add)(u, w);
    }
    for (int i = 0; i < u->heads; i++) {
        turn_to(u, w, i);
        const float *all = K(by_column)(u, w, w->all);
        for (int c = 0; c < u->n; c++)
            write_out(j, r, u->row[c], head_of(u, c), w->all_sum[sum_at(u, c)], all + c * wide, dim);
    }
}

/* Folds the partial results of one row and head. */
static void K(attn_fold)(const struct run *r, const struct job *j, struct attn_unit *u)
{
    int dim = u->a->head_dim, from, to;
    unit_splits(u, &from, &to);
    float top = LOWEST, sum = 0, all[CPU_HEAD_MAX];
    memset(all, 0, sizeof all);
    for (int s = from; s < to; s++) {
        const float *at = partial_at(r, u->a, u->row[0], head_of(u, 0), s);
        fold(&top, &sum, all, at[dim], at[dim + 1], at, dim);
    }
    write_out(j, r, u->row[0], head_of(u, 0), sum, all, dim);
}

/* Splits that some row of a sequence sees, and the first of them. */
struct splits {
    int first, n;
};

INLINE struct splits splits_of(const struct attn_attr *a, const struct step_seq *q)
{
    int first = a->window && q->past >= a->window ? (q->past - a->window + 1) / SPLIT : 0;
    return (struct splits){ first, (q->past + q->n_rows - 1) / SPLIT + 1 - first };
}

/* How many units the columns of a kv head are cut into, so that all threads are through as early as may be. */
INLINE int units_of(const struct run *r, const struct attn_attr *a, int cols, int each)
{
    int best = (cols + COLS - 1) / COLS, least = INT32_MAX;
    for (int n = best; n <= best + 2 * r->n_threads && (n * BLOCK <= cols || n == best); n++) {
        int most = (cols + n - 1) / n, rounds = (n * a->kv_heads * each + r->n_threads - 1) / r->n_threads;
        int cost = rounds * (TILE_AS + (most < many_cost(most) ? most : many_cost(most)));
        if (cost >= least) continue;
        least = cost;
        best = n;
    }
    return best;
}

/* How many of the kv heads a unit takes, so that no thread is through later than if it took one. */
INLINE int heads_of(const struct run *r, int kv_heads, int tiles, int held)
{
    int least = (tiles * kv_heads + r->n_threads - 1) / r->n_threads, n = COLS / held < least ? COLS / held : least;
    for (; n > 1; n--) {
        int units = tiles * ((kv_heads + n - 1) / n);
        if ((units + r->n_threads - 1) / r->n_threads * n <= least) break;
    }
    return n;
}

/* Whether splits are units of their own: kv heads alone, four for each thread, feed all threads, and texts of one
 * split have nothing to fold. */
INLINE bool spread(const struct run *r, const struct attn_attr *a)
{
    if (!r->program->n_splits || r->step->head.n_seqs * a->kv_heads >= 4 * r->n_threads) return false;
    for (int i = 0; i < r->step->head.n_seqs; i++)
        if (r->step->seq[i].n_rows && splits_of(a, &r->step->seq[i]).n > 1) return true;
    return false;
}

/* How the columns, kv heads and splits of a sequence are cut into units, splits first, then heads. */
struct attn_cut {
    int tiles, most;                    /* pieces of the columns; columns of each */
    int heads, groups;                  /* kv heads of a unit; groups of so many */
    int first, each;                    /* split, and how many; -1 and 1: a unit takes all of them */
};

INLINE struct attn_cut cut_of(const struct run *r, const struct attn_attr *a, const struct step_seq *q, bool spreads)
{
    struct splits splits = splits_of(a, q);
    struct attn_cut c = { .first = spreads ? splits.first : -1, .each = spreads ? splits.n : 1 };
    int cols = q->n_rows * (a->heads / a->kv_heads);
    c.tiles = units_of(r, a, cols, c.each);
    c.most = (cols + c.tiles - 1) / c.tiles;
    c.heads = spreads ? 1 : heads_of(r, a->kv_heads, c.tiles, padded(c.most));
    c.groups = (a->kv_heads + c.heads - 1) / c.heads;
    return c;
}

/* Where unit `at` of a sequence in a narrow step begins to read, or NULL. */
INLINE const uint8_t *unit_begin(const struct device_cache *cache, const struct kv_layer *y, const struct attn_attr *a,
                                 const struct step_seq *q, const struct attn_cut *c, int at)
{
    int lo = a->window && q->past >= a->window ? q->past - a->window + 1 : 0, t = lo / PAGE * PAGE;
    if (c->first >= 0 && (c->first + at % c->each) * SPLIT > lo) t = (c->first + at % c->each) * SPLIT;
    const uint8_t *page = t < q->past ? page_of(cache, y->kind, q->slot, t) : NULL;
    return head_at(y, page, at / c->each % c->groups * c->heads);
}

/* Where a thread reads first in a narrow step's job, or NULL. */
INLINE const uint8_t *attn_begin(const struct job *j, const struct run *r, int thread)
{
    const struct attn_attr *a = j->call->attr;
    const struct device_cache *cache = r->program->cache;
    const struct step_seq *q = &r->step->seq[0];
    if (r->step->head.wide || !r->step->head.n_seqs || !q->n_rows) return NULL;
    struct attn_cut c = cut_of(r, a, q, spread(r, a));
    return unit_begin(cache, &cache->layout->layer[j->call->layer], a, q, &c, thread);
}

static void K(attn)(const struct job *j, const struct run *r, int thread)
{
    const struct step *s = r->step;
    struct attn_unit u = { .a = j->call->attr, .cache = r->program->cache, .step = s,
                           .layer = &r->program->cache->layout->layer[j->call->layer] };
    int group = u.a->heads / u.a->kv_heads, base = 0;
    bool spreads = spread(r, u.a);
    int mine = thread;                      /* then as they come */
    for (int i = 0; i < s->head.n_seqs; i++) {
        u.seq = &s->seq[i];
        if (!u.seq->n_rows) continue;
        u.chain = s->head.wide || u.a->block || is_chain(s, u.seq);
        struct attn_cut cut = cut_of(r, u.a, u.seq, spreads);
        int cols = u.seq->n_rows * group, n = cut.tiles * cut.groups * cut.each;
        for (int next; mine < base + n; mine = next) {
            int at = mine - base;
            next = r->n_threads + share_next(j);
            u.head_from = at / cut.each % cut.groups * cut.heads;
            u.heads = u.a->kv_heads - u.head_from < cut.heads ? u.a->kv_heads - u.head_from : cut.heads;
            u.first = (cut.tiles - 1 - at / cut.each / cut.groups) * cut.most;      /* the longest first */
            u.n = cols - u.first < cut.most ? cols - u.first : cut.most;
            if (u.n <= 0) continue;
            unit_columns(&u);
            bool more = u.past != INT32_MAX && next < base + n;
            u.then = more ? unit_begin(u.cache, u.layer, u.a, u.seq, &cut, next - base) : NULL;
            K(attn_unit)(r, j, &u, spreads ? cut.first + at % cut.each : -1, thread);
        }
        base += n;
    }
    if (!spreads) return;
    pool_barrier(r->cpu->pool, thread);
    int64_t from, to;
    pool_share((int64_t)r->rows[j->rows] * u.a->heads, thread, r->n_threads, &from, &to);
    for (int64_t i = from; i < to; i++) {
        int row = (int)(i / u.a->heads), head = (int)(i % u.a->heads);
        u.seq = &s->seq[s->row[row].seq];
        u.kv_head = head / group;
        u.first = (row - u.seq->first_row) * group + head % group;
        u.n = 1;
        unit_columns(&u);
        K(attn_fold)(r, j, &u);
    }
}
