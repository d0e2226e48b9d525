/* tests/test_base.c - memory, arenas, buffers, maps, files, clocks, random numbers. */
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/limits.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "test.h"

TEST(mem_counts_blocks_and_fails_on_demand)
{
    size_t before = mem_live();
    void *p = mem_alloc(100);
    CHECK_EQ(mem_live(), before + 1);
    mem_fail_after(1);
    void *q = mem_zero(10), *r = mem_zero(10);
    mem_fail_never();
    CHECK(q != NULL);
    CHECK(r == NULL);
    p = mem_resize(p, 200);
    mem_free(p);
    mem_free(q);
    CHECK_EQ(mem_live(), before);
    CHECK(mem_array(SIZE_MAX / 2, 4) == NULL);
}

TEST(arena_gives_aligned_zeroed_memory_and_frees_it_at_once)
{
    size_t before = mem_live();
    struct arena a = { 0 };
    for (size_t i = 1; i < 3000; i += 7) {
        unsigned char *p = arena_alloc(&a, i);
        CHECK_EQ((uintptr_t)p % 16, 0);
        for (size_t k = 0; k < i; k++)
            if (p[k]) CHECK(p[k] == 0);
        memset(p, 0xff, i);
    }
    arena_reset(&a);
    CHECK_EQ(mem_live(), before + 1);
    arena_drop(&a);
    CHECK_EQ(mem_live(), before);
}

TEST(buf_remembers_its_first_failure)
{
    struct buf b = { 0 };
    buf_printf(&b, "%d-%s", 42, "x");
    CHECK_STR(buf_text(&b), "42-x");
    mem_fail_after(0);
    for (int i = 0; i < 100; i++) buf_add_text(&b, "more");
    mem_fail_never();
    CHECK(b.failed);
    buf_drop(&b);
}

TEST(map_finds_what_was_added)
{
    struct map m = { 0 };
    char keys[1000][8];
    for (int i = 0; i < 1000; i++) {
        int len = snprintf(keys[i], 8, "k%d", i);
        CHECK_EQ(map_add(&m, (struct str){ keys[i], (size_t)len }, (uint64_t)i, NULL), 1);
    }
    uint64_t v = 0;
    CHECK_EQ(map_add(&m, str_of("k7"), 99, &v), 0);
    CHECK_EQ(v, 7);
    CHECK(map_set(&m, str_of("k7"), 99));
    CHECK(map_find(&m, str_of("k7"), &v));
    CHECK_EQ(v, 99);
    CHECK(!map_find(&m, str_of("absent"), &v));
    map_drop(&m);
}

/* Keys whose second word cancels the hash of the first collide for a seed that is known. */
TEST(map_is_not_slowed_by_prepared_keys)
{
    enum { KEYS = 20000 };
    static uint64_t keys[KEYS][2];
    struct map m = { 0 };
    for (uint64_t i = 0; i < KEYS; i++) {
        uint64_t h = hash_u64(0x9e3779b97f4a7c15u) ^ 16;
        unsigned __int128 p = (unsigned __int128)(h ^ i) * 0xd6e8feb86659fd93u;
        keys[i][0] = i;
        keys[i][1] = (uint64_t)p ^ (uint64_t)(p >> 64);
        CHECK_EQ(hash_bytes(keys[i], 16, 0), hash_bytes(keys[0], 16, 0));
        CHECK_EQ(map_add(&m, (struct str){ (const char *)keys[i], 16 }, i, NULL), 1);
    }
    CHECK(m.seed != 0);
    CHECK(hash_bytes(keys[0], 16, m.seed) != hash_bytes(keys[1], 16, m.seed));
    map_drop(&m);
}

static const struct { const char *raw, *tame; } shown[] = {
    { "plain \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x8a", "plain \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x8a" },
    { "a\x1b[31m\nb\x7f", "a?[31m?b?" },
    { "\xc2\x9b" "2J\xc2\x85\xc2\xa0", "?2J?\xc2\xa0" },              /* C1 controls; U+00A0 is none */
    { "\xff\xfe\x80z", "???z" }, { "\xe2\x82", "?" }, { "\xe2\x82(", "?(" }, { "\xed\xa0\x80", "???" },
};

