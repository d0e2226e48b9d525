/* tests/gpu_rig.c - see gpu_rig.h. */
#include "gpu_rig.h"

#include <string.h>

#ifdef LUCE_EMULATED_GPU
#include "device/gpu/device.h"
#endif
#include "test.h"

struct device *open_gpu(void)
{
    struct device *d = NULL;
    luce_error err = { 0 };
    for (size_t k = 0; device_kind_at(k); k++) {
        const struct device_kind *kind = device_kind_at(k);
        if (!strcmp(kind->name, "cpu") || kind->count() == 0) continue;
        CHECK_OK(kind->open(&d, 0, &(struct device_params){ 0 }, &err), err);
        return d;
    }
#ifdef LUCE_EMULATED_GPU
    CHECK_OK(device_kind_gpu.open(&d, 0, &(struct device_params){ 0 }, &err), err);
#endif
    return d;
}

bool gpu_is_emulated(struct device *d)
{
    struct device_info info;
    luce_error err = { 0 };
    return d->fns->info(d, &info, &err) == LUCE_OK && strncmp(info.id, "emulated", 8) == 0;
}
