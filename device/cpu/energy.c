/* device/cpu/energy.c - what the processor has used, as Linux tells it (RAPL): one folder a package,
 * intel-rapl:0 and so on, AMD's too. Only root may read them as a rule; without, the figure is unknown. */
#include <stdio.h>

#include "device/cpu/cpu.h"

enum { PACKAGES_MOST = 64 };

double cpu_energy_in(const char *folder)
{
    double sum = -1;
    for (int i = 0; i < PACKAGES_MOST; i++) {
        char path[512];
        unsigned long long microjoules;
        snprintf(path, sizeof path, "%s/intel-rapl:%d/energy_uj", folder, i);
        FILE *f = fopen(path, "re");
        if (!f) break;
        bool good = fscanf(f, "%llu", &microjoules) == 1;
        fclose(f);
        if (!good) return -1;
        sum = (sum < 0 ? 0 : sum) + (double)microjoules * 1e-6;
    }
    return sum;
}

double cpu_joules(struct device *d)
{
    (void)d;
    return cpu_energy_in("/sys/class/powercap");
}
