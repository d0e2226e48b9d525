/* tests/test_bench_spec.c - what luce bench --spec reports is what its log of steps says. */
#include <stdlib.h>

#include "base/buf.h"
#include "base/file.h"
#include "spec/tree.h"
#include "test.h"
#include "tiny_model.h"

#ifdef LUCE_PROGRAM

struct sums {
    long steps, drafted, accepted, declined, tokens;
};

static const char *value_of(const char *json, const char *key)
{
    char name[40];
    snprintf(name, sizeof name, "\"%s\":", key);
    const char *at = strstr(json, name);
    CHECK(at, "%s is missing in %.80s", key, json);
    return at ? at + strlen(name) : "";
}

static int numbers_of(const char *json, const char *key, int *out)
{
    int n = 0;
    for (const char *at = value_of(json, key); *at && *at != ']' && at[1] != ']' && n < NARROW_ROWS;) {
        char *end;
        out[n++] = (int)strtol(at + 1, &end, 10);
        at = end;
    }
    return n;
}

/* Follows the step's tokens through its guess, without looking at what the program counted. */
static void add_step(const char *line, struct sums *sum, long *at)
{
    int guess[NARROW_ROWS], parent[NARROW_ROWS], tokens[NARROW_ROWS];
    int n = numbers_of(line, "guess", guess), m = numbers_of(line, "tokens", tokens), node = 0, held = 0;
    CHECK_EQ(numbers_of(line, "parent", parent), n);
    for (bool found = true; found && held < m; held += found) {
        found = false;
        for (int i = 0; i < n && !found; i++) {
            if (parent[i] != node || guess[i] != tokens[held]) continue;
            found = true;
            node = i + 1;
        }
    }
    CHECK(m >= 1 && (held == m - 1 || held == m), "%d of %d tokens stand in the guess: %s", held, m, line);
    bool fresh = atol(value_of(line, "step")) == 1;
    CHECK_EQ(atol(value_of(line, "at")), fresh ? 1 : *at);
    CHECK(atol(value_of(line, "rows")) > n, "%.120s", line);
    *at = atol(value_of(line, "at")) + m;
    sum->steps++;
    sum->drafted += n;
    sum->accepted += m - 1;
    sum->declined += !strncmp(value_of(line, "declined"), "true", 4);
    sum->tokens += m;
}

static void check_run(const char *how, bool guesses)
{
    struct buf log = { 0 }, out = { 0 }, line = { 0 };
    luce_error err = { 0 };
    struct sums sum = { 0 };
    long at = 0;
    const char *path = scratch("steps.log");
    buf_printf(&line, "%s bench -m %s %s --only prose -n 40 --json --prompts %s/bench/prompts --log %s 2>&1", LUCE_PROGRAM,
               tiny_model(), how, LUCE_SOURCE_DIR, path);
    CHECK(test_shell(&out, buf_text(&line)) == 0, "%s: %s", how, buf_text(&out));
    CHECK_OK(file_read(&log, path, 1 << 24, &err), err);
    for (char *from = log.len ? log.data : (char *)"", *end; (end = strchr(from, '\n')); from = end + 1) {
        *end = '\0';
        add_step(from, &sum, &at);
    }
    const char *json = buf_text(&out);
    CHECK(sum.steps > 0 && (sum.drafted > 0 || !guesses), "%s: nothing is logged", how);
    CHECK_EQ(atol(value_of(json, "steps")), sum.steps);
    CHECK_EQ(atol(value_of(json, "drafted_tokens")), sum.drafted);
    CHECK_EQ(atol(value_of(json, "accepted_tokens")), sum.accepted);
    CHECK_EQ(atol(value_of(json, "declined_steps")), sum.declined);
    CHECK_EQ(atol(value_of(json, "tokens")), sum.tokens);
    double shown = atof(value_of(json, "acceptance"));
    double is = sum.drafted ? (double)sum.accepted / (double)sum.drafted : 0;
    CHECK(shown > is - 1e-9 && shown < is + 1e-9, "%s: %g, the log says %g", how, shown, is);
    buf_drop(&line);
    buf_drop(&out);
    buf_drop(&log);
}

TEST(bench_spec_reports_what_its_log_says)
{
    if (!tiny_model()) return;
    check_run("--spec ngram", false);
    check_run("--spec scripted --draft-right 2.5 --draft-max 6", true);
}

#endif
