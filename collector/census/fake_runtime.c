/* A CUDA runtime that says what the device is and does nothing: preloaded into a census, before torch's own.
 *
 * ATen's C++ asks it which device there is and decides from the answer, for example which memory format a convolution has.
 * The macros GPU_* come from collector/census/gpu_models.py. The library is called libcuda.so.1, so that torch finds a
 * driver, too: it asks that one only whether a context exists.
 */
#include <cuda_runtime_api.h>
#include <stdint.h>
#include <string.h>

static cudaError_t describe(struct cudaDeviceProp *properties) {
  memset(properties, 0, sizeof *properties);
  strncpy(properties->name, GPU_NAME, sizeof properties->name - 1);
  properties->major = GPU_MAJOR;
  properties->minor = GPU_MINOR;
  properties->multiProcessorCount = GPU_MULTIPROCESSORS;
  properties->totalGlobalMem = GPU_MEMORY;
  properties->l2CacheSize = GPU_L2_CACHE;
  properties->sharedMemPerBlock = GPU_SHARED_BLOCK;
  properties->sharedMemPerBlockOptin = GPU_SHARED_OPTIN;
  properties->sharedMemPerMultiprocessor = GPU_SHARED_MULTIPROCESSOR;
  properties->regsPerBlock = properties->regsPerMultiprocessor = GPU_REGISTERS;
  properties->maxThreadsPerMultiProcessor = GPU_THREADS_MULTIPROCESSOR;
  properties->maxThreadsPerBlock = GPU_THREADS_BLOCK;
  properties->warpSize = GPU_WARP;
  properties->concurrentKernels = 1;
  properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = 1024;
  properties->maxThreadsDim[2] = 64;
  properties->maxGridSize[0] = 2147483647;
  properties->maxGridSize[1] = properties->maxGridSize[2] = 65535;
  return cudaSuccess;
}

/* The header of CUDA 12 calls the second one by the first one's name. */
#undef cudaGetDeviceProperties
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device) { return describe(properties); }
cudaError_t cudaGetDeviceProperties_v2(struct cudaDeviceProp *properties, int device) { return describe(properties); }

cudaError_t cudaGetDeviceCount(int *count) { *count = 1; return cudaSuccess; }
cudaError_t cudaGetDevice(int *device) { *device = 0; return cudaSuccess; }
cudaError_t cudaSetDevice(int device) { return cudaSuccess; }
cudaError_t cudaDriverGetVersion(int *version) { *version = CUDART_VERSION; return cudaSuccess; }
cudaError_t cudaDeviceSynchronize(void) { return cudaSuccess; }
cudaError_t cudaGetLastError(void) { return cudaSuccess; }
cudaError_t cudaPeekAtLastError(void) { return cudaSuccess; }
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) { *can = 0; return cudaSuccess; }
cudaError_t cudaMemGetInfo(size_t *unused, size_t *total) { *unused = *total = GPU_MEMORY; return cudaSuccess; }

/* Streams and events are numbers: nothing is ever launched on one. */
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { *least = 0; *greatest = -5; return cudaSuccess; }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
  static uintptr_t last = 0;
  *stream = (cudaStream_t)(last += 16);
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) { return cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) { *event = (cudaEvent_t)16; return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) { return cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t event) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t event) { return cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return cudaSuccess; }

/* The driver. */
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { *flags = 0; *active = 0; return 0; }
int cuGetErrorString(int error, const char **text) { *text = "the census has no GPU"; return 0; }
