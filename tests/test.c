/* tests/test.c - see test.h. */
#define _GNU_SOURCE
#include "test.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/hash.h"

static struct test *tests, **last = &tests;
static bool failed, skipped;
static uint64_t seed, draws;
static char scratch_dir[64];

void test_register(struct test *t)
{
    *last = t;
    last = &t->next;
}

static void report(const char *file, int line, const char *condition, const char *format, va_list args)
{
    failed = true;
    const char *name = strrchr(file, '/');
    printf("    %s:%d: %s ", name ? name + 1 : file, line, condition);
    vprintf(format, args);
    printf("\n");
    fflush(stdout);
}

void test_failed(const char *file, int line, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    report(file, line, "", format, args);
    va_end(args);
}

void test_refuted(const char *file, int line, const char *condition, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    report(file, line, condition, format, args);
    va_end(args);
}

void test_skipped(const char *why)
{
    skipped = true;
    printf("    skipped: %s\n", why);
}

static char *next_path(void)
{
    static char paths[8][512];
    static int at;
    return paths[at++ % 8];
}

static const char *sources(void)
{
    const char *root = getenv("LUCE_TEST_SOURCES");
    return root ? root : LUCE_SOURCE_DIR;
}

const char *fixture(const char *name)
{
    char *path = next_path();
    snprintf(path, 512, "%s/tests/fixtures/%s", sources(), name);
    return path;
}

const char *test_model(const char *name)
{
    char *path = next_path();
    snprintf(path, 512, "%s/models/%s", sources(), name);
    return access(path, R_OK) == 0 ? path : NULL;
}

const char *scratch(const char *name)
{
    char *path = next_path();
    snprintf(path, 512, "%s/%s", scratch_dir, name);
    return path;
}

int test_shell(struct buf *out, const char *line)
{
    buf_clear(out);
    FILE *f = popen(line, "r");
    if (!f) return -1;
    char part[4096];
    for (size_t n; (n = fread(part, 1, sizeof part, f)) > 0;) buf_add(out, part, n);
    int status = pclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

uint64_t test_random(void)
{
    return hash_u64(seed + 0x9e3779b97f4a7c15u * ++draws);
}

double test_uniform(double low, double high)
{
    return low + (high - low) * ((double)(test_random() >> 11) * 0x1p-53);
}

double test_normal(void)
{
    double u = test_uniform(1e-300, 1), v = test_uniform(0, 1);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

static bool fits(const struct test *t, const char *pattern)
{
    return strstr(t->name, pattern) || strstr(t->file, pattern);
}

static bool wanted(const struct test *t, int n, char **patterns)
{
    for (int i = 1; i < n; i++)
        if (fits(t, patterns[i])) return true;
    return n < 2;
}

/* The first pattern that no test fits, or NULL: a slip of the pen must not pass for tests that ran. */
static const char *pattern_without_test(int n, char **patterns)
{
    for (int i = 1; i < n; i++) {
        const struct test *t = tests;
        while (t && !fits(t, patterns[i])) t = t->next;
        if (!t) return patterns[i];
    }
    return NULL;
}

int main(int argc, char **argv)
{
    const char *without = pattern_without_test(argc, argv);
    if (without) {
        fprintf(stderr, "luce_tests: neither name nor file of a test contains '%s'; names are those of TEST() in "
                        "tests/test_*.c\n", without);
        return 2;
    }
    const char *text = getenv("LUCE_TEST_SEED");
    seed = text ? strtoull(text, NULL, 0) : (uint64_t)time(NULL) * 2654435761u;
    snprintf(scratch_dir, sizeof scratch_dir, "/tmp/luce-tests-XXXXXX");
    if (!mkdtemp(scratch_dir)) return perror(scratch_dir), 1;
    int n_passed = 0, n_failed = 0, n_skipped = 0;
    for (struct test *t = tests; t; t = t->next) {
        if (!wanted(t, argc, argv)) continue;
        failed = skipped = false;
        struct timespec from, to;
        clock_gettime(CLOCK_MONOTONIC, &from);
        t->run();
        clock_gettime(CLOCK_MONOTONIC, &to);
        double seconds = (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) * 1e-9;
        printf("%-7s %s (%.2f s)\n", failed ? "FAILED" : skipped ? "skipped" : "ok", t->name, seconds);
        fflush(stdout);
        if (failed) n_failed++;
        else if (skipped) n_skipped++;
        else n_passed++;
    }
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", scratch_dir);
    if (system(command)) perror(command);
    if (n_failed) printf("seed: LUCE_TEST_SEED=%llu\n", (unsigned long long)seed);
    printf("%d passed, %d failed, %d skipped\n", n_passed, n_failed, n_skipped);
    return n_failed || n_passed == 0;
}
