/* cli/options_absent.c - flags of other servers for what this one does not do: each is refused with what to do
 * instead, as a flag, as a variable and in a file. What a flag alone switches on may be said to be off. */
#include <string.h>

#include "cli/options_table.h"

static const char several[] = "one server serves one model; start a server for each",
    images[] = "there is no image input", split[] = "a model runs on one device, see --device",
    experts[] = "all experts of a model stay on its device, and none is left out",
    disk[] = "the prefix cache is in memory alone, see --prefix-reuse",
    compression[] = "prompts are never shortened; give a larger --context",
    recall[] = "the whole context stays in the cache, see --kv-pool-tokens",
    streaming[] = "weights are in memory as a whole", parked[] = "a drafter stays loaded as long as its model";

static const struct { const char *name, *instead; } absent[] = {
    { "profile", "there are no launch profiles; --config FILE holds the same settings" },
    { "lazy-draft", parked },
    { "lazy", parked },
    { "draft-swa", "a drafter's file states its window: convert the drafter again" },
    { "adaptive-experts", experts }, { "expert-top-k", experts }, { "router-bias", experts },
    { "expert-device", experts }, { "expert-placement", experts }, { "protected-experts", experts },
    { "ds4-expert-top-k", experts }, { "ds4-expert-placement", experts }, { "ds4-router-bias", experts },
    { "ds4-protected-experts", experts }, { "freq", experts }, { "collect-routing", experts },
    { "spark", experts }, { "spark-vram", experts }, { "spark-slots", experts },
    { "fa-window", "attention sees the whole context, unless the model's own layers do not" },
    { "prefill-attention", "prompts are read with the model's own attention" },
    { "ds4-prefill", "prompts are read with the model's own attention" },
    { "kvflash", recall }, { "kvflash-policy", recall }, { "kvflash-tau", recall },
    { "decode-kv-offload-mb", "a text that finds no room waits, or is computed again; see --kv-pool-tokens" },
    { "prefill-compression", compression }, { "prefill-drafter", compression }, { "prefill-threshold", compression },
    { "prefill-keep-ratio", compression }, { "prefill-curve", compression }, { "prefill-mode", compression },
    { "prefill-keep", compression }, { "prefill-upstream-base", compression }, { "prefill-upstream-key", compression },
    { "prefill-upstream-model", compression },
    { "kv-cache-dir", disk }, { "kv-cache-budget", disk }, { "kv-cache-min-tokens", disk },
    { "kv-cache-interval", disk }, { "kv-cache-cold-max", disk }, { "disk-prefix-cache", disk },
    { "load-balancing", several }, { "load-balancing-primary-gpu", several }, { "model-routing", several },
    { "unknown-model", several }, { "swap-residency", several }, { "swap-keep-weights", several },
    { "target-devices", split }, { "target-layer-split", split }, { "target-split-mode", split },
    { "mmproj", images }, { "mmproj-device", images }, { "image-min-tokens", images }, { "image-max-tokens", images },
    { "allow-media-host", images },
    { "ssd", streaming }, { "ssd-cache", streaming }, { "vram", streaming },
};

const char *option_absent(const char *name, size_t len)
{
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
        if (strlen(absent[i].name) == len && !memcmp(absent[i].name, name, len)) return absent[i].instead;
    return NULL;
}

const char *option_absent_name(int i)
{
    return i < (int)(sizeof absent / sizeof *absent) ? absent[i].name : NULL;
}
