/* tests/test_train_drafter.c - luce train-drafter: what it refuses; the file that a drafter learns from holds the
 * model's own greedy answers and its layers' outputs; a network that was trained is accepted more often than one that
 * was not. The last needs PyTorch (of the Python that LUCE_PYTHON names, else python3), and is skipped without. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "gguf/writer.h"
#include "quant/quant.h"
#include "run/runner.h"
#include "test.h"
#include "tiny_model.h"

#ifdef LUCE_PROGRAM

enum { EMBD = 64, TAPS = 2, ANSWER = 40, PROMPTS = 12 };

/* Runs "luce train-drafter MODEL ARGS" in the folder of the sources; both outputs together. */
static int train(struct buf *out, const char *model, const char *python, const char *args)
{
    struct buf line = { 0 };
    buf_printf(&line, "cd %s && %s train-drafter %s --python %s %s 2>&1", LUCE_SOURCE_DIR, LUCE_PROGRAM, model, python,
               args);
    int code = test_shell(out, line.data);
    buf_drop(&line);
    return code;
}

static void write_file(const char *path, const struct buf *text)
{
    struct file_writer w = { 0 };
    luce_error err = { 0 };
    luce_status st = file_create(&w, path, &err);
    if (!st) st = file_append(&w, buf_text(text), text->len, &err);
    if (!st) st = file_commit(&w, &err);
    CHECK_OK(st, err);
    file_abandon(&w);
}

/* Random words, and the first prompt of `other` among them. */
static void make_set(const char *folder, const char *name, const char *other)
{
    struct buf text = { 0 };
    char path[600];
    mkdir(folder, 0777);
    for (int i = 0; i < PROMPTS; i++) {
        for (int n = 3 + (int)(test_random() % 20); n > 0; n--)
            buf_add_char(&text, (char)(n % 5 ? 'a' + (int)(test_random() % 26) : ' '));
        buf_printf(&text, "%d\n%%%%\n", i);
    }
    if (other) buf_printf(&text, "%s\n%%%%\n", other);
    snprintf(path, sizeof path, "%s/%s.txt", folder, name);
    write_file(path, &text);
    buf_drop(&text);
}

/* A script in the place of Python: the check of PyTorch succeeds, prompts.py runs, the training ends with this code. */
static const char *stub(const char *name, int check, int code)
{
    const char *path = scratch(name);
    struct buf text = { 0 };
    buf_printf(&text, "#!/bin/sh\ncase \"$*\" in *--check*) exit %d;; *prompts.py*) exec python3 \"$@\";; esac\nexit %d\n",
               check, code);
    write_file(path, &text);
    chmod(path, 0755);
    buf_drop(&text);
    return path;
}

TEST(train_drafter_says_what_is_missing)
{
    struct buf out = { 0 };
    char args[600];
    snprintf(args, sizeof args, "--out %s", scratch("nothing"));
    CHECK_EQ(train(&out, tiny_model(), "/no/python", args), 3);
    CHECK(strstr(buf_text(&out), "'/no/python' does not start") != NULL, "%s", buf_text(&out));
    CHECK_EQ(train(&out, tiny_model(), stub("no_torch", 3, 0), args), 3);
    CHECK(strstr(buf_text(&out), "pip install -r training/requirements.txt") != NULL, "%s", buf_text(&out));
    CHECK(access(scratch("nothing"), F_OK) != 0, "an empty folder is left behind");
    snprintf(args, sizeof args, "--out %s --recipe /nowhere", scratch("nothing"));
    CHECK_EQ(train(&out, tiny_model(), "python3", args), 2);
    CHECK(strstr(buf_text(&out), "there is no train.py") != NULL, "%s", buf_text(&out));
    buf_drop(&out);
}

/* No traceback of Python, but what, where and what to do. */
static void check_fails(const char *folder, const char *from, const char *says, const char *what_to_do)
{
    struct buf out = { 0 };
    char args[2600];
    snprintf(args, sizeof args, "--out %s --from %s", folder, from);
    CHECK_EQ(train(&out, tiny_model(), stub("stops", 0, 9), args), 1);
    CHECK(strstr(buf_text(&out), says) && strstr(buf_text(&out), what_to_do), "%s", buf_text(&out));
    CHECK(!strstr(buf_text(&out), "Traceback"), "%s", buf_text(&out));
    buf_drop(&out);
}

