/* cli/option_numbers.c - the values of options that are numbers, and lists of them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/options_table.h"

enum { DIGITS = 16 };

/* Digits as people write them: -12, 0.5, 1e-3. What C also reads (+5, 0x10, inf, spaces) is refused. */
static bool is_decimal(const char *text, bool whole)
{
    static const char digits[] = "0123456789";
    text += *text == '-';
    size_t n = strspn(text, digits), after = 0;
    text += n;
    if (!whole && *text == '.') {
        after = strspn(++text, digits);
        text += after;
    }
    if (!whole && n + after && *text == 'e') {
        text += text[1] == '-' ? 2 : 1;
        after = strspn(text, digits);
        text += after;
        return after && !*text;
    }
    return n + after && !*text;
}

/* Whole numbers may be up to 2^63 and are compared as such; the limits of the table are small. A number
 * too small for a double is 0. */
luce_status option_number(const struct option *row, void *field, const char *from, const char *text,
                              luce_error *err)
{
    bool whole = row->type == OPT_INT, good = is_decimal(text, whole);
    errno = 0;
    if (good && whole) {
        long long value = strtoll(text, NULL, 10);
        good = !errno && (double)value >= row->min && (double)value <= row->max;
        if (good) *(int64_t *)field = value;
    } else if (good) {
        double value = strtod(text, NULL);
        good = value >= row->min && value <= row->max;      /* false for NaN */
        if (good) *(double *)field = value;
    }
    if (good) return LUCE_OK;
    return fail(err, LUCE_E_ARG, "%s: '%s' is not a %snumber from %.*g to %.*g", from, text,
                whole ? "whole " : "", DIGITS, row->min, DIGITS, row->max);
}

luce_status option_seed(struct option_seed *field, const char *from, const char *text, luce_error *err)
{
    bool good = is_decimal(text, true);
    errno = 0;
    field->value = good && *text == '-' ? (uint64_t)strtoll(text, NULL, 10) : good ? strtoull(text, NULL, 10) : 0;
    field->given = strcmp(text, "-1") != 0;
    if (good && !errno) return LUCE_OK;
    return fail(err, LUCE_E_ARG, "%s: '%s' is not a whole number of 64 bits, or -1 for a random one", from, text);
}

luce_status option_numbers(const struct option *row, struct option_ints *field, const char *from, const char *text,
                           luce_error *err)
{
    struct option one = *row;
    luce_status st = LUCE_OK;
    one.type = OPT_INT;
    field->n = 0;
    for (bool more = true; more && !st;) {
        char number[24];
        size_t n = strcspn(text, ",");
        if (field->n == OPTION_INTS_MAX)
            return fail(err, LUCE_E_ARG, "%s: a list of more than %d numbers", from, OPTION_INTS_MAX);
        snprintf(number, sizeof number, "%.*s", (int)(n < sizeof number ? n : sizeof number - 1), text);
        st = option_number(&one, &field->at[field->n++], from, number, err);
        more = text[n] == ',';
        text += n + 1;
    }
    return st;
}
