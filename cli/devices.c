/* cli/devices.c - luce devices: what this machine has to run models on. */
#include <stdio.h>

#include "base/json.h"
#include "base/mem.h"
#include "cli/options.h"
#include "device/device.h"

static void print_row(struct buf *out, const struct device_info *i)
{
    double gib = 1 << 30;
    buf_printf(out, "%-8s %s\n         %d cores, %.1f GiB of memory (%.1f free), %s\n", i->id, i->name,
               i->n_units, (double)i->memory_total / gib, (double)i->memory_free / gib, i->driver);
}

static void print_object(struct json *j, const struct device_info *i)
{
    json_open_object(j);
    json_key(j, "id");
    json_text(j, i->id);
    json_key(j, "name");
    json_text(j, i->name);
    json_key(j, "driver");
    json_text(j, i->driver);
    json_key(j, "units");
    json_int(j, i->n_units);
    json_key(j, "memory_total");
    json_uint(j, i->memory_total);
    json_key(j, "memory_free");
    json_uint(j, i->memory_free);
    json_close(j);
}

luce_status devices_run(const struct options *o, luce_error *err)
{
    struct buf out = { 0 };
    struct json j;
    luce_status st = LUCE_OK;
    json_begin(&j, &out);
    if (o->json) json_open_array(&j);
    for (size_t k = 0; device_kind_at(k) && !st; k++) {
        const struct device_kind *kind = device_kind_at(k);
        int n = kind->count();
        for (int i = 0; i < n && !st; i++) {
            struct device *d = NULL;
            struct device_info info = { 0 };
            st = kind->open(&d, i, &(struct device_params){ .n_threads = (int)o->threads }, err);
            if (!st) st = d->fns->info(d, &info, err);
            device_close(d);
            if (st) break;
            if (o->json) print_object(&j, &info);
            else print_row(&out, &info);
        }
    }
    if (o->json) {
        json_close(&j);
        buf_add_char(&out, '\n');
    } else {
        size_t before = out.len;
        device_missing(&out);
        if (out.len > before) buf_add_char(&out, '\n');
    }
    if (!st) st = output_write(&out, err);
    buf_drop(&out);
    return st;
}
