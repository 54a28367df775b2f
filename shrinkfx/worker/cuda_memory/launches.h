/* Stand in the way of each launch of generated code, to tell which one spoils a zone.
 *
 * AOTInductor's library calls cuLaunchKernel by that name (launchKernel in
 * torch/_inductor/codegen/cuda/device_op_overrides.py), and takes the first that is in
 * the process: this one, where this library was loaded before it, with RTLD_GLOBAL.
 * Operators of PyTorch's own are launched otherwise; what they spoil is found before
 * the next launch. The types are those of cuda.h.
 */
#pragma once
#include "zones.h"

#include <dlfcn.h>

namespace shrinkfx {

template <typename Function>
Function in_driver(Function, const char *name) {
  static void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  return driver ? (Function)dlsym(driver, name) : nullptr;
}

inline std::string name_of(CUfunction function) {
  CUresult (*ask)(const char **, CUfunction) = nullptr;
  ask = in_driver(ask, "cuFuncGetName"); /* from CUDA 12.3 on */
  const char *name = nullptr;
  bool known = ask && ask(&name, function) == CUDA_SUCCESS && name;
  return known ? name : "a kernel without a name";
}

} // namespace shrinkfx

extern "C" CUresult cuLaunchKernel(CUfunction function, unsigned x, unsigned y,
                                   unsigned z, unsigned block_x, unsigned block_y,
                                   unsigned block_z, unsigned shared, CUstream stream,
                                   void **arguments, void **extra) {
  static auto next = shrinkfx::in_driver(&cuLaunchKernel, "cuLaunchKernel");
  if (!next) return CUDA_ERROR_NOT_INITIALIZED;
  bool watched = shrinkfx::watching();
  std::string name = watched ? shrinkfx::name_of(function) : "";
  if (watched) shrinkfx::zones().look(", in an operator before " + name);
  CUresult result = next(function, x, y, z, block_x, block_y, block_z, shared, stream,
                         arguments, extra);
  if (watched) shrinkfx::zones().look(", in " + name);
  return result;
}
