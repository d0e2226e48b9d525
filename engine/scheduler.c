/* engine/scheduler.c - see scheduler.h. */
#include "engine/scheduler.h"

#include <limits.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/take.h"

#define KEPT_SPEED 0.54               /* of running texts beside prompts: half, and what the measure of it errs by */
#define PAUSE_SECONDS 0.25            /* the longest that running texts should wait for a chunk of a prompt */

luce_status scheduler_init(struct scheduler *s, struct runner *r, luce_error *err)
{
    int vocab = runner_model(r)->c.vocab;
    *s = (struct scheduler){ .runner = r, .clock = clock_seconds };
    luce_status st = sampler_open(&s->sampler, vocab, err);
    if (st) return st;
    s->logits = mem_array((size_t)vocab, sizeof *s->logits);
    int embd = runner_model(r)->c.embd;
    s->raw = mem_array((size_t)(vocab > embd ? vocab : embd), sizeof *s->raw);
    if (s->logits && s->raw) return LUCE_OK;
    scheduler_drop(s);
    return fail(err, LUCE_E_NOMEM, "out of memory for the logits of %d tokens", vocab);
}

void scheduler_drop(struct scheduler *s)
{
    sampler_close(s->sampler);
    mem_free(s->logits);
    mem_free(s->draft);
    mem_free(s->raw);
    *s = (struct scheduler){ 0 };
}

luce_status scheduler_speculate(struct scheduler *s, struct speculator *speculator, luce_error *err)
{
    s->speculator = speculator;
    if (!speculator || s->draft) return LUCE_OK;
    s->draft = mem_array(STEP_SEQS, sizeof *s->draft);
    return s->draft ? LUCE_OK : fail(err, LUCE_E_NOMEM, "out of memory for drafts");
}

void scheduler_add(struct scheduler *s, struct request *r, struct seq *seq)
{
    /* Rows that narrow steps computed are computed again in wide ones where the two differ, so that a
     * continued text equals a fresh one. The last token always has to be fed: its logits are wanted. */
    bool equal = cache_takes_narrow(runner_cache(s->runner));
    int keep = equal ? seq_length(seq) : seq_wide(seq);
    if (keep > r->n_ids - 1) keep = r->n_ids - 1;
    if (!equal) keep -= keep % PAGE;
    if (keep < seq_length(seq)) seq_truncate(seq, keep);
    seq_forget(seq, r->asked->fresh);
    r->seq = seq;
    r->started = s->clock();
    s->active[s->n_active++] = r;
    speculator_begin(s->speculator, seq_slot(seq));
}

/* The request is done: what it read stays in the cache, unless that may be wrong. */
static void leave(struct scheduler *s, struct request *r)
{
    luce_error err = { 0 };
    luce_status st = r->status;
    if (!st) st = runner_settle(s->runner, r->seq, &err);
    for (int i = 0; i < s->ahead.n; i++)
        if (s->ahead.request[i] == r) s->ahead.request[i] = NULL;
    if (st == LUCE_E_NUMERIC || st == LUCE_E_DEVICE) seq_discard(r->seq);
    else seq_turn(r->seq);
}

static void remove_done(struct scheduler *s)
{
    int kept = 0;
    for (int i = 0; i < s->n_active; i++) {
        if (s->active[i]->state != REQUEST_DONE) s->active[kept++] = s->active[i];
        else leave(s, s->active[i]);
    }
    s->n_left += (uint64_t)(s->n_active - kept);
    s->n_active = kept;
}

/* What a request would put into the next step. */
static int next_rows(const struct scheduler *s, const struct request *r, enum step_class *class)
{
    int left = r->n_ids - seq_length(r->seq);
    if (r->state == REQUEST_PROMPT) return runner_prefill_rows(s->runner, r->seq, left, class);
    *class = STEP_NARROW;
    return left;
}

/* What a step of that class means for texts that run beside prompts: they should have the time of 1 / KEPT_SPEED usual
 * narrow steps for each that they get. Right after a wide step narrow ones are slow, since caches
 * hold other things, and that counts for the texts. At least a quarter of a narrow step is paid back, so that
 * prompts go on whatever else slows the machine. */
