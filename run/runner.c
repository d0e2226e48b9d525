/* run/runner.c - a loaded model that takes steps; see runner.h.
 * One tape serves every width. Its values are laid out per bucket of rows, and a bucket is compiled by
 * the first step that needs it. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "quant/quant.h"
#include "run/inside.h"

static luce_status fix_formats(struct kv_layout *kv, const struct load_params *p, luce_error *err)
{
    return kv_layout_finish(kv, p->k_format ? p->k_format : Q_F16, p->v_format ? p->v_format : Q_F16, err);
}

static luce_status record_class(struct tape *t, const struct model *m, enum step_class class,
                                const struct kv_layout *kv, const struct load_params *p, struct record *out,
                                luce_error *err)
{
    tape_begin(t, device_target(p->device), kv);
    if (m->family->record) m->family->record(t, m, class, out);
    else model_record(t, m, &p->record, out);
    for (int i = 1; i < t->n_values && p->keep_values; i++) t->values[i].keep = true;
    return tape_end(t, err);
}

static luce_status record(struct tape *tapes, const struct model *m, const struct kv_layout *kv,
                          const struct load_params *p, struct record *out, luce_error *err)
{
    luce_status st = record_class(&tapes[STEP_NARROW], m, STEP_NARROW, kv, p, out, err);
    if (st || !m->family->record) return st;
    return record_class(&tapes[STEP_WIDE], m, STEP_WIDE, kv, p, out, err);
}

luce_status runner_plan(const struct model *m, const struct load_params *p, struct load_plan *out,
                        luce_error *err)
{
    *out = (struct load_plan){ 0 };
    struct kv_layout *kv = mem_alloc(sizeof *kv);
    if (!kv) return fail(err, LUCE_E_NOMEM, "out of memory for the load plan");
    *kv = m->kv;
    struct tape tapes[2] = { 0 };
    struct record rec = { 0 };
    luce_status st = fix_formats(kv, p, err);
    if (!st) st = record(tapes, m, kv, p, &rec, err);
    if (!st) st = plan_load(m, kv, tapes, p, out, err);
    for (int i = 0; i < 2; i++) tape_drop(&tapes[i]);
    mem_free(kv);
    return st;
}

static luce_status open_all(struct runner *r, const struct load_params *p, luce_error *err)
{
    struct model *m = r->model;
    r->step = mem_zero(sizeof *r->step);
    r->other_step = mem_zero(sizeof *r->other_step);
    r->edits = mem_zero(sizeof *r->edits);
    if (!r->step || !r->other_step || !r->edits) return fail(err, LUCE_E_NOMEM, "out of memory for the step");
    luce_status st = chunk_of(p, &r->chunk, err);
    if (!st) st = runner_plan(m, p, &r->plan, err);
    if (!st) st = model_limit_context(m, r->plan.context, err);     /* may change what is recorded */
    if (!st) st = fix_formats(&m->kv, p, err);
    if (!st) st = record(r->tape, m, &m->kv, p, &r->record, err);
    if (st) return st;
    struct cache_config c = cache_config_of(p, &m->kv, r->plan.context, r->chunk);
    if ((st = upload_weights(m, p, err))) return st;
    return cache_open(&r->cache, &c, err);
}

luce_status runner_open(struct runner **out, struct model *m, const struct load_params *p, luce_error *err)
{
    *out = NULL;
    struct runner *r = mem_zero(sizeof *r);
    if (!r) {
        model_close(m);
        return fail(err, LUCE_E_NOMEM, "out of memory for the model");
    }
    r->model = m;
    r->device = p->device;
    luce_status st = open_all(r, p, err);
    if (st) runner_close(r);
    else *out = r;
    return st;
}

void runner_close(struct runner *r)
{
    if (!r) return;
    for (int i = 0; i < N_BUCKETS; i++) {
        for (int k = 0; k < 2; k++)
            if (r->bucket[i].program[k]) r->device->fns->program_close(r->device, r->bucket[i].program[k]);
        plan_drop(&r->bucket[i].plan);
    }
    cache_close(r->cache);
    for (int i = 0; i < 2; i++) tape_drop(&r->tape[i]);
    release_weights(r->model, r->device);
    model_close(r->model);
    mem_free(r->edits);
    mem_free(r->other_step);
    mem_free(r->step);
    mem_free(r);
}

