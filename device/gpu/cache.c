/* device/gpu/cache.c - page pools and page tables on the GPU. */
#include "base/mem.h"
#include "device/gpu/gpu.h"

/* The pools of recurrent layers. */
static luce_status open_states(struct gpu *g, struct device_cache *c, const struct cache_params *p, luce_error *err)
{
    c->n_pages[KV_STATE] = p->n_pages[KV_STATE];
    c->n_pages[KV_JOURNAL] = p->n_slots;
    luce_status st = LUCE_OK;
    int heads = 1;
    for (int i = 0; i < p->layout->n_layers; i++)
        if (p->layout->layer[i].kind == KV_STATE && p->layout->layer[i].state.k_heads > heads)
            heads = p->layout->layer[i].state.k_heads;
    for (int k = KV_STATE; k <= KV_JOURNAL && !st; k++)
        st = gpu_alloc(g, (void **)&c->pages[k], (uint64_t)c->n_pages[k] * p->layout->kind[k].page_bytes,
                       "the states of recurrent layers", err);
    uint64_t bytes = (uint64_t)p->n_slots * (uint64_t)heads * sizeof *c->arrived;
    if (!st) st = gpu_alloc(g, (void **)&c->arrived, bytes, "the states of recurrent layers", err);
    return st ? st : gpu_check(g, GPU(MemsetAsync)(c->arrived, 0, bytes, g->stream), "clearing memory", err);
}

luce_status gpu_cache_open(struct device *d, struct device_cache **out, const struct cache_params *p,
                           luce_error *err)
{
    struct gpu *g = (struct gpu *)d;
    *out = NULL;
    struct device_cache *c = mem_zero(sizeof *c);
    if (!c) return fail(err, LUCE_E_NOMEM, "out of memory for the cache");
    *c = (struct device_cache){ .layout = p->layout, .n_slots = p->n_slots };
    luce_status st = LUCE_OK;
    for (int k = 0; k < p->layout->n_kinds && !st; k++) {
        c->n_pages[k] = p->n_pages[k];
        c->max_pages[k] = p->max_pages[k];
        uint64_t entries = (uint64_t)p->n_slots * (uint64_t)p->max_pages[k] * sizeof **c->table;
        st = gpu_alloc(g, (void **)&c->pages[k], (uint64_t)p->n_pages[k] * p->layout->kind[k].page_bytes,
                       "the cache of keys and values", err);
        if (!st) st = gpu_alloc(g, (void **)&c->table[k], entries, "the page tables", err);
        if (!st) st = gpu_check(g, GPU(MemsetAsync)(c->table[k], 0xff, entries, g->stream), "clearing memory", err);
    }
    if (!st && kv_recurrent(p->layout)) st = open_states(g, c, p, err);
    if (st) gpu_cache_close(d, c);
    else *out = c;
    return st;
}

void gpu_cache_close(struct device *d, struct device_cache *c)
{
    if (!c) return;
    for (int k = 0; k < KV_POOLS; k++) gpu_free((struct gpu *)d, c->pages[k]);
    for (int k = 0; k < KV_MAX_KINDS; k++) gpu_free((struct gpu *)d, c->table[k]);
    gpu_free((struct gpu *)d, c->arrived);
    gpu_free((struct gpu *)d, c->block.at);
    mem_free(c);
}

static luce_status move_page(struct gpu *g, struct device_cache *c, int kind, int page, void *to, const void *from,
                             bool read, luce_error *err)
{
    uint64_t bytes = c->layout->kind[kind].page_bytes;
    uint8_t *at = c->pages[kind] + (uint64_t)page * bytes;
    gpu_error e = read ? GPU(MemcpyAsync)(to, at, bytes, GPU(MemcpyDeviceToHost), g->stream)
                       : GPU(MemcpyAsync)(at, from, bytes, GPU(MemcpyHostToDevice), g->stream);
    luce_status st = gpu_check(g, e, "copying a page", err);
    return st ? st : gpu_check(g, GPU(StreamSynchronize)(g->stream), "copying a page", err);
}

luce_status gpu_page_read(struct device *d, struct device_cache *c, int kind, int page, void *host,
                          luce_error *err)
{
    return move_page((struct gpu *)d, c, kind, page, host, NULL, true, err);
}

luce_status gpu_page_write(struct device *d, struct device_cache *c, int kind, int page, const void *host,
                           luce_error *err)
{
    return move_page((struct gpu *)d, c, kind, page, NULL, host, false, err);
}

luce_status gpu_page_copy(struct device *d, struct device_cache *c, int kind, int from, int to, luce_error *err)
{
    struct gpu *g = (struct gpu *)d;
    uint64_t bytes = c->layout->kind[kind].page_bytes;
    uint8_t *pages = c->pages[kind];
    gpu_error e = GPU(MemcpyAsync)(pages + (uint64_t)to * bytes, pages + (uint64_t)from * bytes, bytes,
                                   GPU(MemcpyDeviceToDevice), g->stream);
    return gpu_check(g, e, "copying a page", err);
}

struct kv_place gpu_kv_place(const struct device_cache *c, int layer)
{
    const struct kv_layer *y = &c->layout->layer[layer];
    return (struct kv_place){
        .pages = c->pages[y->kind], .table = c->table[y->kind], .max_pages = c->max_pages[y->kind],
        .page_bytes = c->layout->kind[y->kind].page_bytes, .k_at = kv_k_at(y, 0), .v_at = kv_v_at(y, 0),
        .head = y->k_head + y->v_head, .k_format = y->k_format, .v_format = y->v_format,
        .k_row = (int)kv_row_bytes(y->k_format, y->k_dim), .v_row = (int)kv_row_bytes(y->v_format, y->v_dim),
        .k_scales = (int)kv_scales_at(y->k_format, y->k_dim), .v_scales = (int)kv_scales_at(y->v_format, y->v_dim),
        .kv_heads = y->kv_heads, .dim = y->k_dim,
    };
}

struct state_place gpu_state_place(const struct device_cache *c, int layer)
{
    const struct kv_layer *y = &c->layout->layer[layer];
    return (struct state_place){
        .state = (float *)(void *)(c->pages[KV_STATE] + y->offset),
        .journal = (float *)(void *)(c->pages[KV_JOURNAL] + y->journal),
        .state_page = c->layout->kind[KV_STATE].page_bytes / sizeof(float),
        .journal_page = c->layout->kind[KV_JOURNAL].page_bytes / sizeof(float),
    };
}
