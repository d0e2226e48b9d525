/* cli/chat.c - luce chat: turns of a conversation, line by line; the cache keeps what was said. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/chat_form.h"
#include "cli/generate.h"
#include "cli/terminal.h"

static const char help[] =
    "  /reset   forget the conversation\n"
    "  /help    print this\n"
    "  /quit    end (so does Ctrl-D; Ctrl-C ends an answer)\n";

struct chat {
    const struct options *o;
    const struct chat_form *form;
    luce_session *session;
    enum chat_before before;
    struct chat_text turn;
    bool asks;                      /* a person is at the other end */
};

static bool print_piece(void *user, const char *bytes, size_t n)
{
    (void)user;
    return show_text(bytes, n);
}

static luce_status answer(struct chat *c, struct str user, luce_error *err)
{
    const char *stops[OPTION_TEXTS_MAX + 1];
    luce_request q = request_from_options(c->o, stops, c->form->stop);
    luce_result r;
    chat_turn(&c->turn, c->form, c->before, c->o->system, user);
    if (c->turn.text.failed) return fail(err, LUCE_E_NOMEM, "out of memory for the turn");
    q.text = chat_prompt(&c->turn, c->before, c->o->special);
    q.on_text = print_piece;
    luce_status st = luce_session_generate(c->session, &q, &r, err);
    if (r.text_bytes && r.text[r.text_bytes - 1] != '\n') putchar('\n');
    if (!st) {
        c->before = r.finish == LUCE_FINISH_END ? CHAT_ENDED : CHAT_CUT;
        fflush(stdout);
        if (c->asks || c->o->timings) show_speed(c->o, &r);
    }
    luce_result_drop(&r);
    return st;
}

/* Carries out a line that begins with '/'. False: the end. */
static bool command(struct chat *c, const char *line)
{
    if (!strcmp(line, "/quit") || !strcmp(line, "/exit")) return false;
    if (!strcmp(line, "/reset")) {
        luce_session_rewind(c->session, 0);
        c->before = CHAT_FIRST;
    } else {
        if (strcmp(line, "/help")) fprintf(stderr, "no command %s\n", line);
        fputs(help, stderr);
    }
    return true;
}

static luce_status converse(struct chat *c, luce_error *err)
{
    struct buf line = { 0 };
    luce_status st = LUCE_OK;
    while (!st) {
        if (c->asks) fputs("> ", stderr);
        if (interrupted(NULL) || !input_line(&line) || interrupted(NULL)) break;
        if (line.len == 0) continue;
        if (line.data[0] == '/') {
            if (!command(c, line.data)) break;
            continue;
        }
        st = answer(c, (struct str){ line.data, line.len }, err);
        if (st == LUCE_E_CONTEXT && c->asks) {      /* the context is full: the person decides */
            fprintf(stderr, "%s (/reset forgets the conversation)\n", err->text);
            st = LUCE_OK;
        } else if (st == LUCE_E_CONTEXT) {
            st = fail(err, st, "the conversation fills the context: give a larger --context, or the line /reset");
        }
        if (ferror(stdout) && !interrupted(NULL)) st = fail(err, LUCE_E_IO, "standard output is closed");
        interrupt_clear();
    }
    buf_drop(&line);
    return st || !interrupted(NULL) ? st : fail(err, LUCE_E_CANCELLED, "interrupted");
}

luce_status chat_run(const struct options *o, luce_error *err)
{
    struct chat c = { .o = o, .asks = isatty(STDIN_FILENO) && error_is_terminal() };
    luce_model *m = NULL;
    interrupt_catch();
    luce_model_params p = model_params(o);
    p.text = true;
    luce_status st = model_load(&m, p, err);
    if (!st) st = luce_session_open(&c.session, m, err);
    if (!st) {
        luce_model_info info = luce_model_describe(m);
        c.form = chat_form_find(&info);
        if (c.asks)
            fprintf(stderr, "%s on %s, context %d, %s turns; /help lists commands\n", info.architecture,
                    info.device_name, info.context, c.form->name);
        st = converse(&c, err);
    }
    luce_session_close(c.session);
    luce_model_close(m);
    chat_text_drop(&c.turn);
    return st;
}
