/* server/content.c - what messages of all APIs say, as text: strings, text parts, and files and documents whose
 * bytes are text. Parts that no text can be had of are left out, with a note; those that ask for other senses are
 * refused. */
#include <ctype.h>
#include <stdio.h>
#include <strings.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "server/ask.h"

static const char *const notes[] = { "tools of kinds that this server cannot run were left out",
                                     "input items of unknown kinds were left out",
                                     "parts of content that are not text were left out",
                                     "this server does not search",
                                     "this model's template shows no tools: they were left out",
                                     "the last message could not be written on: the reply begins a new one" };

void ask_notes(const struct ask *a, char *out, size_t size)
{
    struct buf text = { 0 };
    for (size_t i = 0; i < COUNT(notes); i++)
        if (a->notes >> i & 1) buf_printf(&text, "%s%s", text.len ? "; " : "", notes[i]);
    snprintf(out, size, "%s", buf_text(&text));
    buf_drop(&text);
}

/* ---- bytes of files ------------------------------------------------------------------------------- */
static int digit_of(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' || c == '-' ? 62 : c == '/' || c == '_' ? 63 : -1;
}

/* Base64, with line ends or without; false: it is none. */
static bool decode(struct str from, struct buf *out)
{
    uint32_t bits = 0;
    int n = 0;
    size_t end = from.len;
    while (end && (from.at[end - 1] == '=' || isspace((unsigned char)from.at[end - 1]))) end--;
    for (size_t i = 0; i < end; i++) {
        int digit = digit_of(from.at[i]);
        if (digit < 0 && isspace((unsigned char)from.at[i])) continue;
        if (digit < 0) return false;
        bits = bits << 6 | (uint32_t)digit;
        if ((n += 6) < 8) continue;
        n -= 8;
        buf_add_char(out, (char)(bits >> n));
    }
    return true;
}

/* The bytes are words that somebody can read. */
static bool is_readable(struct str s)
{
    if (s.len >= 5 && !memcmp(s.at, "%PDF-", 5)) return false;
    for (size_t i = 0; i < s.len;) {
        int n = utf8_character(s.at + i, s.len - i);
        if (n <= 0 || s.at[i] == '\0') return false;
        i += (size_t)n;
    }
    return s.len > 0;
}

/* RFC 2397 without base64: a byte that is none of a URL's has an escape. */
static void unescape(struct str from, struct buf *out)
{
    const char *end = from.at + from.len;
    for (const char *at = from.at; at < end; at++) {
        int byte = percent_byte(at, end);
        buf_add_char(out, byte < 0 ? *at : (char)byte);
        if (byte >= 0) at += 2;
    }
}

/* "data:TYPE;base64,BYTES", "data:TYPE,BYTES", or the base64 alone; false: it is none. */
static bool read_url(struct str s, struct buf *out)
{
    const char *comma = s.len > 5 && !strncasecmp(s.at, "data:", 5) ? memchr(s.at, ',', s.len) : NULL;
    if (!comma) return decode(s, out);
    size_t head = (size_t)(comma - s.at), n = strlen(";base64");
    struct str rest = { comma + 1, s.len - head - 1 };
    if (head >= n && !strncasecmp(comma - n, ";base64", n)) return decode(rest, out);
    unescape(rest, out);
    return true;
}

/* The text of a file. */
static bool add_file(const json_t *data, struct buf *out)
{
    struct str s = { json_string_value(data), json_string_length(data) };
    struct buf bytes = { 0 };
    if (!tree_is_text(data)) return false;
    bool good = read_url(s, &bytes) && is_readable((struct str){ buf_text(&bytes), bytes.len });
    if (good) buf_add(out, bytes.data, bytes.len);
    if (bytes.failed) out->failed = true;
    buf_drop(&bytes);
    return good;
}

/* ---- parts ---------------------------------------------------------------------------------------- */
static void add_line(struct buf *out, const json_t *text)
{
    if (!tree_is_text(text) || json_string_length(text) == 0) return;
    buf_add(out, json_string_value(text), json_string_length(text));
    buf_add_char(out, '\n');
}

/* Anthropic's documents: plain text, a file, or content of their own. */
static bool add_document(struct ask *a, const json_t *part, struct buf *out, struct refusal *why)
{
    const json_t *source = json_object_get(part, "source"), *data = json_object_get(source, "data");
    const char *type = field_text(source, "type");
    struct buf text = { 0 };
    bool good = true;
    if (type && !strcmp(type, "text") && tree_is_text(data))
        buf_add(&text, json_string_value(data), json_string_length(data));
    else if (type && !strcmp(type, "content"))
        good = content_text(a, json_object_get(source, "content"), &text, why);
    else if (!add_file(data, &text)) a->notes |= NOTE_PARTS;
    if (text.len) {
        add_line(out, json_object_get(part, "title"));
        add_line(out, json_object_get(part, "context"));
    }
    buf_add(out, buf_text(&text), text.len);
    if (text.failed) out->failed = true;
    buf_drop(&text);
    return good;
}