TEST(train_drafter_says_in_one_line_where_it_cannot_write)
{
    struct buf text = { 0 };
    char from[512], folder[512], path[600];
    snprintf(from, sizeof from, "%s", scratch("from"));
    make_set(from, "prose", NULL);
    snprintf(folder, sizeof folder, "%s", scratch("a_file"));
    write_file(folder, &text);
    check_fails(folder, from, "a_file: Not a directory", "give a folder that");
    check_fails("/proc/self/drafter", from, "--out /proc/self/drafter: ", "give a folder that");
    snprintf(folder, sizeof folder, "%s", scratch("no_prompts"));
    mkdir(folder, 0777);
    snprintf(path, sizeof path, "%s/prompts", folder);
    write_file(path, &text);
    check_fails(folder, from, "prompts.py: ", "no_prompts/prompts: File exists; a file stands where a folder is to be");
    snprintf(path, sizeof path, "%s/prompts", scratch("full"));
    mkdir(scratch("full"), 0777);
    mkdir(path, 0777);
    snprintf(path, sizeof path, "%s/prompts/prose.txt", scratch("full"));
    CHECK_EQ(symlink("/dev/full", path), 0);
    check_fails(scratch("full"), from, "full/prompts/prose.txt: No space left on device; ", "make room");
    buf_drop(&text);
}

/* ---- the file of texts and features ---------------------------------------------------------------- */
struct read {
    struct buf file;
    const char *head;
    const int32_t *tokens, *prompt, *length;
    const uint16_t *features;
    size_t n;                       /* texts */
};

/* A tensor's bytes; its first dimension. */
static const void *tensor(const struct read *r, const char *name, size_t *rows)
{
    char want[40];
    unsigned long long size = 0, first = 0, from = 0;
    memcpy(&size, r->file.data, 8);
    snprintf(want, sizeof want, "\"%s\":", name);
    const char *at = strstr(r->head, want), *shape = at ? strstr(at, "\"shape\":[") : NULL;
    const char *offsets = at ? strstr(at, "\"data_offsets\":[") : NULL;
    CHECK(shape && offsets, "the header has no %s", name);
    if (!shape || !offsets) return NULL;
    first = strtoull(shape + strlen("\"shape\":["), NULL, 10);
    from = strtoull(offsets + strlen("\"data_offsets\":["), NULL, 10);
    *rows = first;
    return r->file.data + 8 + size + from;
}

static bool read_data(struct read *r, const char *path)
{
    luce_error err = { 0 };
    size_t rows;
    CHECK_OK(file_read(&r->file, path, 1 << 28, &err), err);
    if (r->file.len < 8) return false;
    r->head = r->file.data + 8;
    r->tokens = tensor(r, "tokens", &rows);
    r->prompt = tensor(r, "prompt", &r->n);
    r->length = tensor(r, "length", &r->n);
    r->features = tensor(r, "features", &rows);
    return r->tokens && r->features;
}

static struct runner *open_runner(struct gguf **g, struct device **d)
{
    struct model *m = NULL;
    struct runner *r = NULL;
    luce_error err = { 0 };
    struct load_params p = { .context = TINY_CONTEXT, .record = { .n_taps = TAPS, .tap_layer = { 0, 1 } } };
    luce_status st = gguf_open(g, tiny_model(), &err);
    if (!st) st = model_open(&m, *g, &err);
    if (!st) st = device_open(d, "cpu", &(struct device_params){ .n_threads = 2 }, &err);
    p.device = *d;
    if (!st) st = runner_open(&r, m, &p, &err);
    CHECK_OK(st, err);
    return r;
}

/* One text alone, in one wide step, gives the same bits. */
static void check_features(struct runner *r, const struct read *data)
{
    static float got[TINY_CONTEXT][EMBD];
    const uint16_t *want = data->features;
    const int32_t *ids = data->tokens;
    for (size_t i = 0; i < data->n; i++) {
        struct seq *seq = NULL;
        luce_error err = { 0 };
        int n = data->length[i], wrong = 0;
        CHECK_OK(seq_open(&seq, runner_cache(r), &err), err);
        runner_begin(r, STEP_WIDE);
        CHECK_OK(runner_add(r, seq, ids, NULL, n, WANT_NONE, NULL, &err), err);
        CHECK_OK(runner_run(r, &err), err);
        for (int t = 0; t < TAPS; t++) {
            CHECK_OK(runner_read(r, runner_record(r)->taps[t], 0, n, got, &err), err);
            for (int k = 0; k < n; k++)
                for (int e = 0; e < EMBD; e++)
                    wrong += f32_to_bf16(got[k][e]) != want[(size_t)(k * TAPS + t) * EMBD + (size_t)e];
        }
        CHECK(wrong == 0, "text %zu: %d values differ", i, wrong);
        seq_close(seq);
        ids += n;
        want += (size_t)n * TAPS * EMBD;
    }
}

