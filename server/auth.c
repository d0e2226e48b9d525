/* server/auth.c - API keys. Every route but /health wants one once there is any; it is compared in a time
 * that does not depend on where it differs. */
#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

#include "server/inside_http.h"

/* Looks at every byte of `given`, whatever it holds. */
static bool same(const char *given, const char *key)
{
    size_t n = strlen(given), m = strlen(key);
    unsigned char differs = n != m;
    for (size_t i = 0; i < n; i++) differs |= (unsigned char)(given[i] ^ key[m ? i % m : 0]);
    return !differs;
}

static bool known(const struct http_params *p, const char *given)
{
    bool any = false;
    for (int i = 0; given && i < p->n_keys; i++) any |= same(given, p->keys[i]);
    return any;
}

static bool is_local(struct MHD_Connection *m)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(m, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *a = info ? info->client_addr : NULL;
    if (a && a->sa_family == AF_INET) {
        return ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >> 24 == 127;
    }
    return a && a->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
}

static const char *head(struct MHD_Connection *m, const char *name)
{
    return MHD_lookup_connection_value(m, MHD_HEADER_KIND, name);
}

/* This machine is asked for by its own name, not by one that somebody else's DNS gives it; "[::1]:80" has its port. */
static bool names_loopback(const char *host)
{
    static const char *const names[] = { "localhost", "127.0.0.1", "[::1]" };
    for (size_t i = 0; host && i < sizeof names / sizeof *names; i++) {
        size_t n = strlen(names[i]);
        if (strncasecmp(host, names[i], n)) continue;
        if (!host[n] || (host[n] == ':' && strspn(host + n + 1, "0123456789") == strlen(host + n + 1))) return true;
    }
    return false;
}

/* The client itself is local: no page of another site asks through a browser here, no proxy for others. */
static bool speaks_for_itself(struct MHD_Connection *m)
{
    static const char *const others[] = { "Origin", "Forwarded", "X-Forwarded-For", "X-Forwarded-Host",
                                         "X-Real-IP", "CF-Connecting-IP", "Via" };
    const char *site = head(m, "Sec-Fetch-Site");       /* the status page reads what it shows from where it came */
    if (site && strcmp(site, "same-origin") && strcmp(site, "none")) return false;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (head(m, others[i])) return false;
    return is_local(m) && names_loopback(head(m, "Host"));
}

int auth_check(const struct http_params *p, struct MHD_Connection *m, const char *path, bool *trusted)
{
    const char *bearer = head(m, "Authorization");
    bool has_key = known(p, head(m, "x-api-key")) ||
                   (bearer && !strncasecmp(bearer, "Bearer ", 7) && known(p, bearer + 7));
    *trusted = p->n_keys ? has_key : speaks_for_itself(m);
    return p->n_keys == 0 || has_key || !strcmp(path, "/health") ? 0 : 401;
}