static void note_time(struct scheduler *s, enum step_class class, double took)
{
    if (class == STEP_WIDE) {
        s->debt += took;
        s->row_seconds = took / runner_step(s->runner)->head.n_rows;
        return;
    }
    double usual = s->usual_seconds * 1.02;         /* what made it slower may stay */
    s->usual_seconds = usual == 0 || took < usual ? took : usual;
    double paid = s->usual_seconds / KEPT_SPEED - took;
    s->debt -= paid > took / 4 ? paid : took / 4;
    if (s->debt < 0) s->debt = 0;
}

/* The class of the next step: the one that somebody waits for. When both do, running texts keep half of
 * their speed. */
static enum step_class choose_class(struct scheduler *s)
{
    bool waits[2] = { false, false };
    for (int i = 0; i < s->n_active; i++) {
        enum step_class class;
        if (s->active[i]->waits) continue;
        next_rows(s, s->active[i], &class);
        waits[class] = true;
    }
    if (waits[STEP_WIDE] && waits[STEP_NARROW])
        return s->wide_last || s->debt > 0 ? STEP_NARROW : STEP_WIDE;
    s->debt = 0;
    return waits[STEP_WIDE] ? STEP_WIDE : STEP_NARROW;
}

/* Adds rows of r as far as there is room. Running texts come whole; a prompt may give fewer. */
static luce_status pack(struct scheduler *s, struct packed *p, struct request *r, enum step_class class,
                        int room, luce_error *err)
{
    enum step_class wants;
    int n = next_rows(s, r, &wants), at = seq_length(r->seq);
    if (wants != class) return LUCE_OK;
    if (n > room) n = class == STEP_NARROW || runner_device(s->runner)->equal_bits ? room : room / PAGE * PAGE;
    int outs = STEP_OUTS - runner_step(s->runner)->head.n_out;
    bool all = request_wants_all(r);
    if (all && n > outs) n = class == STEP_NARROW || runner_device(s->runner)->equal_bits ? outs : outs / PAGE * PAGE;
    if (n == 0 || outs == 0) return LUCE_OK;
    enum want want = all ? WANT_ALL : at + n == r->n_ids ? WANT_LAST : WANT_NONE;
    luce_status st = runner_add(s->runner, r->seq, r->ids + at, NULL, n, want, &p->out[p->n], err);
    if (st) return st;
    if (r->state == REQUEST_PROMPT) s->prompt_rows += (uint64_t)n;
    p->request[p->n] = r;
    p->at[p->n] = at;
    p->rows[p->n++] = n;
    return LUCE_OK;
}

/* Asks for guesses at the running texts. A text that wants none has a tree of its last token alone. */
static void draft(struct scheduler *s)
{
    struct draft *wanted[STEP_SEQS];
    luce_error err = { 0 };
    int n = 0, running = 0;
    for (int i = 0; i < s->n_active; i++) {
        struct request *r = s->active[i];
        if (r->state != REQUEST_DECODE) continue;
        struct draft *d = &s->draft[seq_slot(r->seq)];
        running++;
        *d = (struct draft){ .slot = seq_slot(r->seq), .ids = r->ids, .n_ids = r->n_ids,
                             .fixed = r->asked->draft, .depth = r->most_ids - r->n_ids - 1,
                             .script = r->script.tokens ? &r->script : NULL };
        tree_init(&d->tree, r->ids[r->n_ids - 1]);
        if (r->asked->draft >= 0) wanted[n++] = d;
    }
    luce_status st = speculator_draft(s->speculator, wanted, n, running - n, NARROW_ROWS - running, &err);
    for (int i = 0; st && i < s->n_active; i++)
        if (s->active[i]->state == REQUEST_DECODE && s->active[i]->asked->draft >= 0)
            request_fail(s->active[i], st, &err);
}