const struct model *runner_model(const struct runner *r)
{
    return r->model;
}

struct device *runner_device(const struct runner *r)
{
    return r->device;
}

struct cache *runner_cache(const struct runner *r)
{
    return r->cache;
}

const struct tape *runner_tape(const struct runner *r)
{
    return &r->tape[STEP_NARROW];
}

struct load_plan runner_load_plan(const struct runner *r)
{
    return r->plan;
}

int runner_chunk(const struct runner *r)
{
    return r->chunk;
}

const struct record *runner_record(const struct runner *r)
{
    return &r->record;
}

const struct step *runner_step(const struct runner *r)
{
    return r->step;
}

/* The bucket that has room for n rows and n sequences, compiled. */
static luce_status bucket_for(struct runner *r, enum step_class class, int n, struct bucketed **out, luce_error *err)
{
    int i = class == STEP_WIDE ? WIDE_BUCKET : 0;
    while (class == STEP_NARROW && 1 << i < n) i++;
    struct bucketed *b = *out = &r->bucket[i];
    struct program **program = &b->program[r->side];
    if (*program) return LUCE_OK;
    struct device *d = r->device;
    const struct tape *t = tape_of(r->model, r->tape, class);
    luce_status st = LUCE_OK;
    if (!b->plan.offset) st = plan_make(&b->plan, t, bucket_of(i, r->chunk), err);
    if (st) return st;
    return d->fns->compile(d, program, t, &b->plan, cache_on_device(r->cache), err);
}

luce_status runner_bucket(struct runner *r, enum step_class class, int n_rows, const struct plan **out,
                          luce_error *err)
{
    struct bucketed *b;
    luce_status st = bucket_for(r, class, n_rows, &b, err);
    *out = st ? NULL : &b->plan;
    return st;
}

void runner_begin(struct runner *r, enum step_class class)
{
    step_begin(r->step, class);
}

luce_status runner_add(struct runner *r, struct seq *s, const int32_t *tokens, const int *parent, int n,
                       enum want want, int *first_out, luce_error *err)
{
    int end, out, vocab = r->model->c.vocab;
    for (int i = 0; i < r->step->head.n_seqs; i++)
        if (r->seq[i] == s) return fail(err, LUCE_E_ARG, "step: a sequence is in it twice");
    for (int i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= vocab)
            return fail(err, LUCE_E_ARG, "token %d of the text is %d; the model's vocabulary is 0 to %d", i,
                        tokens[i], vocab - 1);
    struct step_rows rows = { .tokens = tokens, .parent = parent, .n = n, .length = seq_length(s),
                              .origin = seq_origin(s), .want = want };
    luce_status st = step_add(r->step, &rows, r->step->head.wide ? r->chunk : NARROW_ROWS, &end, &out, err);
    if (st) return st;
    if ((st = seq_reserve(s, end, err))) {
        step_undo(r->step);
        return st;
    }
    r->seq[r->step->head.n_seqs - 1] = s;
    if (first_out) *first_out = out;
    return LUCE_OK;
}

/* Accepted rows that lead to a page boundary of a recurrent sequence are committed on their own, and the state
 * there is kept. */
static luce_status run_parts(struct runner *r, struct program *program, luce_error *err)
{
    int n[STEP_SEQS], k = 0;
    for (int i = 0; i < r->step->head.n_seqs; i++) {
        n[i] = seq_part(r->seq[i], false);
        if (n[i]) seq_emit_part(r->seq[i], r->edits, k++, n[i]);
    }
    if (k == 0) return LUCE_OK;
    r->edits->head = (struct step_head){ .n_seqs = k };
    luce_status st = r->device->fns->run(r->device, program, r->edits, NULL, NULL, err);
    for (int i = 0; !st && i < r->step->head.n_seqs; i++) {
        if (n[i] == 0) continue;
        seq_emitted_part(r->seq[i], n[i]);
        st = seq_checkpoint(r->seq[i], err);
    }
    return st;
}

/* Table changes come first: those that one step does not take go in steps without rows. */
static luce_status run_edits(struct runner *r, struct program *program, luce_error *err)
{
    r->step->head.n_edits = 0;
    while (cache_emit_edits(r->cache, r->step)) {
        r->edits->head = (struct step_head){ .n_edits = r->step->head.n_edits };
        memcpy(r->edits->edit, r->step->edit, sizeof r->edits->edit);
        luce_status st = r->device->fns->run(r->device, program, r->edits, NULL, NULL, err);
        if (st) return st;
        r->step->head.n_edits = 0;
    }
    return LUCE_OK;
}

