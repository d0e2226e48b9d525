/* tests/test_jinja.c - the template interpreter by itself: marks, errors with their place, limits,
 * failing memory. That it renders as the reference is in test_chat_templates.c. */
#include "tests/test.h"
#include "text/jinja.h"

struct rendered {
    luce_status status;
    luce_error err;
    struct jheap heap;
    struct jinja_output out;
};

/* Renders `source` with s = `text` (plain), l = [1, 2], d = {"k": "v"}. */
static struct rendered render_with(const char *source, const char *text, size_t limit)
{
    struct rendered r = { .heap = { .limit = limit } };
    struct jinja *t = NULL;
    r.status = jinja_parse(&t, str_of(source), "t", &r.err);
    if (r.status) return r;
    struct jval list = jinja_list(&r.heap), dict = jinja_dict(&r.heap);
    jinja_push(&r.heap, list, jinja_int(1));
    jinja_push(&r.heap, list, jinja_int(2));
    jinja_put(&r.heap, dict, str_of("k"), true, jinja_text(&r.heap, str_of("v"), true));
    struct jinja_var vars[] = { { "s", jinja_text(&r.heap, str_of(text), true) }, { "l", list }, { "d", dict } };
    struct jinja_render how = { .vars = vars, .n_vars = COUNT(vars), .max_steps = 50000 };
    r.status = jinja_render(t, &how, &r.heap, &r.out, &r.err);
    jinja_free(t);
    return r;
}

static void check_renders(const char *source, const char *text, const char *want)
{
    struct rendered r = render_with(source, text, 0);
    CHECK(r.status == LUCE_OK, "%s: %s", source, r.err.text);
    CHECK(str_is(r.out.text, want), "%s gives \"%.*s\", not \"%s\"", source, (int)r.out.text.len,
          r.out.text.len ? r.out.text.at : "", want);
    jinja_heap_drop(&r.heap);
}

TEST(jinja_renders_and_keeps_values_apart)
{
    check_renders("{% for x in l %}{{ x }}{{ s }}{% endfor %}", "<", "1<2<");
    check_renders("a\n{% if true %}\nb\n{% endif %}\n", "", "a\nb\n");
    check_renders("a\r\n{{ s }}\r\n", "x", "a\nx");
    check_renders("{{ d.k }}{{ d['x'] }}{{ y }}", "", "v");
    check_renders("{% set s = s ~ '!' %}{{ s }}", "hi", "hi!");
    check_renders("", "", "");
}

/* A template's words are marked in brackets, plain bytes are not. */
static void check_marks(const char *source, const char *text, const char *want)
{
    struct rendered r = render_with(source, text, 0);
    struct buf b = { 0 };
    CHECK(r.status == LUCE_OK, "%s: %s", source, r.err.text);
    size_t at = 0;
    for (size_t i = 0; i < r.out.n_spans; i++) {
        struct text_span s = r.out.spans[i];
        CHECK(s.trust == SPAN_TEMPLATE && s.from >= at && s.from < s.to && s.to <= r.out.text.len);
        buf_add(&b, r.out.text.at + at, s.from - at);
        buf_printf(&b, "[%.*s]", (int)(s.to - s.from), r.out.text.at + s.from);
        at = s.to;
    }
    buf_add(&b, r.out.text.at + at, r.out.text.len - at);
    CHECK(!strcmp(buf_text(&b), want), "%s: \"%s\", not \"%s\"", source, buf_text(&b), want);
    buf_drop(&b);
    jinja_heap_drop(&r.heap);
}