static void check_answers(const struct read *data)
{
    luce_model *m = NULL;
    luce_error err = { 0 };
    luce_model_params p = { .path = tiny_model(), .device = "cpu", .threads = 2 };
    const int32_t *ids = data->tokens;
    CHECK_OK(luce_model_open(&m, &p, &err), err);
    for (size_t i = 0; m && i < data->n; i++) {
        luce_result r = { 0 };
        luce_request q = { .tokens = ids, .n_tokens = (size_t)data->prompt[i], .max_tokens = ANSWER };
        CHECK_OK(luce_generate(m, &q, &r, &err), err);
        bool same = (int32_t)r.n_tokens == data->length[i] - data->prompt[i] &&
                    !memcmp(r.tokens, ids + data->prompt[i], r.n_tokens * sizeof *ids);
        CHECK(same, "text %zu: the answer is another one", i);
        luce_result_drop(&r);
        ids += data->length[i];
    }
    luce_model_close(m);
}

TEST(train_drafter_keeps_the_models_own_answers_and_layers)
{
    struct buf out = { 0 };
    struct read data = { 0 };
    struct gguf *g = NULL;
    struct device *d = NULL;
    char from[512], held[512], args[2600], path[600];
    const char *common = "Held out are these words and none of them may come back";
    snprintf(from, sizeof from, "%s", scratch("from"));
    snprintf(held, sizeof held, "%s", scratch("held"));
    make_set(from, "prose", common);
    make_set(from, "chat", NULL);
    make_set(held, "prose", common);
    const char *folder = scratch("data_only");
    snprintf(args, sizeof args, "--out %s --from %s --held-out %s -n %d --chunk 64 --threads 2", folder, from, held,
             ANSWER);
    CHECK_EQ(train(&out, tiny_model(), stub("stops", 0, 9), args), 1);
    CHECK(strstr(buf_text(&out), "train.py ended with code 9") != NULL, "%s", buf_text(&out));
    CHECK(strstr(buf_text(&out), "prose: 12; 1 left out") != NULL, "%s", buf_text(&out));
    snprintf(path, sizeof path, "%s/data.safetensors", folder);
    if (read_data(&data, path)) {
        struct runner *r = open_runner(&g, &d);
        CHECK_EQ(data.n, 2 * PROMPTS);
        check_answers(&data);
        if (r) check_features(r, &data);
        runner_close(r);
    }
    device_close(d);
    gguf_close(g);
    buf_drop(&data.file);
    buf_drop(&out);
}

/* ---- what --resume goes on with ---------------------------------------------------------------------- */
/* Runs up to the training; what it says must hold `says`. Gives the texts of the data, 0 for none. */
static size_t resume(const char *folder, const char *model, const char *args, int code, const char *says)
{
    struct buf out = { 0 };
    struct read data = { 0 };
    char all[2600], path[600];
    snprintf(all, sizeof all, "--out %s %s --chunk 64 --threads 2", folder, args);
    int got = train(&out, model, stub("stops", 0, 9), all);
    CHECK(got == code && strstr(buf_text(&out), says), "exit %d, not %d with '%s': %s", got, code, says, buf_text(&out));
    bool kept = strstr(says, "going on with") != NULL;
    CHECK(!kept || !strstr(buf_text(&out), "left out as too like"), "new prompts: %s", buf_text(&out));
    snprintf(path, sizeof path, "%s/data.safetensors", folder);
    if (access(path, F_OK) == 0) read_data(&data, path);
    buf_drop(&data.file);
    buf_drop(&out);
    return data.n;
}

/* The file of the folder that is not to be there any more. */
static void lose(const char *folder, const char *name)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    CHECK_EQ(unlink(path), 0);
}

