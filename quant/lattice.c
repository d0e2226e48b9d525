/* quant/lattice.c - see lattice.h. The lists live in static memory, so that encoding never
 * allocates; their sizes follow from the grids. */
#include "quant/lattice.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "quant/grids.h"

enum {
    MOST_POINTS = 2048,
    FARTHEST = 4 * 49 + 1
}; /* squared distances in levels: below FARTHEST */

static int32_t place_8[4][1 << 16], place_4[2][1 << 12];
static uint16_t lists_iq1[332234], lists_xxs[119462], lists_xs[187770], lists_s[50253],
    lists_3xxs[22825], lists_3s[28317];

#define GRID_8(grid_, want_, place_, lists_)                                                      \
    {                                                                                             \
        .grid = grid_, .points = sizeof grid_ / sizeof *grid_, .size = 8, .bits = 2, .levels = 3, \
        .want = want_, .place = place_, .lists = lists_,                                          \
        .lists_size = sizeof lists_ / sizeof *lists_                                              \
    }
#define GRID_4(grid_, want_, place_, lists_)                                                      \
    {                                                                                             \
        .grid = grid_, .points = sizeof grid_ / sizeof *grid_, .size = 4, .bits = 3, .levels = 8, \
        .want = want_, .place = place_, .lists = lists_,                                          \
        .lists_size = sizeof lists_ / sizeof *lists_                                              \
    }
static const struct lattice lattices[] = {
    [LATTICE_IQ1] = GRID_8(iq1_grid, 3, place_8[0], lists_iq1),
    [LATTICE_IQ2_XXS] = GRID_8(iq2_xxs_grid, 2, place_8[1], lists_xxs),
    [LATTICE_IQ2_XS] = GRID_8(iq2_xs_grid, 2, place_8[2], lists_xs),
    [LATTICE_IQ2_S] = GRID_8(iq2_s_grid, 1, place_8[3], lists_s),
    [LATTICE_IQ3_XXS] = GRID_4(iq3_xxs_grid, 2, place_4[0], lists_3xxs),
    [LATTICE_IQ3_S] = GRID_4(iq3_s_grid, 3, place_4[1], lists_3s),
};
static bool built[sizeof lattices / sizeof *lattices];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;     /* guards built and what it promises */

static int distance(const struct lattice *g, unsigned a, unsigned b)
{
    unsigned mask = (1u << g->bits) - 1;
    int sum = 0;
    for (int shift = 0; shift < g->bits * g->size; shift += g->bits) {
        int d = (int)(a >> shift & mask) - (int)(b >> shift & mask);
        sum += d * d;
    }
    return sum;
}

/* Writes the list of `code` at g->lists + at and returns the end. */
static uint32_t add_list(const struct lattice *g, unsigned code, uint32_t at)
{
    static uint8_t far[MOST_POINTS];             /* under the lock */
    bool seen[FARTHEST] = { false };
    for (int i = 0; i < g->points; i++) {
        far[i] = (uint8_t)distance(g, code, g->grid[i]);
        seen[far[i]] = true;
    }
    uint32_t start = at++;
    for (int d = 0, rings = 0; d < FARTHEST && rings < g->want; d++) {
        if (!seen[d]) continue;
        rings++;
        for (int i = 0; i < g->points && at < g->lists_size; i++)
            if (far[i] == d) g->lists[at++] = (uint16_t)i;
    }
    g->lists[start] = (uint16_t)(at - start - 1);
    return at;
}

static void build(const struct lattice *g)
{
    unsigned mask = (1u << g->bits) - 1, codes = 1u << g->bits * g->size;
    for (unsigned code = 0; code < codes; code++) g->place[code] = INT32_MIN;
    for (int i = 0; i < g->points; i++) g->place[g->grid[i]] = i;
    uint32_t at = 0;
    for (unsigned code = 0; code < codes; code++) {
        bool vector = true;                      /* two bits hold one level too many */
        for (int shift = 0; shift < g->bits * g->size; shift += g->bits)
            vector &= (int)(code >> shift & mask) < g->levels;
        if (!vector || g->place[code] >= 0) continue;
        g->place[code] = -1 - (int32_t)at;
        at = add_list(g, code, at);
    }
}

const struct lattice *lattice_get(enum lattice_id id)
{
    pthread_mutex_lock(&lock);
    if (!built[id]) build(&lattices[id]);
    built[id] = true;
    pthread_mutex_unlock(&lock);
    return &lattices[id];
}

int lattice_snap(const struct lattice *g, const float *x, const float *w, float scale,
                 const float *values, uint8_t *level, uint8_t *on_grid)
{
    unsigned code = 0, mask = (1u << g->bits) - 1;
    for (int j = 0; j < g->size; j++) code |= (unsigned)level[j] << g->bits * j;
    int32_t at = g->place[code];
    if (on_grid) *on_grid = at >= 0;
    if (at >= 0) return at;
    const uint16_t *list = g->lists + (-1 - at);
    int best = list[1];
    float least = 3.402823466e38f;
    for (int k = 1; k <= list[0]; k++) {
        float sum = 0;
        for (int j = 0; j < g->size; j++) {
            float diff = scale * values[g->grid[list[k]] >> g->bits * j & mask] - x[j];
            sum += w[j] * diff * diff;
        }
        if (sum < least) least = sum, best = list[k];
    }
    for (int j = 0; j < g->size; j++) level[j] = (uint8_t)(g->grid[best] >> g->bits * j & mask);
    return best;
}
