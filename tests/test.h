/* tests/test.h - the test harness: TEST registers a function, CHECK reports and goes on counting.
 * luce_tests [PATTERN ...] runs the tests whose name or file contains one of the patterns; one that fits no test is
 * refused before any runs. The last line is "N passed, N failed". A test that finds that it cannot run here calls SKIP (it returns). */
#ifndef LUCE_TESTS_TEST_H
#define LUCE_TESTS_TEST_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"

struct test {
    const char *name, *file;
    void (*run)(void);
    struct test *next;
};
void test_register(struct test *t);
/* Marks the running test as failed and prints where and why. */
void test_failed(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same for CHECK: the condition's text first. (Trailing arguments beyond the format are allowed.) */
void test_refuted(const char *file, int line, const char *condition, const char *format, ...);
void test_skipped(const char *why);
/* Path of tests/fixtures/NAME below LUCE_TEST_SOURCES, or where the tests were built; static storage, valid until the
 * eighth call after. */
const char *fixture(const char *name);
/* Path of models/NAME there, or NULL when the file is not there (make models fetches it). */
const char *test_model(const char *name);
/* A path in a fresh directory that is removed when the run ends; storage as fixture(). */
const char *scratch(const char *name);
struct buf;
/* Runs a line of the shell and puts what it prints into *out, which is cleared first. Its exit status, 128 when a
 * signal ended it, -1 when it did not start. */
int test_shell(struct buf *out, const char *line);
/* Random numbers for inputs: seeded per run (LUCE_TEST_SEED or the clock), the seed is printed when
 * a test fails. */
uint64_t test_random(void);
double test_uniform(double low, double high);
double test_normal(void);

#define TEST(id)                                                                          \
    static void id(void);                                                                 \
    static struct test test_of_##id = { #id, __FILE__, id, NULL };                        \
    __attribute__((constructor)) static void register_##id(void)                          \
    {                                                                                     \
        test_register(&test_of_##id);                                                     \
    }                                                                                     \
    static void id(void)

/* CHECK(condition) or CHECK(condition, "format", values...). */
#define CHECK(...) CHECK_(__VA_ARGS__, "", "")
#define CHECK_(condition, ...)                                                            \
    do {                                                                                  \
        if (!(condition)) test_refuted(__FILE__, __LINE__, #condition, __VA_ARGS__);      \
    } while (0)
/* Integers, enums or pointers. */
#define CHECK_EQ(a, b)                                                                    \
    do {                                                                                  \
        intmax_t a_ = (intmax_t)(a), b_ = (intmax_t)(b);                                  \
        if (a_ != b_)                                                                     \
            test_failed(__FILE__, __LINE__, "%s is %" PRIdMAX ", not %" PRIdMAX, #a, a_, b_); \
    } while (0)
#define CHECK_STR(a, b)                                                                   \
    do {                                                                                  \
        const char *a_ = (a), *b_ = (b);                                                  \
        if (strcmp(a_, b_)) test_failed(__FILE__, __LINE__, "%s is \"%s\", not \"%s\"", #a, a_, b_); \
    } while (0)
/* A status must be LUCE_OK; prints the error's text otherwise. */
#define CHECK_OK(status, err)                                                             \
    do {                                                                                  \
        luce_status s_ = (status);                                                        \
        if (s_) test_failed(__FILE__, __LINE__, "%s: %s: %s", #status, status_name(s_), (err).text); \
    } while (0)
#define SKIP(why)                                                                         \
    do {                                                                                  \
        test_skipped(why);                                                                \
        return;                                                                           \
    } while (0)

#endif
