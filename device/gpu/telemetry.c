/* device/gpu/telemetry.c - energy and driver version from NVML, opened at run time: without the library, or
 * without the right to ask, figures are unknown and nothing else changes. Prototypes as NVML documents
 * them; the order of its devices is that of PCI, so the card is found by its bus id. */
#include <dlfcn.h>
#include <stdio.h>

#include "base/mem.h"
#include "device/gpu/gpu.h"

struct nvml {
    void *library, *device;
    int (*init)(void), (*shutdown)(void);
    int (*by_bus)(const char *bus, void **device);
    int (*driver)(char *out, unsigned size);
    int (*energy)(void *device, unsigned long long *millijoules);
    char version[48];
};

static bool load(struct nvml *n)
{
    const struct { const char *name; void *to; } names[] = {
        { "nvmlInit_v2", &n->init }, { "nvmlShutdown", &n->shutdown },
            { "nvmlDeviceGetHandleByPciBusId_v2", &n->by_bus },
        { "nvmlSystemGetDriverVersion", &n->driver }, { "nvmlDeviceGetTotalEnergyConsumption", &n->energy },
    };
    n->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; n->library && i < COUNT(names); i++) {
        *(void **)names[i].to = dlsym(n->library, names[i].name);
        if (!*(void **)names[i].to) return false;
    }
    return n->library != NULL;
}

struct nvml *nvml_open(int index)
{
    char bus[64];
    struct nvml *n = mem_zero(sizeof *n);
    if (!n) return NULL;
    if (load(n) && n->init() == 0) {
        if (GPU(DeviceGetPCIBusId)(bus, sizeof bus, index) == GPU(Success) && n->by_bus(bus, &n->device) == 0) {
            if (n->driver(n->version, sizeof n->version)) n->version[0] = '\0';
            return n;
        }
        n->shutdown();
    }
    if (n->library) dlclose(n->library);
    mem_free(n);
    return NULL;
}

void nvml_close(struct nvml *n)
{
    if (!n) return;
    n->shutdown();
    dlclose(n->library);
    mem_free(n);
}

const char *nvml_driver(const struct nvml *n)
{
    return n && n->version[0] ? n->version : "unknown";
}

double nvml_joules(struct nvml *n)
{
    unsigned long long mj;
    return n && n->energy(n->device, &mj) == 0 ? (double)mj * 1e-3 : -1;
}
