/* device/gpu/linear_iq4_xs.cu - products of weights in this tile format (linear_narrow.cuh). */
#include "device/gpu/linear.cuh"

PRODUCT_FORMAT(iq4_xs, tile_iq4_xs)
