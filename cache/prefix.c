/* cache/prefix.c - the tree of texts whose pages are kept; see cache.h.
 *
 * A node is a page's worth of tokens after those of its parent, with the pages that hold them and perhaps the
 * recurrent state behind them. It is found by a hash of its parent and its tokens, and the tokens are compared.
 * Sequences enter a page when it is full, and take the tree's page for their own where there is one already:
 * so whoever holds a page of unbounded kind holds those before it, as the tree has them. A sequence pins the
 * node of its last full page, and so the path to it. What nobody pins is removed when room is needed, the leaf
 * that was used least recently first. Pages of a window go alone: its node stays, and cannot be resumed at. */
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "cache/inside.h"

bool prefix_init(struct prefix *p, int n)
{
    *p = (struct prefix){ .n = n, .free = 0, .oldest = -1, .newest = -1 };
    for (p->n_buckets = 64; p->n_buckets < n; p->n_buckets *= 2) continue;
    p->node = mem_array((size_t)n, sizeof *p->node);
    p->bucket = mem_array((size_t)p->n_buckets, sizeof *p->bucket);
    if (!p->node || !p->bucket) return false;
    for (int i = 0; i < n; i++) p->node[i].chain = i + 1 < n ? i + 1 : -1;
    for (int i = 0; i < p->n_buckets; i++) p->bucket[i] = -1;
    return true;
}

void prefix_drop(struct prefix *p)
{
    mem_free(p->node);
    mem_free(p->bucket);
    *p = (struct prefix){ 0 };
}

static int32_t *bucket_of(struct prefix *p, int32_t parent, const int32_t *tokens)
{
    uint64_t hash = hash_bytes(tokens, PAGE * sizeof *tokens, (uint64_t)parent + 1);
    return &p->bucket[hash & (uint64_t)(p->n_buckets - 1)];
}

static int32_t child_of(struct prefix *p, int32_t parent, const int32_t *tokens)
{
    int32_t at = *bucket_of(p, parent, tokens);
    while (at >= 0 && (p->node[at].parent != parent || memcmp(p->node[at].token, tokens, sizeof p->node[at].token)))
        at = p->node[at].chain;
    return at;
}

/* ---- the order of use: a list, the least recently used first --------------------------------------- */
static void unlink_node(struct prefix *p, int32_t at)
{
    struct node *x = &p->node[at];
    *(x->older >= 0 ? &p->node[x->older].newer : &p->oldest) = x->newer;
    *(x->newer >= 0 ? &p->node[x->newer].older : &p->newest) = x->older;
}

static void link_newest(struct prefix *p, int32_t at)
{
    struct node *x = &p->node[at];
    x->used = p->clock;
    x->older = p->newest;
    x->newer = -1;
    *(p->newest >= 0 ? &p->node[p->newest].newer : &p->oldest) = at;
    p->newest = at;
}

/* The text up to node `at` has been used: a node is used later than those behind it. */
static void touch(struct prefix *p, int32_t at)
{
    for (; at >= 0; at = p->node[at].parent) {
        unlink_node(p, at);
        link_newest(p, at);
    }
}

/* ---- removing ------------------------------------------------------------------------------------- */
static void let_state_go(struct cache *c, struct node *x)
{
    if (x->state >= 0) page_let_go(&c->states, x->state);
    x->state = -1;
}

static void remove_node(struct cache *c, int32_t at)
{
    struct prefix *p = &c->prefix;
    struct node *x = &p->node[at];
    int32_t *from = bucket_of(p, x->parent, x->token);
    while (*from != at) from = &p->node[*from].chain;
    *from = x->chain;
    unlink_node(p, at);
    for (int k = 0; k < c->config.layout->n_kinds; k++)
        if (x->page[k] >= 0) page_let_go(&c->pages[k], x->page[k]);
    let_state_go(c, x);
    if (x->parent >= 0) p->node[x->parent].n_children--;
    x->chain = p->free;
    p->free = at;
}

static bool removable(const struct node *x)
{
    return x->n_children == 0 && x->users == 0;
}

static bool evict_leaf(struct cache *c)
{
    struct prefix *p = &c->prefix;
    int32_t at = p->oldest;
    while (at >= 0 && !removable(&p->node[at])) at = p->node[at].newer;
    if (at < 0) return false;
    remove_node(c, at);
    p->evicted++;
    return true;
}