/* The tree of r into the step; its last token alone when the cache has no pages for more. */
static luce_status pack_tree(struct scheduler *s, struct packed *p, struct request *r, int room, luce_error *err)
{
    struct draft *d = &s->draft[seq_slot(r->seq)];
    luce_status st = LUCE_E_DEVMEM;
    if (room == 0) return LUCE_OK;
    for (int n = room; st == LUCE_E_DEVMEM && n > 0; n = d->tree.n > 1 ? 1 : 0) {
        tree_prune(&d->tree, n);
        st = runner_add(s->runner, r->seq, d->tree.token, d->tree.parent, d->tree.n, WANT_ALL, &p->out[p->n], err);
    }
    if (st) return st;
    p->request[p->n] = r;
    p->draft[p->n] = d;
    p->rows[p->n++] = d->tree.n;
    return LUCE_OK;
}

/* The rows that the oldest prompt may have when `room` is left: all that the others do not need, and at
 * least half. */
static int share_of_oldest(const struct scheduler *s, enum step_class class, int room)
{
    int wanted = 0, n_prompts = 0, least = runner_device(s->runner)->equal_bits ? 1 : PAGE;
    for (int i = 0; i < s->n_active && wanted < room; i++) {
        enum step_class wants;
        if (s->active[i]->state != REQUEST_PROMPT || s->active[i]->waits || n_prompts++ == 0) continue;
        int n = next_rows(s, s->active[i], &wants);
        if (wants == class) wanted += n;
    }
    int half = room / 2 >= least ? room / 2 / least * least : room;
    return room - wanted > half ? room - wanted : half;
}

/* The most rows of a wide step: what a running text may wait for, by what rows took in the one before. */
static int most_wide_rows(const struct scheduler *s)
{
    int most = runner_chunk(s->runner), least = runner_device(s->runner)->equal_bits ? PAGE : 2 * PAGE;
    bool running = false;
    for (int i = 0; i < s->n_active; i++) running |= s->active[i]->state == REQUEST_DECODE;
    if (!running || s->row_seconds * most <= PAUSE_SECONDS) return most;
    int rows = (int)(PAUSE_SECONDS / s->row_seconds) / PAGE * PAGE;
    return rows > least ? rows : least < most ? least : most;
}

/* The prompt that is packed next: the oldest, then those that are done soonest. `packed` has a bit for each that was
 * there before. NULL: none is left. */
static struct request *next_prompt(const struct scheduler *s, uint64_t *packed)
{
    _Static_assert(STEP_SEQS <= 64, "a bit for each");
    int best = -1, least = INT_MAX;
    for (int i = 0; i < s->n_active; i++) {
        const struct request *r = s->active[i];
        if (r->state != REQUEST_PROMPT || r->waits || *packed >> i & 1) continue;
        int left = *packed ? r->n_ids - seq_length(r->seq) : 0;
        if (left < least) {
            best = i;
            least = left;
        }
    }
    if (best < 0) return NULL;
    *packed |= UINT64_C(1) << best;
    return s->active[best];
}

struct starved {                    /* a request that the cache had no pages for */
    struct request *request;        /* NULL: none */
    luce_error why;
};

static void note_packed(struct request *r, luce_status st, const luce_error *err, struct starved *starved)
{
    if (st == LUCE_E_DEVMEM) *starved = (struct starved){ r, *err };
    else if (st) request_fail(r, st, err);
}

/* Fills the step: running texts first, then prompts, the oldest first, which leaves room for others. A request
 * that the cache has no pages for waits. */
static void fill(struct scheduler *s, struct packed *p, enum step_class class, struct starved *starved)
{
    int most = class == STEP_WIDE ? most_wide_rows(s) : NARROW_ROWS;
    bool trees = s->speculator && class == STEP_NARROW;
    if (trees) draft(s);
    for (int i = 0; i < s->n_active; i++) {
        struct request *r = s->active[i];
        luce_error err = { 0 };
        if (r->state != REQUEST_DECODE) continue;
        int room = most - runner_step(s->runner)->head.n_rows;
        luce_status st = trees ? pack_tree(s, p, r, room, &err) : pack(s, p, r, class, room, &err);
        note_packed(r, st, &err, starved);
    }
    uint64_t packed = 0;
    for (struct request *r; (r = next_prompt(s, &packed));) {
        luce_error err = { 0 };
        int room = most - runner_step(s->runner)->head.n_rows;
        if ((packed & (packed - 1)) == 0) room = share_of_oldest(s, class, room);
        note_packed(r, pack(s, p, r, class, room, &err), &err, starved);
    }
}

