/* device/gpu/emulate.h - a GPU that is not there, for tests: the part of the runtime that device/gpu/ uses, on
 * host memory. port.h gives its names like those of CUDA and HIP; emulate.cuh has what kernels use.
 *
 * A launch runs at once, one thread of the block after the other, each on a stack of its own until it comes to
 * a barrier or to an operation of its warp. Copies into shared memory arrive as late as they may. Fresh memory
 * holds NaN. So a kernel that forgets to wait or to write gives wrong numbers, and under AddressSanitizer one
 * that leaves its buffers stops. What it does not show: races that need two units at once, launches that
 * overlap, warp-group products (but for those of attention at depth), and speed. */
#ifndef LUCE_DEVICE_GPU_EMULATE_H
#define LUCE_DEVICE_GPU_EMULATE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { emulatedSuccess, emulatedErrorMemoryAllocation, emulatedErrorLaunch } emulatedError_t;
enum emulatedMemcpyKind { emulatedMemcpyHostToDevice, emulatedMemcpyDeviceToHost, emulatedMemcpyDeviceToDevice };
enum emulatedDeviceAttr {
    emulatedDevAttrMaxSharedMemoryPerBlockOptin,
    emulatedDevAttrMultiProcessorCount,
    emulatedDevAttrComputeCapabilityMajor,
    emulatedDevAttrComputeCapabilityMinor,
};
enum {
    emulatedEventDisableTiming = 2,
    emulatedDeviceScheduleSpin = 1,
    emulatedStreamNonBlocking = 1,
    emulatedStreamCaptureModeThreadLocal = 1,
    emulatedFuncAttributeMaxDynamicSharedMemorySize = 8,
    emulatedLaunchAttributeProgrammaticStreamSerialization = 6,
};

typedef struct emulated_stream *emulatedStream_t;
typedef struct emulated_event *emulatedEvent_t;
typedef struct emulated_graph *emulatedGraph_t;
typedef struct emulated_graph *emulatedGraphExec_t;
struct emulatedDeviceProp {
    char name[256];
};
struct emulated_dim {
    unsigned x, y, z;
};
typedef struct {
    int id;
    struct {
        int programmaticStreamSerializationAllowed;
    } val;
} emulatedLaunchAttribute;
typedef struct {
    struct emulated_dim gridDim, blockDim;
    size_t dynamicSmemBytes;
    emulatedStream_t stream;
    emulatedLaunchAttribute *attrs;
    unsigned numAttrs;
} emulatedLaunchConfig_t;

/* The call of this kind after n more fails, once: an allocation for lack of memory, a launch of a graph because the
 * card is lost. Below 0: none. */
enum emulated_call_kind { EMULATED_MALLOC, EMULATED_LAUNCH, EMULATED_CALLS };
void emulated_fail(enum emulated_call_kind what, int n);
/* Bytes of shared memory that a block of the card may have, from the next device_open on; 0: as many as an H200's. */
void emulated_card(int shared);
/* Kernels that ran so far. */
int emulated_launches(void);
/* Of 512 random halves, at most 1 in size: how often what replaces matrix instructions elsewhere (matrix.cuh) gives
 * something else than they do; -1: it did not run. */
int emulated_check_matrices(const uint16_t halves[512]);
/* As CUDA documents the functions of these names. */
emulatedError_t emulatedGetDeviceCount(int *n);
emulatedError_t emulatedGetDevice(int *device);
emulatedError_t emulatedSetDevice(int device);
emulatedError_t emulatedSetDeviceFlags(unsigned flags);
emulatedError_t emulatedDeviceGetAttribute(int *value, int attribute, int device);
emulatedError_t emulatedDeviceGetPCIBusId(char *out, int size, int device);
emulatedError_t emulatedGetDeviceProperties(struct emulatedDeviceProp *out, int device);
emulatedError_t emulatedRuntimeGetVersion(int *version);
emulatedError_t emulatedGetLastError(void);
const char *emulatedGetErrorString(emulatedError_t e);
emulatedError_t emulatedMemGetInfo(size_t *free_bytes, size_t *total);
emulatedError_t emulatedMalloc(void **out, size_t bytes);
emulatedError_t emulatedFree(void *p);
emulatedError_t emulatedMallocHost(void **out, size_t bytes);
emulatedError_t emulatedFreeHost(void *p);
emulatedError_t emulatedMemcpyAsync(void *to, const void *from, size_t bytes, int kind, emulatedStream_t s);
emulatedError_t emulatedMemcpy2DAsync(void *to, size_t to_stride, const void *from, size_t from_stride, size_t width,
                                      size_t rows, int kind, emulatedStream_t s);
emulatedError_t emulatedMemsetAsync(void *p, int value, size_t bytes, emulatedStream_t s);
emulatedError_t emulatedStreamCreateWithFlags(emulatedStream_t *out, unsigned flags);
emulatedError_t emulatedStreamDestroy(emulatedStream_t s);
emulatedError_t emulatedStreamSynchronize(emulatedStream_t s);
emulatedError_t emulatedStreamBeginCapture(emulatedStream_t s, int mode);
emulatedError_t emulatedStreamEndCapture(emulatedStream_t s, emulatedGraph_t *out);
emulatedError_t emulatedGraphInstantiate(emulatedGraphExec_t *out, emulatedGraph_t g, unsigned flags);
emulatedError_t emulatedGraphLaunch(emulatedGraphExec_t g, emulatedStream_t s);
emulatedError_t emulatedGraphDestroy(emulatedGraph_t g);
emulatedError_t emulatedGraphExecDestroy(emulatedGraphExec_t g);
emulatedError_t emulatedEventCreate(emulatedEvent_t *out);
emulatedError_t emulatedEventCreateWithFlags(emulatedEvent_t *out, unsigned flags);
emulatedError_t emulatedEventRecord(emulatedEvent_t e, emulatedStream_t s);
emulatedError_t emulatedEventSynchronize(emulatedEvent_t e);
emulatedError_t emulatedEventElapsedTime(float *ms, emulatedEvent_t from, emulatedEvent_t to);
emulatedError_t emulatedEventDestroy(emulatedEvent_t e);
emulatedError_t emulatedFuncSetAttribute(const void *kernel, int attribute, int value);
/* The kernel must be known (kernel_address). A captured launch keeps a copy of its first argument. */
emulatedError_t emulatedLaunchKernelExC(const emulatedLaunchConfig_t *config, const void *kernel, void **args);

#ifdef __cplusplus
}
#endif
#endif
