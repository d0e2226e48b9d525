/* spec/follow.c - see follow.h. */
#include "spec/follow.h"

#include <string.h>

#include "base/mem.h"

static luce_status open_waiting(struct followers *fs, struct follower *f, luce_error *err)
{
    struct device *d = runner_device(fs->target);
    size_t bytes = FOLLOW_WAITING * followers_feature(fs) * sizeof *f->waiting;
    if (fs->held) return d->fns->hold(d, (void **)&f->waiting, bytes, err);
    f->waiting = mem_zero(bytes);
    return f->waiting ? LUCE_OK : fail(err, LUCE_E_NOMEM, "out of memory for the features of a text");
}

luce_status followers_open(struct followers *fs, luce_error *err)
{
    fs->slot = mem_array((size_t)fs->n_slots, sizeof *fs->slot);
    luce_status st = fs->slot ? LUCE_OK : fail(err, LUCE_E_NOMEM, "out of memory for the drafter");
    for (int i = 0; i < fs->n_slots && !st; i++) st = open_waiting(fs, &fs->slot[i], err);
    return st;
}

void followers_close(struct followers *fs)
{
    for (int i = 0; fs->slot && i < fs->n_slots; i++) {
        struct follower *f = &fs->slot[i];
        seq_close(f->seq);
        mem_free(f->ids);
        if (fs->held) runner_device(fs->target)->fns->drop(runner_device(fs->target), f->waiting);
        else mem_free(f->waiting);
    }
    mem_free(fs->slot);
    fs->slot = NULL;
}

size_t followers_feature(const struct followers *fs)
{
    return (size_t)fs->n_taps * (size_t)fs->embd;
}

/* Forgets what lies behind the first n positions. */
static void forget(struct follower *f, int n)
{
    int origin = seq_origin(f->seq), held = f->end - f->n_waiting;
    if (n >= f->end) return;
    f->n_waiting = n > held ? n - held : 0;
    f->end = n;
    if (n >= held) return;
    int kept = n > origin ? seq_truncate(f->seq, n - origin) : seq_truncate(f->seq, 0);
    f->end = kept ? origin + kept : 0;          /* a window may have moved on: nothing is left */
    if (kept == 0) seq_set_origin(f->seq, 0);
}

static int same_text(const int32_t *a, const int32_t *b, int n)
{
    int same = 0;
    while (same < n && a[same] == b[same]) same++;
    return same;
}

/* What waits of a text goes into the cache, as far as its tokens are known. */
static luce_status put_by(struct followers *fs, struct follower *f, luce_error *err)
{
    int n = f->n_waiting - fs->ahead;
    return n > 0 ? fs->feed(fs->state, f, f->ids, n, err) : LUCE_OK;
}

/* What the drafter's cache has of a text, where that is more than the follower has. */
static luce_status adopt(struct followers *fs, struct follower *f, const int32_t *ids, int at, luce_error *err)
{
    luce_status st = LUCE_OK;
    for (int i = 0; i < fs->n_slots && !st; i++) st = put_by(fs, &fs->slot[i], err);
    if (st || cache_find(runner_cache(fs->runner), ids + fs->ahead, at) <= f->end) return st;
    seq_truncate(f->seq, 0);
    seq_set_origin(f->seq, 0);
    f->n_waiting = 0;
    f->end = seq_claim(f->seq, ids + fs->ahead, at);
    memcpy(f->ids, ids, (size_t)f->end * sizeof *ids);
    return LUCE_OK;
}

luce_status follow(struct followers *fs, int slot, const int32_t *ids, int at, luce_error *err)
{
    struct follower *f = &fs->slot[slot];
    luce_status st = LUCE_OK;
    if (!f->ids) f->ids = mem_array((size_t)fs->context, sizeof *f->ids);
    if (!f->ids) return fail(err, LUCE_E_NOMEM, "out of memory for the features of a text");
    if (!f->seq) st = seq_open(&f->seq, runner_cache(fs->runner), err);
    int same = same_text(f->ids, ids, f->end < at ? f->end : at);
    if (!st && same < f->end) st = put_by(fs, f, err);          /* it may come again */
    if (st) return st;
    forget(f, same);
    return f->end < at ? adopt(fs, f, ids, at, err) : LUCE_OK;
}