TEST(train_drafter_goes_on_only_with_what_was_made_with_the_same_options)
{
    char from[2][512], held[2][512], folder[512], model[512], same[1600], args[2200];
    for (int i = 0; i < 2; i++) {
        snprintf(from[i], sizeof from[i], "%s", scratch(i ? "from_b" : "from_a"));
        snprintf(held[i], sizeof held[i], "%s", scratch(i ? "held_b" : "held_a"));
        make_set(from[i], "chat", NULL);
        make_set(held[i], "prose", NULL);
    }
    make_set(from[0], "prose", NULL);
    snprintf(folder, sizeof folder, "%s", scratch("resumed"));
    snprintf(model, sizeof model, "%s", tiny_model());
    snprintf(same, sizeof same, "--from %s --held-out %s --texts 1 -n 4", from[0], held[0]);
    snprintf(args, sizeof args, "%s --resume", same);
    CHECK_EQ(resume(folder, model, args, 1, "resumed has nothing that --resume can go on with; beginning anew"), 2);
    CHECK_EQ(resume(folder, model, args, 1, "going on with "), 2);
    lose(folder, "data.safetensors");
    CHECK_EQ(resume(folder, model, args, 1, "resumed/prompts\n"), 2);
    snprintf(args, sizeof args, "--resume --held-out %s --texts 2 -n 4 --from %s", held[0], from[0]);
    CHECK_EQ(resume(folder, model, args, 2, "was made with --texts 1, not with --texts 2; give that again, or leave"), 2);
    snprintf(args, sizeof args, "--resume --held-out %s --texts 1 -n 8 --from %s", held[0], from[0]);
    CHECK_EQ(resume(folder, model, args, 2, "with --max-tokens 4, not with --max-tokens 8"), 2);
    snprintf(args, sizeof args, "--resume --held-out %s --texts 1 -n 4", held[0]);
    CHECK_EQ(resume(folder, model, args, 2, "from_a, not with no --from; give"), 2);
    snprintf(args, sizeof args, "--resume --held-out %s --texts 1 -n 4 --from %s", held[1], from[0]);
    CHECK_EQ(resume(folder, model, args, 2, "held_b; give"), 2);
    snprintf(args, sizeof args, "%s --resume", same);
    CHECK_EQ(resume(folder, fixture("oracle/qwen35.gguf"), args, 2, "qwen35.gguf;"), 2);
    snprintf(args, sizeof args, "--held-out %s --texts 1 -n 4 --from %s", held[0], from[1]);
    CHECK_EQ(resume(folder, model, args, 1, "answers: 1 of 1"), 1);         /* the prose of before is gone */
    lose(folder, "made-with.txt");
    snprintf(args, sizeof args, "%s --resume", same);
    CHECK_EQ(resume(folder, model, args, 2, "there is no "), 1);
    CHECK_EQ(resume(folder, "/no/model", same, 1, "No such file"), 1);      /* and costs no data */
}

/* ---- the training ---------------------------------------------------------------------------------- */
/* The tiny model without what its layers add: a token follows from the one before alone, and texts run into circles.
 * That can be learnt in seconds, where the ways of random layers cannot. */
static const char *circling_model(void)
{
    const char *path = scratch("circling.gguf");
    static const uint8_t zeros[1 << 16];
    struct gguf *g;
    struct gguf_writer w = { 0 };
    luce_error err = { 0 };
    luce_status st = gguf_open(&g, tiny_model(), &err);
    for (size_t i = 0; !st && i < gguf_n_keys(g); i++) gguf_add_key(&w, gguf_key_at(g, i));
    for (size_t i = 0; !st && i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        bool adds = strstr(t->name, "attn_output") || strstr(t->name, "ffn_down");
        CHECK(!adds || t->bytes <= sizeof zeros);
        gguf_add_tensor(&w, &(struct gguf_source){ .name = t->name, .dim = { t->dim[0], t->dim[1] },
                                                  .n_dims = t->n_dims, .type = t->type,
                                                  .data = adds ? zeros : t->data });
    }
    if (!st) st = gguf_write(&w, path, &err);
    CHECK_OK(st, err);
    gguf_writer_drop(&w);
    gguf_close(g);
    return path;
}

