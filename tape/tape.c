/* tape/tape.c - see tape.h. Calls and values are growing arrays; attributes live in the arena. */
#include "tape/tape.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

void tape_begin(struct tape *t, struct target target, const struct kv_layout *kv)
{
    *t = (struct tape){ .target = target, .kv = kv };
}

luce_status tape_end(struct tape *t, luce_error *err)
{
    for (int i = 1; i < t->n_values; i++)
        if (t->values[i].keep) t->values[i].last_use = t->n_calls;
    if (!t->error.code) return LUCE_OK;
    return fail(err, t->error.code, "%s", t->error.text);
}

void tape_drop(struct tape *t)
{
    arena_drop(&t->arena);
    mem_free(t->calls);
    mem_free(t->values);
    *t = (struct tape){ 0 };
}

struct val tape_fail(struct tape *t, const char *format, ...)
{
    if (t->error.code) return (struct val){ 0 };
    char text[sizeof t->error.text];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fail(&t->error, LUCE_E_FORMAT, "%s", text);
    return (struct val){ 0 };
}

bool tape_dead(const struct tape *t)
{
    return t->error.code != LUCE_OK;
}

static void out_of_memory(struct tape *t)
{
    if (!t->error.code) fail(&t->error, LUCE_E_NOMEM, "out of memory while recording a tape");
}

/* Makes room for one more element; false on a dead tape. */
static bool grow(struct tape *t, void **array, int n, int *cap, size_t size)
{
    if (n < *cap) return true;
    int more = *cap ? *cap * 2 : 64;
    void *p = mem_resize(*array, (size_t)more * size);
    if (!p) return out_of_memory(t), false;
    *array = p;
    *cap = more;
    return true;
}

static struct val new_value(struct tape *t, const struct value *v)
{
    void *values = t->values;
    int n = t->n_values ? t->n_values : 1;          /* id 0 is "no value" */
    if (!grow(t, &values, n, &t->cap_values, sizeof *v)) return (struct val){ 0 };
    t->values = values;
    if (n == 1) t->values[0] = (struct value){ .name = "", .producer = -1, .last_use = -1 };
    t->values[n] = *v;
    t->n_values = n + 1;
    return (struct val){ n };
}

/* A copy of the attributes with zero bytes behind, or NULL (an error when there are some). */
static const void *copy_attr(struct tape *t, const struct call *c)
{
    if (!c->attr_size) return NULL;
    void *copy = arena_alloc(&t->arena, c->attr_size + 15);
    if (copy) memcpy(copy, c->attr, c->attr_size);
    else out_of_memory(t);
    return copy;
}

struct val tape_push(struct tape *t, const struct call *c)
{
    struct val none = { 0 };
    if (tape_dead(t)) return none;
    for (int i = 0; i < c->n_in; i++)
        if (c->in[i].id <= 0 || c->in[i].id >= t->n_values)
            return tape_fail(t, "call %d: input %d is not a value of this tape", t->n_calls, i);
    void *calls = t->calls;
    if (!grow(t, &calls, t->n_calls, &t->cap_calls, sizeof *c)) return none;
    t->calls = calls;
    struct call copy = *c;
    copy.attr = copy_attr(t, c);
    for (int i = 0; i < c->n_out && !tape_dead(t); i++)
        copy.out[i] = new_value(t, &(struct value){ .shape = c->shape[i], .name = "",
                                                    .producer = t->n_calls, .last_use = t->n_calls });
    if (tape_dead(t)) return none;
    for (int i = 0; i < c->n_in; i++) t->values[c->in[i].id].last_use = t->n_calls;
    t->calls[t->n_calls++] = copy;
    return c->n_out ? copy.out[0] : none;
}

static const char *copy_name(struct tape *t, const char *name)
{
    const char *copy = arena_text(&t->arena, name, strlen(name));
    if (!copy) out_of_memory(t);
    return copy ? copy : "";
}

struct val tape_input(struct tape *t, const char *name, struct shape shape)
{
    if (tape_dead(t)) return (struct val){ 0 };
    if (shape.cols < 1) return tape_fail(t, "input '%s' has %d columns, needs at least 1", name, shape.cols);
    name = copy_name(t, name);
    if (tape_dead(t)) return (struct val){ 0 };
    return new_value(t, &(struct value){ .shape = shape, .name = name, .producer = -1,
                                         .last_use = -1, .keep = true });
}

void tape_keep(struct tape *t, struct val v, const char *name)
{
    if (tape_dead(t)) return;
    if (v.id <= 0 || v.id >= t->n_values) {
        tape_fail(t, "'%s' cannot be kept: it is not a value of this tape", name);
        return;
    }
    t->values[v.id].keep = true;
    t->values[v.id].name = copy_name(t, name);
}

struct shape tape_shape(const struct tape *t, struct val v)
{
    if (v.id <= 0 || v.id >= t->n_values) return (struct shape){ 0 };
    return t->values[v.id].shape;
}
