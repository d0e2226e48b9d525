/* base/json_read.h - reads JSON (RFC 8259) from bytes that need not be trusted, value by value, without
 * building a tree. A reader remembers that something was wrong (bad) and then gives nothing more, so that the
 * caller checks once. Threads: one owner at a time. */
#ifndef LUCE_BASE_JSON_READ_H
#define LUCE_BASE_JSON_READ_H

#include "base/buf.h"
#include "base/str.h"

enum json_kind { SEEN_NONE, SEEN_OBJECT, SEEN_ARRAY, SEEN_TEXT, SEEN_NUMBER, SEEN_TRUE, SEEN_FALSE, SEEN_NULL };
enum { JSON_IN_DEPTH = 256 };   /* objects and arrays within each other */
struct json_in {
    const char *start, *at, *end;
    int depth;
    uint64_t arrays[JSON_IN_DEPTH / 64];        /* bit d: the container at depth d is one */
    bool bad;                   /* at `at`, what was read is not JSON, nests too deep, or is of another kind */
};
struct json_number {
    bool whole;                 /* an integer of 64 bits: in i as well as in d */
    int64_t i;
    double d;                   /* infinite when no double is near */
    struct str digits;          /* as it stands in the text */
};

void json_read(struct json_in *in, struct str text);
/* What stands next; SEEN_NONE: the end, or nothing that is a value. */
enum json_kind json_next_kind(struct json_in *in);
/* Steps into an object or array; then, before each member, json_more says whether there is one (`first` starts
 * true and belongs to the caller); when not, the reader is behind the container. */
bool json_enter(struct json_in *in, enum json_kind kind);
bool json_more(struct json_in *in, bool *first);
/* The name of an object's next member, in place of what *name held. */
bool json_read_name(struct json_in *in, struct buf *name);
/* Bytes that are not UTF-8 stay; escapes that are half a character become U+FFFD. */
bool json_read_text(struct json_in *in, struct buf *text);
bool json_read_number(struct json_in *in, struct json_number *n);
/* Any value. */
bool json_skip(struct json_in *in);
/* Nothing but space is left, and all was well. */
bool json_done(struct json_in *in);

#endif