/* Its rows can be computed again with the same bits, and nothing is told twice. */
static bool can_restart(const struct scheduler *s, const struct request *r)
{
    if (r->asked->on_prompt || r->asked->embedding) return false;
    return runner_device(s->runner)->equal_bits || r->n_ids == r->n_before + r->n_prompt;
}

/* Nobody can go on: the youngest that holds pages gives them up, and begins again when another one has left. One that
 * needs more than there is, or that cannot begin again, fails. */
static void make_room(struct scheduler *s, const struct starved *starved)
{
    struct request *youngest = NULL;
    int holders = 0;
    for (int i = 0; i < s->n_active; i++) {
        struct request *r = s->active[i];
        if (r->state == REQUEST_DONE || seq_length(r->seq) == 0) continue;
        youngest = r;
        holders++;
    }
    if (holders < 2 || !can_restart(s, youngest)) {
        request_fail(youngest ? youngest : starved->request, LUCE_E_DEVMEM, &starved->why);
        return;
    }
    seq_truncate(youngest->seq, 0);
    youngest->state = REQUEST_PROMPT;
    youngest->begun = false;
    youngest->restarts = true;
    youngest->waits_until = s->n_left + 1;
}

struct walk {                       /* a tree and the text that it is checked against */
    struct scheduler *scheduler;
    struct request *request;
    int out;                        /* the wanted row of its root */
};

static luce_status choose_after(void *context, int node, int32_t *token, bool *more, luce_error *err)
{
    struct walk *w = context;
    struct request *r = w->request;
    luce_status st = choose_token(w->scheduler, r, w->out + node, err);
    *more = !st && r->state != REQUEST_DONE;
    *token = r->ids[r->n_ids - 1];
    return st;
}

/* Adds a step to what the request tells of its guesses. */
static void count_step(struct request *r, const luce_step *step)
{
    luce_speculation *sum = &r->speculation;
    sum->n_steps++;
    sum->n_drafted += (size_t)step->n_nodes - 1;
    sum->n_accepted += (size_t)step->n_tokens - 1;
    sum->n_declined += step->declined;
    sum->draft_seconds += step->draft_seconds;
    sum->verify_seconds += step->verify_seconds;
    sum->accept_seconds += step->accept_seconds;
    if (r->asked->on_step) r->asked->on_step(r->asked->user, step);
}

/* Takes what the model says of the tree, and lets the sequence keep those rows, *a. */
static void accept_tree(struct scheduler *s, struct request *r, const struct draft *d, int out, double verified,
                        struct accepted *a)
{
    struct walk w = { s, r, out };
    struct chooser c = { .context = &w, .choose = choose_after };
    luce_error err = { 0 };
    int before = r->n_ids;
    double start = s->clock();
    luce_status st = verify(&d->tree, &c, a, &err);
    seq_accept(r->seq, a->path, a->n);
    speculator_observe(s->speculator, d, a->n);
    if (st) {
        request_fail(r, st, &err);
        return;
    }
    luce_step step = { .at = (size_t)(before - r->n_before - r->n_prompt), .node = d->tree.token,
                       .parent = d->tree.parent, .depth = d->tree.depth, .n_nodes = d->tree.n,
                       .declined = d->declined, .tokens = r->ids + before, .n_tokens = r->n_ids - before,
                       .rows = runner_step(s->runner)->head.n_rows, .draft_seconds = d->seconds,
                       .verify_seconds = verified, .accept_seconds = s->clock() - start };
    count_step(r, &step);
}

/* Shows the drafter rows that became text (NULL: all of its rows in the step), for the guesses to come. */
static void show_features(struct scheduler *s, struct packed *p, int i, const struct accepted *a)
{
    struct request *r = p->request[i];
    const struct step *step = runner_step(s->runner);
    if (!speculator_reads(s->speculator) || r->asked->draft < 0) return;
    int first = step->seq[i].first_row;
    struct observed o = { .slot = seq_slot(r->seq), .ids = r->ids, .at = step->row[first].index, .first_row = first,
                          .n = a ? a->n : p->rows[i], .path = a ? a->path : NULL };
    luce_error err = { 0 };
    luce_status st = speculator_features(s->speculator, &o, &err);
    if (st) request_fail(r, st, &err);
}

