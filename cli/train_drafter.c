/* cli/train_drafter.c - luce train-drafter: a DFlash drafter for a model, from prompts to a measured file. Each stage
 * leaves a file in the folder --out, so that --resume goes on with what is missing:
 *   prompts/            what the model is asked (training/prompts.py)
 *   made-with.txt       the options that prompts and data follow from; there once the prompts are whole
 *   data.safetensors    its answers and its layers' outputs (cli/train_data.c)
 *   checkpoint.pt       the training (training/train.py), whose best network goes to
 *   drafter-f32.gguf    and, encoded, to
 *   drafter.gguf        which is measured as luce bench --spec does, on prompts that were held out. */
#define _XOPEN_SOURCE 700
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/process.h"
#include "cli/bench.h"
#include "cli/terminal.h"
#include "cli/train.h"
#include "gguf/reader.h"

enum { PYTHON_ABSENT = 127, NO_TORCH = 3, ARGS_MOST = 24, RECORD_MOST = 1 << 16 };

struct job {
    const struct options *o;
    struct buf prompts, data, checkpoint, f32, drafter, record, made_with, script[2], number[2];
};

static bool is_there(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0;
}

/* A program of the folder --recipe, which says itself what is wrong. */
static luce_status run_python(const struct job *j, const char *const *args, luce_error *err)
{
    const char *python = j->o->python;
    int code;
    luce_error why = { 0 };
    if (process_run(args, &code, &why) || code == PYTHON_ABSENT)
        return fail(err, LUCE_E_UNSUPPORTED, "train-drafter needs Python: '%s' does not start (%s). Install it, or "
                    "name it with --python", python, *why.text ? why.text : "not found");
    if (code == 0) return LUCE_OK;
    if (interrupted(NULL) || code == 128 + 2)
        return fail(err, LUCE_E_CANCELLED, "train-drafter: interrupted; the same command with --resume goes on");
    if (code == NO_TORCH)
        return fail(err, LUCE_E_UNSUPPORTED,
                    "train-drafter needs PyTorch, which '%s' does not have: '%s -m venv torch && torch/bin/python -m "
                    "pip install -r %s/requirements.txt', then --python torch/bin/python", python, python,
                    j->o->recipe);
    return fail(err, LUCE_E_IO, "train-drafter: %s ended with code %d; what it wrote above says why", args[1], code);
}

static luce_status make_prompts(struct job *j, luce_error *err)
{
    const struct options *o = j->o;
    const char *args[ARGS_MOST] = { o->python, buf_text(&j->script[0]), buf_text(&j->prompts), "--held-out",
                                    o->held_out };
    int n = 5;
    if (o->from) {
        args[n++] = "--from";
        args[n++] = o->from;
    }
    return run_python(j, args, err);
}

static luce_status train(struct job *j, luce_error *err)
{
    const struct options *o = j->o;
    const char *args[ARGS_MOST] = { o->python, buf_text(&j->script[1]), o->out };
    int n = 3;
    buf_printf(&j->number[0], "%lld", (long long)o->steps);
    buf_printf(&j->number[1], "%g", o->minutes);
    if (o->steps) {
        args[n++] = "--steps";
        args[n++] = buf_text(&j->number[0]);
    }
    if (o->minutes > 0) {
        args[n++] = "--minutes";
        args[n++] = buf_text(&j->number[1]);
    }
    if (o->resume) args[n++] = "--resume";
    return run_python(j, args, err);
}

/* ---- what is gone on with -------------------------------------------------------------------------- */
static void add_path(struct buf *out, const char *name, const char *path)
{
    char whole[PATH_MAX];
    if (path) buf_printf(out, "%s %s\n", name, realpath(path, whole) ? whole : path);
    else buf_printf(out, "no %s\n", name);
}

static void add_made_with(const struct options *o, struct buf *out)
{
    add_path(out, "--model", o->model);
    add_path(out, "--from", o->from);
    add_path(out, "--held-out", o->held_out);
    buf_printf(out, "--texts %" PRId64 "\n--max-tokens %" PRId64 "\n", o->most_texts, o->max_tokens);
}

static luce_status compare(const struct job *j, const char *was, luce_error *err)
{
    const char *is = buf_text(&j->made_with);
    if (!strcmp(was, is)) return LUCE_OK;
    size_t n, m;
    while ((n = strcspn(was, "\n")) == (m = strcspn(is, "\n")) && was[n] && is[m] && !memcmp(was, is, n)) {
        was += n + 1;
        is += m + 1;
    }
    return fail(err, LUCE_E_ARG, "--resume: what is in %s was made with %.*s, not with %.*s; give that again, or leave "
                "--resume out to begin anew", j->o->out, (int)n, was, (int)m, is);
}

