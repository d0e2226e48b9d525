/* tests/model_drive.c - see model_drive.h. */
#include "tests/model_drive.h"

#include "quant/quant.h"

bool model_from_file(struct gguf **g, struct model **m, const char *path)
{
    luce_error err = { 0 };
    *m = NULL;
    luce_status st = gguf_open(g, path, &err);
    if (!st) st = model_open(m, *g, &err);
    CHECK_OK(st, err);
    return st == LUCE_OK;
}

bool drive_open(struct drive *d, struct model *m, uint32_t round_format, int max_positions)
{
    luce_error err = { 0 };
    *d = (struct drive){ .model = m, .kv = m->kv };
    d->step = mem_zero(sizeof *d->step);
    luce_status st = kv_layout_finish(&d->kv, round_format ? round_format : Q_F16,
                                      round_format ? round_format : Q_F16, &err);
    tape_begin(&d->tape, (struct target){ 0 }, &d->kv);
    model_record(&d->tape, m, &(struct record_params){ .all_layers = true }, &d->rec);
    if (!st) st = tape_end(&d->tape, &err);
    if (!st) st = interp_open(&d->interp, &d->tape, &d->kv, 1, max_positions, round_format != 0, &err);
    CHECK_OK(st, err);
    return st == LUCE_OK && d->step;
}

void drive_close(struct drive *d)
{
    interp_close(d->interp);
    tape_drop(&d->tape);
    mem_free(d->step);
}

void drive_restart(struct drive *d)
{
    d->past = d->in_bank = 0;
}

bool drive_step(struct drive *d, const int *tokens, int n, enum step_class class)
{
    luce_error err = { 0 };
    struct step *s = d->step;
    int past = d->past + d->in_bank;
    s->head = (struct step_head){ .n_rows = n, .n_out = n, .n_seqs = 1, .wide = class };
    s->seq[0] = (struct step_seq){ .n_rows = n, .past = past, .n_commit = d->in_bank };
    for (int i = 0; i < d->in_bank; i++) s->seq[0].commit[i] = (uint8_t)i;
    for (int i = 0; i < n; i++) {
        int at = past + i;
        s->row[i] = (struct step_row){ .token = tokens[i], .index = at, .rope = { at, at, at },
                                       .see = class == STEP_WIDE ? at : past - 1,
                                       .path = class == STEP_WIDE ? 0 : ~UINT64_C(0) >> (63 - i) };
        s->out[i] = (struct step_out){ .row = i, .mask = -1 };
    }
    d->past = class == STEP_WIDE ? past + n : past;
    d->in_bank = class == STEP_WIDE ? 0 : n;
    luce_status st = interp_run(d->interp, s, &err);
    CHECK_OK(st, err);
    return st == LUCE_OK;
}

struct val drive_layer(const struct drive *d, int layer)
{
    char name[24];
    snprintf(name, sizeof name, "layer.%d", layer);
    for (int i = 1; i < d->tape.n_values; i++)
        if (d->tape.values[i].name && !strcmp(d->tape.values[i].name, name)) return (struct val){ i };
    CHECK(false, "no value %s", name);
    return (struct val){ 0 };
}