TEST(jinja_marks_follow_a_users_words_through_every_operation)
{
    check_marks("a{{ s }}b", "xy", "[a]xy[b]");
    check_marks("{{ '<' + s + '>' }}", "xy", "[<]xy[>]");
    check_marks("{{ '<' ~ s|trim ~ '>' }}", " xy ", "[<]xy[>]");
    check_marks("{{ ('<' + s + '>')[1:-2] }}", "xyz", "xy");
    check_marks("{{ s|upper ~ 'a'|upper }}", "xy", "XY[A]");
    check_marks("{{ s|tojson }}", "a\"b\n", "[\"]a\\\"b\\n[\"]");
    check_marks("{{ d|tojson }}", "", "[{\"]k[\": \"]v[\"}]");
    check_marks("{{ s.split(',')|join(';') }}", "a,b", "a[;]b");
    check_marks("{{ s.replace('a', '<') }}", "xaax", "x[<<]x");
    check_marks("{{ '<a>'.replace('a', s) }}", "xy", "[<]xy[>]");
    check_marks("{{ s[::-1] }}{{ s[0] }}{{ s|first }}{{ s|list }}", "xy", "yxxx[[']x[', ']y[']]");
    check_marks("{% set x %}<{{ s }}>{% endset %}{{ x|trim }}", "xy", "[<]xy[>]");
    check_marks("{% macro m(a) %}({{ a }}){% endmacro %}{{ m(s)|lower }}", "XY", "[(]xy[)]");
    check_marks("{% filter upper %}<{{ s }}>{% endfilter %}", "xy", "[<]XY[>]");
    check_marks("{{ (s ~ '\n' ~ s)|indent(2) }}", "x", "x[\n  ]x");
    check_marks("{{ s.title() }}{{ s * 2 }}{{ [s]|join }}", "ab", "Abababab");
    check_marks("{% for c in s %}{{ c }}.{% endfor %}", "ab", "a[.]b[.]");
}

static const struct {
    const char *source;
    luce_status status;
    const char *says;
} bad[] = {
    { "{% if %}", LUCE_E_FORMAT, "line 1, column 7: expected a value" },
    { "a\n b {{ x", LUCE_E_FORMAT, "line 2" },
    { "{% if x %}", LUCE_E_FORMAT, "endif" },
    { "{% if x %}{% else %}", LUCE_E_FORMAT, "'{% endif %}' is missing" },
    { "{% for x l %}{% endfor %}", LUCE_E_FORMAT, "expected 'in'" },
    { "{% endfor %}", LUCE_E_FORMAT, "'endfor' is no statement" },
    { "{% include 'a' %}", LUCE_E_FORMAT, "'include' is no statement that is known here" },
    { "{{ x|nope }}", LUCE_E_FORMAT, "no filter 'nope'" },
    { "{{ x is nope }}", LUCE_E_FORMAT, "no test 'nope'" },
    { "{{ 'a }}", LUCE_E_FORMAT, "a string is not closed" },
    { "{# a", LUCE_E_FORMAT, "comment is not closed" },
    { "{% raw %}", LUCE_E_FORMAT, "raw block is not closed" },
    { "{{ a b }}", LUCE_E_FORMAT, "expected '}}', found 'b'" },
    { "{{ 99999999999999999999 }}", LUCE_E_FORMAT, "too large" },
    { "{{ ? }}", LUCE_E_FORMAT, "means nothing here" },
    { "{% break %}", LUCE_E_FORMAT, "need a loop" },
    { "{% for x in l recursive %}{% endfor %}", LUCE_E_FORMAT, "recursive" },
    { "\n\n {{ raise_exception('no ' ~ s) }}", LUCE_E_ARG, "line 3, column 20: the template refuses this conversation: no words" },
    { "{{ missing.x }}", LUCE_E_ARG, "'x' is asked of an undefined value" },
    { "{{ missing() }}", LUCE_E_ARG, "cannot be called" },
    { "{{ 'a' + 1 }}", LUCE_E_ARG, "'+' cannot be applied to a string and an integer" },
    { "{{ 1 // 0 }}", LUCE_E_ARG, "division by zero" },
    { "{{ 9223372036854775807 + 1 }}", LUCE_E_FORMAT, "64 bits" },
    { "{{ 2 ** 64 }}", LUCE_E_FORMAT, "64 bits" },
    { "{{ 1 < 'a' }}", LUCE_E_ARG, "cannot be ordered" },
    { "{% for x in 1 %}{% endfor %}", LUCE_E_ARG, "no elements" },
    { "{{ missing|tojson }}", LUCE_E_ARG, "tojson cannot write an undefined value" },
    { "{{ range(0, 1, 0) }}", LUCE_E_ARG, "step" },
    { "{{ range(1000000) }}", LUCE_E_FORMAT, "range() gives more" },
    { "{{ s|from_json }}", LUCE_E_UNSUPPORTED, "from_json" },
    { "{% set x.y = 1 %}", LUCE_E_FORMAT, "namespace()" },
    { "{{ 1|items }}", LUCE_E_ARG, "items wants a mapping" },
    { "{% for i in range(4000) %}{% if l == l == l == l == l == l == l == l %}{% endif %}{% endfor %}", LUCE_E_FORMAT, "steps" },
    { "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", LUCE_E_FORMAT, "call each other" },
    { "{% set n = namespace(x=[]) %}{% for i in range(3000) %}{% set n.x = [n.x] %}{% endfor %}{{ n.x }}", LUCE_E_FORMAT,
      "nested too deep" },
    { "{% set n = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}", LUCE_E_FORMAT,
      "MiB of memory" },
};

