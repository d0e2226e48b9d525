/* tests/fuzz/fuzz_request.c - any bytes as the body of a request to any of the APIs: it is refused with a
 * message, or becomes messages and limits. Nothing is rendered or run. The first byte chooses the API.
 * Seeds: tests/fuzz/corpus/request. */
#include <stdint.h>
#include <stdlib.h>

#include "chat/values.h"
#include "server/route.h"
#include "server/store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool (*const parse[])(struct server *, struct ask *, struct refusal *) = {
        chat_read, messages_read, responses_read };
    static const struct server_params params = { .top_p = 1 };
    static struct server server = { .params = &params };
    struct refusal why = { 0 };
    if (size == 0) return 0;
    luce_error err = { 0 };
    if (!server.store) values_use_counted_memory();
    if (!server.store && store_new(&server.store, &err)) abort();
    struct ask ask = { .body = ask_read_body((struct str){ (const char *)data + 1, size - 1 }, &why) };
    bool good = ask.body && parse[data[0] % 3](&server, &ask, &why);
    if (good ? ask.messages == NULL : why.status == 0 || !why.text[0]) abort();
    ask_drop(&ask);
    return 0;
}
