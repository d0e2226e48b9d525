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

/* A narrow and a wide program of 64 rows; pages 1 .. n of every kind belong to the one slot. */
bool drive_open_device(struct drive *d, struct model *m, struct device *device, uint32_t cache_format,
                       int max_positions)
{
    luce_error err = { 0 };
    *d = (struct drive){ .model = m, .kv = m->kv, .device = device };
    d->step = mem_zero(sizeof *d->step);
    luce_status st = kv_layout_finish(&d->kv, cache_format, cache_format, &err);
    d->cache_pages = (max_positions + PAGE - 1) / PAGE + 1;
    struct cache_params p = { .layout = &d->kv, .n_slots = 1 };
    for (int k = 0; k < d->kv.n_kinds; k++) {
        p.max_pages[k] = d->cache_pages;
        p.n_pages[k] = p.max_pages[k] + 1;
    }
    p.n_pages[KV_STATE] = 1;
    tape_begin(&d->tape, device_target(device), &d->kv);
    model_record(&d->tape, m, &(struct record_params){ .all_layers = true }, &d->rec);
    if (!st) st = tape_end(&d->tape, &err);
    if (!st) st = device->fns->cache_open(device, &d->cache, &p, &err);
    for (int c = 0; !st && c < 2; c++) {
        struct bucket b = { .rows = { [DOM_ROWS] = 64, [DOM_OUT] = 64, [DOM_SEQS] = 1 }, .class = (enum step_class)c };
        st = plan_make(&d->plan[c], &d->tape, b, &err);
        if (!st) st = device->fns->compile(device, &d->program[c], &d->tape, &d->plan[c], d->cache, &err);
    }
    CHECK_OK(st, err);
    return st == LUCE_OK && d->step;
}

bool drive_upload(struct device *device, struct model *m)
{
    luce_error err = { 0 };
    luce_status st = LUCE_OK;
    for (int i = 0; !st && i < m->n_weights; i++) st = device->fns->upload(device, &m->weights[i], &err);
    CHECK_OK(st, err);
    return st == LUCE_OK;
}

void drive_release(struct device *device, struct model *m)
{
    for (int i = 0; i < m->n_weights; i++) device->fns->release(device, &m->weights[i]);
}

void drive_close(struct drive *d)
{
    interp_close(d->interp);
    for (int c = 0; d->device && c < 2; c++) {
        if (d->program[c]) d->device->fns->program_close(d->device, d->program[c]);
        plan_drop(&d->plan[c]);
    }
    if (d->cache) d->device->fns->cache_close(d->device, d->cache);
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
        s->out[i] = (struct step_out){ .row = i };
    }
    for (int k = 0; d->device && past == 0 && k < d->kv.n_kinds; k++)
        for (int i = 0; i < d->cache_pages; i++)
            s->edit[s->head.n_edits++] = (struct step_edit){ .kind = k, .at = i, .page = 1 + i };
    d->past = class == STEP_WIDE ? past + n : past;
    d->in_bank = class == STEP_WIDE ? 0 : n;
    d->class = class;
    luce_status st = d->device ? d->device->fns->run(d->device, d->program[class], s, NULL, NULL, &err)
                               : interp_run(d->interp, s, &err);
    CHECK_OK(st, err);
    return st == LUCE_OK;
}

void drive_read(const struct drive *d, struct val v, int n_rows, float *out)
{
    luce_error err = { 0 };
    size_t n = (size_t)n_rows * (size_t)tape_shape(&d->tape, v).cols;
    memset(out, 0xff, n * sizeof *out);
    if (d->device)
        CHECK_OK(d->device->fns->read(d->device, d->program[d->class], &(struct rows_read){ v, 0, n_rows, out, 0, false, 0 }, 1, &err), err);
    for (size_t i = 0; !d->device && i < n; i++) out[i] = (float)interp_read(d->interp, v)[i];
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
