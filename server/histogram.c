/* server/histogram.c - see histogram.h. */
#include "server/histogram.h"

#include "base/mem.h"

struct bounds {
    double at[HISTOGRAM_BUCKETS];
};
static const struct bounds LONG_SECONDS = { { 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60,
                                              300, 1200 } };
static const struct bounds SHORT_SECONDS = { { 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075,
                                               0.1, 0.15, 0.25, 0.5, 1, 5 } };
static const struct bounds TOKENS = { { 1, 8, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536,
                                        131072, 262144 } };

#define ROW(id, name, help, bounds) { name, help, &bounds },
static const struct { const char *name, *help; const struct bounds *bounds; } rows[HISTOGRAMS] = {
    HISTOGRAM_TABLE(ROW)
};

void histogram_add(struct histogram *all, enum histogram_id id, double value)
{
    struct histogram *h = &all[id];
    int bucket = 0;
    while (bucket < HISTOGRAM_BUCKETS && value > rows[id].bounds->at[bucket]) bucket++;
    atomic_fetch_add_explicit(&h->count[bucket], 1, memory_order_relaxed);
    double sum = atomic_load(&h->sum);
    while (!atomic_compare_exchange_weak(&h->sum, &sum, sum + value)) {}
}

void histograms_print(const struct histogram *all, struct buf *out)
{
    for (int i = 0; i < HISTOGRAMS; i++) {
        const char *name = rows[i].name;
        unsigned long sum = 0;
        buf_printf(out, "# HELP %s %s\n# TYPE %s histogram\n", name, rows[i].help, name);
        for (int b = 0; b < HISTOGRAM_BUCKETS; b++) {
            sum += atomic_load(&all[i].count[b]);
            buf_printf(out, "%s_bucket{le=\"%g\"} %lu\n", name, rows[i].bounds->at[b], sum);
        }
        sum += atomic_load(&all[i].count[HISTOGRAM_BUCKETS]);
        buf_printf(out, "%s_bucket{le=\"+Inf\"} %lu\n%s_sum %.9g\n%s_count %lu\n", name, sum, name,
                   atomic_load(&all[i].sum), name, sum);
    }
}
