/* server/head.c - heads of requests that can be read in two ways are refused: what else reads them on their way,
 * a proxy say, may see another request. That is where the body ends, lines that are continued, blanks before a
 * colon, and NUL bytes, which some versions of the library take for the end of a word or of the head.
 * These leave the head where it came, with NULs for the bytes between words: so words must follow each other as
 * closely as they can, and what lies between them is something that the library has not seen. */
#include <string.h>
#include <strings.h>

#include "base/str.h"
#include "server/inside_http.h"

struct head {
    const char *start, *end;        /* its bytes, NULL: where the library keeps them is not known */
    const char *at;                 /* behind the last word */
    int line_end;                   /* bytes of one */
    const char *bad;                /* NULL: nothing is */
    const char *length;
    bool two_lengths, encoded, unknown, chunked;
    int n_hosts;
};

char hidden_target[1];

void *target_check(void *user, const char *target, struct MHD_Connection *m)
{
    (void)user;
    (void)m;
    return strncmp(target + strlen(target) + 1, "HTTP/", 5) ? hidden_target : NULL;
}

size_t target_unescape(void *user, struct MHD_Connection *m, char *text)
{
    char *to = text;
    const char *end = text + strlen(text);
    (void)user;
    (void)m;
    for (const char *at = text; at < end; at++) {
        int byte = percent_byte(at, end);
        *to++ = byte > 0 ? (char)byte : *at;
        if (byte > 0) at += 2;
    }
    *to = '\0';
    return (size_t)(to - text);
}

const char *target_path(const char *target)
{
    static const char *const schemes[] = { "http://", "https://" };
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        size_t n = strlen(schemes[i]);
        if (strncasecmp(target, schemes[i], n)) continue;
        const char *path = strchr(target + n, '/');
        return path ? path : "/";
    }
    return target;
}

/* The NULs from `at` to the next word, -1 if there is anything else but blanks. */
static int nuls_between(const char *at, const char *next)
{
    int n = 0;
    for (; at < next; at++) {
        if (*at && *at != ' ' && *at != '\t') return -1;
        n += *at == '\0';
    }
    return at == next ? n : -1;
}

static void look_at_words(struct head *h, const char *key, const char *value)
{
    bool inside = key >= h->at && key < h->end && value && value > key && value < h->end;
    const char *colon = key + strlen(key);
    if (!inside) h->bad = "a line of the head is continued on the next one";
    else if (nuls_between(h->at, key) != h->line_end || *h->at || nuls_between(colon, value) != 1)
        h->bad = "a NUL in the head";
    else h->at = value + strlen(value);
    if (key[strcspn(key, " \t")]) h->bad = "a blank at the start of a line, or before the colon of a header";
}

static enum MHD_Result look_at_field(void *context, enum MHD_ValueKind kind, const char *key, const char *value)
{
    struct head *h = context;
    (void)kind;
    if (h->start && !h->bad) look_at_words(h, key, value);
    if (!value) value = "";
    if (!strcasecmp(key, "Host")) {
        h->n_hosts++;
    } else if (!strcasecmp(key, "Content-Length")) {
        h->two_lengths |= h->length && strcmp(h->length, value);
        h->length = value;
    } else if (!strcasecmp(key, "Transfer-Encoding")) {
        h->unknown |= h->chunked || strcasecmp(value, "chunked") != 0;
        h->chunked = true;
    } else if (!strcasecmp(key, "Content-Encoding")) {
        h->encoded |= strcasecmp(value, "identity") != 0;
    }
    return MHD_YES;
}

/* Later versions refuse NULs themselves. */
static struct head head_of(struct MHD_Connection *m, const char *method, const char *path, const char *version)
{
    struct head h = { 0 };
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(m, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    if (strcmp(MHD_get_version(), "0.9.76") > 0 || !info) return h;
    h.start = method;
    h.end = method + info->header_size;
    h.at = version + strlen(version);
    bool only_line_feeds = h.at + 2 == h.end || h.at[1];
    h.line_end = only_line_feeds ? 1 : 2;
    if (path != method + strlen(method) + 1) h.bad = "a NUL in the method";
    return h;
}

const char *head_check(struct MHD_Connection *m, const char *method, const char *path, const char *version, int *status)
{
    struct head h = head_of(m, method, path, version);
    *status = 400;
    MHD_get_connection_values(m, MHD_HEADER_KIND, look_at_field, &h);
    if (h.bad) return h.bad;
    if (h.start && nuls_between(h.at, h.end) != 2 * h.line_end) return "a NUL in the head";
    if (h.n_hosts > 1 || (h.n_hosts == 0 && !strcmp(version, MHD_HTTP_VERSION_1_1)))
        return "HTTP/1.1 wants one Host";
    if (h.two_lengths) return "two different Content-Length";
    if (h.chunked && h.length) return "Content-Length and Transfer-Encoding exclude each other";
    if (h.unknown) return "Transfer-Encoding: only 'chunked' is known";
    *status = 415;
    return h.encoded ? "Content-Encoding: bodies are taken as they are; send JSON" : NULL;
}
