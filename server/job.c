/* server/job.c - see job.h. A record in a choice's queue is a header and its bytes: text, or a token. */
#include "server/job.h"

#include <stdio.h>
#include <sys/random.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "server/budget.h"
#include "server/live.h"

enum { QUEUE_BYTES = 4 << 20 };     /* a client that is this far behind is given up */
enum record_kind { RECORD_TEXT, RECORD_TOKEN, RECORD_TOLD, RECORD_PROMPT };
struct record {
    uint32_t kind, bytes;
};

void make_id(char *out, size_t size, const char *prefix)
{
    uint64_t random[2];
    if (getrandom(random, sizeof random, GRND_NONBLOCK) != sizeof random) random[0] = random[1] = clock_ns();
    snprintf(out, size, "%s%016llx%08x", prefix, (unsigned long long)random[0], (unsigned)random[1]);
}

/* ---- the engine's side ---------------------------------------------------------------------------- */
static void add_record(struct choice *c, enum record_kind kind, const void *data, size_t bytes)
{
    struct record head = { kind, (uint32_t)bytes };
    buf_add(&c->queue, &head, sizeof head);
    buf_add(&c->queue, data, bytes);
}

static void on_begin(void *user, size_t n_reused)
{
    struct choice *c = user;
    if (n_reused) atomic_store(&c->job->live.cached, true);
}

static bool on_text(void *user, const char *bytes, size_t n)
{
    struct choice *c = user;
    struct job *j = c->job;
    live_text(j, (struct str){ bytes, n });
    pthread_mutex_lock(&j->lock);
    if (c->queue.len > QUEUE_BYTES && j->ask.stream) c->overflow = true;
    if (!c->overflow) add_record(c, RECORD_TEXT, bytes, n);
    bool may_end = c->stopper.n_stop || j->ask.one_call;        /* by what the printing side finds */
    if (j->connection && (j->ask.stream || may_end)) http_wake(j->connection);
    bool go_on = !c->overflow && !j->left;
    pthread_mutex_unlock(&j->lock);
    return go_on;
}

static void tell(struct choice *c, enum record_kind kind, const luce_token *t)
{
    struct told told = { .id = t->id, .logprob = t->logprob, .n_top = t->n_top };
    for (int i = 0; i < t->n_top; i++) {
        told.top_id[i] = t->top_id[i];
        told.top_logprob[i] = t->top_logprob[i];
    }
    pthread_mutex_lock(&c->job->lock);
    if (c->job->ask.logprobs) add_record(c, kind, &told, sizeof told);
    else add_record(c, RECORD_TOKEN, NULL, 0);
    pthread_mutex_unlock(&c->job->lock);
}

static void on_token(void *user, const luce_token *t)
{
    struct choice *c = user;
    bool first = c->last_token == 0;
    double now = clock_seconds();
    histogram_add(c->job->server->metrics.histogram, first ? HISTOGRAM_FIRST_TOKEN : HISTOGRAM_NEXT_TOKEN,
                  now - (first ? c->submitted : c->last_token));
    c->last_token = now;
    live_token(c->job);
    tell(c, RECORD_TOLD, t);
}

static void on_prompt(void *user, const luce_token *t)
{
    tell(user, RECORD_PROMPT, t);
}

static void drop_choice(struct choice *c)
{
    for (int i = 0; i < c->n_items; i++) {
        buf_drop(&c->items[i].text);
        buf_drop(&c->items[i].name);
    }
    mem_free(c->items);
    mem_free(c->told);
    mem_free(c->vector);
    buf_drop(&c->queue);
    stopper_drop(&c->stopper);
    splitter_free(c->splitter);
    luce_ticket_free(c->ticket);
}

static void job_free(struct job *j)
{
    struct server *s = j->server;
    for (int i = 0; j->choice && i < j->n_choices; i++) drop_choice(&j->choice[i]);
    mem_free(j->choice);
    buf_drop(&j->live.messages);
    ask_drop(&j->ask);
    pthread_mutex_destroy(&j->lock);
    mem_free(j);
    atomic_fetch_sub(&s->jobs, 1);
}

/* The lock is held and given back. */
static void release(struct job *j, int n)
{
    j->holders -= n;
    bool last = j->holders == 0;
    pthread_mutex_unlock(&j->lock);
    if (last) job_free(j);
}