TEST(messages_hold_no_control_characters_and_no_broken_ones)
{
    for (size_t i = 0; i < COUNT(shown); i++) {
        luce_error err = { 0 };
        CHECK_EQ(fail(&err, LUCE_E_IO, "%s", shown[i].raw), LUCE_E_IO);
        CHECK_STR(err.text, shown[i].tame);
    }
    luce_error err = { 0 };
    char name[sizeof err.text + 8];
    for (size_t i = 0; i + 2 < sizeof name; i += 2) memcpy(name + i, "\xc3\xa9", 3);
    fail(&err, LUCE_E_IO, "x%s", name);             /* cut within a character */
    CHECK_EQ(strlen(err.text), sizeof err.text - 1);
    CHECK(utf8_tame(err.text, strlen(err.text)) == sizeof err.text - 1, "%s", err.text);
    CHECK_EQ(err.text[sizeof err.text - 2], '\xa9');
}

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0, "%s", path);
}

TEST(available_memory_is_within_the_limits_of_group_and_process)
{
    static const struct { const char *max, *current, *stat; uint64_t left; } rows[] = {
        { "max\n", "1000\n", "inactive_file 5\n", UINT64_MAX },
        { "1000000\n", "400000\n", "anon 3\nactive_file 7\ninactive_file 100000\n", 700000 },
        { "1000000\n", "2000000\n", "anon 3\n", 0 },
        { "1000000\n", "5\n", "inactive_file 50\n", 1000000 },
    };
    char folder[512], path[600];
    snprintf(folder, sizeof folder, "%s", scratch("group"));
    CHECK_EQ(memory_left_in_group(folder), UINT64_MAX);
    CHECK_EQ(mkdir(folder, 0700), 0);
    for (size_t i = 0; i < COUNT(rows); i++) {
        const struct { const char *name, *text; } files[] = {
            { "memory.max", rows[i].max }, { "memory.current", rows[i].current }, { "memory.stat", rows[i].stat } };
        for (size_t k = 0; k < COUNT(files); k++) {
            snprintf(path, sizeof path, "%s/%s", folder, files[k].name);
            write_text(path, files[k].text);
        }
        CHECK(memory_left_in_group(folder) == rows[i].left, "row %zu: %" PRIu64, i, memory_left_in_group(folder));
    }
    CHECK(memory_available() > 0);
    pid_t child = fork();
    if (child == 0) {                   /* no more than 64 MiB above what is there */
        struct rlimit none = { 0, RLIM_INFINITY };
        unsigned long pages = 0;
        FILE *f = fopen("/proc/self/statm", "r");
        if (!f || fscanf(f, "%lu", &pages) != 1) _exit(2);
        fclose(f);
        none.rlim_cur = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + (64 << 20);
        if (setrlimit(RLIMIT_AS, &none)) _exit(3);
        uint64_t left = memory_available();
        _exit(left > 0 && left <= 64 << 20 ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %d", status);
}

TEST(file_map_does_not_wait_for_a_pipe)
{
    const char *path = scratch("pipe");
    struct file_map m;
    luce_error err = { 0 };
    CHECK(mkfifo(path, 0600) == 0);
    CHECK_EQ(file_map_open(&m, path, &err), LUCE_E_IO);
    CHECK(strstr(err.text, "not a regular file; give a file") != NULL, "%s", err.text);
}

TEST(file_writer_leaves_all_or_nothing)
{
    struct file_writer w;
    luce_error err = { 0 };
    const char *path = scratch("atomic.bin");
    CHECK_OK(file_create(&w, path, &err), err);
    CHECK_OK(file_append(&w, "hello", 5, &err), err);
    CHECK(access(path, F_OK) != 0);
    CHECK_OK(file_commit(&w, &err), err);
    struct buf b = { 0 };
    CHECK_OK(file_read(&b, path, 100, &err), err);
    CHECK_STR(buf_text(&b), "hello");
    buf_clear(&b);
    CHECK_EQ(file_read(&b, path, 4, &err), LUCE_E_FORMAT);
    buf_drop(&b);
    struct file_map m;
    CHECK_EQ(file_map_open(&m, "/", &err), LUCE_E_IO);
    CHECK(strstr(err.text, "directory") != NULL, "%s", err.text);
}

TEST(clock_never_goes_back)
{
    uint64_t last = clock_ns();
    for (int i = 0; i < 10000; i++) {
        uint64_t t = clock_ns();
        if (t < last) CHECK(t >= last);
        last = t;
    }
    CHECK(clock_seconds() >= (double)last * 1e-9);
}

TEST(rng_gives_the_numbers_of_the_philox_paper)
{
    /* Known answers published with the paper's code (Random123, kat_vectors, philox4x32 10). */
    static const struct { uint32_t counter[4], key[2], out[4]; } known[] = {
        { { 0, 0, 0, 0 }, { 0, 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { { ~0u, ~0u, ~0u, ~0u }, { ~0u, ~0u }, { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 }, { 0xa4093822, 0x299f31d0 },
          { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    };
    for (size_t i = 0; i < COUNT(known); i++) {
        uint32_t out[4] = { 0 };
        rng_philox(known[i].counter, known[i].key, out);
        for (int k = 0; k < 4; k++) CHECK_EQ(out[k], known[i].out[k]);
    }
    CHECK(rng_u64(0x299f31d0a4093822u, 0x0370734413198a2eu, 0x85a308d3243f6a88u) == 0x94fdccebd16cfe09u);
}

TEST(rng_uniform_and_normal_have_their_moments)
{
    enum { N = 100000 };
    uint64_t seed = test_random();
    double sum = 0, normal = 0, squares = 0;
    for (uint64_t i = 0; i < N; i++) {
        double u = rng_uniform(seed, i % 7, i), g = rng_normal(seed, 1, i);
        if (!(u >= 0 && u < 1)) CHECK(u >= 0 && u < 1, "%g", u);
        sum += u;
        normal += g;
        squares += g * g;
    }
    /* Six deviations of the mean. */
    CHECK(sum / N > 0.5 - 0.0055 && sum / N < 0.5 + 0.0055, "mean %g", sum / N);
    CHECK(normal / N > -0.019 && normal / N < 0.019, "mean %g", normal / N);
    CHECK(squares / N > 1 - 0.027 && squares / N < 1 + 0.027, "variance %g", squares / N);
    CHECK(rng_u64(seed, 1, 2) != rng_u64(seed, 2, 1));
    CHECK(rng_u64(seed, 1, 2) == rng_u64(seed, 1, 2));
}

TEST(utf8_controls_are_shown_and_the_rest_is_kept)
{
    static const struct { const char *text, *shown; } cases[] = {
        { "a\tb\nc", "a\tb\nc" }, { "\x1b]52;c;x\x07", "\\x1b]52;c;x\\x07" }, { "a\rb\x7f", "a\\x0db\\x7f" },
        { "\xc2\x9b" "31m", "\\x9b31m" }, { "\xc3\xa9\xc2\xa0\xf0\x9f\x98\x8a", "\xc3\xa9\xc2\xa0\xf0\x9f\x98\x8a" },
        { "\x9b" "31m\xff\xc3", "\\x9b31m\\xff\\xc3" }, { "", "" },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct buf out = { 0 };
        utf8_show_controls(&out, str_of(cases[i].text));
        CHECK(!strcmp(buf_text(&out), cases[i].shown), "case %zu: %s", i, buf_text(&out));
        buf_drop(&out);
    }
}

TEST(tests_a_pattern_that_fits_none_is_refused_before_any_runs)
{
    struct buf out = { 0 };
    CHECK_EQ(test_shell(&out, "\"$(readlink /proc/$PPID/exe)\" utf8_controls no-such-test 2>&1"), 2);
    CHECK(strstr(buf_text(&out), "contains 'no-such-test'"), "%s", buf_text(&out));
    CHECK(!strstr(buf_text(&out), "passed"), "%s", buf_text(&out));
    buf_drop(&out);
}
