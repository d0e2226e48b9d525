/* engine/generate.c - runs requests: alone, in a batch, in a session; see luce.h. */
#include "base/mem.h"
#include "engine/inside.h"

const char *luce_finish_name(luce_finish f)
{
    static const char *const names[] = { "none", "end", "stop", "length", "cancelled" };
    return (size_t)f < COUNT(names) ? names[f] : "?";
}

void luce_result_drop(luce_result *r)
{
    mem_free(r->tokens);
    mem_free(r->text);
    *r = (luce_result){ 0 };
}

struct request_env request_env_of(const luce_model *m)
{
    return (struct request_env){ .vocab = m->vocab, .vocab_size = runner_model(m->runner)->c.vocab,
                                 .context = runner_load_plan(m->runner).context, .mask = m->allowed,
                                 .has_drafter = m->speculator != NULL };
}

struct batch {
    luce_model *model;
    const luce_request *asked;
    struct request *request;
    int n, next;                    /* requests, and the first that has not begun */
};

/* Lets requests begin while there are sequences for them. */
static void admit(struct batch *b)
{
    struct scheduler *s = &b->model->scheduler;
    struct cache *cache = runner_cache(b->model->runner);
    for (; b->next < b->n && cache_free_slots(cache) > 0; b->next++) {
        struct request *r = &b->request[b->next];
        struct request_env env = request_env_of(b->model);
        struct seq *seq;
        luce_error err = { 0 };
        luce_status st = request_init(r, &b->asked[b->next], &env, &err);
        if (!st) st = seq_open(&seq, cache, &err);
        if (st) request_fail(r, st, &err);
        else scheduler_add(s, r, seq);
    }
}

/* Closes the sequences of those that have ended. */
static void retire(struct batch *b)
{
    for (int i = 0; i < b->next; i++) {
        struct request *r = &b->request[i];
        if (r->state != REQUEST_DONE || !r->seq) continue;
        seq_close(r->seq);
        r->seq = NULL;
    }
}

luce_status luce_generate_batch(luce_model *m, const luce_request *requests, int n, luce_result *results,
                                luce_error *err)
{
    if (n <= 0) return LUCE_OK;
    luce_error why = { 0 };
    luce_status st = LUCE_OK;
    struct batch b = { .model = m, .asked = requests, .n = n };
    if (cache_free_slots(runner_cache(m->runner)) == 0)
        st = fail(&why, LUCE_E_DEVMEM, "all sequences of the model are taken by sessions; close one, or load the "
                  "model with more sequences");
    else if (!(b.request = mem_array((size_t)n, sizeof *b.request)))
        st = fail(&why, LUCE_E_NOMEM, "out of memory for %d requests", n);
    for (int i = 0; i < n; i++) results[i] = (luce_result){ .status = st, .error = why };
    if (st) return fail(err, st, "%s", why.text);
    while (!st && (b.next < n || m->scheduler.n_active > 0)) {
        admit(&b);
        st = scheduler_step(&m->scheduler, &why);
        retire(&b);
    }
    for (int i = b.next; i < n; i++) request_fail(&b.request[i], st, &why);
    if (st) fail(err, st, "%s", why.text);
    for (int i = 0; i < n; i++) {
        request_result(&b.request[i], &results[i]);
        if (!st && results[i].status) st = fail(err, results[i].status, "%s", results[i].error.text);
    }
    mem_free(b.request);
    return st;
}

luce_status luce_generate(luce_model *m, const luce_request *request, luce_result *out, luce_error *err)
{
    return luce_generate_batch(m, request, 1, out, err);
}

luce_status luce_session_open(luce_session **out, luce_model *m, luce_error *err)
{
    *out = NULL;
    luce_session *s = mem_zero(sizeof *s);
    if (!s) return fail(err, LUCE_E_NOMEM, "out of memory for a session");
    s->model = m;
    luce_status st = seq_open(&s->seq, runner_cache(m->runner), err);
    if (st) luce_session_close(s);
    else *out = s;
    return st;
}

void luce_session_close(luce_session *s)
{
    if (!s) return;
    seq_close(s->seq);
    mem_free(s->ids);
    mem_free(s);
}

static luce_status keep_ids(luce_session *s, const struct request *r, luce_error *err)
{
    if (r->n_ids > s->cap_ids) {
        int cap = r->n_ids * 2;
        int32_t *ids = mem_resize(s->ids, (size_t)cap * sizeof *ids);
        if (!ids) return fail(err, LUCE_E_NOMEM, "out of memory for the %d tokens of a session", r->n_ids);
        s->ids = ids;
        s->cap_ids = cap;
    }
    memcpy(s->ids, r->ids, (size_t)r->n_ids * sizeof *s->ids);
    s->n_ids = r->n_ids;
    return LUCE_OK;
}

luce_status luce_session_generate(luce_session *s, const luce_request *request, luce_result *out,
                                  luce_error *err)
{
    *out = (luce_result){ 0 };
    luce_model *m = s->model;
    struct request r;
    struct request_env env = request_env_of(m);
    env.before = s->ids;
    env.n_before = s->n_ids;
    luce_error local = { 0 };
    luce_status st = request_init(&r, request, &env, &local);
    if (st) {
        request_fail(&r, st, &local);
    } else {
        scheduler_add(&m->scheduler, &r, s->seq);
        while (r.state != REQUEST_DONE)
            if (scheduler_step(&m->scheduler, NULL)) break;
        st = r.status;
        if (!st && (st = keep_ids(s, &r, &local))) request_fail(&r, st, &local);
        if (st) luce_session_rewind(s, (size_t)s->n_ids);
    }
    request_result(&r, out);
    return st ? fail(err, st, "%s", out->error.text) : LUCE_OK;
}

const int32_t *luce_session_tokens(const luce_session *s, size_t *n)
{
    *n = (size_t)s->n_ids;
    return s->ids;
}

void luce_session_rewind(luce_session *s, size_t n)
{
    if (n < (size_t)s->n_ids) s->n_ids = (int)n;
    if (seq_length(s->seq) > s->n_ids) seq_truncate(s->seq, s->n_ids);
}