static void on_done(void *user, luce_result *r)
{
    struct choice *c = user;
    struct job *j = c->job;
    struct histogram *h = j->server->metrics.histogram;
    histogram_add(h, HISTOGRAM_REQUEST, clock_seconds() - c->submitted);
    histogram_add(h, HISTOGRAM_PROMPT, (double)r->n_prompt);
    histogram_add(h, HISTOGRAM_GENERATED, (double)r->n_tokens);
    if (r->n_tokens) histogram_add(h, HISTOGRAM_QUEUE, r->queue_seconds);
    live_end(j, r);
    pthread_mutex_lock(&j->lock);
    c->done = true;
    c->status = r->status;
    c->error = r->error;
    c->engine_finish = r->finish;
    c->stop = r->stop;
    c->n_reused = r->n_reused;
    c->prompt_seconds = r->prompt_seconds;
    c->decode_seconds = r->decode_seconds;
    c->seed = r->seed;
    c->speculation = r->speculation;
    c->thinking_cut = r->thinking_cut;
    c->looped = r->looped;
    c->n_generated = (int)r->n_tokens;
    if (j->connection) http_wake(j->connection);
    release(j, 1);
}

/* ---- the printing side ---------------------------------------------------------------------------- */
struct usage job_usage(const struct job *j)
{
    struct usage u = { 0 };
    for (int i = 0; i < j->ask.n_prompts; i++) u.prompt += (int64_t)j->ask.prompts[i].n;
    for (int i = 0; i < j->n_choices; i++) {
        const struct choice *c = &j->choice[i];
        if (!c->over) continue;
        u.generated += c->n_generated;
        u.reasoning += c->n_reasoning;
        u.steps += (int64_t)c->speculation.n_steps;
        u.drafted += (int64_t)c->speculation.n_drafted;
        u.accepted += (int64_t)c->speculation.n_accepted;
        u.declined += (int64_t)c->speculation.n_declined;
        if (i % (j->n_choices / j->ask.n_prompts) == 0) u.cached += (int64_t)c->n_reused;     /* once a prompt */
        if (c->prompt_seconds * 1e3 > u.prompt_ms) u.prompt_ms = c->prompt_seconds * 1e3;
        if (c->decode_seconds * 1e3 > u.decode_ms) u.decode_ms = c->decode_seconds * 1e3;
    }
    return u;
}

static struct item *new_item(struct choice *c, enum item_kind kind)
{
    if (c->n_items == c->cap_items) {
        int cap = c->cap_items ? c->cap_items * 2 : 4;
        struct item *items = mem_resize(c->items, (size_t)cap * sizeof *items);
        if (!items) return NULL;
        c->items = items;
        c->cap_items = cap;
    }
    c->items[c->n_items] = (struct item){ .kind = kind };
    return &c->items[c->n_items++];
}

static struct item *open_last(struct choice *c)
{
    return c->n_items && !c->items[c->n_items - 1].closed ? &c->items[c->n_items - 1] : NULL;
}

void job_close_item(struct choice *c, struct buf *out)
{
    struct item *i = open_last(c);
    if (!i) return;
    i->closed = true;
    if (c->job->ask.stream) c->job->wire->close_item(c->job, c, i, out);
}

static struct item *open_item(struct choice *c, enum item_kind kind, const char *prefix, struct str name, bool custom,
                              struct buf *out)
{
    job_close_item(c, out);
    struct item *i = new_item(c, kind);
    if (!i) {
        out->failed = true;
        return NULL;
    }
    make_id(i->id, sizeof i->id, prefix);
    i->custom = custom;
    buf_add(&i->name, name.at, name.len);
    if (c->job->ask.stream) c->job->wire->open_item(c->job, c, i, out);
    return i;
}

void job_open_call(struct choice *c, struct str name, bool custom, struct buf *out)
{
    open_item(c, ITEM_CALL, c->job->wire->call_prefix, name, custom, out);
}

void job_add(struct choice *c, enum item_kind kind, struct str text, struct buf *out)
{
    struct item *i = open_last(c);
    if (text.len == 0) return;
    if (!i || i->kind != kind) i = open_item(c, kind, kind == ITEM_TEXT ? "msg_" : "rs_", str_of(""), false, out);
    if (!i) return;
    buf_add(&i->text, text.at, text.len);
    if (kind != ITEM_REASONING) c->has_content = true;
    if (c->job->ask.stream) c->job->wire->add(c->job, c, i, text, out);
}

/* Moves n_covered to the last token whose text has gone out. */
void job_cover(struct choice *c, size_t n)
{
    if (n > c->gone_bytes) c->gone_bytes = n;
    while (c->n_covered < c->n_told && c->told[c->n_covered].end <= c->gone_bytes) c->n_covered++;
}

