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

int auth_check(const struct http_params *p, struct MHD_Connection *m, const char *path, bool *trusted)
{
    const char *bearer = MHD_lookup_connection_value(m, MHD_HEADER_KIND, "Authorization");
    bool has_key = known(p, MHD_lookup_connection_value(m, MHD_HEADER_KIND, "x-api-key")) ||
                   (bearer && !strncasecmp(bearer, "Bearer ", 7) && known(p, bearer + 7));
    *trusted = p->n_keys ? has_key : is_local(m);
    return p->n_keys == 0 || has_key || !strcmp(path, "/health") ? 0 : 401;
}
