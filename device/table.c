/* device/table.c - the kinds of devices that this build knows, and their ids: "cpu", "cuda:0", "auto". */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "device/cpu/device.h"
#ifdef LUCE_GPU
#include "device/gpu/device.h"
#endif

/* In the order in which "auto" tries them. */
static const struct device_kind *const kinds[] = {
#ifdef LUCE_GPU
    &device_kind_gpu,
#endif
    &device_kind_cpu,
};

const struct device_kind *device_kind_at(size_t i)
{
    return i < COUNT(kinds) ? kinds[i] : NULL;
}

/* "cpu", "cuda:0, cuda:1, cpu": what is there, for messages. */
static void list_devices(struct buf *out)
{
    for (size_t k = 0; k < COUNT(kinds); k++) {
        int n = kinds[k]->count();
        for (int i = 0; i < n; i++) {
            buf_printf(out, "%s%s", out->len ? ", " : "", kinds[k]->name);
            if (kinds[k] != &device_kind_cpu) buf_printf(out, ":%d", i);
        }
    }
}

void device_missing(struct buf *out)
{
#ifdef LUCE_GPU
    for (size_t k = 0; k < COUNT(kinds); k++) {
        if (!kinds[k]->missing || kinds[k]->count()) continue;
        buf_add_text(out, "no GPU: ");
        kinds[k]->missing(out);
    }
#else
    buf_add_text(out, "no GPU: this build has no code for one; docs/hardware.md says how to build it");
#endif
}

static luce_status unknown(const char *id, luce_error *err)
{
    struct buf there = { 0 }, missing = { 0 };
    list_devices(&there);
    device_missing(&missing);
    luce_status st = fail(err, LUCE_E_ARG, "there is no device '%s'; this machine has: %s%s%s", id, buf_text(&there),
                          missing.len ? "; " : "", buf_text(&missing));
    buf_drop(&there);
    buf_drop(&missing);
    return st;
}

luce_status device_open(struct device **out, const char *id, const struct device_params *p, luce_error *err)
{
    *out = NULL;
    if (!id || !strcmp(id, "auto")) {
        for (size_t k = 0; k < COUNT(kinds); k++)
            if (kinds[k]->count() > 0) return kinds[k]->open(out, 0, p, err);
        return unknown("auto", err);
    }
    const char *colon = strchr(id, ':');
    size_t len = colon ? (size_t)(colon - id) : strlen(id);
    char *end = NULL;
    long index = colon ? strtol(colon + 1, &end, 10) : 0;
    if (colon && (end == colon + 1 || *end)) return unknown(id, err);
    for (size_t k = 0; k < COUNT(kinds); k++) {
        if (strlen(kinds[k]->name) != len || strncmp(kinds[k]->name, id, len)) continue;
        if (index < 0 || index >= kinds[k]->count()) return unknown(id, err);
        return kinds[k]->open(out, (int)index, p, err);
    }
    return unknown(id, err);
}

void device_close(struct device *d)
{
    if (d) d->fns->close(d);
}

static bool has(const void *context, const struct call *c)
{
    const struct device *d = context;
    return d->fns->has(d, c);
}

struct target device_target(const struct device *d)
{
    return (struct target){ .has = has, .context = d, .takes = d->takes, .ahead = d->ahead };
}