/* How many of the accepted rows from the i-th on, up to `end`, stand one after the other in the step. */
static int run_of_rows(const struct observed *o, int i, int end)
{
    int n = 1;
    while (i + n < end && (!o->path || o->path[i + n] == o->path[i] + n)) n++;
    return n;
}

/* Copies the target's outputs of n accepted rows from the i-th on to the end of what waits. */
static luce_status take_rows(struct followers *fs, struct follower *f, const struct observed *o, int i, int n,
                             luce_error *err)
{
    const struct record *r = runner_record(fs->target);
    struct rows_read rows[FOLLOW_WAITING * MODEL_MAX_TAPS];
    size_t embd = (size_t)fs->embd, feature = followers_feature(fs);
    int k = 0, to = f->n_waiting;
    for (int end = i + n, each; i < end; i += each, to += each) {
        each = run_of_rows(o, i, end);
        for (int tap = 0; tap < fs->n_taps; tap++)
            rows[k++] = (struct rows_read){ .v = r->taps[tap], .first_row = o->first_row + (o->path ? o->path[i] : i),
                                            .n_rows = each, .stride = feature * sizeof(float), .held = fs->held,
                                            .to = f->waiting + (size_t)to * feature + (size_t)tap * embd };
    }
    luce_status st = runner_read_all(fs->target, rows, k, err);
    if (!st) f->n_waiting = to;
    return st;
}

luce_status follow_observe(struct followers *fs, const struct observed *o, luce_error *err)
{
    struct follower *f = &fs->slot[o->slot];
    luce_status st = follow(fs, o->slot, o->ids, o->at, err);
    if (st) return st;
    if (f->end < o->at) {                   /* what lies between is lost: the text begins here */
        forget(f, 0);
        seq_set_origin(f->seq, o->at);
        memcpy(f->ids, o->ids, (size_t)o->at * sizeof *f->ids);
        f->end = o->at;
    }
    for (int i = 0, n; i < o->n && !st; i += n) {
        if (f->n_waiting == FOLLOW_WAITING) st = fs->feed(fs->state, f, o->ids, f->n_waiting, err);
        int room = FOLLOW_WAITING - f->n_waiting;
        n = o->n - i < room ? o->n - i : room;
        if (!st) st = take_rows(fs, f, o, i, n, err);
        if (st) return st;
        memcpy(f->ids + f->end, o->ids + o->at + i, (size_t)n * sizeof *f->ids);
        f->end += n;
    }
    return st;
}

luce_status follow_ahead(struct followers *fs, const struct foresight *x, luce_error *err)
{
    const struct record *r = runner_record(fs->target);
    const struct follower *f = &fs->slot[x->slot];
    struct rows_read rows[MODEL_MAX_TAPS];
    size_t embd = (size_t)fs->embd, feature = followers_feature(fs);
    float *to = f->waiting + (size_t)f->n_waiting * feature;
    for (int tap = 0; tap < fs->n_taps; tap++)
        rows[tap] = (struct rows_read){ .v = r->taps[tap], .n_rows = x->rows, .to = to + (size_t)tap * embd,
                                        .stride = feature * sizeof(float), .held = true, .kept = 1 + x->seq };
    return runner_read_all(fs->target, rows, fs->n_taps, err);
}

luce_status follow_agrees(struct followers *fs, const struct foresight *x, const struct observed *o, bool *agrees,
                          luce_error *err)
{
    int32_t kept[NARROW_ROWS][2];
    int n = o->n < x->rows ? o->n + 1 : x->rows;        /* the one behind shows that the device has stopped there */
    luce_status st = runner_read(fs->target, runner_record(fs->target)->kept, x->first_out, n, kept, err);
    *agrees = !st && o->n <= x->rows && o->at == x->n_ids - 1 && (o->n == n || kept[o->n][0] < 0);
    for (int i = 0; *agrees && i < o->n; i++)
        *agrees = kept[i][0] == o->first_row + o->path[i] && kept[i][1] == o->ids[o->at + i + 1];
    return st;
}

void follow_keep(struct followers *fs, const struct observed *o)
{
    struct follower *f = &fs->slot[o->slot];
    struct step_row rows[NARROW_ROWS];
    for (int i = 0; i < o->n; i++) rows[i].token = o->ids[o->at + i];
    seq_advance(f->seq, rows, o->n);
    memcpy(f->ids + f->end, o->ids + o->at, (size_t)o->n * sizeof *f->ids);
    f->end += o->n;
}