static void take_told(struct choice *c, const struct told *record, bool special)
{
    if (c->n_told == c->cap_told) {
        int cap = c->cap_told ? c->cap_told * 2 : 32;
        struct told *told = mem_resize(c->told, (size_t)cap * sizeof *told);
        if (!told) return;
        c->told = told;
        c->cap_told = cap;
    }
    struct told *t = &c->told[c->n_told++];
    luce_error err = { 0 };
    char *text = NULL;
    size_t n = 0;
    *t = *record;
    unsigned flags = LUCE_RAW | (special ? LUCE_SPECIAL : 0u);
    if (!luce_detokenize(c->job->server->model, &t->id, 1, flags, &text, &n, &err)) luce_free(text);
    c->raw_bytes += n;
    t->end = c->raw_bytes;
}

/* The prompt comes first, with those of its tokens that are told of. */
static void echo(struct choice *c, struct buf *out)
{
    const struct job *j = c->job;
    const struct prompt *p = &j->ask.prompts[c->prompt];
    char *text = NULL;
    size_t n = p->text.len;
    luce_error err = { 0 };
    if (c->echoed || !j->ask.echo) return;
    c->echoed = true;
    if (!p->text.at && luce_detokenize(j->server->model, p->ids, p->n, LUCE_SPECIAL, &text, &n, &err))
        out->failed = true;
    if (j->ask.logprobs) take_told(c, &(struct told){ .id = p->ids[0], .unknown = true }, !p->text.at);
    c->out_bytes += n;
    job_cover(c, c->out_bytes);
    job_add(c, ITEM_TEXT, (struct str){ text ? text : p->text.at, n }, out);
    luce_free(text);
}

static void take_text(struct choice *c, struct str text, struct buf *out)
{
    c->out_bytes += text.len;
    splitter_add(c->splitter, c, text, out);
}

/* A record's bytes, which may lie anywhere. */
static const struct told *told_at(const char *data, struct told *told)
{
    memcpy(told, data, sizeof *told);
    return told;
}

/* Prints what the records say. */
static void print_records(struct choice *c, const struct buf *records, struct buf *out)
{
    for (size_t at = 0; at < records->len && !c->stopped;) {
        struct record r;
        struct told told;
        memcpy(&r, records->data + at, sizeof r);
        const char *data = records->data + at + sizeof r;
        at += sizeof r + r.bytes;
        if (r.kind == RECORD_TEXT) {
            take_text(c, (struct str){ data, r.bytes }, out);
            continue;
        }
        if (r.kind == RECORD_PROMPT) {
            take_told(c, told_at(data, &told), !c->job->ask.prompts[c->prompt].text.at);
            job_cover(c, c->gone_bytes);
            continue;
        }
        if (r.kind == RECORD_TOLD) take_told(c, told_at(data, &told), splitter_wants_special(c->splitter));
        c->n_tokens++;
        if (!c->has_content && splitter_in_reasoning(c->splitter)) c->n_reasoning++;
    }
}

static void end_choice(struct choice *c, struct buf *out)
{
    struct job *j = c->job;
    bool limit = c->engine_finish == LUCE_FINISH_LENGTH;
    bool calls = splitter_end(c->splitter, c, limit && !c->stopped, out);
    bool stop = c->stopped || c->engine_finish == LUCE_FINISH_STOP;     /* also in what was held back up to here */
    bool cut = limit && !stop;
    if (!stop) c->n_covered = c->n_told;
    c->finish = cut ? FINISH_LENGTH : calls ? FINISH_CALLS : stop ? FINISH_STOP : FINISH_END;
    if (c->stopped) {                       /* whatever the engine made until it heard of it */
        c->n_generated = c->n_tokens;
        c->stop = c->stopper.stop[c->stopper.hit].at;
    }
    if (cut && open_last(c)) open_last(c)->cut = true;
    job_close_item(c, out);
    c->ended = true;
    if (j->ask.stream) j->wire->end_choice(j, c, out);
}

/* Why the job cannot go on, after a choice ended; false: it can. */
static bool find_failure(struct choice *c, struct refusal *why)
{
    *why = (struct refusal){ 0 };
    if (c->overflow) refuse(why, 500, "slow_client", NULL, "the client reads too slowly");
    else if (c->stopped) return false;
    else if (c->status) refuse_status(why, c->status, c->error.text);
    else if (c->engine_finish == LUCE_FINISH_CANCELLED)
        refuse(why, 503, "shutting_down", NULL, "the server is shutting down");
    if (why->status == 400) why->status = 500;
    return why->status != 0;
}