static luce_status queue(struct runner *r, bool open, trace_fn fn, void *context, luce_error *err)
{
    struct step *s = r->step;
    struct bucketed *b;
    r->last = NULL;
    luce_status st = bucket_for(r, (enum step_class)s->head.wide, step_room(s), &b, err);
    if (st) return st;
    struct program *program = b->program[r->side];
    st = run_parts(r, program, err);
    if (!st) st = run_edits(r, program, err);
    if (st) return st;
    for (int i = 0; i < s->head.n_seqs; i++) {
        struct step_seq rows = s->seq[i];
        seq_emit(r->seq[i], s, i);
        s->seq[i].first_row = rows.first_row;
        s->seq[i].n_rows = rows.n_rows;
        s->seq[i].after = rows.after;
        s->seq[i].follows = rows.follows;
    }
    if ((st = r->device->fns->run(r->device, program, s, fn, context, err))) return st;
    r->last = program;
    for (int i = 0; i < s->head.n_seqs; i++) {
        seq_emitted(r->seq[i]);
        const struct step_row *rows = &s->row[s->seq[i].first_row];
        if (open) continue;
        if (s->head.wide) seq_advance(r->seq[i], rows, s->seq[i].n_rows);
        else seq_note(r->seq[i], rows, s->seq[i].n_rows);
        if ((st = seq_checkpoint(r->seq[i], err))) return st;
    }
    return LUCE_OK;
}

luce_status runner_queue(struct runner *r, luce_error *err)
{
    return queue(r, false, NULL, NULL, err);
}

luce_status runner_queue_open(struct runner *r, luce_error *err)
{
    assert(r->step->head.wide);
    return queue(r, true, NULL, NULL, err);
}

luce_status runner_wait(struct runner *r, luce_error *err)
{
    return r->device->fns->wait(r->device, err);
}

luce_status runner_trace(struct runner *r, trace_fn fn, void *context, luce_error *err)
{
    luce_status st = queue(r, false, fn, context, err);
    return st ? st : runner_wait(r, err);
}

luce_status runner_settle(struct runner *r, struct seq *s, luce_error *err)
{
    int n = seq_part(s, true);
    struct bucketed *b;
    luce_status st = n ? bucket_for(r, STEP_NARROW, 1, &b, err) : LUCE_OK;
    if (st || n == 0) return st;
    r->edits->head = (struct step_head){ .n_seqs = 1 };
    seq_emit_part(s, r->edits, 0, n);
    if ((st = r->device->fns->run(r->device, b->program[r->side], r->edits, NULL, NULL, err))) return st;
    seq_emitted_part(s, n);
    return seq_checkpoint(s, err);
}

luce_status runner_run(struct runner *r, luce_error *err)
{
    return runner_trace(r, NULL, NULL, err);
}

void runner_after(struct runner *r, int seq)
{
    assert(r->step->head.n_seqs > 0 && r->device->ahead);
    r->step->seq[r->step->head.n_seqs - 1].after = 1 + seq;
    r->step->head.after = 1;
}

void runner_turn(struct runner *r, int side)
{
    if (side == r->side) return;
    struct program *last = r->last;
    struct step *step = r->step;
    r->last = r->other_last;
    r->step = r->other_step;
    r->other_last = last;
    r->other_step = step;
    r->side = side;
}

int runner_side(const struct runner *r)
{
    return r->side;
}

bool runner_goes_on(const struct runner *r)
{
    return r->record.kept.id != 0;
}

void runner_follow(struct runner *r, int seq)
{
    assert(r->step->head.n_seqs > 0 && runner_goes_on(r));
    r->step->seq[r->step->head.n_seqs - 1].follows = 1 + seq;
    r->step->head.after = 1;
}

void runner_known(struct runner *r, int seq, int32_t token)
{
    struct step_row *row = &r->step->row[r->step->seq[seq].first_row];
    row->token = token;
    seq_note(r->seq[seq], row, 1);
}