static bool add_found(struct ask *a, const json_t *part, struct buf *out, struct refusal *why)
{
    add_line(out, json_object_get(part, "title"));
    add_line(out, json_object_get(part, "source"));
    return content_text(a, json_object_get(part, "content"), out, why);
}

static bool add_input_file(struct ask *a, const json_t *part, struct buf *out)
{
    const json_t *file = json_object_get(part, "file");
    struct buf text = { 0 };
    if (!file) file = part;                             /* Responses */
    if (!add_file(json_object_get(file, "file_data"), &text)) a->notes |= NOTE_PARTS;
    else add_line(out, json_object_get(file, "filename"));
    buf_add(out, buf_text(&text), text.len);
    if (text.failed) out->failed = true;
    buf_drop(&text);
    return true;
}

static bool is_any(const char *type, const char *const *types)
{
    for (; *types; types++)
        if (!strcmp(type, *types)) return true;
    return false;
}

/* Something that stands by itself, not a piece of a sentence. */
static bool add_block(struct ask *a, const char *type, const json_t *part, struct buf *out, struct refusal *why)
{
    static const char *const files[] = { "file", "input_file", NULL };
    static const char *const elsewhere[] = { "thinking", "redacted_thinking", "tool_use", "tool_result", NULL };
    if (!strcmp(type, "document")) return add_document(a, part, out, why);
    if (!strcmp(type, "search_result")) return add_found(a, part, out, why);
    if (is_any(type, files)) return add_input_file(a, part, out);
    if (!is_any(type, elsewhere)) a->notes |= NOTE_PARTS;
    return true;
}

/* One part; *apart: a block came last. What has no type is JSON that somebody means as it is. */
static bool add_part(struct ask *a, const json_t *part, bool *apart, struct buf *out, struct refusal *why)
{
    const char *type = field_text(part, "type");
    const json_t *text = tree_is_text(part) ? part : json_object_get(part, "text");
    struct buf block = { 0 };
    bool good = true;
    if (type && (strstr(type, "image") || strstr(type, "audio") || strstr(type, "video")))
        return refuse(why, 400, NULL, "content", "%s: this server has no %s input", type,
                      strstr(type, "image") ? "image" : "media");
    if (!tree_is_text(text)) text = json_object_get(part, "refusal");
    bool words = tree_is_text(text);
    if (!words && type) good = add_block(a, type, part, &block, why);
    else if (!words && !json_is_null(part)) tree_print(&block, part, TREE_COMPACT);
    struct str new = words ? (struct str){ json_string_value(text), json_string_length(text) }
                           : (struct str){ buf_text(&block), block.len };
    if (new.len && out->len && (*apart || !words)) buf_add_text(out, "\n\n");
    buf_add(out, new.at, new.len);
    if (new.len) *apart = !words;
    if (block.failed) out->failed = true;
    buf_drop(&block);
    return good;
}

bool content_text(struct ask *a, const json_t *content, struct buf *out, struct refusal *why)
{
    size_t i;
    json_t *part;
    bool apart = false;
    if (tree_is_text(content)) buf_add(out, json_string_value(content), json_string_length(content));
    else if (content && !json_is_array(content)) return add_part(a, content, &apart, out, why);
    json_array_foreach(content, i, part)
        if (!add_part(a, part, &apart, out, why)) return false;
    return true;
}

bool ends_in_text(const json_t *messages)
{
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const char *role = field_text(last, "role"), *text = field_text(last, "content");
    return role && !strcmp(role, "assistant") && text && text[strspn(text, " \t\r\n")] &&
           !json_object_get(last, "tool_calls");
}

bool add_message(json_t *messages, const char *role, struct str text)
{
    json_t *first = json_array_get(messages, 0);
    size_t n = json_array_size(messages);
    const char *last = n == 1 ? field_text(first, "role") : NULL;
    if (!strcmp(role, "system") && last && !strcmp(last, "system")) {
        const json_t *before = json_object_get(first, "content");
        struct buf both = { 0 };
        buf_add(&both, json_string_value(before), json_string_length(before));
        buf_add_text(&both, "\n\n");
        buf_add(&both, text.at, text.len);
        bool good = !both.failed &&
                    !json_object_set_new(first, "content", json_stringn_nocheck(both.data, both.len));
        buf_drop(&both);
        return good;
    }
    json_t *m = json_object();
    json_object_set_new(m, "role", json_string(role));
    json_object_set_new(m, "content", json_stringn_nocheck(text.at ? text.at : "", text.len));
    return json_array_append_new(messages, m) == 0;
}