static void cancel_all(struct job *j)
{
    for (int i = 0; i < j->n_choices; i++)
        if (j->choice[i].ticket) luce_ticket_cancel(j->choice[i].ticket);
}

/* Prints all that has come. *why gets the failure of a choice. True when all choices have ended. */
static bool print_new(struct job *j, struct buf *out, struct refusal *why)
{
    bool all = true;
    *why = (struct refusal){ 0 };
    for (int i = 0; i < j->n_choices && !why->status; i++) {
        struct choice *c = &j->choice[i];
        if (c->ended) continue;
        pthread_mutex_lock(&j->lock);
        struct buf records = c->queue;
        c->queue = (struct buf){ 0 };
        c->over = c->done;
        pthread_mutex_unlock(&j->lock);
        if (records.len || c->over) echo(c, out);
        if (!records.failed) print_records(c, &records, out);
        else refuse(why, 500, NULL, NULL, "out of memory for the text");
        buf_drop(&records);
        if (c->stopped && !c->over) luce_ticket_cancel(c->ticket);
        if (c->over && !find_failure(c, why)) end_choice(c, out);
        all &= c->ended;
    }
    return all && !why->status;
}

static bool finished(struct job *j, bool now)
{
    if (!now) return false;
    pthread_mutex_lock(&j->lock);
    j->finished = true;
    pthread_mutex_unlock(&j->lock);
    return true;
}

static bool pull_stream(void *context, struct buf *out, int silent_ms)
{
    struct job *j = context;
    struct refusal why;
    if (!j->begun) j->wire->begin(j, out);
    j->begun = true;
    bool all = print_new(j, out, &why);
    if (why.status) {
        cancel_all(j);
        j->wire->broken(j, &why, out);
    } else if (all) {
        j->wire->end(j, out);
    } else if (out->len == 0 && silent_ms >= j->server->http_params.keep_alive_ms) {
        buf_add_text(out, j->wire->keep_alive);
    }
    return finished(j, all || why.status);
}

static bool pull_whole(void *context, struct buf *out, int silent_ms)
{
    (void)silent_ms;
    struct job *j = context;
    struct refusal why;
    bool all = print_new(j, out, &why);
    buf_clear(out);
    if (why.status) {
        cancel_all(j);
        j->wire->error(&why, out);
        j->exchange->status = why.status;
    } else if (all) {
        j->wire->whole(j, out);
    }
    return finished(j, all || why.status);
}

static void on_left(void *context)
{
    struct job *j = context;
    pthread_mutex_lock(&j->lock);
    if (!j->left && !j->finished) atomic_fetch_add(&j->server->metrics.dropped, 1);
    j->left = true;
    cancel_all(j);
    pthread_mutex_unlock(&j->lock);
}

static void on_close(void *context)
{
    struct job *j = context;
    pthread_mutex_lock(&j->lock);
    j->connection = NULL;
    cancel_all(j);
    release(j, 1);
}

static const struct source stream_source = { pull_stream, on_left, on_close };
static const struct source whole_source = { pull_whole, on_left, on_close };

/* ---- start ---------------------------------------------------------------------------------------- */
/* Cuts max_tokens to what the context leaves. */
static bool fit(const struct job *j, const struct prompt *p, int *max_tokens, struct refusal *why)
{
    int context = j->server->info.context;
    int64_t left = (int64_t)context - (int64_t)p->n, wanted = j->ask.max_tokens;
    *max_tokens = (int)(wanted && wanted < left ? wanted : left);
    if (left >= (j->ask.prompt_only ? 0 : 1)) return true;
    if (j->wire == &wire_messages)
        return refuse(why, 400, "context_length_exceeded", "messages", "prompt is too long: %zu tokens > %d maximum",
                      p->n, context - 1);
    int64_t asked = wanted ? wanted : 1;
    const char *field = j->wire->prompt;
    return refuse(why, 400, "context_length_exceeded", field,
                  "This model's maximum context length is %d tokens. However, you requested %lld tokens (%zu in the "
                  "%s, %lld in the completion). Please reduce the length of the %s or completion.",
                  context, (long long)p->n + (long long)asked, p->n, field, (long long)asked, field);
}

