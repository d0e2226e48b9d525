/* The GPU device, on a card where there is one, else on one that the CPU emulates: every op against the
 * references, bits that do not depend on company, and memory that is not there. */
#include "device/check.h"
#ifdef LUCE_EMULATED_GPU
#include "device/gpu/device.h"
#endif
#include "quant/quant.h"
#include "tests/test.h"

static struct device *open_gpu(void)
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

/* Then a run takes a sample of the formats only: most of them are the same to the GPU. */
static bool emulated(struct device *d)
{
    struct device_info info;
    luce_error err = { 0 };
    return d->fns->info(d, &info, &err) == LUCE_OK && strncmp(info.id, "emulated", 8) == 0;
}

/* Ops that the GPU has no kernels for, of some or all attributes. */
static const char *const missing[] = { "rope_kv", "short_conv", "delta", "gated" };

/* Context: how many results said that there is no kernel. */
static void report(void *context, const struct check_result *r)
{
    for (size_t i = 0; i < COUNT(missing); i++)
        if (!strcmp(r->op, missing[i]) && strstr(r->label, "no kernel")) {
            ++*(int *)context;
            return;
        }
    if (!r->passed)
        test_failed(__FILE__, __LINE__, "%s: %s: error %g, allowed %g", r->op, r->label, r->nmse, r->allowed);
}

TEST(gpu_kernels_are_close_to_the_references)
{
    struct device *d = open_gpu();
    if (!d) SKIP("no GPU");
    int failed = -1, refused = 0;
    luce_error err = { 0 };
    struct check_params p = { .seed = test_random(), .sample = emulated(d) ? 2 : 0 };
    CHECK_OK(check_device(d, &p, report, &refused, &failed, &err), err);
    CHECK_EQ(failed, refused);
    device_close(d);
}

TEST(gpu_rows_do_not_depend_on_their_company)
{
    struct device *d = open_gpu();
    if (!d) SKIP("no GPU");
    int failed = -1, refused = 0;
    luce_error err = { 0 };
    struct check_params p = { .seed = test_random(), .sample = emulated(d) ? 5 : 0 };
    CHECK_OK(check_width_independence(d, &p, report, &refused, &failed, &err), err);
    CHECK_EQ(failed, refused);
    device_close(d);
}

TEST(gpu_says_what_does_not_fit_and_goes_on)
{
    struct device *d = open_gpu();
    if (!d) SKIP("no GPU");
    struct kv_layout kv = { 0 };
    struct device_cache *c = NULL;
    luce_error err = { 0 };
    CHECK_OK(kv_layout_add(&kv, 8, 128, 128, 0, &err), err);
    CHECK_OK(kv_layout_finish(&kv, Q_F16, Q_F16, &err), err);
    struct cache_params p = { .layout = &kv, .n_slots = 1, .n_pages = { 1 << 24 }, .max_pages = { 1 << 24 } };
    CHECK_EQ(d->fns->cache_open(d, &c, &p, &err), LUCE_E_DEVMEM);
    CHECK(strstr(err.text, "MiB are free") != NULL, "%s", err.text);
    CHECK(c == NULL);
    p.n_pages[0] = p.max_pages[0] = 4;
    CHECK_OK(d->fns->cache_open(d, &c, &p, &err), err);
    d->fns->cache_close(d, c);
    device_close(d);
}