void runner_draw(struct runner *r, int out_row, const struct step_draw *draw)
{
    assert(out_row >= 0 && out_row < r->step->head.n_out);
    r->step->out[out_row].draw = *draw;
}

luce_status runner_give(struct runner *r, struct val v, int row, int n_rows, const void *values, luce_error *err)
{
    struct bucketed *b;
    luce_status st = bucket_for(r, (enum step_class)r->step->head.wide, r->step->head.n_rows, &b, err);
    return st ? st : r->device->fns->write(r->device, b->program[r->side], v, row, n_rows, values, err);
}

luce_status runner_give_held(struct runner *r, struct val v, int row, int n_rows, const void *held, luce_error *err)
{
    struct bucketed *b;
    luce_status st = bucket_for(r, (enum step_class)r->step->head.wide, r->step->head.n_rows, &b, err);
    return st ? st : r->device->fns->write_held(r->device, b->program[r->side], v, row, n_rows, held, err);
}

luce_status runner_read_all(struct runner *r, const struct rows_read *rows, int n, luce_error *err)
{
    if (!r->last) return fail(err, LUCE_E_ARG, "no step has run whose values could be read");
    return r->device->fns->read(r->device, r->last, rows, n, err);
}

luce_status runner_read(struct runner *r, struct val v, int row, int n_rows, void *out, luce_error *err)
{
    return runner_read_all(r, &(struct rows_read){ .v = v, .first_row = row, .n_rows = n_rows, .to = out }, 1, err);
}

static luce_status not_finite(const struct runner *r, int out_row, luce_error *err)
{
    const struct step_row *row = &r->step->row[r->step->out[out_row].row];
    return fail(err, LUCE_E_NUMERIC, "non-finite logits at position %d (token %d): the model's weights or this "
                "device's kernels are at fault; 'luce inspect --check' reads the weights, "
                "--check-against-reference compares the kernels", row->index, row->token);
}

luce_status runner_choice(struct runner *r, int out_row, int32_t *token, luce_error *err)
{
    assert(out_row >= 0 && out_row < r->step->head.n_out);
    *token = -1;
    luce_status st = runner_read(r, r->record.choice, out_row, 1, token, err);
    if (!st && *token < 0) st = not_finite(r, out_row, err);
    return st;
}

luce_status runner_logits(struct runner *r, int out_row, float *logits, luce_error *err)
{
    assert(out_row >= 0 && out_row < r->step->head.n_out);
    luce_status st = runner_read(r, r->record.logits, out_row, 1, logits, err);
    int n = tape_shape(&r->tape[STEP_NARROW], r->record.logits).cols;
    int bad = 0;
    for (int i = 0; !st && i < n; i++) bad |= !(fabsf(logits[i]) < INFINITY);
    return bad ? not_finite(r, out_row, err) : st;
}

int runner_prefill_rows(const struct runner *r, struct seq *s, int n, enum step_class *class)
{
    *class = STEP_WIDE;
    int most = seq_cut(s, n < r->chunk ? n : r->chunk, n), length = seq_length(s);
    if (r->device->equal_bits) return most;
    if (length % PAGE == 0 && most >= PAGE) return most / PAGE * PAGE;
    *class = STEP_NARROW;
    int left = PAGE - length % PAGE;
    return n < left ? n : left;
}

luce_status runner_prefill_step(struct runner *r, struct seq *s, const int32_t *tokens, int n, int *rows,
                                luce_error *err)
{
    enum step_class class;
    *rows = runner_prefill_rows(r, s, n, &class);
    runner_begin(r, class);
    luce_status st = runner_add(r, s, tokens, NULL, *rows, *rows == n ? WANT_LAST : WANT_NONE, NULL, err);
    if (!st) st = runner_run(r, err);
    if (!st && class == STEP_NARROW) seq_accept(s, NULL, *rows);
    return st;
}

luce_status runner_prefill(struct runner *r, struct seq *s, const int32_t *tokens, int n,
                           bool (*cancelled)(void *), void *context, luce_error *err)
{
    for (int done = 0, rows; done < n; done += rows) {
        if (cancelled && cancelled(context))
            return fail(err, LUCE_E_CANCELLED, "cancelled after %d of %d prompt tokens", done, n);
        luce_status st = runner_prefill_step(r, s, tokens + done, n - done, &rows, err);
        if (st) return st;
    }
    return LUCE_OK;
}