/* Behind the step that is queued: guesses at the texts that have trees in it, wherever the device says itself what is
 * kept of them. So the host waits once for both; whatever comes true otherwise is guessed at again. */
static luce_status foresee(struct scheduler *s, const struct packed *p, luce_error *err)
{
    struct foresight of[STEP_SEQS];
    struct draft *now[STEP_SEQS];
    int n = 0, texts = 0;
    if (!speculator_foresees(s->speculator)) return LUCE_OK;
    for (int i = 0; i < p->n; i++) {
        const struct request *r = p->request[i];
        struct draft *d = p->draft[i];
        if (!d) continue;
        texts++;
        if (r->asked->draft < 0 || !device_chooses(s, r)) continue;
        of[n] = (struct foresight){ .slot = d->slot, .n_ids = r->n_ids, .seq = i, .first_out = p->out[i],
                                    .rows = tree_deepest(&d->tree) + 1, .depth = r->most_ids - r->n_ids - 2 };
        now[n++] = d;
    }
    return speculator_foresee(s->speculator, of, now, n, texts, err);
}

static void fail_all(struct scheduler *s, luce_status st, const luce_error *err)
{
    for (int i = 0; i < s->n_active; i++) request_fail(s->active[i], st, err);
    s->n_active = s->ahead.n = 0;
}

/* Lets the device choose as each text wants it. */
static void say_draws(struct scheduler *s, const struct packed *p)
{
    const struct step *step = runner_step(s->runner);
    for (int i = 0; i < step->head.n_out; i++) {
        const struct step_row *row = &step->row[step->out[i].row];
        struct step_draw draw = sample_draw(&p->request[row->seq]->sampling, row->index + 1);
        runner_draw(s->runner, i, &draw);
    }
}

/* Fills the next step and queues it, *start: when. Rows that are no guesses are accepted at once. */
static luce_status queue_step(struct scheduler *s, struct packed *p, enum step_class *class, double *start,
                              luce_error *err)
{
    runner_turn(s->runner, 0);
    scheduler_share(s);
    *class = choose_class(s);
    runner_begin(s->runner, *class);
    struct starved starved = { 0 };
    fill(s, p, *class, &starved);
    if (p->n == 0 && starved.request) {         /* those of the other class may have what they need */
        *class = *class == STEP_WIDE ? STEP_NARROW : STEP_WIDE;
        runner_begin(s->runner, *class);
        fill(s, p, *class, &starved);
        if (p->n == 0) make_room(s, &starved);
    }
    *start = s->clock();
    if (s->hook) s->hook->step(s->hook->context, *class, runner_step(s->runner)->head.n_rows);
    say_draws(s, p);
    luce_status st = p->n ? runner_queue(s->runner, err) : LUCE_OK;
    for (int i = 0; i < p->n && !st && *class == STEP_NARROW; i++)
        if (!p->draft[i]) seq_accept(p->request[i]->seq, NULL, p->rows[i]);
    return st;
}

/* ---- plain steps that are queued behind each other -------------------------------------------------------- */
/* Whether all there is to do after this step follows from the tokens that the device chooses in it. */
static bool can_go_on(const struct scheduler *s, const struct packed *p)
{
    int n = 0;
    if (s->speculator || !runner_goes_on(s->runner)) return false;
    for (int i = 0; i < p->n; i++) {
        const struct request *r = p->request[i];
        if (!r) continue;
        if (r->state != REQUEST_DECODE || !device_chooses(s, r)) return false;
        n++;
    }
    return n > 0 && n == s->n_active;
}

/* Queues a row more of each text behind its row in this step, which the host has not seen the token of. A text that
 * ends with that token leaves, and its row with it: nothing of it was accepted. */