/* Tokens a step over the prompts that were answered, with chains of a fixed width however little they pay. */
static double try_drafter(const char *model, const char *folder)
{
    char path[2][600];
    luce_model *m = NULL;
    luce_error err = { 0 };
    struct read data = { 0 };
    size_t steps = 0, tokens = 0;
    snprintf(path[0], sizeof path[0], "%s/drafter.gguf", folder);
    snprintf(path[1], sizeof path[1], "%s/data.safetensors", folder);
    luce_model_params p = { .path = model, .draft_path = path[0], .device = "cpu", .threads = 2 };
    bool there = read_data(&data, path[1]);
    const int32_t *ids = data.tokens;
    CHECK_OK(luce_model_open(&m, &p, &err), err);
    for (size_t i = 0; there && m && i < data.n; i++) {
        luce_result r = { 0 };
        luce_request q = { .tokens = ids, .n_tokens = (size_t)data.prompt[i], .max_tokens = ANSWER, .draft = 7 };
        CHECK_OK(luce_generate(m, &q, &r, &err), err);
        if (r.n_tokens > 2) {
            steps += r.speculation.n_steps;
            tokens += r.n_tokens - 1;
        }
        luce_result_drop(&r);
        ids += data.length[i];
    }
    luce_model_close(m);
    buf_drop(&data.file);
    return steps ? (double)tokens / (double)steps : 0;
}

/* What evaluate.py says of the same texts. */
static double evaluate(struct buf *out, const char *python, const char *folder)
{
    char line[1600];
    snprintf(line, sizeof line, "%s %s/training/evaluate.py %s 2>&1", python, LUCE_SOURCE_DIR, folder);
    CHECK_EQ(test_shell(out, line), 0);
    const char *at = strstr(buf_text(out), "\"tokens_per_step\": ");
    CHECK(at != NULL, "%s", buf_text(out));
    return at ? strtod(at + strlen("\"tokens_per_step\": "), NULL) : 0;
}

TEST(train_drafter_makes_a_drafter_that_is_right_more_often_than_an_untrained_one)
{
    struct buf out = { 0 };
    const char *python = getenv("LUCE_PYTHON");
    char line[1200], args[2600], from[512], held[512], folder[512], model[512];
    double length[2], said;
    if (!python) python = "python3";
    snprintf(line, sizeof line, "%s -c 'import torch' 2>&1", python);
    if (test_shell(&out, line) != 0) {
        buf_drop(&out);
        SKIP("no PyTorch here; LUCE_PYTHON names a Python that has it");
    }
    snprintf(model, sizeof model, "%s", circling_model());
    snprintf(from, sizeof from, "%s", scratch("from"));
    snprintf(held, sizeof held, "%s", scratch("held"));
    snprintf(folder, sizeof folder, "%s", scratch("trained"));
    for (int i = 0; i < 2; i++) make_set(from, i ? "prose" : "chat", NULL);
    make_set(held, "prose", NULL);
    mkdir(folder, 0777);
    snprintf(line, sizeof line, "%s/checkpoint.pt.new", folder);
    CHECK_EQ(symlink("/dev/full", line), 0);
    snprintf(args, sizeof args, "--out %s --from %s --held-out %s -n %d --steps 1 --threads 2", folder, from, held, ANSWER);
    CHECK_EQ(train(&out, model, python, args), 1);
    CHECK(strstr(buf_text(&out), "train.py: ") && strstr(buf_text(&out), "checkpoint.pt.new: No space left on device; make") &&
          !strstr(buf_text(&out), "Traceback"), "%s", buf_text(&out));
    CHECK_EQ(unlink(line), 0);
    for (int i = 0; i < 2; i++) {           /* a step; then as many more as it takes */
        snprintf(args, sizeof args, "--out %s --from %s --held-out %s -n %d --steps %d --json --threads 2 %s", folder,
                 from, held, ANSWER, i ? 200 : 1, i ? "--resume" : "");
        CHECK_EQ(train(&out, model, python, args), 0);
        CHECK(strstr(buf_text(&out), "\"set\":\"prose\"") != NULL, "%s", buf_text(&out));
        CHECK(!i || strstr(buf_text(&out), "resuming at step 1"), "%s", buf_text(&out));
        length[i] = try_drafter(model, folder);
    }
    said = evaluate(&out, python, folder);
    CHECK(length[1] > 2 && length[1] > 1.5 * length[0], "tokens a step: untrained %.2f, trained %.2f", length[0],
          length[1]);
    CHECK(length[1] > 0.9 * said && length[1] < 1.1 * said, "tokens a step: %.3f, evaluate.py says %.3f", length[1],
          said);
    buf_drop(&out);
}
#endif