static bool make_requests(struct job *j, luce_request *requests, struct refusal *why)
{
    const struct ask *a = &j->ask;
    for (int i = 0; i < j->n_choices; i++) {
        struct choice *c = &j->choice[i];
        const struct prompt *p = &a->prompts[i / a->choices];
        int max_tokens;
        *c = (struct choice){ .job = j, .index = i, .prompt = i / a->choices, .submitted = clock_seconds() };
        if (!fit(j, p, &max_tokens, why)) return false;
        if (max_tokens > j->live.max_output) j->live.max_output = max_tokens;
        c->stopper = (struct stopper){ .stop = a->stop_text, .n_stop = a->chat ? a->n_stop : 0 };
        if (!(c->splitter = splitter_new(j->server, a)))
            return refuse(why, 503, NULL, NULL, "out of memory for the request");
        requests[i] = (luce_request){ .tokens = p->ids, .n_tokens = p->n, .sampling = a->sampling,
                                      .max_tokens = max_tokens, .stop = a->stop,
                                      .n_stop = a->chat ? 0 : a->n_stop,
                                      .show_special = splitter_wants_special(c->splitter), .on_begin = on_begin,
                                      .on_text = on_text,
                                      .on_token = on_token, .logprobs = a->logprobs, .top_logprobs = a->top_logprobs,
                                      .draft = a->draft, .fresh = a->fresh, .user = c };
        requests[i].sampling.seed += (uint64_t)(i % a->choices);
        requests[i].thinking = budget_bound(j->server, a, max_tokens);
        requests[i].prompt_only = a->prompt_only;
        if (a->echo && a->logprobs) requests[i].on_prompt = on_prompt;
        if (!a->embed) continue;
        c->vector = requests[i].embedding = mem_array((size_t)j->server->info.embedding, sizeof *c->vector);
        requests[i].pooling = j->server->params->pooling;
        if (!c->vector) return refuse(why, 503, NULL, NULL, "out of memory for the request");
    }
    return true;
}

static bool submit(struct job *j, struct refusal *why)
{
    int n = j->n_choices;
    luce_request *requests = mem_array((size_t)n, sizeof *requests);
    luce_ticket **tickets = mem_array((size_t)n, sizeof *tickets);
    bool good = requests && tickets;
    if (!good) refuse(why, 503, NULL, NULL, "out of memory for the request");
    if (good) good = make_requests(j, requests, why);
    if (good) {
        luce_error err = { 0 };
        live_add(j);
        pthread_mutex_lock(&j->lock);       /* so that on_done finds the tickets in place */
        luce_status st = luce_engine_submit(j->server->engine, requests, n, on_done, tickets, &err);
        for (int i = 0; i < n; i++) j->choice[i].ticket = tickets[i];
        if (!st) j->holders += n;
        pthread_mutex_unlock(&j->lock);
        good = !st || refuse_status(why, st, err.text);
        if (!good) live_drop(j);
    }
    mem_free(requests);
    mem_free(tickets);
    return good;
}

bool job_start(struct server *s, struct exchange *x, const struct wire *d, struct ask *ask, struct refusal *why)
{
    struct job *j = mem_zero(sizeof *j);
    if (!j) return refuse(why, 503, NULL, NULL, "out of memory for the request");
    atomic_fetch_add(&s->jobs, 1);
    *j = (struct job){ .server = s, .wire = d, .ask = *ask, .connection = x->connection, .holders = 1,
                       .created = time(NULL), .exchange = x };
    /* The arrays of the sampling are inside the ask, which has moved. */
    j->ask.sampling.bias_id = j->ask.bias_id;
    j->ask.sampling.bias = j->ask.bias;
    *ask = (struct ask){ 0 };
    pthread_mutex_init(&j->lock, NULL);
    make_id(j->id, sizeof j->id, d->id_prefix);
    int n = j->ask.n_prompts * j->ask.choices;
    int most = j->ask.embed ? ASK_INPUTS : ASK_CHOICES;
    j->choice = n > most ? NULL : mem_array((size_t)n, sizeof *j->choice);
    bool good = j->choice != NULL;
    if (good) j->n_choices = n;
    else refuse(why, 400, NULL, "n", "more than %d choices of prompts in one request", most);
    if (good) good = submit(j, why);
    if (!good) {
        job_free(j);
        return false;
    }
    x->source = j->ask.stream ? &stream_source : &whole_source;
    x->context = j;
    x->later = !j->ask.stream;
    ask_notes(&j->ask, x->note, sizeof x->note);
    if (j->ask.stream) x->type = "text/event-stream";
    atomic_fetch_add(&s->metrics.streams, j->ask.stream);
    return true;
}