/* A page of a window that no sequence holds: first those that no turn's end sees. */
static bool evict_window(struct cache *c, int kind)
{
    struct prefix *p = &c->prefix;
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t at = p->oldest; at >= 0; at = p->node[at].newer) {
            struct node *x = &p->node[at];
            if (x->page[kind] < 0 || (pass == 0 && x->seen) || !page_cold(&c->pages[kind], x->page[kind])) continue;
            page_let_go(&c->pages[kind], x->page[kind]);
            x->page[kind] = -1;
            p->evicted++;
            return true;
        }
    }
    return false;
}

bool prefix_evict(struct cache *c, int kind)
{
    return c->config.layout->kind[kind].window > 0 ? evict_window(c, kind) : evict_leaf(c);
}

static int32_t with_state(const struct prefix *p, int32_t at)
{
    while (at >= 0 && p->node[at].state < 0) at = p->node[at].parent;
    return at;
}

/* The state that is missed least: by the positions between the ones before and after it, which is what has to
 * be read again at most, and by the requests since its text was used. The last one of a text counts as long as
 * the text, as that is continued there, and the first one more than others: texts begin alike. */
bool prefix_evict_state(struct cache *c)
{
    struct prefix *p = &c->prefix;
    int32_t victim = -1;
    double least = 0;
    for (int32_t at = p->oldest; at >= 0; at = p->node[at].newer) p->node[at].next = INT32_MAX;
    for (int32_t at = p->oldest; at >= 0; at = p->node[at].newer) {
        int32_t before = p->node[at].state >= 0 ? with_state(p, p->node[at].parent) : -1;
        if (before >= 0 && p->node[before].next > p->node[at].depth) p->node[before].next = p->node[at].depth;
    }
    for (int32_t at = p->oldest; at >= 0; at = p->node[at].newer) {
        const struct node *x = &p->node[at];
        if (x->state < 0 || !page_cold(&c->states, x->state)) continue;
        int32_t before = with_state(p, x->parent);
        double worth = (x->next < INT32_MAX ? x->next : 2 * x->depth) - (before >= 0 ? p->node[before].depth : 0);
        worth *= (before < 0 ? 4 : 1) / (1.0 + (double)(p->clock - x->used));
        if (victim >= 0 && worth >= least && (worth > least || x->depth <= p->node[victim].depth)) continue;
        victim = at;
        least = worth;
    }
    if (victim < 0) return false;
    let_state_go(c, &p->node[victim]);
    p->evicted++;
    return true;
}

void prefix_trim(struct cache *c)
{
    const struct kv_layout *l = c->config.layout;
    uint64_t bytes, most = (uint64_t)c->config.kept_bytes;
    do {
        bytes = (uint64_t)c->states.n_cold * l->kind[KV_STATE].page_bytes;
        for (int k = 0; k < l->n_kinds; k++) bytes += (uint64_t)c->pages[k].n_cold * l->kind[k].page_bytes;
    } while (most && bytes > most && evict_leaf(c));
}

/* ---- entering ------------------------------------------------------------------------------------- */
static int32_t add_node(struct cache *c, int32_t parent, const int32_t *tokens)
{
    struct prefix *p = &c->prefix;
    if (p->free < 0 && !evict_leaf(c)) return -1;
    int32_t at = p->free, *bucket = bucket_of(p, parent, tokens);
    struct node *x = &p->node[at];
    p->free = x->chain;
    *x = (struct node){ .parent = parent, .chain = *bucket, .state = -1 };
    memcpy(x->token, tokens, sizeof x->token);
    for (int k = 0; k < KV_MAX_KINDS; k++) x->page[k] = -1;
    x->depth = 1;
    if (parent >= 0) {
        x->depth += p->node[parent].depth;
        p->node[parent].n_children++;
    }
    *bucket = at;
    link_newest(p, at);
    return at;
}

static void pin(struct seq *s, int32_t at)
{
    struct prefix *p = &s->cache->prefix;
    if (at >= 0) p->node[at].users++;
    if (s->node >= 0) p->node[s->node].users--;
    s->node = at;
}

int prefix_depth(const struct seq *s)
{
    return s->node >= 0 ? s->cache->prefix.node[s->node].depth : 0;
}