static luce_status go_on(struct scheduler *s, const struct packed *p, luce_error *err)
{
    struct packed *next = &s->ahead;
    luce_status st = LUCE_OK;
    int side = runner_side(s->runner);
    if (!can_go_on(s, p)) return LUCE_OK;
    runner_turn(s->runner, !side);
    runner_begin(s->runner, STEP_NARROW);
    for (int i = 0; i < p->n && !st; i++) {
        struct request *r = p->request[i];
        if (!r || r->n_ids + 1 == r->most_ids) continue;
        next->request[next->n] = r;
        next->at[next->n] = seq_length(r->seq);
        next->rows[next->n] = 1;
        st = runner_add(s->runner, r->seq, &r->ids[r->n_ids - 1], NULL, 1, WANT_ALL, &next->out[next->n], err);
        if (st) break;
        runner_follow(s->runner, i);
        next->n++;
    }
    const bool full = st == LUCE_E_DEVMEM;              /* when this step is done there may be room */
    if (!st) say_draws(s, next);
    if (!st && next->n) st = runner_queue(s->runner, err);
    if (st) next->n = 0;
    runner_turn(s->runner, side);
    return full ? LUCE_OK : st;
}

/* Takes up what was queued behind the last step, now that its tokens are known; false: nothing that anybody wants. */
static bool take_up(struct scheduler *s, struct packed *p)
{
    bool wanted = false;
    for (int i = 0; i < s->ahead.n; i++) wanted |= s->ahead.request[i] != NULL;
    if (wanted) *p = s->ahead;
    s->ahead.n = 0;
    if (!wanted) return false;
    runner_turn(s->runner, !runner_side(s->runner));
    for (int i = 0; i < p->n; i++) {
        struct request *r = p->request[i];
        if (!r) continue;
        runner_known(s->runner, i, r->ids[r->n_ids - 1]);
        seq_accept(r->seq, NULL, 1);
    }
    return true;
}

/* Until the step is done: it alone, when there is one behind it. */
static luce_status wait_step(struct scheduler *s, luce_error *err)
{
    int32_t token;
    if (s->ahead.n == 0) return runner_wait(s->runner, err);
    return runner_read(s->runner, runner_record(s->runner)->choice, 0, 1, &token, err);
}

/* Hands out what came of the step; true if all of it were trees. */
static bool take_step(struct scheduler *s, struct packed *p, double took)
{
    bool all_trees = true;
    for (int i = 0; i < p->n; i++) {
        struct request *r = p->request[i];
        if (!r) continue;
        all_trees = all_trees && p->draft[i];
        if (p->draft[i]) {
            struct accepted a;
            accept_tree(s, r, p->draft[i], p->out[i], took, &a);
            show_features(s, p, i, &a);
            continue;
        }
        show_features(s, p, i, NULL);
        if (p->out[i] < 0) continue;
        luce_error err = { 0 };
        luce_status st = take_rows(s, r, p->out[i], p->at[i], p->rows[i], &err);
        if (st) request_fail(r, st, &err);
    }
    return all_trees;
}

luce_status scheduler_step(struct scheduler *s, luce_error *err)
{
    for (int i = 0; i < s->n_active; i++)
        if (request_cancelled(s->active[i])) request_finish(s->active[i], LUCE_FINISH_CANCELLED);
    remove_done(s);
    if (s->n_active == 0) return LUCE_OK;
    struct packed p = { .n = 0, .draft = { NULL } };
    luce_error local = { 0 };
    enum step_class class = STEP_NARROW;
    double start = s->waited;
    luce_status st = take_up(s, &p) ? LUCE_OK : queue_step(s, &p, &class, &start, &local);
    s->wide_last = class == STEP_WIDE;
    if (!st) st = foresee(s, &p, &local);
    if (!st) st = go_on(s, &p, &local);
    if (!st) st = wait_step(s, &local);
    double took = s->clock() - start;
    s->waited = start + took;
    double guesses = speculator_part(s->speculator, runner_step(s->runner)->head.n_rows, took);
    took -= guesses;
    if (p.n) note_time(s, class, took);
    s->steps++;
    if (st) {
        fail_all(s, st, &local);
        return fail(err, st, "%s", local.text);
    }
    bool all_trees = take_step(s, &p, took);
    if (s->speculator && p.n && all_trees)
        speculator_time(s->speculator, runner_step(s->runner)->head.n_rows, s->clock() - start - guesses);
    remove_done(s);
    return LUCE_OK;
}