TEST(jinja_refuses_and_says_where)
{
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct rendered r = render_with(bad[i].source, "words", 1 << 20);
        CHECK(r.status == bad[i].status, "%s: %s: %s", bad[i].source, status_name(r.status), r.err.text);
        CHECK(strstr(r.err.text, bad[i].says), "%s: \"%s\" lacks \"%s\"", bad[i].source, r.err.text, bad[i].says);
        CHECK(strstr(r.err.text, "t: line ") != NULL, "%s", r.err.text);
        CHECK_EQ(r.out.raised, strstr(bad[i].source, "raise_exception") != NULL);
        jinja_heap_drop(&r.heap);
    }
}

TEST(jinja_limits_the_nesting_of_a_template)
{
    static const char *const pieces[][2] = { { "{{ (", "" }, { "{% if 1 %}", "{% endif %}" }, { "{{ [", "" }, { "{{ not ", "" },
                                             { "{{ -", "" }, { "{{ 1", "" } };
    static const char *const more[] = { "(", "{% if 1 %}", "[", "not ", "-", " + 1" };
    for (size_t i = 0; i < COUNT(pieces); i++) {
        struct buf b = { 0 };
        buf_add_text(&b, pieces[i][0]);
        for (int k = 0; k < 20000; k++) buf_add_text(&b, more[i]);
        struct jinja *t = NULL;
        luce_error err = { 0 };
        CHECK_EQ(jinja_parse(&t, (struct str){ b.data, b.len }, "t", &err), LUCE_E_FORMAT);
        CHECK(strstr(err.text, "nested") != NULL, "%s", err.text);
        jinja_free(t);
        buf_drop(&b);
    }
}

TEST(jinja_takes_any_bytes_as_a_template)
{
    static const char alphabet[] = "{{%%#}}-+ \n'\"|.,()[]:=~abif in else endif for set is not 019_<>\\\xc3\xa9\xff";
    for (int n = 0; n < 20000; n++) {
        char text[64];
        size_t len = (size_t)(test_random() % sizeof text);
        for (size_t i = 0; i < len; i++) text[i] = alphabet[test_random() % (sizeof alphabet - 1)];
        struct jinja *t = NULL;
        struct jheap heap = { .limit = 1 << 20 };
        struct jinja_output out;
        luce_error err = { 0 };
        struct jinja_render how = { .max_steps = 10000 };
        if (!jinja_parse(&t, (struct str){ text, len }, "t", &err)) jinja_render(t, &how, &heap, &out, &err);
        jinja_free(t);
        jinja_heap_drop(&heap);
    }
}

TEST(jinja_survives_any_failed_allocation)
{
    static const char source[] =
        "{% macro m(a, b='x') %}{{ a }}{{ b }}{% endmacro %}{% set ns = namespace(n=1) %}{% for x in l %}{% set ns.n = ns.n + x %}"
        "{{ m(s|upper, b=x) }}{{ d|tojson }}{{ s.split('o') | join('-') }}{% set y %}{{ x }}{% endset %}{{ y ~ s[1:] }}{% endfor %}";
    size_t before = mem_live();
    for (int n = 0;; n++) {
        mem_fail_after(n);
        struct rendered r = render_with(source, "words of some length", 0);
        mem_fail_never();
        jinja_heap_drop(&r.heap);
        CHECK_EQ(mem_live(), before);
        if (r.status == LUCE_OK) break;
        CHECK(r.status == LUCE_E_NOMEM, "allocation %d: %s: %s", n, status_name(r.status), r.err.text);
        if (r.status != LUCE_E_NOMEM) break;
    }
}

TEST(jinja_knows_which_names_a_template_mentions)
{
    struct jinja *t = NULL;
    luce_error err = { 0 };
    CHECK_OK(jinja_parse(&t, str_of("{{ enable_thinking }}{{ m['developer'] }} thinking"), "t", &err), err);
    CHECK(jinja_mentions(t, "enable_thinking"));
    CHECK(jinja_mentions(t, "developer"));
    CHECK(!jinja_mentions(t, "thinking"));
    jinja_free(t);
}
