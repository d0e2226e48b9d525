/* base/json.h - writes JSON text (RFC 8259) into a buffer; commas and escapes are its business.
 * A failed allocation shows in the buffer (buf.failed). Threads: one owner at a time. */
#ifndef LUCE_BASE_JSON_H
#define LUCE_BASE_JSON_H

#include "base/buf.h"
#include "base/str.h"

enum { JSON_DEPTH_MAX = 64 };       /* objects and arrays that are open at once */
struct json {
    struct buf *out;        /* borrowed; text is appended */
    int depth;
    uint64_t filled;        /* bit d: the container at depth d has a member already */
    uint64_t is_array;      /* bit d: it is an array */
    bool after_key;
};

/* Starts a document at the end of *out. */
void json_begin(struct json *j, struct buf *out);
/* Containers; json_close ends the innermost one. */
void json_open_object(struct json *j);
void json_open_array(struct json *j);
void json_close(struct json *j);
/* Inside an object: the name of the value that is written next. */
void json_key(struct json *j, const char *key);
/* Values. Text may be any bytes: what is not UTF-8 becomes U+FFFD, once per broken sequence. */
void json_str(struct json *j, struct str text);
void json_text(struct json *j, const char *text);
void json_int(struct json *j, int64_t value);
void json_uint(struct json *j, uint64_t value);
/* The shortest of 15 to 17 digits that reads back the same; null when not finite. */
void json_number(struct json *j, double value);
/* The same for a float: 6 to 9 digits. */
void json_float(struct json *j, float value);
void json_bool(struct json *j, bool value);
void json_put_null(struct json *j);
/* A value that is JSON text already. */
void json_raw(struct json *j, struct str text);

#endif