/* What --resume finds, and whether it is of these options; says what it goes on with. */
static luce_status look(const struct job *j, bool *prompts, bool *data, luce_error *err)
{
    struct buf was = { 0 };
    *data = is_there(buf_text(&j->data));
    *prompts = is_there(buf_text(&j->record)) && is_there(buf_text(&j->prompts));
    if (!*data && !*prompts) {
        fprintf(stderr, "train-drafter: %s has nothing that --resume can go on with; beginning anew\n", j->o->out);
        return LUCE_OK;
    }
    if (!is_there(buf_text(&j->record)))
        return fail(err, LUCE_E_ARG, "--resume: there is no %s to say what %s was made with; leave --resume out to "
                    "begin anew", buf_text(&j->record), buf_text(&j->data));
    luce_status st = file_read(&was, buf_text(&j->record), RECORD_MOST, err);
    if (!st) st = compare(j, buf_text(&was), err);
    if (!st) fprintf(stderr, "train-drafter: going on with %s\n", buf_text(*data ? &j->data : &j->prompts));
    buf_drop(&was);
    return st;
}

/* Data of an earlier run stays until there are prompts for other data; prompts that are made in part are none. */
static luce_status begin(struct job *j, luce_error *err)
{
    struct file_writer w = { 0 };
    if (!is_there(buf_text(&j->data))) remove(buf_text(&j->record));
    luce_status st = make_prompts(j, err);
    if (st) return st;
    remove(buf_text(&j->record));
    remove(buf_text(&j->data));
    remove(buf_text(&j->checkpoint));
    st = file_create(&w, buf_text(&j->record), err);
    if (!st) st = file_append(&w, j->made_with.data, j->made_with.len, err);
    if (!st) st = file_commit(&w, err);
    file_abandon(&w);
    return st;
}

/* As luce bench --spec on the held-out prompts. */
static luce_status report(const struct job *j, luce_error *err)
{
    struct options o = *j->o;
    o.draft = buf_text(&j->drafter);
    o.spec = NULL;
    o.prompts = o.held_out;
    o.draft_right = -1;
    o.max_tokens = 0;
    return bench_spec_run(&o, err);
}

static luce_status stages(struct job *j, luce_error *err)
{
    const struct options *o = j->o;
    luce_status st = LUCE_OK;
    bool prompts = false, data = false;
    if (o->resume) st = look(j, &prompts, &data, err);
    if (!st && !prompts && !data) st = begin(j, err);
    if (!st && !data) st = train_data_write(o, buf_text(&j->prompts), buf_text(&j->data), err);
    if (!st) st = train(j, err);
    if (!st) st = gguf_to_q8_0(buf_text(&j->f32), buf_text(&j->drafter), err);
    if (!st) st = report(j, err);
    if (!st) fprintf(stderr, "the drafter is %s: luce run -m %s --draft %s\n", buf_text(&j->drafter), o->model,
                     buf_text(&j->drafter));
    return st;
}

static luce_status make_folder(const char *path, luce_error *err)
{
    struct stat s;
    if (!mkdir(path, 0777)) return LUCE_OK;
    int why = errno;
    if (why == EEXIST && !stat(path, &s)) {
        if (S_ISDIR(s.st_mode)) return LUCE_OK;
        why = ENOTDIR;
    }
    return fail(err, LUCE_E_IO, "--out %s: %s; give a folder that you may write to, or one that can be made", path,
                strerror(why));
}

luce_status train_drafter_run(const struct options *o, luce_error *err)
{
    struct job j = { .o = o };
    struct buf *all[] = { &j.prompts, &j.data, &j.checkpoint, &j.f32, &j.drafter, &j.record, &j.made_with, &j.script[0],
                          &j.script[1], &j.number[0], &j.number[1] };
    struct gguf *model = NULL;
    buf_printf(&j.prompts, "%s/prompts", o->out);
    buf_printf(&j.data, "%s/data.safetensors", o->out);
    buf_printf(&j.checkpoint, "%s/checkpoint.pt", o->out);
    buf_printf(&j.record, "%s/made-with.txt", o->out);
    add_made_with(o, &j.made_with);
    buf_printf(&j.f32, "%s/drafter-f32.gguf", o->out);
    buf_printf(&j.drafter, "%s/drafter.gguf", o->out);
    buf_printf(&j.script[0], "%s/prompts.py", o->recipe);
    buf_printf(&j.script[1], "%s/train.py", o->recipe);
    luce_status st = LUCE_OK;
    for (size_t i = 0; i < COUNT(all); i++)
        if (all[i]->failed) st = fail(err, LUCE_E_NOMEM, "out of memory for the names of files");
    interrupt_catch();
    if (!st && !is_there(buf_text(&j.script[1])))
        st = fail(err, LUCE_E_ARG, "--recipe %s: there is no train.py; give the folder training/ of luce's sources",
                  o->recipe);
    if (!st) st = gguf_open(&model, o->model, err);
    gguf_close(model);
    if (!st) {                          /* before a folder is made, and minutes of work */
        const char *args[] = { o->python, buf_text(&j.script[1]), "--check", NULL };
        st = run_python(&j, args, err);
    }
    if (!st) st = make_folder(o->out, err);
    if (!st) st = stages(&j, err);
    for (size_t i = 0; i < COUNT(all); i++) buf_drop(all[i]);
    return st;
}