void prefix_enter(struct seq *s)
{
    struct cache *c = s->cache;
    int exact = seq_in_pages(s);
    if (!cache_takes_narrow(c) && s->wide < exact) exact = s->wide;
    if (s->origin || s->forget) return;
    for (int depth; depth = prefix_depth(s), (depth + 1) * PAGE <= exact;) {
        const int32_t *tokens = c->ids[s->slot] + (size_t)depth * PAGE;
        int32_t at = child_of(&c->prefix, s->node, tokens);
        if (at >= 0) s->found = depth + 1;
        else at = add_node(c, s->node, tokens);
        if (at < 0) return;
        for (int k = 0; k < c->config.layout->n_kinds; k++) {
            int32_t own = seq_page(s, k, depth), *kept = &c->prefix.node[at].page[k];
            if (own >= 0 && *kept < 0) page_keep(&c->pages[k], *kept = own);
            else if (own >= 0 && *kept != own) seq_replace_page(s, k, depth, *kept);
        }
        pin(s, at);
    }
}

void prefix_leave(struct seq *s, int depth)
{
    struct prefix *p = &s->cache->prefix;
    int32_t at = s->node;
    if (depth >= prefix_depth(s)) return;
    touch(p, at);
    while (at >= 0 && p->node[at].depth > depth) at = p->node[at].parent;
    pin(s, at);
    if (s->found > depth) s->found = depth;
}

void seq_discard(struct seq *s)
{
    struct prefix *p = &s->cache->prefix;
    int32_t at = s->node;
    int found = s->found;
    (void)seq_truncate(s, found * PAGE < s->length ? found * PAGE : s->length);
    while (at >= 0 && p->node[at].depth > found && removable(&p->node[at])) {
        int32_t parent = p->node[at].parent;
        remove_node(s->cache, at);
        at = parent;
    }
}

/* ---- finding -------------------------------------------------------------------------------------- */
/* The last node of the text, within n positions, that a sequence can go on from: -1, the start, can always be.
 * *known: the last node of the text, usable or not. */
static int32_t find(struct cache *c, const int32_t *ids, int n, int32_t *known)
{
    struct prefix *p = &c->prefix;
    int held[KV_MAX_KINDS] = { 0 };             /* pages without a gap up to this node */
    int32_t best = *known = -1;
    if (c->config.reuse == LUCE_REUSE_OFF) return -1;
    for (int depth = 1; depth * PAGE <= n; depth++) {
        int32_t at = child_of(p, *known, ids + (size_t)(depth - 1) * PAGE);
        if (at < 0) break;
        *known = at;
        bool usable = !kv_recurrent(c->config.layout) || p->node[at].state >= 0;
        for (int k = 0; k < c->config.layout->n_kinds; k++) {
            held[k] = p->node[at].page[k] >= 0 ? held[k] + 1 : 0;
            usable = usable && held[k] >= depth - cache_first_seen(c, k, depth * PAGE);
        }
        if (usable) best = at;
    }
    return best;
}

int cache_find(struct cache *c, const int32_t *ids, int n)
{
    int32_t known, at = find(c, ids, n, &known);
    return at >= 0 ? c->prefix.node[at].depth * PAGE : 0;
}

/* Texts are continued at node `at`: its state and the pages that are seen from there go last. */
static void mark_end(struct cache *c, int32_t at)
{
    struct prefix *p = &c->prefix;
    int most = 0;
    for (int k = 0; k < c->config.layout->n_kinds; k++) {
        int window = c->config.layout->kind[k].window;
        if (window > most) most = window;
    }
    if (at >= 0) p->node[at].end = true;
    for (int i = 0; at >= 0 && i < most; i += PAGE, at = p->node[at].parent) p->node[at].seen = true;
}

void seq_turn(struct seq *s)
{
    struct cache *c = s->cache;
    mark_end(c, s->node);
    int32_t at = with_state(&c->prefix, s->node);
    if (at >= 0) c->prefix.node[at].end = true;
}

int seq_claim(struct seq *s, const int32_t *ids, int n)
{
    struct cache *c = s->cache;
    int32_t known, at = find(c, ids, n, &known);
    int depth = at >= 0 ? c->prefix.node[at].depth : 0;
    c->prefix.clock++;
    if (known != at) {                          /* others will leave it here as well */
        mark_end(c, known);
        s->branch = c->prefix.node[known].depth * PAGE;
    }
    if (depth * PAGE <= s->length) return s->length;
    touch(&c->prefix, at);
    pin(s, at);
    seq_adopt(s, ids, depth * PAGE);
    s->found = depth;
    mark_end(c, at);
    return s->length;
}
